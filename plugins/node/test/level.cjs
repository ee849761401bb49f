'use strict'

// The test suite of abstract-level, unchanged, on stores of Perigee.

const test = require('tape')
const suite = require('abstract-level/test')
const { mkdtempSync, rmSync } = require('node:fs')
const { tmpdir } = require('node:os')
const path = require('node:path')
const { PerigeeLevel } = require('perigeedb/level')

const root = mkdtempSync(path.join(tmpdir(), 'perigeedb-level-'))
let count = 0

suite({
  test,
  factory(options) {
    return new PerigeeLevel(path.join(root, String(++count)), options)
  }
})

test.onFinish(() => rmSync(root, { recursive: true, force: true }))
