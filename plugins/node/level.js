'use strict'

// `perigeedb/level`: a database of the Level ecosystem, stored by Perigee.

const {
  AbstractLevel,
  AbstractIterator,
  AbstractSnapshot,
  AbstractChainedBatch
} = require('abstract-level')
const native = require('./lib/native')
const { Database } = require('./index.js')
const { invalid } = require('./lib/errors')
const { packKeys, packRange, unpackValues, unpackEntries, decoders } = require('./lib/packer')
const { kView, kId, kGets, kStore } = require('./lib/reads')

const { POOL, SYNC } = native
/** The native view that a snapshot reads. */
const kSnapshotView = Symbol('perigeedb.snapshotView')
/** Its queue of gets. */
const kSnapshotGets = Symbol('perigeedb.snapshotGets')
/** Entries and bytes of a read ahead by an iterator. */
const READ_AHEAD_COUNT = 1000
const READ_AHEAD_BYTES = 64 << 10
/** Operations of one batch of a `clear` with a limit or snapshot. */
const CLEAR_COUNT = 10_000

/** Codes that the Level ecosystem has for errors of a store. */
const LEVEL_CODES = {
  PERIGEE_LOCKED: 'LEVEL_LOCKED',
  PERIGEE_CORRUPTION: 'LEVEL_CORRUPTION',
  PERIGEE_IO: 'LEVEL_IO_ERROR'
}

/** Options of other LevelDB packages, and the options of Perigee that correspond to them. */
const DATABASE_OPTIONS = { cacheSize: 'blockCacheBytes', maxOpenFiles: 'maxOpenFiles' }
const FAMILY_OPTIONS = {
  writeBufferSize: 'memtableBytes',
  blockSize: 'blockBytes',
  maxFileSize: 'targetFileBytes'
}

class PerigeeLevel extends AbstractLevel {
  #location
  #db = null

  constructor(location, options) {
    if (typeof location !== 'string' || location === '') {
      throw new TypeError("The first argument 'location' must be a non-empty string")
    }
    super(
      {
        encodings: { buffer: true, utf8: true, view: true },
        has: true,
        createIfMissing: true,
        errorIfExists: true,
        explicitSnapshots: true,
        getSync: true,
        signals: { iterators: true }
      },
      options
    )
    this.#location = location
  }

  get location() {
    return this.#location
  }

  /** The open `Database`, for what abstract-level has no methods for; `null` if not open. */
  get database() {
    return this.#db
  }

  async _open(options) {
    try {
      this.#db = await Database.open(this.#location, openOptions(options))
    } catch (e) {
      throw translate(e)
    }
  }

  async _close() {
    const db = this.#db
    this.#db = null
    await db.close()
  }

  #view(options) {
    return options.snapshot?.[kSnapshotView] ?? this.#db[kView]
  }

  async _get(key, options) {
    const gets = options.snapshot?.[kSnapshotGets] ?? this.#db[kGets]
    return gets.get(key, options.valueEncoding === 'utf8' ? 'utf8' : 'buffer')
  }

  _getSync(key, options) {
    return this.#view(options).get(key, options.valueEncoding === 'utf8', SYNC)
  }

  async _getMany(keys, options) {
    const list = await this.#view(options).getMany(packKeys(keys), POOL)
    return unpackValues(list, keys.length, decoder(options.valueEncoding))
  }

  async _has(key, options) {
    return this.#view(options).has(key, POOL)
  }

  async _hasMany(keys, options) {
    const list = await this.#view(options).hasMany(packKeys(keys), POOL)
    return Array.from(list, (byte) => byte === 1)
  }

  #write(pack, options) {
    return this.#db[kStore].write(pack, { durability: options.sync ? 'full' : undefined })
  }

  async _put(key, value, options) {
    return this.#write((packer) => packer.put(this.#db[kId], key, value), options)
  }

  async _del(key, options) {
    return this.#write((packer) => packer.delete(this.#db[kId], key), options)
  }

  async _batch(operations, options) {
    const family = this.#db[kId]
    return this.#write((packer) => {
      for (const operation of operations) {
        if (operation.type === 'put') packer.put(family, operation.key, operation.value)
        else packer.delete(family, operation.key)
      }
    }, options)
  }

  _chainedBatch() {
    return new ChainedBatch(this)
  }

  async _clear(options) {
    if (options.limit === -1 && options.snapshot == null) {
      if (isEmpty(options)) return
      return this.#db.deleteRange(bounds(options), { durability: syncOf(options) })
    }
    let flags = native.NO_VALUES
    if (options.reverse) flags |= native.REVERSE
    const scan = this.#view(options).scan(packRange(bounds(options)), flags)
    try {
      let left = options.limit === -1 ? Infinity : options.limit
      for (let ended = false; !ended && left > 0;) {
        const list = await scan.read(Math.min(left, CLEAR_COUNT), READ_AHEAD_BYTES, POOL)
        const keys = []
        ended = unpackEntries(list, (b, key, value) => keys.push(b.subarray(key, value)))
        left -= keys.length
        await this._batch(
          keys.map((key) => ({ type: 'del', key })),
          options
        )
      }
    } finally {
      scan.close()
    }
  }

  _iterator(options) {
    // Before the iterator is created, because its constructor attaches it to the database.
    return new Iterator(this, options, this.#scan(options))
  }

  #scan(options) {
    let flags = native.STRICT_SEEK
    if (options.reverse) flags |= native.REVERSE
    if (!options.values) flags |= native.NO_VALUES
    if (!options.keys) flags |= native.NO_KEYS
    try {
      return this.#view(options).scan(packRange(bounds(options)), flags)
    } catch (e) {
      // A closed snapshot is reported by the first read, with the code LEVEL_SNAPSHOT_NOT_OPEN.
      if (options.snapshot != null && e.code === 'PERIGEE_CLOSED') return null
      throw e
    }
  }

  _snapshot(options) {
    return new Snapshot(options, this.#db)
  }
}

