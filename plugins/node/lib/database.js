'use strict'

const { inspect } = require('node:util')
const { setTimeout: sleep } = require('node:timers/promises')
const native = require('./native')
const { invalid, closed, describe, located } = require('./errors')
const { packed, packRange } = require('./packer')
const { checkObject, databaseText, familyLines, encodings, durabilityOf } = require('./options')
const { WriteQueue } = require('./queue')
const { ReadsAndWrites, encodeValue, kView, kStore, kEncodings, kDatabase } = require('./reads')
const { Transaction, Snapshot } = require('./transaction')

const { POOL, SYNC } = native
/** Attempts of `Database.transaction`, and the pauses between them in milliseconds. */
const ATTEMPTS = 100
const PAUSE_MIN = 0.1
const PAUSE_MAX = 50

const DEFAULT_ENCODINGS = { keys: 'buffer', values: 'buffer' }
/** Guards the constructors: objects are created by functions that check their arguments. */
const kConstruct = Symbol('perigeedb.construct')

/** Reads and writes of an open database. */
class LiveStore {
  constructor(database) {
    this.database = database
    this.queue = new WriteQueue(database)
    this.open = true
  }

  run(call) {
    return call()
  }

  write(pack, options) {
    return this.queue.write(pack, durabilityOf(options))
  }

  writeSync(pack, options) {
    this.assertOpen()
    const list = packed(pack)
    this.database.write(list, Uint32Array.of(list.length), durabilityOf(options), SYNC)
  }

  assertOpen() {
    if (!this.open) throw closed('the database is closed: open it again')
  }
}

/** A column family: an ordered map of keys to values with options of its own. */
class ColumnFamily extends ReadsAndWrites {
  constructor(guard, view, store, encodings, database) {
    if (guard !== kConstruct) {
      throw invalid('get column families from db.family(name) or db.createFamily(name)')
    }
    super(view, store, encodings, database)
  }

  get name() {
    return this[kView].name
  }

  // Bytes of a value or expectation, in the encoding of values; `undefined` and `null`: no value.
  #encode(value) {
    if (value === undefined || value === null) return null
    return encodeValue(value, this[kEncodings].values)
  }

  async compareAndSwap(key, expected, value) {
    const [before, after] = [this.#encode(expected), this.#encode(value)]
    const other = await this[kStore].queue.call(() =>
      this[kView].compareAndSwap(key, before, after, POOL)
    )
    if (other === undefined) return { swapped: true, current: value ?? undefined }
    const current = this.#decodeOne(other)
    return { swapped: false, current }
  }

  #decodeOne(list) {
    if (list.readUInt32LE(0) === 0xffffffff) return undefined
    const bytes = list.subarray(4)
    switch (this[kEncodings].values) {
      case 'buffer':
        return bytes
      case 'utf8':
        return bytes.toString()
      default:
        return JSON.parse(bytes.toString())
    }
  }

  async take(key) {
    const { values } = this[kEncodings]
    const text = values !== 'buffer'
    const value = await this[kStore].queue.call(() => this[kView].take(key, text, POOL))
    return values === 'json' && value !== undefined ? JSON.parse(value) : value
  }

  async estimate(range) {
    const list = packRange(checkObject(range, 'the range'))
    return JSON.parse(await this[kView].estimate(list, POOL))
  }

  async flush() {
    return this[kStore].queue.call(() => this[kView].flush(POOL))
  }

  async compact(range) {
    range = checkObject(range, 'the range')
    return this[kStore].queue.call(() => this[kView].compactRange(packRange(range), POOL))
  }

  async stats() {
    return JSON.parse(await this[kView].stats(POOL))
  }

  async options() {
    return JSON.parse(await this[kView].options(POOL))
  }

  async setOptions(options) {
    const lines = familyLines(options)
    return this[kStore].queue.call(() => this[kView].setOptions(lines, POOL))
  }

  [inspect.custom]() {
    return `ColumnFamily { name: ${inspect(this.name)} }`
  }
}

/** An open database. Its own reads and writes concern the column family `default`. */
class Database extends ReadsAndWrites {
  #path
  #native
  #closing = null

