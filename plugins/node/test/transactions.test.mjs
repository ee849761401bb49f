import test from 'node:test'
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { code, open } from './common.mjs'

test('a transaction sees its writes, and others see them after the commit', async (t) => {
  const db = await open(t)
  await db.put('a', '1')
  const txn = db.begin()
  await txn.put('b', '2')
  await txn.delete('a')
  txn.putSync('c', '3')
  await txn.deleteRange({ gte: 'x' })
  assert.equal(txn.length, 4)
  assert.deepEqual(await txn.range().all(), [
    ['b', '2'],
    ['c', '3']
  ])
  assert.equal(txn.getSync('b'), '2')
  assert.equal(await txn.has('a'), false)
  assert.deepEqual(await db.keys().all(), ['a'])
  await txn.commit()
  assert.deepEqual(await db.keys().all(), ['b', 'c'])
})

test('the operations of a transaction run in the order of the calls', async (t) => {
  const db = await open(t)
  const txn = db.begin()
  const calls = []
  for (let i = 0; i < 100; i++) {
    calls.push(txn.put('last', String(i)))
    calls.push(txn.get('last').then((value) => assert.equal(value, String(i))))
  }
  calls.push(txn.commit())
  await Promise.all(calls)
  assert.equal(await db.get('last'), '99')
})

test('a conflict says where, and has the code PERIGEE_CONFLICT', async (t) => {
  const db = await open(t)
  const family = await db.createFamily('accounts')
  const [one, two] = [db.begin(), db.begin()]
  await one.family(family).put('alice', '1')
  await two.family('accounts').put('alice', '2')
  await one.commit()
  const error = await two.commit().catch((e) => e)
  assert.equal(error.code, 'PERIGEE_CONFLICT')
  assert.equal(error.retryable, true)
  assert.equal(error.family, 'accounts')
  assert.equal(String(error.key), 'alice')
  assert.equal(two.hadConflict, true)
  assert.equal(await family.get('alice'), '1')
  const three = db.begin()
  await family.put('alice', '3')
  three.family(family).putSync('alice', '4')
  assert.throws(() => three.commitSync(), code('PERIGEE_CONFLICT'))
})

test('an ended transaction gives a clear error', async (t) => {
  const db = await open(t)
  for (const how of ['commit', 'rollback', 'commitSync', 'rollbackSync']) {
    const txn = db.begin()
    await txn[how]()
    assert.equal(txn.ended, true)
    const expected = code('PERIGEE_CLOSED', /has ended with a (commit|rollback): begin another/)
    await assert.rejects(txn.get('a'), expected)
    await assert.rejects(txn.put('a', 'b'), expected)
    await assert.rejects(txn.commit(), expected)
    assert.throws(() => txn.getSync('a'), expected)
    assert.throws(() => txn.putSync('a', 'b'), expected)
    assert.throws(() => txn.range(), expected)
    await txn.rollback() // has no effect
    txn.rollbackSync()
  }
})

test('transaction() commits, retries conflicts, and rolls back after other errors', async (t) => {
  const db = await open(t, { valueEncoding: 'json' })
  await db.put('counter', 0)
  const add = () =>
    db.transaction(async (txn) => {
      const value = await txn.get('counter')
      await sleep(Math.random() * 3)
      await txn.put('counter', value + 1)
      return value + 1
    })
  const results = await Promise.all(Array.from({ length: 40 }, add))
  assert.equal(await db.get('counter'), 40)
  assert.deepEqual(
    results.sort((a, b) => a - b),
    Array.from({ length: 40 }, (_, i) => i + 1)
  )

  await assert.rejects(
    db.transaction(async (txn) => {
      await txn.put('counter', -1)
      throw new Error('mine')
    }),
    /mine/
  )
  assert.equal(await db.get('counter'), 40)

  let attempts = 0
  await assert.rejects(
    db.transaction(
      async (txn) => {
        attempts++
        await txn.put('counter', -1)
        await db.put('counter', 41)
      },
      { attempts: 3 }
    ),
    code('PERIGEE_CONFLICT')
  )
  assert.equal(attempts, 3)
  assert.equal(await db.transaction((txn) => txn.getSync('counter')), 41)
  await assert.rejects(db.transaction('work'), code('PERIGEE_INVALID_ARGUMENT', /function/))
  await assert.rejects(
    db.transaction(() => 1, { isolated: true }),
    code('PERIGEE_INVALID_ARGUMENT', /unknown option isolated/)
  )
  await assert.rejects(
    db.transaction(() => 1, { isolation: 'strict' }),
    code('PERIGEE_INVALID_ARGUMENT', /serializable/)
  )
  await assert.rejects(
    db.transaction(() => 1, { timeout: -1 }),
    code('PERIGEE_INVALID_ARGUMENT', /timeout/)
  )
})

test('work that ends the transaction itself', async (t) => {
  const db = await open(t)
  await db.transaction(async (txn) => {
    await txn.put('a', '1')
    await txn.rollback()
  })
  assert.equal(await db.has('a'), false)
  await db.transaction(async (txn) => {
    await txn.put('a', '1')
    await txn.commit({ durability: 'full' })
  })
  assert.equal(await db.has('a'), true)
})

