import test from 'node:test'
import assert from 'node:assert/strict'
import { code, open } from './common.mjs'

const keys = Array.from({ length: 3000 }, (_, i) => String(i * 2).padStart(5, '0'))

async function filled(t) {
  const db = await open(t)
  await db.batch(keys.map((key) => ({ type: 'put', key, value: `v${key}` })))
  return db
}

function expected({ gt, gte, lt, lte, reverse, limit = Infinity }) {
  const selected = keys.filter(
    (k) =>
      (gte !== undefined ? k >= gte : gt === undefined || k > gt) &&
      (lte !== undefined ? k <= lte : lt === undefined || k < lt)
  )
  if (reverse) selected.reverse()
  return selected.slice(0, limit).map((k) => [k, `v${k}`])
}

test('ranges in both directions, with every combination of bounds and limits', async (t) => {
  const db = await filled(t)
  const bounds = [undefined, '', '00000', '00001', '00100', '02001', '05998', '05999', '9']
  let count = 0
  for (const lower of bounds) {
    for (const upper of bounds) {
      for (const kinds of [
        ['gt', 'lt'],
        ['gte', 'lte'],
        ['gt', 'lte'],
        ['gte', 'lt']
      ]) {
        for (const reverse of [false, true]) {
          const limit = [undefined, 0, 1, 17, 1500][count++ % 5]
          const range = { [kinds[0]]: lower, [kinds[1]]: upper, reverse, limit }
          const want = expected(range)
          const name = JSON.stringify(range)
          assert.deepEqual(await db.range(range).all(), want, name)
          assert.deepEqual([...db.range(range)], want, name)
          assert.deepEqual(
            await db.keys(range).all(),
            want.map((e) => e[0]),
            name
          )
          assert.deepEqual(
            db.values(range).allSync(),
            want.map((e) => e[1]),
            name
          )
        }
      }
    }
  }
  assert.equal(count, 9 * 9 * 4 * 2)
})

test('for await, and leaving the loop early', async (t) => {
  const db = await filled(t)
  const seen = []
  for await (const [key] of db.range({ gte: '01000', reverse: true })) {
    seen.push(key)
    if (seen.length === 100) break
  }
  assert.deepEqual(
    seen,
    expected({ gte: '01000', reverse: true, limit: 100 }).map((e) => e[0])
  )
  let count = 0
  for await (const [key, value] of db) {
    assert.equal(value, `v${key}`)
    count++
  }
  assert.equal(count, keys.length)
  const loop = async () => {
    for await (const _ of db.range()) throw new Error('mine')
  }
  await assert.rejects(loop, /mine/)
})

test('prefixes', async (t) => {
  const db = await open(t, { keyEncoding: 'buffer' })
  const all = [[], [0], [1], [1, 0], [1, 255], [1, 255, 255], [2], [255], [255, 255], [255, 255, 1]]
  await db.batch(all.map((key) => ({ type: 'put', key: Uint8Array.from(key), value: '' })))
  for (const prefix of [[], [1], [1, 255], [255], [255, 255], [3]]) {
    const want = all.filter((key) => prefix.every((byte, i) => key[i] === byte))
    const got = await db.keys({ prefix: Uint8Array.from(prefix) }).all()
    assert.deepEqual(
      got.map((key) => [...key]),
      want
    )
  }
  await db.deleteRange({ prefix: Uint8Array.of(1) })
  assert.equal(await db.count(), 6)
  assert.equal(await db.count({ prefix: Uint8Array.of(255) }), 3)
  assert.equal(db.countSync({ gte: Uint8Array.of(2) }), 4)
})

test('a scan shows the state when it was created', async (t) => {
  const db = await filled(t)
  const scan = db.range()
  assert.deepEqual((await scan.next()).value, ['00000', 'v00000'])
  await db.deleteRange({ gte: '00002' })
  await db.put('00001', 'new')
  await db.flush()
  assert.equal((await scan.all()).length, keys.length - 1)
  assert.equal(await db.count(), 2)
})

