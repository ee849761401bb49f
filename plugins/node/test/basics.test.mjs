import test from 'node:test'
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { Database, PerigeeError, WriteBatch } from 'perigeedb'
import { code, newPath, open } from './common.mjs'

test('reads and writes with promises and without', async (t) => {
  const db = await open(t)
  await db.put('moon', 'full')
  db.putSync('tide', 'high')
  assert.equal(await db.get('moon'), 'full')
  assert.equal(db.getSync('tide'), 'high')
  assert.equal(await db.get('sun'), undefined)
  assert.equal(db.getSync('sun'), undefined)
  assert.deepEqual(await db.getMany(['tide', 'sun', 'moon', 'tide']), [
    'high',
    undefined,
    'full',
    'high'
  ])
  assert.deepEqual(db.getManySync(['sun', 'moon']), [undefined, 'full'])
  assert.deepEqual(await db.getMany([]), [])
  assert.equal(await db.has('moon'), true)
  assert.equal(db.hasSync('sun'), false)
  assert.deepEqual(await db.hasMany(['sun', 'moon']), [false, true])
  assert.deepEqual(db.hasManySync(['moon', 'sun']), [true, false])
  await db.delete('moon')
  await db.delete('moon')
  db.deleteSync('tide')
  assert.equal(await db.count(), 0)
})

test('keys and values are buffers by default, and any bytes are stored', async (t) => {
  const db = await open(t, { keyEncoding: undefined, valueEncoding: undefined })
  const bytes = Uint8Array.from({ length: 256 }, (_, i) => i)
  await db.put(bytes, bytes)
  await db.put(new Uint16Array([0x4142, 0x4344]), new DataView(bytes.buffer, 1, 2))
  const value = await db.get(bytes)
  assert.ok(Buffer.isBuffer(value))
  assert.deepEqual([...value], [...bytes])
  assert.deepEqual([...db.getSync('BADC')], [1, 2])
  assert.deepEqual(await db.first(), [Buffer.from(bytes), Buffer.from(bytes)])
  assert.equal(await db.get(bytes.subarray(0, 255)), undefined)
  await db.put('', '')
  assert.equal((await db.get('')).length, 0)
  assert.equal((await db.first())[0].length, 0)
})

test('strings are UTF-8', async (t) => {
  const db = await open(t)
  for (const text of ['é', '日本', '🌘 moon', 'a\0b', 'x'.repeat(60_000)]) {
    await db.put(text, text)
    assert.equal(await db.get(text), text)
    assert.equal(db.getSync(text), text)
    assert.deepEqual(await db.getMany([text]), [text])
    assert.equal(await db.get(Buffer.from(text)), text)
    assert.deepEqual(await db.range({ gte: text, lte: text }).all(), [[text, text]])
  }
  assert.deepEqual(await db.get('é', { valueEncoding: 'buffer' }), Buffer.from('é'))
})

test('many gets at a time, with different encodings', async (t) => {
  const db = await open(t)
  const keys = Array.from({ length: 3000 }, (_, i) => `key ${i}`)
  await db.batch(keys.map((key, i) => ({ type: 'put', key, value: JSON.stringify({ i }) })))
  const encodings = ['utf8', 'json', 'buffer']
  const snapshot = db.snapshot()
  await db.delete('key 7')
  for (const [reads, deleted] of [
    [db, true],
    [snapshot, false]
  ]) {
    const gets = keys.map((key, i) => reads.get(key, { valueEncoding: encodings[i % 3] }))
    gets.push(reads.get('none'))
    const buffer = Buffer.from('key 5')
    gets.push(reads.get(buffer))
    buffer.fill(0)
    const wrong = assert.rejects(reads.get(null), code('PERIGEE_INVALID_ARGUMENT'))
    const values = await Promise.all(gets)
    await wrong
    assert.equal(values.pop(), '{"i":5}')
    assert.equal(values.pop(), undefined)
    for (const [i, value] of values.entries()) {
      const text = JSON.stringify({ i })
      if (i === 7 && deleted) assert.equal(value, undefined)
      else assert.deepEqual(value, [text, { i }, Buffer.from(text)][i % 3])
    }
  }
  await db.put('text', 'not JSON')
  const [text, json] = await Promise.allSettled([
    db.get('text'),
    db.get('text', { valueEncoding: 'json' })
  ])
  assert.equal(text.value, 'not JSON')
  assert.ok(json.reason instanceof SyntaxError)
})

