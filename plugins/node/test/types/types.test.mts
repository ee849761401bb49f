// Checked by `tsc`, not run: each line must compile, or fail where `@ts-expect-error` says so.

import { Database, PerigeeError, restoreBackup, type RangeIterator, type Reads } from 'perigeedb'
import { PerigeeLevel } from 'perigeedb/level'

const db = await Database.open('/tmp/x', { durability: 'interval 100 ms', memoryBudget: '64 MiB' })
const buffer: Buffer | undefined = await db.get('key')
// @ts-expect-error values are buffers by default
const text: string | undefined = await db.get('key')
const other: string | undefined = await db.get('key', { valueEncoding: 'utf8' })
await db.put('key', new Uint8Array(1), { ttl: 1000, durability: 'none' })
// @ts-expect-error a value is a string or bytes
await db.put('key', 7)
// @ts-expect-error an unknown option
await db.put('key', 'value', { tll: 1000 })
// @ts-expect-error an unknown option
await Database.open('/tmp/x', { blockCache: 1 })

const json = await db.createFamily('json', {
  keyEncoding: 'utf8',
  valueEncoding: 'json',
  compression: 'zstd 3'
})
await json.put('key', { any: ['value'] })
for await (const [key, value] of json.range({ gte: 'a', lt: 'b', reverse: true, limit: 3 })) {
  const k: string = key
  value.any.length
}
for (const key of db.keys({ prefix: 'a' })) key.readUInt8(0)
const scan: RangeIterator<[Buffer, Buffer]> = db.range()
const batch: [Buffer, Buffer][] = await scan.nextBatch(10)
scan.seek('b')

const n: number = await db.transaction(
  async (txn) => {
    await txn.family(json).put('key', 1)
    const value: Buffer | undefined = await txn.getForUpdate('key')
    return 1
  },
  { isolation: 'serializable', attempts: 3 }
)
// @ts-expect-error an unknown level
db.begin({ isolation: 'strict' })

await db.batch([
  { type: 'put', key: 'a', value: 'b', family: json },
  { type: 'delete', key: 'b', family: 'json' },
  { type: 'deleteRange', gte: 'c', lt: 'd' }
])
await db.batch().put('a', 'b').delete('c').write({ durability: 'full' })
const snapshot = db.snapshot()
const then: Buffer | undefined = snapshot.getSync('a')
const value: any = await snapshot.family(json).get('a')
try {
  await restoreBackup('a', 'b', { generation: 1 })
} catch (e) {
  if (e instanceof PerigeeError && e.code === 'PERIGEE_NOT_FOUND') console.log(e.file?.length)
}
{
  await using temporary = await Database.open('/tmp/y')
  using view = temporary.snapshot()
}

const reads: Reads<'buffer', 'buffer'> = db.snapshot()
// @ts-expect-error a type only
new Reads()

const level = new PerigeeLevel<string, number>('/tmp/z', {
  valueEncoding: 'json',
  perigee: { durability: 'full' }
})
await level.put('a', 1, { sync: true })
const one: number | undefined = await level.get('a')
for await (const [key, value] of level.iterator({ gt: 'a' })) key.concat(String(value + 1))
await level.database?.backup('/tmp/backup')
