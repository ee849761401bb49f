//! Adapter for RocksDB with transactions (feature `rocksdb`): the optimistic database for levels
//! that check at commit, the locking database for the level that waits. Everything else is as in
//! `rocksdb`.

use super::rocksdb::{RocksDbCursor, build_options};
use crate::engine::{
    Cursor, EffectiveOptions, Engine, Failure, Result, Session, Sink, TxnConflict, TxnOps,
};
use crate::settings::{Level, Settings, Sync};
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, ErrorKind, OptimisticTransactionDB,
    OptimisticTransactionOptions, ReadOptions, SingleThreaded, Transaction, TransactionDB,
    TransactionDBOptions, TransactionOptions, WaitForCompactOptions, WriteBatchWithTransaction,
    WriteOptions,
};
use std::path::Path;

/// Lock timeout in milliseconds, as for the other engines.
const LOCK_TIMEOUT_MS: i64 = 1000;

enum TxnDatabase {
    /// Checks at commit.
    Optimistic(OptimisticTransactionDB<SingleThreaded>),
    /// Takes locks.
    Locking(TransactionDB<SingleThreaded>),
}

struct RocksDbTxn {
    db: TxnDatabase,
    level: Level,
    families: Vec<String>,
    sync: bool,
    options: EffectiveOptions,
}

pub fn open(dir: &Path, settings: &Settings, level: Level) -> Result<Box<dyn Engine>> {
    let (options, families, mut effective) = build_options(settings)?;
    let all = families.iter().map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
    let text = match level {
        Level::Snapshot => {
            "optimistic; what will be written is read by get_for_update under a snapshot"
        }
        Level::Serializable => {
            "optimistic; every key is read by get_for_update under a snapshot (no ranges)"
        }
        Level::Locks => {
            "pessimistic; what will be written is read by get_for_update, deadlocks are detected"
        }
    };
    effective.insert("transactions".into(), text.into());
    let db = if level == Level::Locks {
        let mut how = TransactionDBOptions::default();
        how.set_txn_lock_timeout(LOCK_TIMEOUT_MS);
        TxnDatabase::Locking(TransactionDB::open_cf_descriptors(&options, &how, dir, all)?)
    } else {
        TxnDatabase::Optimistic(OptimisticTransactionDB::open_cf_descriptors(&options, dir, all)?)
    };
    Ok(Box::new(RocksDbTxn {
        db,
        level,
        families,
        sync: settings.sync == Sync::Full,
        options: effective,
    }))
}

impl RocksDbTxn {
    fn handles(&self) -> Result<Vec<&ColumnFamily>> {
        let find = |name: &String| {
            let handle = match &self.db {
                TxnDatabase::Optimistic(db) => db.cf_handle(name),
                TxnDatabase::Locking(db) => db.cf_handle(name),
            };
            handle.ok_or_else(|| format!("no column family {name}").into())
        };
        self.families.iter().map(find).collect()
    }
    fn write_options(&self) -> WriteOptions {
        let mut options = WriteOptions::default();
        options.set_sync(self.sync);
        options
    }
}

impl Engine for RocksDbTxn {
    fn version(&self) -> String {
        super::locked_version("librocksdb-sys")
    }
    fn effective_options(&self) -> EffectiveOptions {
        self.options.clone()
    }
    fn with_session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut RocksTxnSession {
            rocks: self,
            families: self.handles()?,
            options: self.write_options(),
        })
    }
    fn wait_idle(&self) -> Result<()> {
        match &self.db {
            TxnDatabase::Optimistic(db) => {
                let mut options = WaitForCompactOptions::default();
                options.set_flush(true);
                Ok(db.wait_for_compact(&options)?)
            }
            // This kind of database has no call that reports running compactions.
            TxnDatabase::Locking(db) => {
                Ok(self.handles()?.into_iter().try_for_each(|f| db.flush_cf(f))?)
            }
        }
    }
    fn close(self: Box<Self>) -> Result<()> {
        match &self.db {
            TxnDatabase::Optimistic(db) => db.flush_wal(true)?,
            TxnDatabase::Locking(db) => db.flush_wal(true)?,
        }
        Ok(())
    }
    fn supports_level(&self, level: Level) -> bool {
        level == self.level
    }
}

