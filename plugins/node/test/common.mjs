// Helpers of the tests.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Database } from 'perigeedb'

const root = mkdtempSync(path.join(tmpdir(), 'perigeedb-test-'))
process.on('exit', () => rmSync(root, { recursive: true, force: true }))
let count = 0

/** Returns a path that does not exist, in a directory that is removed at the end. */
export function newPath() {
  return path.join(root, String(++count))
}

/** Opens a new database with strings, without syncs. Closes it after the test. */
export async function open(t, options) {
  const db = await Database.open(newPath(), {
    keyEncoding: 'utf8',
    valueEncoding: 'utf8',
    durability: 'none',
    ...options
  })
  t.after(() => db.close())
  return db
}

/** A generator of pseudorandom integers below a limit, from a seed. */
export function random(seed) {
  let state = seed >>> 0
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * limit)
  }
}

/** Returns the seed of a random test: SEED, or else a new one, which is printed. */
export function chooseSeed(t) {
  const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 1e9))
  t.diagnostic(`SEED=${seed}`)
  return seed
}

/** Returns a matcher of errors by code. */
export function code(name, message) {
  return message === undefined ? { code: name } : { code: name, message }
}