test('values can be JSON', async (t) => {
  const db = await open(t, { valueEncoding: 'json' })
  const value = { phase: 'full', days: [14, null, true], text: 'é' }
  await db.put('moon', value)
  await db.batch([{ type: 'put', key: 'tide', value: 7 }])
  assert.deepEqual(await db.get('moon'), value)
  assert.deepEqual(db.getSync('moon'), value)
  assert.deepEqual(await db.getMany(['tide', 'none']), [7, undefined])
  assert.deepEqual(await db.range().all(), [
    ['moon', value],
    ['tide', 7]
  ])
  assert.deepEqual(await db.compareAndSwap('tide', 7, 8), { swapped: true, current: 8 })
  assert.equal(await db.take('tide'), 8)
  await assert.rejects(db.put('none', undefined), code('PERIGEE_INVALID_ARGUMENT', /JSON/))
  await assert.rejects(
    db.put('none', () => 1),
    code('PERIGEE_INVALID_ARGUMENT', /JSON/)
  )
})

test('values up to megabytes', async (t) => {
  const db = await open(t, { valueEncoding: 'buffer' })
  for (const size of [4095, 4096, 65_535, 65_536, 1 << 20, 9 << 20]) {
    const value = Buffer.alloc(size, size % 251)
    await db.put(`size ${size}`, value)
    assert.ok(value.equals(await db.get(`size ${size}`)))
    assert.ok(value.equals(db.getSync(`size ${size}`)))
    assert.ok(value.equals((await db.getMany([`size ${size}`]))[0]))
  }
  assert.equal((await db.values().all()).length, 6)
})

test('a value that was read does not change with the database', async (t) => {
  const db = await open(t, { valueEncoding: 'buffer' })
  await db.put('moon', 'full')
  const value = db.getSync('moon')
  value.fill(0)
  assert.equal(String(await db.get('moon')), 'full')
})

test('a buffer can be reused after a call has returned', async (t) => {
  const db = await open(t)
  const buffer = Buffer.from('value 1')
  const written = db.put('moon', buffer)
  buffer.fill('x')
  await written
  assert.equal(await db.get('moon'), 'value 1')
})

test('bad arguments are errors that say what to do', async (t) => {
  const db = await open(t)
  const bad = (message) => code('PERIGEE_INVALID_ARGUMENT', message)
  for (const key of [undefined, null, 7, true, {}, [], Symbol('x'), () => 1]) {
    await assert.rejects(db.get(key), bad(/must be a string, a Buffer or a Uint8Array/))
    assert.throws(() => db.getSync(key), bad(/must be a string/))
    await assert.rejects(db.put(key, ''), bad(/the key must be a string/))
    await assert.rejects(db.put('key', key), bad(/the value must be a string/))
    assert.throws(() => db.putSync('key', key), bad(/the value must be a string/))
    await assert.rejects(db.delete(key), bad(/the key must be a string/))
    await assert.rejects(db.getMany([key]), bad(/the key must be a string/))
    await assert.rejects(db.has(key), bad(/must be a string/))
  }
  await assert.rejects(db.getMany('abc'), bad(/must be an array/))
  await assert.rejects(db.put('k'.repeat(65_537), ''), bad(/key/))
  await assert.rejects(db.put('key', '', { ttl: -1 }), bad(/ttl must be a number/))
  await assert.rejects(db.put('key', '', { ttl: '1' }), bad(/ttl must be a number/))
  await assert.rejects(db.put('key', '', { ttl: 1, expiresAt: 1 }), bad(/not both/))
  await assert.rejects(db.put('key', '', { expiresAt: new Date('never') }), bad(/expiresAt/))
  await assert.rejects(db.put('key', '', { durability: 'often' }), bad(/'full' or 'none'/))
  await assert.rejects(db.batch([{ type: 'add', key: 'a' }]), bad(/type of an operation/))
  await assert.rejects(db.batch([null]), bad(/must be an object/))
  await assert.rejects(db.batch(7), bad(/must be an array/))
  assert.throws(() => db.range({ prefix: 'a', lt: 'b' }), bad(/either a prefix or bounds/))
  assert.throws(() => db.range({ limit: -2 }), bad(/limit/))
  assert.throws(() => db.range('a'), bad(/must be an object/))
  assert.throws(() => db.range({ gte: 7 }), bad(/bound must be a string/))
  assert.throws(() => db.range({ keyEncoding: 'hex' }), bad(/keyEncoding/))
  await assert.rejects(db.merge('key', 'operand'), PerigeeError)
  await assert.rejects(db.deleteRange({ gte: 'b', lt: 'a' }), bad(/range/))
  assert.equal(await db.count(), 0)
})

