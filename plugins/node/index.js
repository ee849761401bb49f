'use strict'

const { Database, ColumnFamily, ...functions } = require('./lib/database')
const { Transaction, TransactionFamily, Snapshot } = require('./lib/transaction')
const { RangeIterator } = require('./lib/iterator')
const { WriteBatch } = require('./lib/reads')
const { PerigeeError } = require('./lib/errors')

// Explicit resource management (`using`, `await using`): the symbols exist from Node 20 on.
for (const Class of [Database, Snapshot, RangeIterator]) {
  define(Class, Symbol.asyncDispose, function () {
    return this.close()
  })
  define(Class, Symbol.dispose, function () {
    this.closeSync()
  })
}
// A transaction that was not committed is rolled back.
define(Transaction, Symbol.asyncDispose, async function () {
  if (!this.ended) await this.rollback()
})
define(Transaction, Symbol.dispose, function () {
  if (!this.ended) this.rollbackSync()
})

function define(Class, symbol, value) {
  if (typeof symbol !== 'symbol') return
  Object.defineProperty(Class.prototype, symbol, { value, writable: true, configurable: true })
}

exports.Database = Database
exports.ColumnFamily = ColumnFamily
exports.Transaction = Transaction
exports.TransactionFamily = TransactionFamily
exports.Snapshot = Snapshot
exports.RangeIterator = RangeIterator
exports.WriteBatch = WriteBatch
exports.PerigeeError = PerigeeError
exports.listBackups = functions.listBackups
exports.verifyBackup = functions.verifyBackup
exports.restoreBackup = functions.restoreBackup
exports.pruneBackups = functions.pruneBackups
exports.repair = functions.repair
