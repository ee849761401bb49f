// The CommonJS entry points; see types.test.mts.

import perigeedb = require('perigeedb')
import level = require('perigeedb/level')

export async function use(): Promise<string | undefined> {
  const db: perigeedb.Database<'utf8', 'utf8'> = perigeedb.Database.openSync('/tmp/x', {
    keyEncoding: 'utf8',
    valueEncoding: 'utf8'
  })
  const store = new level.PerigeeLevel('/tmp/y')
  await store.close()
  return db.getSync('key')
}
