'use strict'

const native = require('./native')
const { unpackEntries, decoders } = require('./packer')
const { PerigeeError, invalid, closed, describe } = require('./errors')

/** Entries of the first read; each read doubles the number. */
const FIRST_COUNT = 16
const COUNT_MAX = 1024
/** Bytes after which a read ends. Entries of a read share one buffer. */
const BATCH_BYTES = 64 << 10

/**
 * A scan of a key range: an asynchronous and a synchronous iterator over `[key, value]`, keys or
 * values. It shows the entries that existed when it was created.
 */
class RangeIterator {
  #native
  #decode
  #store
  #items = []
  #next = 0
  #count = FIRST_COUNT
  #left
  #ended = false
  #seekable = false
  #fetching = null
  #generation = 0

  /** `scan`: the native iterator; `kind`: 'entries', 'keys' or 'values'. */
  constructor(scan, kind, encodings, limit, store) {
    this.#native = scan
    this.#store = store
    this.#left = checkLimit(limit)
    const key = decoders[encodings.keys]
    const value = decoders[encodings.values]
    this.#decode = {
      entries: (b, k, v, end) => [key(b, k, v), value(b, v, end)],
      keys: (b, k, v) => key(b, k, v),
      values: (b, k, v, end) => value(b, v, end)
    }[kind]
  }

  #assertOpen() {
    if (this.#native === null) throw closed('the iterator is closed: create another one')
  }

  #assertIdle(name) {
    if (this.#fetching === null) return
    throw new PerigeeError('PERIGEE_BUSY', `${name}() during a read: await the promise of it first`)
  }

  // The number of entries that the next read should return.
  #nextCount(wanted) {
    const count = Math.min(wanted ?? this.#count, this.#left)
    this.#count = Math.min(this.#count * 2, COUNT_MAX)
    return count
  }

  // Takes over the entries of a packed list.
  #accept(list) {
    const items = []
    const ended = unpackEntries(list, (b, k, v, end) => items.push(this.#decode(b, k, v, end)))
    this.#items = items
    this.#next = 0
    this.#left -= items.length
    if (ended || this.#left === 0) this.#end()
  }

  // No more entries: releases the native iterator, unless a seek may follow.
  #end() {
    this.#ended = true
    if (!this.#seekable || this.#left === 0) this.#release()
  }

  #release() {
    this.#native?.close()
    this.#native = null
  }

  async #fetch(wanted) {
    const generation = this.#generation
    try {
      const count = this.#nextCount(wanted)
      const scan = this.#native
      const list = await this.#store.run(() => scan.read(count, BATCH_BYTES, native.POOL))
      // Not if a seek or close came in between.
      if (generation === this.#generation) this.#accept(list)
    } finally {
      if (generation === this.#generation) this.#fetching = null
    }
  }

  get #available() {
    return this.#next < this.#items.length
  }

  /** Returns the next element, as `{ value, done }`. Calls may overlap. */
  async next() {
    while (!this.#available) {
      if (this.#ended || this.#left === 0) return { value: undefined, done: true }
      this.#assertOpen()
      this.#fetching ??= this.#fetch()
      await this.#fetching
    }
    return { value: this.#items[this.#next++], done: false }
  }

  /** Returns the next element, as `{ value, done }`, without a promise. */
  nextSync() {
    while (!this.#available) {
      if (this.#ended || this.#left === 0) return { value: undefined, done: true }
      this.#assertOpen()
      this.#assertIdle('nextSync')
      this.#accept(this.#native.read(this.#nextCount(), BATCH_BYTES, native.SYNC))
    }
    return { value: this.#items[this.#next++], done: false }
  }

  /** Returns up to `size` elements; an empty array at the end. */
  async nextBatch(size) {
    if (!Number.isInteger(size) || size < 1) {
      throw invalid(`the size must be an integer of at least 1, not ${describe(size)} ${size}`)
    }
    const batch = []
    while (batch.length < size) {
      if (!this.#available) {
        if (this.#ended || this.#left === 0) break
        this.#assertOpen()
        this.#fetching ??= this.#fetch(size - batch.length)
        await this.#fetching
        continue
      }
      const from = this.#next
      this.#next = Math.min(this.#items.length, from + size - batch.length)
      batch.push(...this.#items.slice(from, this.#next))
    }
    return batch
  }

  /** Returns all remaining elements, and closes the iterator. */
  async all() {
    try {
      const all = []
      while (true) {
        const batch = await this.nextBatch(COUNT_MAX)
        if (batch.length === 0) return all
        for (const item of batch) all.push(item)
      }
    } finally {
      await this.close()
    }
  }

  /** Returns all remaining elements without a promise, and closes the iterator. */
  allSync() {
    return [...this]
  }

  /** Continues with the first entry of the range at or after `key`, in the order of the scan. */
  seek(key) {
    this.#assertOpen()
    this.#assertIdle('seek')
    this.#native.seek(key)
    this.#seekable = true
    this.#items = []
    this.#next = 0
    this.#ended = false
    this.#count = FIRST_COUNT
  }

  /** Closes the iterator. A read that is running finishes first. */
  async close() {
    this.closeSync()
  }

  /** Same as `close`, without a promise. */
  closeSync() {
    this.#generation++
    this.#items = []
    this.#next = 0
    this.#ended = true
    this.#release()
  }

  /** Ends a `for await` loop early. */
  async return(value) {
    this.closeSync()
    return { value, done: true }
  }

  [Symbol.asyncIterator]() {
    return this
  }

  *[Symbol.iterator]() {
    try {
      while (true) {
        const { value, done } = this.nextSync()
        if (done) return
        yield value
      }
    } finally {
      this.closeSync()
    }
  }
}

function checkLimit(limit) {
  if (limit === undefined || limit === null || limit === -1) return Infinity
  if ((Number.isInteger(limit) && limit >= 0) || limit === Infinity) return limit
  throw invalid(`the limit must be an integer of at least 0, not ${describe(limit)} ${limit}`)
}

module.exports = { RangeIterator }
