// Concurrent transfers between accounts: transactions with retries, and a consistent snapshot.
// Run: node examples/transfers.mjs

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Database } from 'perigeedb'

const dir = mkdtempSync(path.join(tmpdir(), 'perigeedb-'))
const db = await Database.open(path.join(dir, 'bank.db'), {
  keyEncoding: 'utf8',
  valueEncoding: 'json',
  durability: 'interval 100 ms'
})
await db.batch(['alice', 'bob', 'carol'].map((key) => ({ type: 'put', key, value: 100 })))

async function transfer(from, to, amount) {
  return db.transaction(async (txn) => {
    const [source, target] = await txn.getMany([from, to])
    if (source < amount) return false
    await txn.put(from, source - amount)
    await txn.put(to, target + amount)
    return true
  })
}

const names = ['alice', 'bob', 'carol']
const pick = () => names[Math.floor(Math.random() * names.length)]
const transfers = Array.from({ length: 200 }, () => {
  const from = pick()
  const to = names[(names.indexOf(from) + 1) % names.length]
  return transfer(from, to, Math.ceil(Math.random() * 30))
})

// A snapshot in the middle of the transfers sees all of a transfer or nothing of it.
const snapshot = db.snapshot()
const balances = await snapshot.values().all()
console.log(
  'total in a snapshot:',
  balances.reduce((a, b) => a + b)
)
await snapshot.close()

const done = (await Promise.all(transfers)).filter(Boolean).length
console.log(`${done} of ${transfers.length} transfers done`)
console.log('balances:', Object.fromEntries(await db.range().all()))
const total = (await db.values().all()).reduce((a, b) => a + b)
if (total !== 300) throw new Error(`the total is ${total}`)

await db.close()
rmSync(dir, { recursive: true })
