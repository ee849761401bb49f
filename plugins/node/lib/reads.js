'use strict'

// Reads of a column family, and writes to it: the methods that a database, a column family, a
// snapshot and a transaction have in common.

const native = require('./native')
const { invalid, describe, located } = require('./errors')
const { OP, packKeys, packRange, unpackValues, decoders } = require('./packer')
const { encodings: checkEncodings, checkObject } = require('./options')
const { RangeIterator } = require('./iterator')
const { GetQueue } = require('./gets')

const { POOL, SYNC } = native
/** The native view of the column family in its source. */
const kView = Symbol('perigeedb.view')
/** The id of the column family. */
const kId = Symbol('perigeedb.id')
/** The queue of gets; `null` if the store runs calls one after the other. */
const kGets = Symbol('perigeedb.gets')
/** The backend: `run(call)`, and for writes `write(pack, options)` and `writeSync`. */
const kStore = Symbol('perigeedb.store')
const kEncodings = Symbol('perigeedb.encodings')
/** The database object, to detect column families of another database. */
const kDatabase = Symbol('perigeedb.database')

class Reads {
  constructor(view, store, encodings, database) {
    // Not enumerable: they are not for printing.
    const define = (key, value) => Object.defineProperty(this, key, { value })
    define(kView, view)
    define(kId, view.id)
    define(kGets, store.ordered ? null : new GetQueue(view))
    define(kStore, store)
    define(kEncodings, encodings)
    define(kDatabase, database ?? this)
  }

  async #run(call) {
    try {
      return await this[kStore].run(call)
    } catch (e) {
      throw located(e)
    }
  }

  // Whether the native module creates strings.
  #text(values) {
    return values !== 'buffer'
  }

  #encodingsFor(options) {
    return options === undefined ? this[kEncodings] : checkEncodings(options, this[kEncodings])
  }

  async get(key, options) {
    const { values } = this.#encodingsFor(options)
    const gets = this[kGets]
    if (gets !== null) {
      try {
        return await gets.get(key, values)
      } catch (e) {
        throw located(e)
      }
    }
    const text = this.#text(values)
    const value = await this.#run(() => this[kView].get(key, text, POOL))
    return values === 'json' && value !== undefined ? JSON.parse(value) : value
  }

  getSync(key, options) {
    const { values } = this.#encodingsFor(options)
    const value = this[kView].get(key, this.#text(values), SYNC)
    return values === 'json' && value !== undefined ? JSON.parse(value) : value
  }

  async getMany(keys, options) {
    const { values } = this.#encodingsFor(options)
    const list = await this.#run(() => this[kView].getMany(packKeys(keys), POOL))
    return unpackValues(list, keys.length, decoders[values])
  }

  getManySync(keys, options) {
    const { values } = this.#encodingsFor(options)
    const list = this[kView].getMany(packKeys(keys), SYNC)
    return unpackValues(list, keys.length, decoders[values])
  }

  async has(key) {
    return this.#run(() => this[kView].has(key, POOL))
  }

  hasSync(key) {
    return this[kView].has(key, SYNC)
  }

  async hasMany(keys) {
    const list = await this.#run(() => this[kView].hasMany(packKeys(keys), POOL))
    return Array.from(list, (byte) => byte === 1)
  }

  hasManySync(keys) {
    return Array.from(this[kView].hasMany(packKeys(keys), SYNC), (byte) => byte === 1)
  }

  #withTtl(found, values) {
    if (found === undefined) return undefined
    const at = found.readDoubleLE(0)
    const expiresAt = Number.isNaN(at) ? null : new Date(at)
    const ttl = expiresAt === null ? null : Math.max(0, at - Date.now())
    return { value: decoders[values](found, 8, found.length), expiresAt, ttl }
  }

  async getWithTtl(key, options) {
    const { values } = this.#encodingsFor(options)
    const found = await this.#run(() => this[kView].getWithExpiry(key, POOL))
    return this.#withTtl(found, values)
  }

  getWithTtlSync(key, options) {
    const { values } = this.#encodingsFor(options)
    return this.#withTtl(this[kView].getWithExpiry(key, SYNC), values)
  }

  #scan(options, kind) {
    options = checkObject(options, 'the range')
    const encodings = this.#encodingsFor(options)
    let flags = options.reverse ? native.REVERSE : 0
    if (kind === 'keys') flags |= native.NO_VALUES
    if (kind === 'values') flags |= native.NO_KEYS
    const scan = this[kView].scan(packRange(options), flags)
    return new RangeIterator(scan, kind, encodings, options.limit, this[kStore])
  }

  range(options) {
    return this.#scan(options, 'entries')
  }

  keys(options) {
    return this.#scan(options, 'keys')
  }

  values(options) {
    return this.#scan(options, 'values')
  }

  [Symbol.asyncIterator]() {
    return this.range()
  }

  async first(options) {
    return (await this.range({ ...options, limit: 1 }).nextBatch(1))[0]
  }

  firstSync(options) {
    return this.range({ ...options, limit: 1 }).nextSync().value
  }

  async last(options) {
    return this.first({ ...options, reverse: !options?.reverse })
  }

  lastSync(options) {
    return this.firstSync({ ...options, reverse: !options?.reverse })
  }

  async count(options) {
    options = checkObject(options, 'the range')
    return this.#run(() => this[kView].count(packRange(options), POOL))
  }

  countSync(options) {
    return this[kView].count(packRange(checkObject(options, 'the range')), SYNC)
  }
}

