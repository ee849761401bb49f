import test from 'node:test'
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  ColumnFamily,
  Database,
  listBackups,
  pruneBackups,
  repair,
  restoreBackup,
  verifyBackup
} from 'perigeedb'
import { code, newPath, open } from './common.mjs'

test('column families: create, list, rename, clear, drop', async (t) => {
  const db = await open(t)
  const logs = await db.createFamily('logs', { compression: 'zstd 3', memtableBytes: '1 MiB' })
  assert.ok(logs instanceof ColumnFamily)
  assert.equal(logs.name, 'logs')
  assert.equal((await logs.options()).compression, 'zstd 3')
  await assert.rejects(db.createFamily('logs'), code('PERIGEE_ALREADY_EXISTS'))
  const same = await db.familyOrCreate('logs')
  await same.put('a', '1')
  assert.equal(await logs.get('a'), '1')
  assert.equal(await db.get('a'), undefined)
  assert.deepEqual(db.families(), ['default', 'logs'])
  assert.throws(() => db.family('none'), code('PERIGEE_NOT_FOUND'))
  await db.renameFamily('logs', 'events')
  assert.equal(logs.name, 'events')
  assert.equal(await logs.get('a'), '1')
  await db.clearFamily('events')
  assert.equal(await db.family('events').count(), 0)
  await db.dropFamily('events')
  await assert.rejects(logs.put('a', '1'), code('PERIGEE_NOT_FOUND'))
  assert.throws(() => logs.getSync('a'), code('PERIGEE_NOT_FOUND'))
  await assert.rejects(db.dropFamily('default'), code('PERIGEE_INVALID_ARGUMENT'))
  await assert.rejects(db.createFamily(''), code('PERIGEE_INVALID_ARGUMENT'))
  await assert.rejects(db.createFamily(7), code('PERIGEE_INVALID_ARGUMENT', /name/))
  await assert.rejects(
    db.createFamily('x', { filterBit: 1 }),
    code('PERIGEE_INVALID_ARGUMENT', /filter_bits/)
  )
  assert.throws(() => new ColumnFamily(), code('PERIGEE_INVALID_ARGUMENT'))
})

test('batches over column families; those of another database are rejected', async (t) => {
  const [db, other] = [await open(t), await open(t)]
  const logs = await db.createFamily('logs', { valueEncoding: 'json' })
  const foreign = await other.createFamily('logs')
  await db.batch([
    { type: 'put', key: 'a', value: '1' },
    { type: 'put', key: 'a', value: { n: 1 }, family: logs },
    { type: 'put', key: 'b', value: 2, family: 'logs', valueEncoding: 'json' },
    { type: 'put', key: 'c', value: '3', family: db }
  ])
  assert.deepEqual(await logs.range().all(), [
    ['a', { n: 1 }],
    ['b', 2]
  ])
  assert.deepEqual(await db.keys().all(), ['a', 'c'])
  const expected = code('PERIGEE_INVALID_ARGUMENT', /another database/)
  await assert.rejects(db.batch([{ type: 'put', key: 'x', value: '', family: foreign }]), expected)
  await assert.rejects(db.batch([{ type: 'put', key: 'x', value: '', family: other }]), expected)
  assert.throws(() => db.begin().family(foreign), expected)
  assert.throws(() => db.snapshot().family(foreign), expected)
  await assert.rejects(
    db.batch([{ type: 'put', key: 'x', value: '', family: 7 }]),
    code('PERIGEE_INVALID_ARGUMENT')
  )
  await assert.rejects(
    db.batch([{ type: 'put', key: 'x', value: '', family: 'none' }]),
    code('PERIGEE_NOT_FOUND')
  )
  assert.equal(await db.has('x'), false)
})

test('comparators and merge operators', async (t) => {
  const db = await open(t)
  const reverse = await db.createFamily('reverse', { comparator: 'reverse' })
  await reverse.batch(['a', 'c', 'b'].map((key) => ({ type: 'put', key, value: '' })))
  assert.deepEqual(await reverse.keys().all(), ['c', 'b', 'a'])
  const list = await db.createFamily('list', { mergeOperator: 'append:,' })
  await list.merge('a', '1')
  list.mergeSync('a', '2')
  await list.batch([{ type: 'merge', key: 'a', value: '3' }])
  await db.transaction((txn) => txn.family(list).merge('a', '4'))
  assert.equal(await list.get('a'), '1,2,3,4')
})

