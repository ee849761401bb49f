import perigeedb from './index.js'

export const {
  Database,
  ColumnFamily,
  Transaction,
  TransactionFamily,
  Snapshot,
  RangeIterator,
  WriteBatch,
  PerigeeError,
  listBackups,
  verifyBackup,
  restoreBackup,
  pruneBackups,
  repair
} = perigeedb