/** Adds the writes. */
class ReadsAndWrites extends Reads {
  async #write(pack, options) {
    try {
      await this[kStore].write(pack, options)
    } catch (e) {
      throw located(e)
    }
  }

  // Adds a put with the options `ttl` and `expiresAt` to a packer.
  #packPut(packer, key, value, options) {
    const bytes = encodeValue(value, this.#values(options))
    const id = this[kId]
    const { ttl, expiresAt } = options ?? {}
    if (ttl === undefined && expiresAt === undefined) return packer.put(id, key, bytes)
    if (ttl !== undefined && expiresAt !== undefined) {
      throw invalid('a put has either ttl or expiresAt, not both')
    }
    packer.operation(ttl !== undefined ? OP.PUT_TTL : OP.PUT_UNTIL, id)
    packer.f64(ttl !== undefined ? number('ttl', ttl) : number('expiresAt', Number(expiresAt)))
    packer.data(key, 'key')
    packer.data(bytes, 'value')
  }

  #values(options) {
    return options?.valueEncoding === undefined
      ? this[kEncodings].values
      : checkEncodings(options, this[kEncodings]).values
  }

  #packMerge(packer, key, operand) {
    packer.operation(OP.MERGE, this[kId])
    packer.data(key, 'key')
    packer.data(operand, 'operand')
  }

  #packDeleteRange(packer, options) {
    const { gt, gte, lt, lte, prefix } = checkObject(options, 'the range')
    if (prefix !== undefined && prefix !== null) {
      packer.operation(OP.DELETE_PREFIX, this[kId])
      packer.data(prefix, 'prefix')
    } else {
      packer.operation(OP.DELETE_RANGE, this[kId])
      packer.range({ gt, gte, lt, lte })
    }
  }

  async put(key, value, options) {
    return this.#write((packer) => this.#packPut(packer, key, value, options), options)
  }

  putSync(key, value, options) {
    this[kStore].writeSync((packer) => this.#packPut(packer, key, value, options), options)
  }

  async delete(key, options) {
    return this.#write((packer) => packer.delete(this[kId], key), options)
  }

  deleteSync(key, options) {
    this[kStore].writeSync((packer) => packer.delete(this[kId], key), options)
  }

  async merge(key, operand, options) {
    return this.#write((packer) => this.#packMerge(packer, key, operand), options)
  }

  mergeSync(key, operand, options) {
    this[kStore].writeSync((packer) => this.#packMerge(packer, key, operand), options)
  }

  async deleteRange(range, options) {
    return this.#write((packer) => this.#packDeleteRange(packer, range), options)
  }

  deleteRangeSync(range, options) {
    this[kStore].writeSync((packer) => this.#packDeleteRange(packer, range), options)
  }

  // Adds an operation of a batch to a packer.
  #packOperation(packer, operation) {
    if (typeof operation !== 'object' || operation === null) {
      throw invalid(`an operation of a batch must be an object, not ${describe(operation)}`)
    }
    const { family } = operation
    const target = family === undefined ? this : this[kDatabase].resolve(family)
    switch (operation.type) {
      case 'put':
        return target.#packPut(packer, operation.key, operation.value, operation)
      case 'delete':
      case 'del':
        return packer.delete(target[kId], operation.key)
      case 'merge':
        return target.#packMerge(packer, operation.key, operation.value)
      case 'deleteRange':
        return target.#packDeleteRange(packer, operation)
    }
    throw invalid(
      "the type of an operation must be 'put', 'delete', 'merge' or 'deleteRange', " +
        `not ${JSON.stringify(operation.type) ?? describe(operation.type)}`
    )
  }

  #packBatch(operations) {
    if (typeof operations?.[Symbol.iterator] !== 'function' || typeof operations === 'string') {
      throw invalid(`the operations must be an array, not ${describe(operations)}`)
    }
    return (packer) => {
      for (const operation of operations) this.#packOperation(packer, operation)
    }
  }

  batch(operations, options) {
    if (operations === undefined) return new WriteBatch(this)
    return this.#batch(operations, options)
  }

  async #batch(operations, options) {
    return this.#write(this.#packBatch(operations), options)
  }

  batchSync(operations, options) {
    this[kStore].writeSync(this.#packBatch(operations), options)
  }
}

/** Operations that are collected, and then committed atomically. */
class WriteBatch {
  #target
  #operations = []

  constructor(target) {
    this.#target = target
  }

  get length() {
    return this.#operations.length
  }

  put(key, value, options) {
    this.#operations.push({ ...options, type: 'put', key, value })
    return this
  }

  delete(key, options) {
    this.#operations.push({ ...options, type: 'delete', key })
    return this
  }

  merge(key, value, options) {
    this.#operations.push({ ...options, type: 'merge', key, value })
    return this
  }

  deleteRange(range, options) {
    this.#operations.push({ ...options, ...range, type: 'deleteRange' })
    return this
  }

  clear() {
    this.#operations = []
    return this
  }

  async write(options) {
    return this.#target.batch(this.#operations, options)
  }

  writeSync(options) {
    this.#target.batchSync(this.#operations, options)
  }
}

function number(name, value) {
  if (typeof value === 'number' && value >= 0) return value
  throw invalid(`${name} must be a number of milliseconds of at least 0, not ${describe(value)}`)
}

function encodeValue(value, encoding) {
  if (encoding !== 'json') return value
  const text = JSON.stringify(value)
  if (text === undefined) throw invalid(`${describe(value)} cannot be stored as JSON`)
  return text
}

module.exports = {
  Reads,
  ReadsAndWrites,
  WriteBatch,
  encodeValue,
  kView,
  kId,
  kGets,
  kStore,
  kEncodings,
  kDatabase
}
