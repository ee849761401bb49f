'use strict'

// Options of databases and column families, as the text of an options file, which the native
// module checks.

const { invalid, describe } = require('./errors')

const ENCODINGS = ['buffer', 'utf8', 'json']

function checkObject(options, what) {
  if (options === undefined || options === null) return {}
  if (typeof options !== 'object' || Array.isArray(options)) {
    throw invalid(`${what} must be an object, not ${describe(options)}`)
  }
  return options
}

function formatString(text) {
  return JSON.stringify(text).replaceAll('\u007f', '\\u007f')
}

function formatValue(name, value) {
  switch (typeof value) {
    case 'string':
      return formatString(value)
    case 'boolean':
      return String(value)
    case 'bigint':
      return String(value)
    case 'number':
      if (Number.isSafeInteger(value)) return String(value)
  }
  throw invalid(
    `the option ${name} must be a string, an integer or a boolean, not ${describe(value)}`
  )
}

/** Returns the lines of an options file. Names in camel case become names in snake case. */
function toLines(options, without = []) {
  let lines = ''
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || without.includes(name)) continue
    const snake = name.replace(/[A-Z]/g, (letter) => '_' + letter.toLowerCase())
    const key = /^[a-z0-9_]+$/.test(snake) ? snake : formatString(snake)
    lines += `${key} = ${formatValue(name, value)}\n`
  }
  return lines
}

/** Returns the text of an options file for the options of `Database.open`. */
function databaseText(options) {
  let text = '[database]\n' + toLines(options, ['families', ...ENCODING_OPTIONS])
  for (const [name, family] of Object.entries(checkObject(options.families, 'families'))) {
    const own = checkObject(family, `the options of the column family ${name}`)
    text += `[family.${formatString(name)}]\n${toLines(own, ENCODING_OPTIONS)}`
  }
  return text
}

const ENCODING_OPTIONS = ['keyEncoding', 'valueEncoding']

/** Returns the lines of an options file for the options of a column family. */
function familyLines(options) {
  return toLines(checkObject(options, 'the options'), ENCODING_OPTIONS)
}

/** Returns the encodings in `options`, or else those of `defaults`. */
function encodings(options, defaults) {
  const keys = options?.keyEncoding ?? defaults.keys
  const values = options?.valueEncoding ?? defaults.values
  if (keys !== 'buffer' && keys !== 'utf8') {
    throw invalid(`keyEncoding must be 'buffer' or 'utf8', not ${String(keys)}`)
  }
  if (!ENCODINGS.includes(values)) {
    throw invalid(`valueEncoding must be one of ${ENCODINGS.join(', ')}, not ${String(values)}`)
  }
  return { keys, values }
}

/** Returns the durability of a write. */
function durabilityOf(options) {
  const durability = options?.durability
  if (durability === undefined || durability === 'full' || durability === 'none') return durability
  throw invalid(`the durability of a write must be 'full' or 'none', not ${String(durability)}`)
}

module.exports = { checkObject, databaseText, familyLines, encodings, durabilityOf }