test('time to live', async (t) => {
  const db = await open(t)
  await db.put('long', '2', { ttl: 3_600_000 })
  const at = new Date(Math.floor(Date.now() / 1000) * 1000 + 86_400_000)
  db.putSync('dated', '3', { expiresAt: at })
  await db.batch([{ type: 'put', key: 'batch', value: '4', ttl: 3_600_000 }])
  await db.transaction((txn) => txn.put('txn', '5', { ttl: 3_600_000 }))
  await db.put('never', '6')
  assert.deepEqual(await db.keys().all(), ['batch', 'dated', 'long', 'never', 'txn'])
  const long = await db.getWithTtl('long')
  assert.equal(long.value, '2')
  assert.ok(long.ttl > 3_500_000 && long.ttl <= 3_600_100, String(long.ttl))
  assert.deepEqual(db.getWithTtlSync('dated').expiresAt, at)
  assert.deepEqual(await db.getWithTtl('never'), { value: '6', expiresAt: null, ttl: null })
  assert.ok((await db.getWithTtl('txn')).ttl > 3_000_000)
  assert.equal(await db.getWithTtl('none'), undefined)

  // Until the time is over the entry exists; then it does not.
  const before = Date.now()
  await db.put('short', '1', { ttl: 300 })
  for (;;) {
    const value = await db.get('short')
    if (value === undefined) break
    assert.equal(value, '1')
    await sleep(10)
  }
  assert.ok(Date.now() - before >= 300)

  await db.put('gone', '7', { ttl: 0 })
  assert.equal(await db.get('gone'), undefined)
})

