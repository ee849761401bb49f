'use strict'

// Encodes and decodes the lists that are passed to and from the native module in one buffer. The
// formats are described in src/packed.rs and src/operations.rs.

const { invalid, describe } = require('./errors')

/** A packer with a larger buffer is not reused. */
const REUSED_BYTES_MAX = 1 << 20
/** Strings longer than this are measured before they are encoded. */
const LONG_STRING = 1 << 16
const ABSENT = 0xffffffff

const OP = {
  PUT: 1,
  DELETE: 2,
  PUT_TTL: 3,
  PUT_UNTIL: 4,
  MERGE: 5,
  DELETE_RANGE: 6,
  DELETE_PREFIX: 7
}

/** A buffer that grows. */
class Packer {
  #buffer = Buffer.allocUnsafeSlow(4096)
  length = 0

  /** Returns what was added; valid until the next change of the packer. */
  bytes() {
    return this.#buffer.subarray(0, this.length)
  }

  get reusable() {
    return this.#buffer.length <= REUSED_BYTES_MAX
  }

  #reserve(count) {
    const needed = this.length + count
    if (needed <= this.#buffer.length) return
    const larger = Buffer.allocUnsafeSlow(Math.max(needed, this.#buffer.length * 2))
    this.#buffer.copy(larger, 0, 0, this.length)
    this.#buffer = larger
  }

  #setU32(at, value) {
    const buffer = this.#buffer
    buffer[at] = value
    buffer[at + 1] = value >>> 8
    buffer[at + 2] = value >>> 16
    buffer[at + 3] = value >>> 24
  }

  u8(value) {
    this.#reserve(1)
    this.#buffer[this.length++] = value
  }

  u32(value) {
    this.#reserve(4)
    this.#setU32(this.length, value)
    this.length += 4
  }

  f64(value) {
    this.#reserve(8)
    this.length = this.#buffer.writeDoubleLE(value, this.length)
  }

  /** Adds the length and the bytes of a string (as UTF-8) or of a view of an ArrayBuffer. */
  data(value, what) {
    if (typeof value === 'string') {
      const most = value.length > LONG_STRING ? Buffer.byteLength(value) : value.length * 3
      this.#reserve(4 + most)
      const written = this.#buffer.write(value, this.length + 4, most, 'utf8')
      this.#setU32(this.length, written)
      this.length += 4 + written
    } else {
      const view = toBytes(value, what)
      this.#reserve(4 + view.length)
      this.#setU32(this.length, view.length)
      this.#buffer.set(view, this.length + 4)
      this.length += 4 + view.length
    }
  }

  /** Adds the code of an operation and the id of its column family. */
  operation(code, family) {
    this.u8(code)
    this.u32(family)
  }

  put(family, key, value) {
    this.operation(OP.PUT, family)
    this.data(key, 'key')
    this.data(value, 'value')
  }

  delete(family, key) {
    this.operation(OP.DELETE, family)
    this.data(key, 'key')
  }

  #bound(inclusive, exclusive) {
    const key = inclusive ?? exclusive
    if (key === undefined || key === null) {
      this.u8(0)
      this.u32(0)
    } else {
      this.u8(inclusive === undefined || inclusive === null ? 2 : 1)
      this.data(key, 'bound')
    }
  }

  /** Adds a key range. `gte` and `lte` take precedence over `gt` and `lt`. */
  range(options) {
    const prefix = options.prefix
    if (prefix !== undefined && prefix !== null) {
      for (const name of ['gt', 'gte', 'lt', 'lte']) {
        if (options[name] !== undefined && options[name] !== null) {
          throw invalid(`a range has either a prefix or bounds, but it has also ${name}`)
        }
      }
      this.#prefix(prefix)
      return
    }
    this.#bound(options.gte, options.gt)
    this.#bound(options.lte, options.lt)
  }

  #prefix(prefix) {
    const first = typeof prefix === 'string' ? Buffer.from(prefix) : toBytes(prefix, 'prefix')
    // The first key after all keys with the prefix: the last byte that is not 255, plus one.
    let length = first.length
    while (length > 0 && first[length - 1] === 255) length--
    const end = Buffer.from(first.subarray(0, length))
    if (length > 0) end[length - 1]++
    this.#bound(first, undefined)
    this.#bound(undefined, length > 0 ? end : undefined)
  }
}

/** Returns a view of an ArrayBuffer as bytes. */
function toBytes(value, what) {
  if (value instanceof Uint8Array) return value
  if (ArrayBuffer.isView(value)) {
    return new Uint8Array(value.buffer, value.byteOffset, value.byteLength)
  }
  throw invalid(`the ${what} must be a string, a Buffer or a Uint8Array, not ${describe(value)}`)
}

// One packer for calls that pass its bytes on at once: the native module copies them. `null` while
// it is in use: what is packed can be code of the application (iterables, `toJSON`).
let scratch = new Packer()

/** Calls `pack` with an empty packer and returns its bytes; valid until the next call. */
function packed(pack) {
  const packer = scratch ?? new Packer()
  scratch = null
  try {
    packer.length = 0
    pack(packer)
    return packer.bytes()
  } finally {
    scratch = packer.reusable ? packer : new Packer()
  }
}

/** Returns a packed list of keys; valid until the next call. */
function packKeys(keys) {
  if (!Array.isArray(keys)) throw invalid(`the keys must be an array, not ${describe(keys)}`)
  return packed((packer) => {
    for (const key of keys) packer.data(key, 'key')
  })
}

/** Returns a packed key range; valid until the next call. */
function packRange(options) {
  return packed((packer) => packer.range(options))
}

/** Returns the values of a packed list; `decode` gets the buffer, start and end of each. */
function unpackValues(buffer, count, decode) {
  const values = new Array(count)
  let at = 0
  for (let i = 0; i < count; i++) {
    const length = buffer.readUInt32LE(at)
    at += 4
    if (length === ABSENT) {
      values[i] = undefined
    } else {
      values[i] = decode(buffer, at, at + length)
      at += length
    }
  }
  return values
}

/**
 * Calls `add(buffer, key start, value start, value end)` for each entry of a packed list. Returns
 * true if the scan has ended.
 */
function unpackEntries(buffer, add) {
  let at = 1
  while (at < buffer.length) {
    const keyLength = buffer.readUInt32LE(at)
    const valueLength = buffer.readUInt32LE(at + 4)
    const value = at + 8 + keyLength
    add(buffer, at + 8, value, value + valueLength)
    at = value + valueLength
  }
  return buffer[0] === 1
}

/** Decoders of a part of a buffer, by encoding. */
const decoders = {
  buffer: (buffer, start, end) => buffer.subarray(start, end),
  utf8: (buffer, start, end) => buffer.toString('utf8', start, end),
  json: (buffer, start, end) => JSON.parse(buffer.toString('utf8', start, end))
}

module.exports = {
  OP,
  Packer,
  packed,
  packKeys,
  packRange,
  unpackValues,
  unpackEntries,
  decoders
}
