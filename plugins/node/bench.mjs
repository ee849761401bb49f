// Compares perigeedb with classic-level and lmdb, as far as these are installed
// (`npm install --no-save classic-level lmdb`). Engines are measured in turn, in random order in
// each repetition; the table shows medians of operations per second, and in parentheses the ratio
// to perigeedb. Run: node bench.mjs [repetitions] [entries]

import { mkdtempSync, rmSync } from 'node:fs'
import { cpus, loadavg, tmpdir } from 'node:os'
import path from 'node:path'
import { Database } from 'perigeedb'
import { PerigeeLevel } from 'perigeedb/level'

const repetitions = Number(process.argv[2] ?? 5)
const entries = Number(process.argv[3] ?? 100_000)
const root = mkdtempSync(path.join(process.env.BENCH_DIR ?? tmpdir(), 'perigeedb-bench-'))
process.on('exit', () => rmSync(root, { recursive: true, force: true }))
let directories = 0
const newPath = () => path.join(root, String(++directories))

const key = (i) => `key ${String(i).padStart(12, '0')}`
const scattered = (i) => key((i * 7919) % entries)
const value = Buffer.alloc(100, 'perigee ')
const missing = (name) => (e) => {
  console.log(`${name} is not installed (${e.code})`)
  return null
}
const classic = await import('classic-level').catch(missing('classic-level'))
const lmdb = await import('lmdb').catch(missing('lmdb'))

/** The calls of a store of the Level ecosystem. */
function levelCalls(db) {
  const options = { valueEncoding: 'buffer' }
  const durable = { valueEncoding: 'buffer', sync: true }
  return {
    put: (k, v) => db.put(k, v, options),
    putDurable: (k, v) => db.put(k, v, durable),
    batch: (list) => db.batch(list, options),
    get: (k) => db.get(k, options),
    getSync: (k) => db.getSync(k, options),
    getMany: (keys) => db.getMany(keys, options),
    scan: (range) => db.iterator({ ...range, ...options }),
    close: () => db.close()
  }
}

const engines = {
  perigeedb: async () => {
    const db = await Database.open(newPath(), { keyEncoding: 'utf8', durability: 'none' })
    return {
      put: (k, v) => db.put(k, v),
      putDurable: (k, v) => db.put(k, v, { durability: 'full' }),
      batch: (list) => db.batch(list),
      get: (k) => db.get(k),
      getSync: (k) => db.getSync(k),
      getMany: (keys) => db.getMany(keys),
      scan: (range) => db.range(range),
      close: () => db.close()
    }
  },
  'perigeedb/level': async () => {
    const db = new PerigeeLevel(newPath(), { perigee: { durability: 'none' } })
    await db.open()
    return levelCalls(db)
  }
}
if (classic !== null) {
  engines['classic-level'] = async () => {
    const db = new classic.ClassicLevel(newPath())
    await db.open()
    return levelCalls(db)
  }
}
if (lmdb !== null) {
  // Reads of lmdb are always synchronous; `get` and `scan` wrap them in a promise.
  // `overlappingSync: false`: a put is acknowledged after its sync.
  const open = (noSync) =>
    lmdb.open({ path: newPath(), encoding: 'binary', noSync, overlappingSync: false })
  engines.lmdb = async () => {
    const db = open(true)
    const durable = open(false)
    return {
      put: (k, v) => db.put(k, v),
      putDurable: (k, v) => durable.put(k, v),
      batch: (list) =>
        db.batch(() => {
          for (const op of list) db.put(op.key, op.value)
        }),
      get: async (k) => db.get(k),
      getSync: (k) => db.get(k),
      getMany: (keys) => db.getMany(keys),
      scan: ({ gte, limit }) => db.getRange({ start: gte, limit }).map((e) => [e.key, e.value]),
      close: () => Promise.all([db.close(), durable.close()])
    }
  }
}

