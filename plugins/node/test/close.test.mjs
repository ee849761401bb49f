import test from 'node:test'
import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { Database } from 'perigeedb'
import { code, newPath, open } from './common.mjs'

const run = promisify(execFile)
const closed = code('PERIGEE_CLOSED')

test('every handle gives PERIGEE_CLOSED after close', async (t) => {
  const db = await open(t)
  const family = await db.createFamily('logs')
  await db.put('a', '1')
  const [snapshot, txn, scan, batch] = [
    db.snapshot(),
    db.begin(),
    db.range(),
    db.batch().put('a', '2')
  ]
  await txn.put('a', '3')
  await db.close()
  await db.close()
  assert.equal(db.isOpen, false)
  const calls = [
    () => db.get('a'),
    () => db.put('a', '1'),
    () => db.delete('a'),
    () => db.getMany(['a']),
    () => db.has('a'),
    () => db.first(),
    () => db.count(),
    () => db.batch([]),
    () => batch.write(),
    () => db.deleteRange({}),
    () => db.createFamily('x'),
    () => db.dropFamily('logs'),
    () => db.flush(),
    () => db.compact(),
    () => db.sync(),
    () => db.verify(),
    () => db.stats(),
    () => db.metrics(),
    () => db.backup(newPath()),
    () => db.checkpoint(newPath()),
    () => db.transaction(() => 1),
    () => db.compareAndSwap('a', null, 'b'),
    () => db.take('a'),
    () => db.estimate(),
    () => db.waitIdle(),
    () => db.purge(),
    () => db.getWithTtl('a'),
    () => family.get('a'),
    () => family.put('a', '1'),
    () => family.flush(),
    () => family.stats(),
    () => snapshot.get('a'),
    () => txn.get('a'),
    () => txn.put('a', '1'),
    () => scan.next(),
    () => txn.commit()
  ]
  for (const call of calls) {
    await assert.rejects(async () => call(), closed, String(call))
  }
  const syncCalls = [
    () => db.getSync('a'),
    () => db.putSync('a', '1'),
    () => db.range(),
    () => db.snapshot(),
    () => db.begin(),
    () => db.families(),
    () => db.family('logs'),
    () => db.syncSync(),
    () => db.firstSync(),
    () => db.batchSync([]),
    () => family.getSync('a'),
    () => snapshot.range(),
    () => txn.getSync('a'),
    () => scan.nextSync()
  ]
  for (const call of syncCalls) assert.throws(call, closed, String(call))
  await snapshot.close()
  await scan.close()
  await txn.rollback()
})

test('close waits for the writes that were accepted', async () => {
  const path = newPath()
  const db = await Database.open(path)
  const writes = []
  for (let i = 0; i < 2000; i++) writes.push(db.put(String(i), 'x'))
  const closing = db.close()
  await assert.rejects(db.put('late', 'x'), closed)
  await closing
  await Promise.all(writes)
  const again = await Database.open(path)
  assert.equal(await again.count(), 2000)
  await again.close()
})

test(
  'closing during reads, scans, writes and transactions is safe',
  { timeout: 120_000 },
  async () => {
    for (let round = 0; round < 15; round++) {
      const path = newPath()
      const db = await Database.open(path, { durability: 'none' })
      await db.batch(
        Array.from({ length: 5000 }, (_, i) => ({
          type: 'put',
          key: String(i),
          value: 'x'.repeat(100)
        }))
      )
      if (round % 3 === 0) await db.flush()
      let ended = 0
      const until = async (work) => {
        try {
          for (;;) await work()
        } catch (e) {
          assert.equal(e.code, 'PERIGEE_CLOSED')
          ended++
        }
      }
      const workers = [
        until(() => db.get('77')),
        until(() => db.getMany(['1', '2', '3'])),
        until(() => db.range().all()),
        until(async () => {
          for await (const [key] of db.range({ reverse: true })) key.toString()
        }),
        until(() => db.put('w', 'x')),
        until(() => db.batch([{ type: 'put', key: 'b', value: 'x' }])),
        until(() =>
          db.transaction(async (txn) => {
            await txn.put('t', String(await txn.count()))
          })
        ),
        until(async () => {
          const s = db.snapshot()
          await s.get('1')
          await s.close()
        }),
        until(() => db.flush()),
        until(async () => {
          db.getSync('5')
          db.putSync('6', 'x')
          await sleep(0)
        })
      ]
      await sleep(round * 7)
      if (round % 2) await db.close()
      else db.closeSync()
      await Promise.all(workers)
      assert.equal(ended, workers.length)
      const again = await Database.open(path)
      assert.ok(await again.has('4999'))
      await again.close()
    }
  }
)