test('bad options are errors that suggest the right name', async () => {
  const bad = (message) => code('PERIGEE_INVALID_ARGUMENT', message)
  await assert.rejects(Database.open(''), bad(/path must be a non-empty string/))
  await assert.rejects(Database.open(7), bad(/path must be/))
  await assert.rejects(Database.open(newPath(), 7), bad(/options must be an object/))
  await assert.rejects(Database.open(newPath(), { blockCache: 1 }), bad(/did you mean/))
  await assert.rejects(Database.open(newPath(), { durability: 'sometimes' }), bad(/durability/))
  await assert.rejects(Database.open(newPath(), { memoryBudget: 1.5 }), bad(/memoryBudget/))
  await assert.rejects(
    Database.open(newPath(), { families: { x: { blockBytes: '1 B' } } }),
    bad(/block_bytes/)
  )
  await assert.rejects(Database.open(newPath(), { keyEncoding: 'hex' }), bad(/keyEncoding/))
  assert.throws(() => new Database(), bad(/Database.open/))
  await assert.rejects(
    Database.open(newPath(), { createIfMissing: false }),
    code('PERIGEE_NOT_FOUND')
  )
})

test('errors are instances of PerigeeError', async () => {
  const error = await Database.open(newPath(), { createIfMissing: false }).catch((e) => e)
  assert.ok(error instanceof PerigeeError && error instanceof Error)
  assert.equal(error.name, 'PerigeeError')
  assert.equal(error.retryable, false)
  assert.ok(!(new Error('other') instanceof PerigeeError))
  assert.ok(!(null instanceof PerigeeError) && !({ code: 'PERIGEE_X' } instanceof PerigeeError))
})

test('errors have the stack of the caller, also those of the native module', async (t) => {
  const db = await open(t)
  const long = 'k'.repeat(65_537)
  const calls = {
    open: () => Database.open(db.path),
    put: () => db.put(long, ''),
    batch: () => db.batch([{ type: 'delete', key: long }]),
    drop: () => db.dropFamily('none'),
    prefix: () => db.deleteRange({ gte: 'b', lt: 'a' })
  }
  for (const [name, call] of Object.entries(calls)) {
    const caller = async () => await call()
    const error = await caller().catch((e) => e)
    assert.match(error.stack, /basics\.test\.mjs/, name)
    assert.ok(error.stack.includes(error.message), name)
  }
})

test('batches are atomic and keep their order', async (t) => {
  const db = await open(t)
  await db.batch([
    { type: 'put', key: 'a', value: '1' },
    { type: 'put', key: 'b', value: '1' },
    { type: 'delete', key: 'a' },
    { type: 'del', key: 'none' }
  ])
  assert.deepEqual(await db.range().all(), [['b', '1']])
  const batch = db.batch()
  assert.ok(batch instanceof WriteBatch)
  batch.put('c', '2').delete('b').deleteRange({ gte: 'x' })
  assert.equal(batch.length, 3)
  await batch.write()
  assert.deepEqual(await db.range().all(), [['c', '2']])
  db.batchSync([{ type: 'put', key: 'd', value: '3' }])
  batch.clear().put('e', '4').writeSync()
  await assert.rejects(
    db.batch([
      { type: 'put', key: 'f', value: '5' },
      { type: 'put', key: 'k'.repeat(65_537), value: '' }
    ]),
    code('PERIGEE_INVALID_ARGUMENT')
  )
  assert.deepEqual(await db.keys().all(), ['c', 'd', 'e'])
})

