// What the suite of abstract-level does not cover.

import test from 'node:test'
import assert from 'node:assert/strict'
import { PerigeeLevel } from 'perigeedb/level'
import { newPath } from './common.mjs'

test('errors of open have codes of the Level ecosystem', async () => {
  const path = newPath()
  const one = new PerigeeLevel(path)
  await one.open()
  const two = new PerigeeLevel(path)
  const error = await two.open().catch((e) => e)
  assert.equal(error.code, 'LEVEL_DATABASE_NOT_OPEN')
  assert.equal(error.cause.code, 'LEVEL_LOCKED')
  assert.equal(error.cause.cause.code, 'PERIGEE_LOCKED')
  await one.close()
  await two.open()
  await two.close()
  assert.throws(() => new PerigeeLevel(''), TypeError)
  const threads = await new PerigeeLevel(newPath(), { multithreading: true }).open().catch((e) => e)
  assert.match(threads.cause.message, /only one thread/)
})

test('options of other packages and of Perigee', async () => {
  const db = new PerigeeLevel(newPath(), {
    compression: false,
    cacheSize: 8 << 20,
    writeBufferSize: 1 << 20,
    blockSize: 8192,
    maxFileSize: 4 << 20,
    maxOpenFiles: 100,
    perigee: { durability: 'none', families: { logs: {} } }
  })
  await db.open()
  const options = await db.database.family('default').options()
  assert.equal(options.compression, 'none')
  assert.deepEqual(db.database.families(), ['default', 'logs'])
  await db.put('a', 'b', { sync: true })
  await db.del('a', { sync: true })
  await db.batch([{ type: 'put', key: 'c', value: 'd' }], { sync: true })
  await db.batch().put('e', 'f').write({ sync: true })
  assert.deepEqual(await db.keys().all(), ['c', 'e'])
  await db.close()
  assert.equal(db.database, null)
})

test('clear of empty ranges deletes nothing', async () => {
  const db = new PerigeeLevel(newPath())
  await db.batch(['a', 'b', 'c'].map((key) => ({ type: 'put', key, value: '' })))
  for (const range of [
    { gt: 'b', lt: 'b' },
    { gte: 'b', lt: 'b' },
    { gt: 'b', lte: 'b' },
    { gt: 'c', lt: 'a' }
  ]) {
    await db.clear(range)
    assert.equal((await db.keys().all()).length, 3, JSON.stringify(range))
  }
  await db.clear({ gte: 'b', lte: 'b' })
  assert.deepEqual(await db.keys().all(), ['a', 'c'])
  await db.close()
})

test('a clear with a limit deletes more entries than one read returns', async () => {
  const db = new PerigeeLevel(newPath())
  await db.batch(
    Array.from({ length: 30_000 }, (_, i) => ({
      type: 'put',
      key: String(i).padStart(5, '0'),
      value: 'x'
    }))
  )
  await db.clear({ limit: 25_000, reverse: true })
  const keys = await db.keys().all()
  assert.equal(keys.length, 5000)
  assert.equal(keys.at(-1), '04999')
  const snapshot = db.snapshot()
  await db.put('new', 'x')
  await db.clear({ snapshot })
  assert.deepEqual(await db.keys().all(), ['new'])
  await snapshot.close()
  await db.close()
})

test('iterators read ahead correctly around seeks and mixed reads', async () => {
  const db = new PerigeeLevel(newPath(), { valueEncoding: 'json' })
  await db.batch(
    Array.from({ length: 5000 }, (_, i) => ({
      type: 'put',
      key: String(i).padStart(5, '0'),
      value: i
    }))
  )
  const it = db.iterator({ limit: 4000 })
  assert.deepEqual(await it.next(), ['00000', 0])
  assert.deepEqual(await it.next(), ['00001', 1])
  assert.deepEqual(
    (await it.nextv(3)).map((e) => e[1]),
    [2, 3, 4]
  )
  it.seek('01000')
  assert.deepEqual(await it.next(), ['01000', 1000])
  assert.equal((await it.all()).length, 4000 - 6)
  await db.close()
})
