'use strict'

// The queue of asynchronous writes of a database. Writes are committed in the order of the calls.
// Those that wait together are committed together, with one sync.

const native = require('./native')
const { Packer } = require('./packer')
const { closed, located } = require('./errors')

/** Bytes after which a group takes no further writes. */
const GROUP_BYTES_MAX = 4 << 20

/** Writes that are committed together. */
class Group {
  ends = []
  settle = []
  /** True while operations are added, which can run code of the application. */
  packing = false

  constructor(packer, durability) {
    this.packer = packer
    this.durability = durability
  }
}

class WriteQueue {
  #database
  /** Groups and calls that have not started, in order. */
  #waiting = []
  /** The last element of `waiting`, if it is a group. */
  #open = null
  #spare = null
  #running = false
  #scheduled = false
  #closed = false
  #idle = []

  /** `database`: the native database. */
  constructor(database) {
    this.#database = database
  }

  #assertOpen() {
    if (this.#closed) throw closed('the database is closed: open it again')
  }

  #group(durability) {
    const open = this.#open
    const fits =
      open !== null &&
      !open.packing &&
      open.durability === durability &&
      open.packer.length < GROUP_BYTES_MAX
    if (fits) return open
    const packer = this.#spare ?? new Packer()
    this.#spare = null
    packer.length = 0
    this.#open = new Group(packer, durability)
    this.#waiting.push(this.#open)
    return this.#open
  }

  /** Adds the operations that `pack` adds to a packer; they are committed atomically. */
  write(pack, durability) {
    this.#assertOpen()
    const group = this.#group(durability)
    // Also if `pack` fails: a group must not stay in the queue.
    this.#schedule()
    const before = group.packer.length
    group.packing = true
    try {
      pack(group.packer)
    } catch (e) {
      group.packer.length = before
      throw e
    } finally {
      group.packing = false
    }
    group.ends.push(group.packer.length)
    return new Promise((resolve, reject) => {
      group.settle.push(resolve, reject)
    })
  }

  /** Calls `start`, which returns a promise, between the writes before and after this call. */
  async call(start) {
    this.#assertOpen()
    this.#open = null
    this.#schedule()
    try {
      return await new Promise((resolve, reject) => {
        this.#waiting.push({ start, resolve, reject })
      })
    } catch (e) {
      throw located(e)
    }
  }

  /** Takes no further writes, and waits for those that were accepted. */
  close() {
    this.#closed = true
    if (!this.#running && this.#waiting.length === 0) return Promise.resolve()
    return new Promise((resolve) => {
      this.#idle.push(resolve)
    })
  }

  // After the current synchronous code, so that its writes are committed together.
  #schedule() {
    if (this.#running || this.#scheduled) return
    this.#scheduled = true
    queueMicrotask(() => {
      this.#scheduled = false
      if (!this.#running) this.#run()
    })
  }

  async #run() {
    this.#running = true
    while (this.#waiting.length > 0) {
      const next = this.#waiting.shift()
      if (next === this.#open) this.#open = null
      if (next instanceof Group) await this.#commit(next)
      else await this.#start(next)
    }
    this.#running = false
    for (const resolve of this.#idle.splice(0)) resolve()
  }

  async #start({ start, resolve, reject }) {
    try {
      resolve(await start())
    } catch (e) {
      reject(e)
    }
  }

  async #commit(group) {
    const { packer, ends, settle, durability } = group
    if (ends.length === 0) return
    let errors
    try {
      const promise = this.#database.write(
        packer.bytes(),
        Uint32Array.from(ends),
        durability,
        native.POOL
      )
      // The native module has copied the bytes.
      if (packer.reusable) this.#spare = packer
      errors = await promise
    } catch (e) {
      for (let i = 1; i < settle.length; i += 2) settle[i](e)
      return
    }
    for (let i = 0; i < ends.length; i++) {
      const error = errors[i]
      if (error) settle[2 * i + 1](error)
      else settle[2 * i]()
    }
  }
}

module.exports = { WriteQueue }