test('close ends waits for locks', { timeout: 30_000 }, async (t) => {
  const db = await open(t)
  const holder = db.begin({ pessimistic: true })
  await holder.put('seat', 'alice')
  const waiting = db.begin({ pessimistic: true, lockTimeout: 25_000 })
  const failed = assert.rejects(waiting.put('seat', 'bob'))
  await sleep(100)
  await db.close()
  await failed
})

test('closing an iterator or snapshot during a read of it is safe', async (t) => {
  const db = await open(t)
  await db.batch(
    Array.from({ length: 20_000 }, (_, i) => ({ type: 'put', key: String(i), value: 'x' }))
  )
  for (let i = 0; i < 50; i++) {
    const snapshot = db.snapshot()
    const [scan, of] = [db.range(), snapshot.range()]
    const reads = [scan.next(), scan.nextBatch(500), of.all(), snapshot.get('7')]
    await sleep(i % 3)
    await Promise.all([scan.close(), snapshot.close(), of.close()])
    for (const result of await Promise.allSettled(reads)) {
      if (result.status === 'rejected') assert.equal(result.reason.code, 'PERIGEE_CLOSED')
    }
    await assert.rejects(async () => {
      const { done } = await scan.next()
      if (done) throw Object.assign(new Error('done'), closed)
    }, closed)
  }
})

test('disposal closes', async (t) => {
  if (Symbol.asyncDispose === undefined) return t.skip('no Symbol.asyncDispose')
  const db = await Database.open(newPath())
  const [snapshot, scan, txn] = [db.snapshot(), db.range(), db.begin()]
  await txn[Symbol.asyncDispose]()
  assert.equal(txn.ended, true)
  await txn[Symbol.asyncDispose]()
  const kept = db.begin()
  kept.putSync('kept', '')
  kept.commitSync()
  kept[Symbol.dispose]()
  assert.ok(db.hasSync('kept'))
  scan[Symbol.dispose]()
  assert.deepEqual(await scan.next(), { value: undefined, done: true })
  snapshot[Symbol.dispose]()
  assert.equal(snapshot.isOpen, false)
  await db[Symbol.asyncDispose]()
  assert.equal(db.isOpen, false)
})

test('garbage collection closes what was forgotten', async () => {
  const program = `
    import { Database } from 'perigeedb'
    import { setTimeout as sleep } from 'node:timers/promises'
    const path = ${JSON.stringify(newPath())}
    async function forget () {
      const db = await Database.open(path, { durability: 'none' })
      await db.put('a', '1')
      const all = [db.snapshot(), db.begin(), db.range(), db.family('default')]
      await all[2].next()
      await all[1].put('b', '2')
      return all.length
    }
    for (let i = 0; i < 3; i++) {
      await forget()
      let opened = null
      for (let attempt = 0; attempt < 200 && opened === null; attempt++) {
        globalThis.gc()
        await sleep(20)
        try { opened = await Database.open(path) } catch (e) {
          if (e.code !== 'PERIGEE_LOCKED') throw e
        }
      }
      if (opened === null) throw new Error('still locked')
      if (!(await opened.has('a')) || await opened.has('b')) throw new Error('wrong data')
      await opened.close()
    }
    // Many iterators and snapshots that nobody closes.
    const db = await Database.open(path, { durability: 'none' })
    for (let i = 0; i < 1000; i++) await db.put(String(i), 'x')
    for (let i = 0; i < 20_000; i++) {
      db.range().nextSync()
      db.snapshot().getSync('5')
      if (i % 1000 === 0) { globalThis.gc(); await sleep(0) }
    }
    globalThis.gc()
    await sleep(50)
    globalThis.gc()
    await sleep(50)
    const { snapshots } = await db.stats()
    if (snapshots > 2000) throw new Error(snapshots + ' snapshots are still open')
    await db.close()
    console.log('collected')
  `
  const { stdout } = await run(
    process.execPath,
    ['--expose-gc', '--input-type=module', '-e', program],
    { cwd: import.meta.dirname }
  )
  assert.match(stdout, /collected/)
})

