import test from 'node:test'
import assert from 'node:assert/strict'
import { Database } from 'perigeedb'
import { chooseSeed, newPath, random } from './common.mjs'

// Random operations on a database and on a Map, which must agree: single writes, batches, range
// deletes and transactions; gets, scans in both directions, snapshots; flushes, compactions and
// reopens in between.
test('agrees with a Map', { timeout: 300_000 }, async (t) => {
  const seed = chooseSeed(t)
  const below = random(seed)
  const options = {
    keyEncoding: 'utf8',
    valueEncoding: 'utf8',
    durability: 'none',
    families: { default: { memtableBytes: '256 KiB' } }
  }
  const path = newPath()
  let db = await Database.open(path, options)
  let model = new Map()
  let snapshot = null
  const key = () => `k${String(below(400)).padStart(3, '0')}`
  const value = () => 'v'.repeat(below(10) === 0 ? below(5000) : below(50)) + below(1e6)
  const sorted = (map) => [...map].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))
  const inRange = (k, { gte, lt }) =>
    (gte === undefined || k >= gte) && (lt === undefined || k < lt)
  const range = () => {
    const [a, b] = [key(), key()].sort()
    return [{}, { gte: a }, { lt: b }, { gte: a, lt: b }][below(4)]
  }
  const write = async (target, map) => {
    const operations = []
    for (let i = below(5); i >= 0; i--) {
      const k = key()
      if (below(4) === 0) {
        operations.push({ type: 'delete', key: k })
        map.delete(k)
      } else {
        const v = value()
        operations.push({ type: 'put', key: k, value: v })
        map.set(k, v)
      }
    }
    await target.batch(operations)
  }
  const check = async (reads, map) => {
    const k = key()
    assert.equal(await reads.get(k), map.get(k))
    assert.equal(reads.hasSync(k), map.has(k))
    const some = [key(), key(), key()]
    assert.deepEqual(
      await reads.getMany(some),
      some.map((each) => map.get(each))
    )
    const bounds = range()
    const want = sorted(map).filter(([each]) => inRange(each, bounds))
    const reverse = below(2) === 0
    if (reverse) want.reverse()
    assert.deepEqual(await reads.range({ ...bounds, reverse }).all(), want)
  }
  const steps = Number(process.env.MODEL_STEPS ?? 4000)
  for (let step = 0; step < steps; step++) {
    switch (below(14)) {
      case 0:
      case 1:
      case 2: {
        const [k, v] = [key(), value()]
        below(2) ? await db.put(k, v) : db.putSync(k, v)
        model.set(k, v)
        break
      }
      case 3: {
        const k = key()
        below(2) ? await db.delete(k) : db.deleteSync(k)
        model.delete(k)
        break
      }
      case 4:
      case 5:
        await write(db, model)
        break
      case 6: {
        const [a, b] = [key(), key()].sort()
        await db.deleteRange({ gte: a, lt: b })
        for (const k of [...model.keys()]) if (k >= a && k < b) model.delete(k)
        break
      }
      case 7: {
        const changed = new Map(model)
        const commit = below(3) > 0
        const transaction = db.begin()
        for (let i = below(4); i >= 0; i--) {
          await write(transaction, changed)
          await check(transaction, changed)
        }
        if (commit) {
          await transaction.commit()
          model = changed
        } else {
          await transaction.rollback()
        }
        break
      }
      case 8:
        if (snapshot === null) {
          snapshot = { reads: db.snapshot(), model: new Map(model) }
        } else {
          await check(snapshot.reads, snapshot.model)
          if (below(3) === 0) {
            await snapshot.reads.close()
            snapshot = null
          }
        }
        break
      case 9:
        if (below(20) === 0) {
          await db.close()
          db = await Database.open(path, options)
          snapshot = null
        } else if (below(10) === 0) {
          await (below(2) ? db.flush() : db.compact())
        }
        break
      default:
        await check(db, model)
    }
  }
  assert.deepEqual(await db.range().all(), sorted(model))
  assert.deepEqual((await db.verify()).errors, [])
  await db.close()
})

// Writes that are not awaited are applied in the order of the calls, whatever their kind: the
// results of `take` and `compareAndSwap` depend on all calls before them.
test('writes that are not awaited agree with a Map', { timeout: 300_000 }, async (t) => {
  const seed = chooseSeed(t)
  const below = random(seed)
  const db = await Database.open(newPath(), { keyEncoding: 'utf8', valueEncoding: 'utf8' })
  const model = new Map()
  const key = () => `k${below(50)}`
  const calls = []
  const expectResult = (promise, expected) => {
    calls.push(promise.then((result) => assert.deepEqual(result, expected)))
  }
  for (let step = 0; step < 5000; step++) {
    const [k, v] = [key(), String(step)]
    const durability = below(100) === 0 ? 'full' : 'none'
    switch (below(8)) {
      case 0:
        calls.push(db.delete(k, { durability }))
        model.delete(k)
        break
      case 1: {
        const other = key()
        calls.push(
          db.batch(
            [
              { type: 'put', key: k, value: v },
              { type: 'delete', key: other }
            ],
            { durability }
          )
        )
        model.set(k, v)
        model.delete(other)
        break
      }
      case 2: {
        if (below(10) > 0) break
        const [from, to] = [k, key()].sort()
        calls.push(db.deleteRange({ gte: from, lte: to }))
        for (const each of [...model.keys()]) if (each >= from && each <= to) model.delete(each)
        break
      }
      case 3: {
        const expected = below(2) ? model.get(k) : 'other'
        const current = model.get(k)
        const swapped = current === expected
        expectResult(db.compareAndSwap(k, expected, v), {
          swapped,
          current: swapped ? v : current
        })
        if (swapped) model.set(k, v)
        break
      }
      case 4:
        expectResult(db.take(k), model.get(k))
        model.delete(k)
        break
      default:
        calls.push(db.put(k, v, { durability }))
        model.set(k, v)
    }
    // Let some of them run.
    if (below(50) === 0) await calls.at(-1)
  }
  await Promise.all(calls)
  assert.deepEqual(new Map(await db.range().all()), model)
  await db.close()
})