struct RocksTxnSession<'e> {
    rocks: &'e RocksDbTxn,
    families: Vec<&'e ColumnFamily>,
    options: WriteOptions,
}

struct RocksTxnBatch<'a, 'e> {
    batch: WriteBatchWithTransaction<true>,
    families: &'a [&'e ColumnFamily],
}

impl Sink for RocksTxnBatch<'_, '_> {
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.put_cf(self.families[family], key, value);
        Ok(())
    }
    fn delete(&mut self, family: usize, key: &[u8]) -> Result<()> {
        self.batch.delete_cf(self.families[family], key);
        Ok(())
    }
}

impl Session for RocksTxnSession<'_> {
    fn write(
        &mut self,
        _n: usize,
        fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>,
    ) -> Result<()> {
        let mut batched =
            RocksTxnBatch { batch: WriteBatchWithTransaction::default(), families: &self.families };
        fill(&mut batched)?;
        match &self.rocks.db {
            TxnDatabase::Optimistic(db) => db.write_opt(batched.batch, &self.options)?,
            TxnDatabase::Locking(db) => db.write_opt(batched.batch, &self.options)?,
        }
        Ok(())
    }
    fn get(&mut self, family: usize, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        match &self.rocks.db {
            TxnDatabase::Optimistic(db) => {
                see(db.get_pinned_cf(self.families[family], key)?.as_deref())
            }
            TxnDatabase::Locking(db) => {
                see(db.get_pinned_cf(self.families[family], key)?.as_deref())
            }
        }
        Ok(())
    }
    fn with_cursor(
        &mut self,
        family: usize,
        work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>,
    ) -> Result<()> {
        match &self.rocks.db {
            TxnDatabase::Optimistic(db) => {
                work(&mut RocksDbCursor(db.raw_iterator_cf(self.families[family])))
            }
            TxnDatabase::Locking(db) => {
                work(&mut RocksDbCursor(db.raw_iterator_cf(self.families[family])))
            }
        }
    }
    fn run_txn(&mut self, work: &mut dyn FnMut(&mut dyn TxnOps) -> Result<()>) -> Result<()> {
        let (level, families) = (self.rocks.level, &self.families[..]);
        match &self.rocks.db {
            TxnDatabase::Optimistic(db) => {
                let mut options = OptimisticTransactionOptions::default();
                options.set_snapshot(true);
                let txn = db.transaction_opt(&self.options, &options);
                {
                    let snapshot = txn.snapshot();
                    let mut reads = ReadOptions::default();
                    reads.set_snapshot(&snapshot);
                    work(&mut RocksTxnOps { txn: &txn, families, level, reads })?;
                }
                txn.commit().map_err(map_conflict)
            }
            TxnDatabase::Locking(db) => {
                let mut options = TransactionOptions::default();
                options.set_deadlock_detect(true);
                let txn = db.transaction_opt(&self.options, &options);
                work(&mut RocksTxnOps {
                    txn: &txn,
                    families,
                    level,
                    reads: ReadOptions::default(),
                })?;
                txn.commit().map_err(map_conflict)
            }
        }
    }
}

/// Maps a conflict, a deadlock, a lock timeout or insufficient history to [`TxnConflict`].
fn map_conflict(e: rocksdb::Error) -> Failure {
    match e.kind() {
        ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain | ErrorKind::Aborted => {
            Box::new(TxnConflict)
        }
        _ => e.into(),
    }
}

struct RocksTxnOps<'a, 'e, D> {
    txn: &'a Transaction<'e, D>,
    families: &'a [&'e ColumnFamily],
    level: Level,
    reads: ReadOptions,
}

impl<D> TxnOps for RocksTxnOps<'_, '_, D> {
    fn get(
        &mut self,
        family: usize,
        key: &[u8],
        change: bool,
        see: &mut dyn FnMut(Option<&[u8]>),
    ) -> Result<()> {
        let family = self.families[family];
        let found = if change || self.level == Level::Serializable {
            self.txn.get_pinned_for_update_cf_opt(family, key, true, &self.reads)
        } else {
            self.txn.get_pinned_cf_opt(family, key, &self.reads)
        };
        see(found.map_err(map_conflict)?.as_deref());
        Ok(())
    }
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.put_cf(self.families[family], key, value).map_err(map_conflict)
    }
}