test('seeks, in both directions, and after the end', async (t) => {
  const db = await filled(t)
  const scan = db.range({ lt: '05000' })
  scan.seek('00099')
  assert.deepEqual(await scan.nextBatch(2), [
    ['00100', 'v00100'],
    ['00102', 'v00102']
  ])
  scan.seek('00010')
  assert.equal((await scan.next()).value[0], '00010')
  scan.seek('04999')
  assert.deepEqual(await scan.next(), { value: undefined, done: true })
  scan.seek('00000')
  assert.equal(scan.nextSync().value[0], '00000')
  scan.seek('9')
  assert.deepEqual(await scan.nextBatch(5), [])
  await scan.close()
  assert.throws(() => scan.seek('00000'), code('PERIGEE_CLOSED'))
  const back = db.keys({ reverse: true, gte: '00100' })
  back.seek('00201')
  assert.equal((await back.next()).value, '00200')
  back.seek('00000')
  assert.deepEqual(await back.next(), { value: undefined, done: true })
  assert.throws(() => back.seek(7), code('PERIGEE_INVALID_ARGUMENT'))
})

test('a seek during a read is an error, and entries are not lost', async (t) => {
  const db = await filled(t)
  const scan = db.keys()
  const pending = scan.next()
  assert.throws(() => scan.seek('00100'), code('PERIGEE_BUSY'))
  assert.throws(() => scan.nextSync(), code('PERIGEE_BUSY'))
  assert.equal((await pending).value, '00000')
  scan.seek('00100')
  assert.equal((await scan.next()).value, '00100')
})

test('overlapping calls of next return each entry once, in order', async (t) => {
  const db = await filled(t)
  const scan = db.keys()
  const results = await Promise.all(Array.from({ length: keys.length + 5 }, () => scan.next()))
  assert.deepEqual(
    results.slice(0, keys.length).map((r) => r.value),
    keys
  )
  assert.ok(results.slice(keys.length).every((r) => r.done))
})

test('batches have the size that was asked for', async (t) => {
  const db = await filled(t)
  const scan = db.keys()
  assert.deepEqual(await scan.nextBatch(1), keys.slice(0, 1))
  assert.deepEqual(await scan.nextBatch(7), keys.slice(1, 8))
  assert.equal((await scan.next()).value, keys[8])
  assert.deepEqual(await scan.nextBatch(2500), keys.slice(9, 2509))
  assert.deepEqual(await scan.nextBatch(2500), keys.slice(2509))
  assert.deepEqual(await scan.nextBatch(1), [])
  await assert.rejects(scan.nextBatch(0), code('PERIGEE_INVALID_ARGUMENT'))
})

test('first and last', async (t) => {
  const db = await filled(t)
  assert.deepEqual(await db.first(), ['00000', 'v00000'])
  assert.deepEqual(await db.last(), ['05998', 'v05998'])
  assert.deepEqual(db.firstSync({ gt: '00101' }), ['00102', 'v00102'])
  assert.deepEqual(db.lastSync({ lt: '00101' }), ['00100', 'v00100'])
  assert.equal(await db.first({ gt: '9' }), undefined)
  assert.equal(db.lastSync({ gt: '9' }), undefined)
})

test('large values are read in small batches', async (t) => {
  const db = await open(t, { valueEncoding: 'buffer' })
  for (let i = 0; i < 40; i++) await db.put(String(i).padStart(2, '0'), Buffer.alloc(100_000, i))
  const values = await db.values({ reverse: true }).all()
  assert.ok(values.every((value, i) => value.length === 100_000 && value[5] === 39 - i))
})

test('estimates', async (t) => {
  const db = await filled(t)
  const estimate = await db.estimate({ gte: '03000' })
  assert.ok(estimate.entries > 500 && estimate.entries < 3000, JSON.stringify(estimate))
})