test('a second open is PERIGEE_LOCKED, also in another process; read-only works', async (t) => {
  const path = newPath()
  const db = await Database.open(path)
  t.after(() => db.close())
  await db.put('a', '1')
  await assert.rejects(Database.open(path), code('PERIGEE_LOCKED'))
  assert.throws(() => Database.openSync(path), code('PERIGEE_LOCKED'))
  const program = `
    import { Database } from 'perigeedb'
    const path = ${JSON.stringify(path)}
    const error = await Database.open(path).catch((e) => e)
    const db = await Database.open(path, { readOnly: true })
    const write = await db.put('b', '2').catch((e) => e)
    console.log(JSON.stringify([error.code, String(await db.get('a')), write.code]))
    await db.close()
  `
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program], {
    cwd: import.meta.dirname
  })
  assert.deepEqual(JSON.parse(stdout), ['PERIGEE_LOCKED', '1', 'PERIGEE_READ_ONLY'])
})

test('acknowledged writes survive a killed process', async () => {
  const path = newPath()
  const program = `
    import { Database } from 'perigeedb'
    const db = await Database.open(${JSON.stringify(path)}, { durability: 'none' })
    for (let i = 0; ; i++) {
      await Promise.all([db.put('a' + i, 'x'), db.put('b' + i, 'x')])
      console.log(i)
    }
  `
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    cwd: import.meta.dirname,
    stdio: ['ignore', 'pipe', 'inherit']
  })
  let text = ''
  child.stdout.on('data', (data) => {
    text += data
    if (text.length > 2000) child.kill('SIGKILL')
  })
  await once(child, 'close')
  const last = Number(text.slice(0, text.lastIndexOf('\n')).split('\n').at(-1))
  assert.ok(last > 100)
  const db = await Database.open(path)
  for (let i = 0; i <= last; i++) assert.ok(db.hasSync('a' + i) && db.hasSync('b' + i), String(i))
  await db.close()
})

test('a process that does not close its database ends', async () => {
  const program = `
    import { Database } from 'perigeedb'
    const db = await Database.open(${JSON.stringify(newPath())})
    await db.put('a', '1')
    db.range().nextSync()
    console.log('end of the program')
  `
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program], {
    cwd: import.meta.dirname,
    timeout: 30_000
  })
  assert.match(stdout, /end/)
})

test(
  'a database can be used in a worker, and the worker be terminated at any time',
  { timeout: 60_000 },
  async () => {
    const { Worker } = await import('node:worker_threads')
    const source = `
    const { workerData, parentPort } = require('node:worker_threads')
    const { Database } = require('perigeedb')
    Database.open(workerData, { durability: 'none' }).then(async (db) => {
      const holder = db.begin({ pessimistic: true })
      await holder.put('seat', 'x')
      for (let i = 0; i < 5; i++) {
        const waiting = db.begin({ pessimistic: true, lockTimeout: 1500 })
        waiting.put('seat', 'y').catch(() => {})
      }
      parentPort.postMessage('open')
      for (let i = 0; ; i++) {
        await Promise.all([
          db.put(String(i), 'x'), db.get('5'), db.range().all(),
          db.transaction((txn) => txn.put('t', 'x'))
        ])
      }
    })
  `
    for (let i = 0; i < 5; i++) {
      const path = newPath()
      const worker = new Worker(source, { eval: true, workerData: path })
      await once(worker, 'message')
      await sleep(20 + i * 15)
      await worker.terminate()
      let db = null
      for (let attempt = 0; attempt < 100 && db === null; attempt++) {
        try {
          db = await Database.open(path)
        } catch (e) {
          assert.equal(e.code, 'PERIGEE_LOCKED')
          await sleep(50)
        }
      }
      assert.ok(db !== null, 'the database of a worker that has ended is still open')
      await db.close()
    }
  }
)
