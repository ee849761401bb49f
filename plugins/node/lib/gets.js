'use strict'

// Gets of single keys. Those that are called together are read together: a promise of its own for
// each in the native module would cost as much as many reads.

const native = require('./native')
const { Packer, decoders, unpackValues } = require('./packer')

/** Keys that one thread reads; larger groups are read by several threads. */
const GROUP_KEYS_MAX = 256
/** Errors that concern all keys of a group. */
const COMMON_ERRORS = ['PERIGEE_CLOSED', 'PERIGEE_NOT_FOUND']

/** Keys that are read together. */
class Group {
  packer = new Packer()
  ends = [0]
  settle = []
  decoders = []

  get size() {
    return this.decoders.length
  }
}

class GetQueue {
  #view
  #groups = []
  #spare = null

  /** `view`: the native view to read. */
  constructor(view) {
    this.#view = view
  }

  #last() {
    const last = this.#groups.at(-1)
    if (last !== undefined && last.size < GROUP_KEYS_MAX) return last
    const group = this.#spare ?? new Group()
    this.#spare = null
    // After the current synchronous code, so that its gets are read together.
    if (this.#groups.push(group) === 1) queueMicrotask(() => this.#start())
    return group
  }

  /** Returns a promise of a value; `encoding`: a name of `decoders`. */
  get(key, encoding) {
    const group = this.#last()
    const before = group.packer.length
    try {
      group.packer.data(key, 'key')
    } catch (e) {
      group.packer.length = before
      throw e
    }
    group.ends.push(group.packer.length)
    group.decoders.push(encoding)
    return new Promise((resolve, reject) => {
      group.settle.push(resolve, reject)
    })
  }

  #start() {
    for (const group of this.#groups.splice(0)) if (group.size > 0) this.#read(group)
  }

  async #read(group) {
    const { packer, settle, size } = group
    const encodings = group.decoders
    let list
    try {
      list = await this.#view.getMany(packer.bytes(), native.POOL)
    } catch (e) {
      if (size === 1 || COMMON_ERRORS.includes(e.code)) {
        for (let i = 1; i < settle.length; i += 2) settle[i](e)
      } else {
        this.#readEach(group)
      }
      return
    }
    const found = unpackValues(list, size, (_, start, end) => [start, end])
    for (let i = 0; i < size; i++) {
      try {
        settle[2 * i](found[i] && decodeOne(encodings[i], size, list, ...found[i]))
      } catch (e) {
        settle[2 * i + 1](e)
      }
    }
    if (packer.reusable) this.#spare ??= reset(group)
  }

  // After an error that may concern a single key.
  #readEach({ packer, ends, settle, decoders: encodings }) {
    for (const [i, encoding] of encodings.entries()) {
      const key = packer.bytes().subarray(ends[i] + 4, ends[i + 1])
      this.#view
        .get(key, false, native.POOL)
        .then((value) => value && decoders[encoding](value, 0, value.length))
        .then(settle[2 * i], settle[2 * i + 1])
    }
  }
}

// Copies a value out of a list with others, so that it does not keep their memory.
function decodeOne(encoding, size, buffer, start, end) {
  if (encoding === 'buffer' && size > 1) return Buffer.from(buffer.subarray(start, end))
  return decoders[encoding](buffer, start, end)
}

function reset(group) {
  group.packer.length = 0
  group.ends = [0]
  group.settle = []
  group.decoders = []
  return group
}

module.exports = { GetQueue }