test('flush, compact, purge, verify and statistics', async (t) => {
  const db = await open(t)
  const logs = await db.createFamily('logs')
  for (let i = 0; i < 3; i++) {
    await db.batch(
      Array.from({ length: 100 }, (_, n) => ({ type: 'put', key: String(n), value: `${i}` }))
    )
    await db.flush()
  }
  await logs.put('a', '1')
  await logs.flush()
  await db.compact()
  await db.purge()
  await db.sync()
  db.syncSync()
  await db.waitIdle()
  const stats = await db.stats()
  assert.equal(stats.families.length, 2)
  assert.ok(stats.last_sequence >= 301 && stats.disk_bytes > 0)
  assert.equal(typeof (await logs.stats()), 'object')
  assert.match(await db.metrics(), /# EOF/)
  const report = await db.verify()
  assert.deepEqual(report.errors, [])
  assert.equal(report.entries, 101)
  await logs.setOptions({ filterBits: 17 })
  assert.equal((await logs.options()).filter_bits, 17)
  await db.family('default').compact({ gte: '1', lt: '2' })
})

test('backups: create, list, verify, restore, prune', async (t) => {
  const db = await open(t)
  const dir = newPath()
  await db.put('a', '1')
  assert.equal((await db.backup(dir)).generation, 1)
  // Writes that were not awaited belong to the backup.
  const write = db.put('a', '2')
  const [second] = await Promise.all([db.backup(dir), write])
  assert.equal(second.generation, 2)
  assert.deepEqual(
    (await listBackups(dir)).map((b) => b.generation),
    [1, 2]
  )
  assert.deepEqual((await verifyBackup(dir)).errors, [])
  const targets = [newPath(), newPath()]
  assert.equal((await restoreBackup(dir, targets[0])).generation, 2)
  await restoreBackup(dir, targets[1], { generation: 1 })
  const values = []
  for (const target of targets) {
    const restored = await Database.open(target, { valueEncoding: 'utf8' })
    values.push(await restored.get('a'))
    await restored.close()
  }
  assert.deepEqual(values, ['2', '1'])
  await assert.rejects(restoreBackup(dir, targets[0]), code('PERIGEE_ALREADY_EXISTS'))
  await assert.rejects(restoreBackup(dir, newPath(), { generation: 9 }), code('PERIGEE_NOT_FOUND'))
  assert.deepEqual((await pruneBackups(dir, 1)).removed, [1])
  await assert.rejects(listBackups(newPath()), code('PERIGEE_NOT_FOUND'))
  await assert.rejects(pruneBackups(dir, 0), code('PERIGEE_INVALID_ARGUMENT'))
  const copy = newPath()
  await db.checkpoint(copy)
  const checkpoint = await Database.open(copy, { valueEncoding: 'utf8' })
  assert.equal(await checkpoint.get('a'), '2')
  await checkpoint.close()
})

test('damage is reported with file and offset, and repaired as far as possible', async () => {
  const dir = newPath()
  const options = { durability: 'none', families: { default: { compression: 'none' } } }
  const db = await Database.open(dir, options)
  const keys = Array.from({ length: 20_000 }, (_, i) => String(i).padStart(6, '0'))
  await db.batch(keys.map((key, i) => ({ type: 'put', key, value: `value ${i}` })))
  await db.flush()
  await db.close()
  const table = readdirSync(dir).find((name) => name.endsWith('.klog'))
  const bytes = readFileSync(path.join(dir, table))
  bytes[Math.floor(bytes.length / 3)] ^= 1
  writeFileSync(path.join(dir, table), bytes)
  const damaged = await Database.open(dir, options)
  const error = await damaged.count().catch((e) => e)
  assert.equal(error.code, 'PERIGEE_CORRUPTION')
  assert.equal(error.file, table)
  assert.ok(error.offset >= 0 && error.offset < bytes.length)
  // Gets that are called together fail or succeed on their own.
  const gets = await Promise.allSettled(keys.map((key) => damaged.get(key)))
  const failed = gets.filter((result) => result.status === 'rejected')
  assert.ok(failed.length > 0 && failed.length < 1000, String(failed.length))
  assert.ok(failed.every((result) => result.reason.code === 'PERIGEE_CORRUPTION'))
  for (const [i, result] of gets.entries()) {
    if (result.status === 'fulfilled') assert.equal(String(result.value), `value ${i}`)
  }
  // A scan that failed does not look complete afterwards.
  const scan = damaged.keys()
  await assert.rejects(async () => {
    for await (const key of scan) key.toString()
  }, code('PERIGEE_CORRUPTION'))
  await assert.rejects(scan.next(), code('PERIGEE_CORRUPTION'))
  await assert.rejects(scan.nextBatch(10), code('PERIGEE_CORRUPTION'))
  assert.throws(() => scan.nextSync(), code('PERIGEE_CORRUPTION'))
  assert.equal((await damaged.verify()).errors.length, 1)
  await damaged.close()
  const target = newPath()
  const report = await repair(dir, target)
  assert.ok(report.lost.length > 0)
  const repaired = await Database.open(target)
  const count = await repaired.count()
  assert.ok(count > 19_000 && count < 20_000, String(count))
  await repaired.close()
})

test('reopening keeps data and options; openSync and closeSync', async () => {
  const dir = newPath()
  const db = Database.openSync(dir, {
    valueEncoding: 'json',
    families: { logs: { filterBits: 12 } }
  })
  db.putSync('a', { n: 1 })
  const write = db.put('b', { n: 2 })
  db.family('logs').putSync('x', 1)
  await write
  db.closeSync()
  db.closeSync()
  await db.close()
  assert.throws(
    () => Database.openSync(dir, { errorIfExists: true }),
    code('PERIGEE_ALREADY_EXISTS')
  )
  const again = await Database.open(dir, { keyEncoding: 'utf8', valueEncoding: 'json' })
  assert.deepEqual(await again.range().all(), [
    ['a', { n: 1 }],
    ['b', { n: 2 }]
  ])
  assert.equal((await again.family('logs').options()).filter_bits, 12)
  assert.equal(again.path, dir)
  assert.ok(existsSync(path.join(dir, 'LOG')))
  await again.close()
})
