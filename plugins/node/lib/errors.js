'use strict'

/**
 * An error of the database. Errors that the native module creates are plain `Error` objects with
 * the same properties; `instanceof PerigeeError` is true for both.
 */
class PerigeeError extends Error {
  constructor(code, message, options) {
    super(message, options)
    this.name = 'PerigeeError'
    this.code = code
    this.retryable = false
  }

  static [Symbol.hasInstance](value) {
    return (
      Object.prototype.toString.call(value) === '[object Error]' &&
      typeof value.code === 'string' &&
      value.code.startsWith('PERIGEE_')
    )
  }
}

/** Returns the error for an argument that breaks a rule. */
function invalid(message) {
  return new PerigeeError('PERIGEE_INVALID_ARGUMENT', message)
}

/** Returns the error for the use of a handle after its end. */
function closed(message) {
  return new PerigeeError('PERIGEE_CLOSED', message)
}

/** Describes a value in a message. */
function describe(value) {
  if (value === null || value === undefined) return String(value)
  if (typeof value === 'object') return `an object of class ${value.constructor?.name ?? 'Object'}`
  return `a ${typeof value}`
}

/** Gives an error of the native module a stack trace: that of the calling function. */
function located(error) {
  if (error instanceof PerigeeError && !error.stack?.includes('\n    at ')) {
    Error.captureStackTrace(error, located)
  }
  return error
}

module.exports = { PerigeeError, invalid, closed, describe, located }