/** Returns the options of `Database.open`. */
function openOptions(options) {
  if (options.multithreading) {
    throw invalid('multithreading: only one thread can open a database')
  }
  const result = {
    createIfMissing: options.createIfMissing,
    errorIfExists: options.errorIfExists,
    durability: 'interval 100 ms',
    ...options.perigee
  }
  for (const [name, ours] of Object.entries(DATABASE_OPTIONS)) {
    if (options[name] !== undefined) result[ours] = options[name]
  }
  const family = {}
  for (const [name, ours] of Object.entries(FAMILY_OPTIONS)) {
    if (options[name] !== undefined) family[ours] = options[name]
  }
  if (options.compression === false) family.compression = 'none'
  if (Object.keys(family).length > 0) {
    result.families = { ...result.families, default: { ...result.families?.default, ...family } }
  }
  return result
}

/** Gives an error the code that users of Level expect; the original error is its cause. */
function translate(error) {
  const code = LEVEL_CODES[error.code]
  return code === undefined ? error : new LevelError(code, error)
}

class LevelError extends Error {
  constructor(code, cause) {
    super(cause.message, { cause })
    this.code = code
  }
}

function syncOf(options) {
  return options.sync ? 'full' : undefined
}

function bounds({ gt, gte, lt, lte }) {
  return { gt, gte, lt, lte }
}

// True if no key can be in the range. The engine rejects deletes of such ranges.
function isEmpty({ gt, gte, lt, lte }) {
  const [lower, upper] = [gte ?? gt, lte ?? lt]
  if (lower === undefined || upper === undefined) return false
  const order = Buffer.compare(Buffer.from(lower), Buffer.from(upper))
  return order > 0 || (order === 0 && (gte === undefined || lte === undefined))
}

// Buffers are views, too.
function decoder(encoding) {
  return encoding === 'utf8' ? decoders.utf8 : decoders.buffer
}

class Snapshot extends AbstractSnapshot {
  #native

  constructor(options, db) {
    super(options)
    this.#native = db.snapshot()
    this[kSnapshotView] = this.#native[kView]
    this[kSnapshotGets] = this.#native[kGets]
  }

  async _close() {
    this.#native.closeSync()
  }
}

class ChainedBatch extends AbstractChainedBatch {
  #operations = []

  constructor(db) {
    super(db, { add: true })
  }

  _add(operation) {
    this.#operations.push(operation)
  }

  _clear() {
    this.#operations = []
  }

  async _write(options) {
    return this.db._batch(this.#operations, options)
  }
}

class AbortError extends Error {
  constructor(cause) {
    super('The iterator was aborted by its signal', { cause })
    this.name = 'AbortError'
    this.code = 'LEVEL_ABORTED'
  }
}

class Iterator extends AbstractIterator {
  #scan
  #decodeKey
  #decodeValue
  #keys
  #values
  #signal
  /** Entries that were read ahead. */
  #items = []
  #next = 0
  #first = true
  #ended = false

  constructor(db, options, scan) {
    super(db, options)
    this.#scan = scan
    this.#decodeKey = decoder(options.keyEncoding)
    this.#decodeValue = decoder(options.valueEncoding)
    this.#keys = options.keys
    this.#values = options.values
    this.#signal = options.signal ?? null
  }

  // Reads entries, and returns them.
  async #read(count) {
    if (this.#ended) return []
    const list = await this.#scan.read(count, READ_AHEAD_BYTES, POOL)
    if (this.#signal?.aborted) throw new AbortError(this.#signal.reason)
    const items = []
    this.#ended = unpackEntries(list, (b, k, v, end) =>
      items.push([
        this.#keys ? this.#decodeKey(b, k, v) : undefined,
        this.#values ? this.#decodeValue(b, v, end) : undefined
      ])
    )
    return items
  }

  async _next() {
    if (this.#next === this.#items.length) {
      // Often only one entry is wanted, at first or after a seek.
      const count = this.#first ? 1 : Math.min(READ_AHEAD_COUNT, this.limit - this.count)
      this.#first = false
      this.#items = await this.#read(count)
      this.#next = 0
    }
    return this.#items[this.#next++]
  }

  async _nextv(size) {
    this.#first = false
    if (this.#next < this.#items.length) {
      const items = this.#items.slice(this.#next, this.#next + size)
      this.#next += items.length
      return items
    }
    return this.#read(size)
  }

  _seek(target) {
    this.#scan?.seek(target)
    this.#items = []
    this.#next = 0
    this.#first = true
    this.#ended = false
  }

  async _close() {
    this.#items = []
    this.#next = 0
    this.#scan?.close()
  }
}

exports.PerigeeLevel = PerigeeLevel
