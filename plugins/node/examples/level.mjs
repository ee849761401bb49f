// The interface of the Level ecosystem, with sublevels. Run: node examples/level.mjs

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { PerigeeLevel } from 'perigeedb/level'

const dir = mkdtempSync(path.join(tmpdir(), 'perigeedb-'))
const db = new PerigeeLevel(path.join(dir, 'level.db'), { valueEncoding: 'json' })

const users = db.sublevel('users', { valueEncoding: 'json' })
await users.put('alice', { city: 'Brest' })
await db.batch(
  [
    { type: 'put', sublevel: users, key: 'bob', value: { city: 'Kiel' } },
    { type: 'put', key: 'count', value: 2 }
  ],
  { sync: true }
)
for await (const [name, user] of users.iterator({ reverse: true })) console.log(name, user.city)
console.log(await db.get('count'), db.getSync('count'))

await db.close()
rmSync(dir, { recursive: true })