  constructor(guard, path, database, encodings) {
    if (guard !== kConstruct) throw invalid('open a database with await Database.open(path)')
    super(database.family('default'), new LiveStore(database), encodings)
    this.#path = path
    this.#native = database
  }

  static #parse(path, options) {
    if (typeof path !== 'string' || path === '') {
      throw invalid(`the path must be a non-empty string, not ${describe(path)}`)
    }
    options = checkObject(options, 'the options')
    return [databaseText(options), encodings(options, DEFAULT_ENCODINGS)]
  }

  static async open(path, options) {
    const [text, encodings] = Database.#parse(path, options)
    try {
      const database = await native.open(path, text, POOL)
      return new this(kConstruct, path, database, encodings)
    } catch (e) {
      throw located(e)
    }
  }

  static openSync(path, options) {
    const [text, encodings] = Database.#parse(path, options)
    return new this(kConstruct, path, native.open(path, text, SYNC), encodings)
  }

  get path() {
    return this.#path
  }

  get isOpen() {
    return this[kStore].open
  }

  close() {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close() {
    const store = this[kStore]
    await store.queue.close()
    store.open = false
    await this.#native.close(POOL)
  }

  closeSync() {
    const store = this[kStore]
    store.queue.close()
    store.open = false
    this.#native.close(SYNC)
    this.#closing ??= Promise.resolve()
  }

  #assertOpen() {
    this[kStore].assertOpen()
  }

  #family(view, options) {
    const own = encodings(options, this[kEncodings])
    return new ColumnFamily(kConstruct, view, this[kStore], own, this)
  }

  /** Returns the column family of a name or an object, and checks that it is of this database. */
  resolve(family) {
    if (typeof family === 'string') return this.family(family)
    const known = family instanceof ColumnFamily || family instanceof Database
    if (!known) {
      throw invalid(`a column family must be given by name or object, not as ${describe(family)}`)
    }
    if (family[kDatabase] !== this) {
      throw invalid('the column family belongs to another database: get it from this one')
    }
    return family
  }

  family(name, options) {
    this.#assertOpen()
    return this.#family(this.#native.family(checkName(name)), options)
  }

  async #create(name, options, mayExist) {
    this.#assertOpen()
    const lines = familyLines(options)
    const view = await this.#native.createFamily(checkName(name), lines, mayExist, POOL)
    return this.#family(view, options)
  }

  async createFamily(name, options) {
    return this.#create(name, options, false)
  }

  async familyOrCreate(name, options) {
    return this.#create(name, options, true)
  }

  async dropFamily(name) {
    return this[kStore].queue.call(() => this.#native.dropFamily(checkName(name), POOL))
  }

  async clearFamily(name) {
    return this[kStore].queue.call(() => this.#native.clearFamily(checkName(name), POOL))
  }

  async renameFamily(name, to) {
    const [from, target] = [checkName(name), checkName(to)]
    return this[kStore].queue.call(() => this.#native.renameFamily(from, target, POOL))
  }

  families() {
    this.#assertOpen()
    return this.#native.families()
  }

  snapshot() {
    this.#assertOpen()
    return new Snapshot(this, this.#native.snapshot())
  }

  begin(options) {
    this.#assertOpen()
    return new Transaction(this, this.#native.begin(txnOptions(options)))
  }

  async transaction(work, options) {
    if (typeof work !== 'function') {
      throw invalid(`the first argument must be a function, not ${describe(work)}`)
    }
    this.#assertOpen()
    const { attempts = ATTEMPTS, durability } = options ?? {}
    const transaction = this.#native.begin(txnOptions(options))
    let pause = PAUSE_MIN
    for (let attempt = 1; ; attempt++) {
      const current = new Transaction(this, transaction)
      try {
        const result = await work(current)
        if (!current.ended) await current.commit({ durability })
        return result
      } catch (e) {
        await current.rollback()
        if (!current.hadConflict || attempt >= attempts) throw e
      }
      await sleep(pause * (0.5 + Math.random()))
      pause = Math.min(pause * 2, PAUSE_MAX)
      await transaction.reset(POOL)
    }
  }

  async compareAndSwap(key, expected, value) {
    return this.#default().compareAndSwap(key, expected, value)
  }

  async take(key) {
    return this.#default().take(key)
  }

  async estimate(range) {
    return this.#default().estimate(range)
  }

  #default() {
    this.#assertOpen()
    return new ColumnFamily(kConstruct, this[kView], this[kStore], this[kEncodings], this)
  }

  async sync() {
    return this[kStore].queue.call(() => this.#native.sync(POOL))
  }

  syncSync() {
    this.#native.sync(SYNC)
  }

  async flush() {
    return this[kStore].queue.call(() => this.#native.flush(POOL))
  }

  async compact() {
    return this[kStore].queue.call(() => this.#native.compact(POOL))
  }

  async purge() {
    return this[kStore].queue.call(() => this.#native.purge(POOL))
  }

  async waitIdle() {
    this.#assertOpen()
    return this.#native.waitIdle(POOL)
  }

  async verify() {
    return JSON.parse(await this.#native.verify(POOL))
  }

  async backup(dir) {
    checkPath(dir)
    return this[kStore].queue.call(async () => JSON.parse(await this.#native.backup(dir, POOL)))
  }

  async checkpoint(dir) {
    checkPath(dir)
    const call = async () => JSON.parse(await this.#native.checkpoint(dir, POOL))
    return this[kStore].queue.call(call)
  }

  async stats() {
    this.#assertOpen()
    return JSON.parse(await this.#native.stats(POOL))
  }

  async metrics() {
    this.#assertOpen()
    return this.#native.metrics(POOL)
  }

  [inspect.custom]() {
    return `Database { path: ${inspect(this.path)}, isOpen: ${this.isOpen} }`
  }
}

function checkName(name) {
  if (typeof name === 'string') return name
  throw invalid(`the name of a column family must be a string, not ${describe(name)}`)
}

function checkPath(path) {
  if (typeof path === 'string' && path !== '') return path
  throw invalid(`the directory must be a non-empty string, not ${describe(path)}`)
}

/** Options of transactions and the types of their values. */
const TXN_OPTIONS = {
  isolation: 'string',
  readOnly: 'boolean',
  pessimistic: 'boolean',
  lockTimeout: 'number',
  timeout: 'number',
  maxBytes: 'number',
  spillBytes: 'number',
  attempts: 'number',
  durability: 'string'
}

function txnOptions(options) {
  options = checkObject(options, 'the options')
  const result = {}
  for (const [name, value] of Object.entries(options)) {
    const type = TXN_OPTIONS[name]
    if (type === undefined) {
      const known = Object.keys(TXN_OPTIONS).join(', ')
      throw invalid(`unknown option ${name} of a transaction: the known ones are ${known}`)
    }
    if (value === undefined) continue
    // eslint-disable-next-line valid-typeof
    if (typeof value !== type) {
      throw invalid(`the option ${name} must be a ${type}, not ${describe(value)}`)
    }
    result[name] = value
  }
  return result
}

function generationOf(options) {
  const generation = options?.generation
  if (generation === undefined || (Number.isSafeInteger(generation) && generation > 0)) {
    return generation
  }
  throw invalid(`generation must be an integer of at least 1, not ${String(generation)}`)
}

/** Lists the generations in a backup directory. */
async function listBackups(dir) {
  return JSON.parse(await native.listBackups(checkPath(dir), POOL))
}

/** Reads every byte of a backup directory, or of one generation. */
async function verifyBackup(dir, options) {
  return JSON.parse(await native.verifyBackup(checkPath(dir), generationOf(options), POOL))
}

/** Restores a generation, the newest by default, into a new directory. */
async function restoreBackup(dir, target, options) {
  checkPath(dir)
  checkPath(target)
  return JSON.parse(await native.restoreBackup(dir, target, generationOf(options), POOL))
}

/** Removes all generations but the `keep` newest ones. */
async function pruneBackups(dir, keep) {
  if (!Number.isInteger(keep) || keep < 1) throw invalid('keep must be an integer of at least 1')
  return JSON.parse(await native.pruneBackups(checkPath(dir), keep, POOL))
}

/** Copies what is readable of a damaged database into a new directory. */
async function repair(source, target) {
  checkPath(source)
  checkPath(target)
  return JSON.parse(await native.repair(source, target, POOL))
}

module.exports = {
  Database,
  ColumnFamily,
  listBackups,
  verifyBackup,
  restoreBackup,
  pruneBackups,
  repair
}