test('serializable transactions prevent write skew', async (t) => {
  const db = await open(t)
  await db.batch([
    { type: 'put', key: 'alice', value: 'on call' },
    { type: 'put', key: 'bob', value: 'on call' }
  ])
  const leave = (name) =>
    db.transaction(
      async (txn) => {
        const onCall = (await txn.values().all()).filter((v) => v === 'on call').length
        await sleep(5)
        if (onCall > 1) await txn.put(name, 'off')
      },
      { isolation: 'serializable' }
    )
  await Promise.all([leave('alice'), leave('bob')])
  assert.equal((await db.values().all()).filter((v) => v === 'on call').length, 1)
})

test('savepoints', async (t) => {
  const db = await open(t)
  await db.transaction(async (txn) => {
    await txn.put('a', '1')
    await txn.savepoint('row')
    await txn.put('b', '2')
    await txn.rollbackTo('row')
    await txn.put('c', '3')
    await txn.releaseSavepoint('row')
    await assert.rejects(txn.savepoint(7), code('PERIGEE_INVALID_ARGUMENT', /name/))
    await assert.rejects(txn.getForUpdate('a', { lock: 1 }), code('PERIGEE_INVALID_ARGUMENT'))
    await assert.rejects(txn.commit({ durability: 1 }), code('PERIGEE_INVALID_ARGUMENT'))
    await assert.rejects(txn.rollbackTo('row'), code('PERIGEE_NOT_FOUND'))
  })
  assert.deepEqual(await db.keys().all(), ['a', 'c'])
})

test('a read-only transaction rejects writes', async (t) => {
  const db = await open(t)
  const txn = db.begin({ readOnly: true })
  await assert.rejects(txn.put('a', 'b'), code('PERIGEE_INVALID_ARGUMENT'))
  await txn.rollback()
})

// More waiters than threads in the pool: the holder must still be able to commit.
test('waits for locks do not block the thread pool', async (t) => {
  const db = await open(t)
  const holder = db.begin({ pessimistic: true })
  await holder.put('seat', 'alice')
  const waiting = Array.from({ length: 12 }, async (_, i) => {
    return db.transaction(
      async (txn) => {
        const before = await txn.getForUpdate('seat')
        await txn.put('seat', `${before} ${i}`)
      },
      { pessimistic: true, lockTimeout: 20_000 }
    )
  })
  await sleep(50)
  await db.put('other', 'x')
  assert.equal(await db.get('other'), 'x')
  await holder.commit()
  await Promise.all(waiting)
  assert.equal((await db.get('seat')).split(' ').length, 13)
})

test('a lock that is not released in time is PERIGEE_BUSY, a deadlock is a conflict', async (t) => {
  const db = await open(t)
  const holder = db.begin({ pessimistic: true })
  await holder.put('seat', 'alice')
  const other = db.begin({ pessimistic: true, lockTimeout: 20 })
  await assert.rejects(other.put('seat', 'bob'), code('PERIGEE_BUSY'))
  assert.throws(() => other.getForUpdateSync('seat'), code('PERIGEE_BUSY'))
  await other.rollback()
  await holder.rollback()
  const run = (first, second) =>
    db.transaction(
      async (txn) => {
        await txn.put(first, 'x')
        await sleep(20)
        await txn.put(second, 'x')
      },
      { pessimistic: true, lockTimeout: 20_000 }
    )
  await Promise.all([run('a', 'b'), run('b', 'a')])
})

test('transactions over column families, and batches in them', async (t) => {
  const db = await open(t)
  const logs = await db.createFamily('logs', { valueEncoding: 'json' })
  await db.transaction(async (txn) => {
    await txn.batch([
      { type: 'put', key: 'a', value: '1' },
      { type: 'put', key: 'a', value: { b: 1 }, family: logs },
      { type: 'put', key: 'c', value: [2], family: 'logs', valueEncoding: 'json' }
    ])
    assert.deepEqual(await txn.family(logs).values().all(), [{ b: 1 }, [2]])
    assert.deepEqual(await txn.family(logs).getForUpdate('a'), { b: 1 })
    await txn.batch().put('d', '4').delete('c', { family: logs }).write()
  })
  assert.deepEqual(await logs.range().all(), [['a', { b: 1 }]])
  assert.deepEqual(await db.keys().all(), ['a', 'd'])
})

test('snapshots', async (t) => {
  const db = await open(t)
  const logs = await db.createFamily('logs')
  await db.put('moon', 'new')
  await logs.put('1', 'x')
  const then = db.snapshot()
  await db.put('moon', 'full')
  assert.ok(then.sequence < db.snapshot().sequence)
  await logs.delete('1')
  await db.compact()
  assert.equal(await then.get('moon'), 'new')
  assert.deepEqual(await then.range().all(), [['moon', 'new']])
  assert.equal(then.family(logs).getSync('1'), 'x')
  assert.equal(await then.family('logs').count(), 1)
  const scan = then.range()
  await then.close()
  await then.close()
  assert.equal(then.isOpen, false)
  assert.equal((await scan.all()).length, 1)
  const expected = code('PERIGEE_CLOSED', /snapshot is closed/)
  await assert.rejects(then.get('moon'), expected)
  assert.throws(() => then.range(), expected)
  assert.throws(() => then.sequence, expected)
})
