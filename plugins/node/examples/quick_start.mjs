// Reads, writes, ranges and a transaction. Run: node examples/quick_start.mjs

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Database } from 'perigeedb'

const dir = mkdtempSync(path.join(tmpdir(), 'perigeedb-'))
const db = await Database.open(path.join(dir, 'moon.db'), {
  keyEncoding: 'utf8',
  valueEncoding: 'utf8'
})

await db.put('moon', 'full') // on stable storage when the promise resolves
console.log(await db.get('moon'), db.getSync('moon'), await db.get('sun'))

const tides = await db.createFamily('tides')
await db.batch([
  { type: 'put', key: '06:12', value: 'high', family: tides },
  { type: 'put', key: '12:31', value: 'low', family: tides },
  { type: 'delete', key: 'moon' }
]) // atomic, across both column families

for await (const [time, tide] of tides.range({ gte: '06:00', lt: '13:00', reverse: true })) {
  console.log(time, tide)
}

await db.close()
rmSync(dir, { recursive: true })