test('writes are applied in order, and one that fails does not affect others', async (t) => {
  const db = await open(t)
  const writes = []
  for (let i = 0; i < 500; i++) writes.push(db.put('last', String(i)))
  const invalid = code('PERIGEE_INVALID_ARGUMENT')
  const failed = [
    assert.rejects(db.put('k'.repeat(65_537), ''), invalid),
    assert.rejects(db.put('key', 7), invalid),
    assert.rejects(
      db.batch([
        { type: 'put', key: 'part of a failed batch', value: '' },
        { type: 'put', key: 'k'.repeat(65_537), value: '' }
      ]),
      invalid
    )
  ]
  for (let i = 500; i < 1000; i++)
    writes.push(db.put('last', String(i), { durability: i % 50 ? 'none' : 'full' }))
  writes.push(db.delete('other'), db.put('other', 'x'), db.deleteRange({ gte: 'other' }))
  await Promise.all(failed)
  await Promise.all(writes)
  assert.deepEqual(await db.range().all(), [['last', '999']])
})

test('code of the application that runs during a write can use the database', async (t) => {
  const db = await open(t, { valueEncoding: 'json' })
  const writes = []
  const nested = (key) => ({
    toJSON() {
      writes.push(db.put(`${key} nested`, 1))
      db.putSync(`${key} nested sync`, 2)
      assert.deepEqual(db.getManySync(['none']), [undefined])
      return 3
    }
  })
  function* operations() {
    for (const key of ['a', 'b', 'c']) {
      writes.push(db.put(`${key} between`, 4))
      yield { type: 'put', key, value: nested(key) }
    }
  }
  writes.push(db.batch(operations()))
  db.batchSync(operations())
  db.putSync('d', nested('d'))
  writes.push(db.put('e', nested('e')))
  await Promise.all(writes)
  const entries = Object.fromEntries(await db.range().all())
  for (const key of ['a', 'b', 'c', 'd', 'e']) {
    assert.equal(entries[key], 3)
    assert.equal(entries[`${key} nested`], 1)
    assert.equal(entries[`${key} nested sync`], 2)
  }
  assert.equal(Object.keys(entries).length, 18)

  let nestedWrite
  function* failing() {
    yield { type: 'put', key: 'x', value: 1 }
    nestedWrite = db.put('y', 1)
    yield { type: 'unknown' }
  }
  await assert.rejects(db.batch(failing()), code('PERIGEE_INVALID_ARGUMENT'))
  await nestedWrite
  assert.deepEqual(await db.getMany(['x', 'y']), [undefined, 1])
})

test('compareAndSwap and take', async (t) => {
  const db = await open(t)
  assert.deepEqual(await db.compareAndSwap('leader', null, 'node 1'), {
    swapped: true,
    current: 'node 1'
  })
  assert.deepEqual(await db.compareAndSwap('leader', null, 'node 2'), {
    swapped: false,
    current: 'node 1'
  })
  assert.deepEqual(await db.compareAndSwap('none', 'x', 'y'), {
    swapped: false,
    current: undefined
  })
  assert.deepEqual(await db.compareAndSwap('leader', 'node 1', undefined), {
    swapped: true,
    current: undefined
  })
  await db.put('job', '1')
  const takers = await Promise.all(Array.from({ length: 20 }, () => db.take('job')))
  assert.deepEqual(
    takers.filter((v) => v !== undefined),
    ['1']
  )
})

test('the CommonJS entry point has the same exports', async () => {
  const require = createRequire(import.meta.url)
  const esm = await import('perigeedb')
  const cjs = require('perigeedb')
  assert.deepEqual(Object.keys(esm).sort(), Object.keys(cjs).sort())
  const types = readFileSync(require.resolve('perigeedb').replace(/js$/, 'd.ts'), 'utf8')
  const declared = [...types.matchAll(/^export (?:class|function) (\w+)/gm)].map(
    (match) => match[1]
  )
  assert.deepEqual(declared.sort(), Object.keys(cjs).sort())
  assert.equal(esm.Database, cjs.Database)
  assert.equal(
    (await import('perigeedb/level')).PerigeeLevel,
    require('perigeedb/level').PerigeeLevel
  )
})
