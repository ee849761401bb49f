'use strict'

const native = require('./native')
const { packed } = require('./packer')
const { closed, invalid, describe } = require('./errors')
const { durabilityOf } = require('./options')
const { Reads, ReadsAndWrites, kView, kStore, kEncodings, kDatabase } = require('./reads')

const { SYNC } = native

/** Runs the operations of a transaction one after the other, in the order of the calls. */
class TransactionStore {
  #transaction
  #last = Promise.resolve()
  /** Set by the first call that ended the transaction. */
  #ended = null
  conflict = false
  /** Calls run one after the other. */
  ordered = true

  /** `transaction`: the native transaction. */
  constructor(transaction) {
    this.#transaction = transaction
  }

  get ended() {
    return this.#ended !== null
  }

  assertActive() {
    if (this.#ended !== null) {
      throw closed(`the transaction has ended with a ${this.#ended}: begin another one`)
    }
  }

  end(how) {
    this.assertActive()
    this.#ended = how
  }

  run(call) {
    this.assertActive()
    return this.enqueue(call)
  }

  async enqueue(call) {
    const before = this.#last
    let done
    this.#last = new Promise((resolve) => {
      done = resolve
    })
    await before
    try {
      return await call()
    } catch (e) {
      this.noteConflict(e)
      throw e
    } finally {
      done()
    }
  }

  noteConflict(e) {
    if (e?.code === 'PERIGEE_CONFLICT') this.conflict = true
  }

  async write(pack) {
    this.assertActive()
    const transaction = this.#transaction
    // Copied: the transaction may be busy, and the caller may reuse the buffers.
    const list = Buffer.from(packed(pack))
    return this.enqueue(() => transaction.write(list, transaction.waitMode))
  }

  writeSync(pack) {
    this.assertActive()
    this.sync(() => this.#transaction.write(packed(pack), SYNC))
  }

  sync(call) {
    try {
      return call()
    } catch (e) {
      this.noteConflict(e)
      throw e
    }
  }
}

/** A column family as seen by a transaction, and its writes. */
class TransactionFamily extends ReadsAndWrites {
  #transaction

  constructor(family, transaction, store) {
    super(transaction.view(family[kView]), store, family[kEncodings], family[kDatabase])
    this.#transaction = transaction
  }

  get name() {
    return this[kView].name
  }

  async getForUpdate(key, options) {
    const { values } = this[kEncodings]
    const lock = lockOf(options)
    const value = await this[kStore].run(() => {
      const mode = this.#transaction.waitMode
      return this[kView].getForUpdate(key, lock, values !== 'buffer', mode)
    })
    return values === 'json' && value !== undefined ? JSON.parse(value) : value
  }

  getForUpdateSync(key, options) {
    const { values } = this[kEncodings]
    const lock = lockOf(options)
    this[kStore].assertActive()
    const text = values !== 'buffer'
    const value = this[kStore].sync(() => this[kView].getForUpdate(key, lock, text, SYNC))
    return values === 'json' && value !== undefined ? JSON.parse(value) : value
  }
}

/** A transaction. Its own methods concern the column family `default`. */
class Transaction extends TransactionFamily {
  #native
  #store
  #database

  constructor(database, transaction) {
    const store = new TransactionStore(transaction)
    super(database, transaction, store)
    this.#native = transaction
    this.#store = store
    this.#database = database
  }

  /** Returns a column family, given by object or name, as seen by the transaction. */
  family(family) {
    return new TransactionFamily(this.#database.resolve(family), this.#native, this.#store)
  }

  /** The number of writes. */
  get length() {
    return this.#native.length()
  }

  get ended() {
    return this.#store.ended
  }

  async commit(options) {
    const durability = durabilityOf(options)
    this.#store.end('commit')
    return this.#store.enqueue(() => this.#native.commit(durability, native.POOL))
  }

  commitSync(options) {
    const durability = durabilityOf(options)
    this.#store.end('commit')
    this.#store.sync(() => this.#native.commit(durability, SYNC))
  }

  async rollback() {
    if (!this.#store.ended) this.#store.end('rollback')
    return this.#store.enqueue(() => this.#native.rollback(native.POOL))
  }

  rollbackSync() {
    if (!this.#store.ended) this.#store.end('rollback')
    this.#native.rollback(SYNC)
  }

  async savepoint(name) {
    return this.#store.run(() => this.#native.savepoint(checkSavepoint(name), native.POOL))
  }

  async rollbackTo(name) {
    return this.#store.run(() => this.#native.rollbackTo(checkSavepoint(name), native.POOL))
  }

  async releaseSavepoint(name) {
    return this.#store.run(() => this.#native.releaseSavepoint(checkSavepoint(name), native.POOL))
  }

  /** True if an operation or the commit has failed with a conflict. */
  get hadConflict() {
    return this.#store.conflict
  }
}

/** A snapshot. Its own methods concern the column family `default`. */
class Snapshot extends Reads {
  #native
  #database
  #open = true

  constructor(database, snapshot) {
    const store = { run: (call) => call() }
    super(snapshot.view(database[kView]), store, database[kEncodings], database[kDatabase])
    this.#native = snapshot
    this.#database = database
  }

  /** Returns a column family, given by object or name, as of the snapshot. */
  family(family) {
    const live = this.#database.resolve(family)
    const view = this.#native.view(live[kView])
    return new Reads(view, this[kStore], live[kEncodings], live[kDatabase])
  }

  get sequence() {
    return this.#native.sequence()
  }

  get isOpen() {
    return this.#open
  }

  closeSync() {
    this.#open = false
    this.#native.close()
  }

  async close() {
    this.closeSync()
  }
}

function lockOf(options) {
  const lock = options?.lock ?? 'exclusive'
  if (lock === 'exclusive' || lock === 'shared') return lock
  throw invalid(`the lock must be 'exclusive' or 'shared', not ${String(lock)}`)
}

function checkSavepoint(name) {
  if (typeof name === 'string') return name
  throw invalid(`the name of a savepoint must be a string, not ${describe(name)}`)
}

module.exports = { Transaction, TransactionFamily, Snapshot }