/** Workloads: each returns the number of operations. They run in this order on one database. */
const workloads = {
  'put, batches of 1,000': async (db) => {
    for (let from = 0; from < entries; from += 1000) {
      const list = Array.from({ length: 1000 }, (_, i) => ({
        type: 'put',
        key: scattered(from + i),
        value
      }))
      await db.batch(list)
    }
    return entries
  },
  'put, one by one': async (db) => {
    for (let i = 0; i < entries / 10; i++) await db.put(scattered(i), value)
    return entries / 10
  },
  'put, 1,000 at a time': async (db) => {
    for (let from = 0; from < entries / 2; from += 1000) {
      await Promise.all(Array.from({ length: 1000 }, (_, i) => db.put(scattered(from + i), value)))
    }
    return entries / 2
  },
  'put, synced, one by one': async (db) => {
    for (let i = 0; i < 100; i++) await db.putDurable(scattered(i), value)
    return 100
  },
  'put, synced, 100 at a time': async (db) => {
    for (let n = 0; n < 20; n++) {
      await Promise.all(Array.from({ length: 100 }, (_, i) => db.putDurable(scattered(i), value)))
    }
    return 2000
  },
  'get, one by one': async (db) => {
    for (let i = 0; i < entries / 5; i++)
      if (!(await db.get(scattered(i)))) throw new Error(scattered(i))
    return entries / 5
  },
  'get, 100 at a time': async (db) => {
    for (let from = 0; from < entries / 2; from += 100) {
      await Promise.all(Array.from({ length: 100 }, (_, i) => db.get(scattered(from + i))))
    }
    return entries / 2
  },
  getSync: async (db) => {
    for (let i = 0; i < entries; i++) if (!db.getSync(scattered(i))) throw new Error(scattered(i))
    return entries
  },
  'getMany, 100 keys': async (db) => {
    for (let from = 0; from < entries; from += 100) {
      const values = await db.getMany(Array.from({ length: 100 }, (_, i) => scattered(from + i)))
      if (values.length !== 100 || !values[99]) throw new Error('wrong values')
    }
    return entries
  },
  'ranges of 100': async (db) => {
    let count = 0
    for (let i = 0; i < entries / 200; i++) {
      for await (const [k] of db.scan({ gte: key((i * 7919) % (entries - 100)), limit: 100 }))
        count += k.length > 0
    }
    return count
  },
  'full scan': async (db) => {
    let count = 0
    for await (const [, v] of db.scan({})) count += v.length === 100
    if (count !== entries) throw new Error(`${count} entries`)
    return count
  }
}

const rates = {}
for (let repetition = 0; repetition < repetitions; repetition++) {
  const order = Object.keys(engines).sort(() => Math.random() - 0.5)
  const open = {}
  for (const engine of order) open[engine] = await engines[engine]()
  for (const [workload, run] of Object.entries(workloads)) {
    for (const engine of order) {
      globalThis.gc?.()
      const start = process.hrtime.bigint()
      const count = await run(open[engine])
      const seconds = Number(process.hrtime.bigint() - start) / 1e9
      ;((rates[workload] ??= {})[engine] ??= []).push(count / seconds)
    }
  }
  for (const engine of order) await open[engine].close()
}

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)]
const names = Object.keys(engines)
const load = loadavg()
  .map((n) => n.toFixed(1))
  .join(' ')
console.log(
  `node ${process.version}, ${cpus().length} cores, load average at the end ${load}; ` +
    `${entries} entries of 116 bytes, medians of ${repetitions}, operations per second`
)
console.log(`| workload | ${names.join(' | ')} |\n|---|${'---|'.repeat(names.length)}`)
for (const [workload, byEngine] of Object.entries(rates)) {
  const own = median(byEngine.perigeedb)
  const cells = names.map((name) => {
    const rate = median(byEngine[name])
    const text = rate >= 1000 ? `${(rate / 1000).toFixed(rate >= 1e5 ? 0 : 1)}k` : rate.toFixed(0)
    return name === 'perigeedb' ? text : `${text} (${(rate / own).toFixed(2)})`
  })
  console.log(`| ${workload} | ${cells.join(' | ')} |`)
}
