// Sessions that expire, statistics, a backup and its restore. Run: node examples/sessions.mjs

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Database, listBackups, restoreBackup } from 'perigeedb'

const dir = mkdtempSync(path.join(tmpdir(), 'perigeedb-'))
const db = await Database.open(path.join(dir, 'sessions.db'), {
  keyEncoding: 'utf8',
  valueEncoding: 'json'
})
await db.put('session 1', { user: 'alice' }, { ttl: 30 * 60 * 1000 })
await db.put('session 2', { user: 'bob' }, { ttl: 0 })
const session = await db.getWithTtl('session 1')
console.log(session.value, 'expires at', session.expiresAt.toISOString())
console.log('expired:', await db.get('session 2'))

await db.flush()
const { disk_bytes: bytes, last_sequence: operations } = await db.stats()
console.log(`${operations} operations, ${bytes} bytes on disk`)

const backups = path.join(dir, 'backups')
await db.backup(backups)
console.log(
  'backups:',
  (await listBackups(backups)).map((b) => b.generation)
)
await restoreBackup(backups, path.join(dir, 'restored.db'))
const restored = await Database.open(path.join(dir, 'restored.db'), { valueEncoding: 'json' })
console.log('restored:', await restored.get('session 1'))

await Promise.all([restored.close(), db.close()])
rmSync(dir, { recursive: true })
