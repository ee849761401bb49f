'use strict'

// Loads the native module: perigeedb.PLATFORM-ARCH.node, or on Linux with musl
// perigeedb.linux-ARCH-musl.node, in the directory of the package.

const path = require('node:path')
const { existsSync } = require('node:fs')

const root = path.join(__dirname, '..')
const base = `perigeedb.${process.platform}-${process.arch}`
const names = [`${base}.node`, `${base}-musl.node`]
const errors = []
let native = null

for (const name of names) {
  const file = path.join(root, name)
  if (!existsSync(file)) continue
  try {
    native = require(file)
    break
  } catch (e) {
    errors.push(e)
  }
}

if (native === null) {
  const why =
    errors.length > 0
      ? `cannot load its native module: ${errors.map((e) => e.message).join('; ')}`
      : `has no native module for ${process.platform}-${process.arch} (${names[0]})`
  const hint = 'build it from source with plugins/node/build.sh of the Perigee repository'
  throw new Error(`perigeedb ${why}; ${hint}`)
}

/** Modes of native functions: see src/task.rs. */
native.SYNC = 0
native.POOL = 1
/** Flags of a scan: see src/iterator.rs. */
native.REVERSE = 1
native.NO_KEYS = 2
native.NO_VALUES = 4
native.STRICT_SEEK = 8

module.exports = native
