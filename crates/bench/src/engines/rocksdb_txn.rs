//! RocksDB with transactions (feature `rocksdb`): its optimistic database for the levels that check at commit, its database
//! with locks for the one that waits. Everything else is as in `rocksdb`.

use super::rocksdb::{Walk, configured};
use crate::engine::{Cursor, Deal, Engine, Failure, Lost, Result, Session, Sink, Told};
use crate::settings::{Level, Settings, Sync};
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, ErrorKind, OptimisticTransactionDB, OptimisticTransactionOptions,
    ReadOptions, SingleThreaded, Transaction, TransactionDB, TransactionDBOptions, TransactionOptions,
    WaitForCompactOptions, WriteBatchWithTransaction, WriteOptions,
};
use std::path::Path;

/// Milliseconds that one waits for a lock, as with the others.
const PATIENCE: i64 = 1000;

enum Kind {
    /// Checked at commit.
    Optimistic(OptimisticTransactionDB<SingleThreaded>),
    /// With locks.
    Locking(TransactionDB<SingleThreaded>),
}

struct Rocks {
    db: Kind,
    level: Level,
    families: Vec<String>,
    sync: bool,
    told: Told,
}

pub fn open(dir: &Path, settings: &Settings, level: Level) -> Result<Box<dyn Engine>> {
    let (options, families, mut told) = configured(settings)?;
    let all = families.iter().map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
    let text = match level {
        Level::Snapshot => "optimistic; what will be written is read by get_for_update under a snapshot",
        Level::Serializable => "optimistic; every key is read by get_for_update under a snapshot (no ranges)",
        Level::Locks => {
            "pessimistic; what will be written is read by get_for_update, deadlocks are looked for"
        }
    };
    told.insert("transactions".into(), text.into());
    let db = if level == Level::Locks {
        let mut how = TransactionDBOptions::default();
        how.set_txn_lock_timeout(PATIENCE);
        Kind::Locking(TransactionDB::open_cf_descriptors(&options, &how, dir, all)?)
    } else {
        Kind::Optimistic(OptimisticTransactionDB::open_cf_descriptors(&options, dir, all)?)
    };
    Ok(Box::new(Rocks { db, level, families, sync: settings.sync == Sync::Full, told }))
}

impl Rocks {
    fn handles(&self) -> Result<Vec<&ColumnFamily>> {
        let find = |name: &String| {
            let handle = match &self.db {
                Kind::Optimistic(db) => db.cf_handle(name),
                Kind::Locking(db) => db.cf_handle(name),
            };
            handle.ok_or_else(|| format!("no family {name}").into())
        };
        self.families.iter().map(find).collect()
    }
    fn write_options(&self) -> WriteOptions {
        let mut options = WriteOptions::default();
        options.set_sync(self.sync);
        options
    }
}

impl Engine for Rocks {
    fn version(&self) -> String {
        super::locked("librocksdb-sys")
    }
    fn told(&self) -> Told {
        self.told.clone()
    }
    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut Asking { rocks: self, families: self.handles()?, options: self.write_options() })
    }
    fn settle(&self) -> Result<()> {
        match &self.db {
            Kind::Optimistic(db) => {
                let mut options = WaitForCompactOptions::default();
                options.set_flush(true);
                Ok(db.wait_for_compact(&options)?)
            }
            // This kind cannot be asked whether it compacts.
            Kind::Locking(db) => Ok(self.handles()?.into_iter().try_for_each(|f| db.flush_cf(f))?),
        }
    }
    fn close(self: Box<Self>) -> Result<()> {
        match &self.db {
            Kind::Optimistic(db) => db.flush_wal(true)?,
            Kind::Locking(db) => db.flush_wal(true)?,
        }
        Ok(())
    }
    fn transactions(&self, level: Level) -> bool {
        level == self.level
    }
}

struct Asking<'e> {
    rocks: &'e Rocks,
    families: Vec<&'e ColumnFamily>,
    options: WriteOptions,
}

struct Batched<'a, 'e> {
    batch: WriteBatchWithTransaction<true>,
    families: &'a [&'e ColumnFamily],
}

impl Sink for Batched<'_, '_> {
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.put_cf(self.families[family], key, value);
        Ok(())
    }
    fn delete(&mut self, family: usize, key: &[u8]) -> Result<()> {
        self.batch.delete_cf(self.families[family], key);
        Ok(())
    }
}

impl Session for Asking<'_> {
    fn write(&mut self, _n: usize, fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>) -> Result<()> {
        let mut batched = Batched { batch: WriteBatchWithTransaction::default(), families: &self.families };
        fill(&mut batched)?;
        match &self.rocks.db {
            Kind::Optimistic(db) => db.write_opt(batched.batch, &self.options)?,
            Kind::Locking(db) => db.write_opt(batched.batch, &self.options)?,
        }
        Ok(())
    }
    fn get(&mut self, family: usize, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        match &self.rocks.db {
            Kind::Optimistic(db) => see(db.get_pinned_cf(self.families[family], key)?.as_deref()),
            Kind::Locking(db) => see(db.get_pinned_cf(self.families[family], key)?.as_deref()),
        }
        Ok(())
    }
    fn cursor(&mut self, family: usize, work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>) -> Result<()> {
        match &self.rocks.db {
            Kind::Optimistic(db) => work(&mut Walk(db.raw_iterator_cf(self.families[family]))),
            Kind::Locking(db) => work(&mut Walk(db.raw_iterator_cf(self.families[family]))),
        }
    }
    fn transact(&mut self, work: &mut dyn FnMut(&mut dyn Deal) -> Result<()>) -> Result<()> {
        let (level, families) = (self.rocks.level, &self.families[..]);
        match &self.rocks.db {
            Kind::Optimistic(db) => {
                let mut options = OptimisticTransactionOptions::default();
                options.set_snapshot(true);
                let txn = db.transaction_opt(&self.options, &options);
                {
                    let snapshot = txn.snapshot();
                    let mut reads = ReadOptions::default();
                    reads.set_snapshot(&snapshot);
                    work(&mut Dealing { txn: &txn, families, level, reads })?;
                }
                txn.commit().map_err(lost)
            }
            Kind::Locking(db) => {
                let mut options = TransactionOptions::default();
                options.set_deadlock_detect(true);
                let txn = db.transaction_opt(&self.options, &options);
                work(&mut Dealing { txn: &txn, families, level, reads: ReadOptions::default() })?;
                txn.commit().map_err(lost)
            }
        }
    }
}

/// A conflict, a deadlock, a lock that was not to be had in time, or too little history to be sure.
fn lost(e: rocksdb::Error) -> Failure {
    match e.kind() {
        ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain | ErrorKind::Aborted => Box::new(Lost),
        _ => e.into(),
    }
}

struct Dealing<'a, 'e, D> {
    txn: &'a Transaction<'e, D>,
    families: &'a [&'e ColumnFamily],
    level: Level,
    reads: ReadOptions,
}

impl<D> Deal for Dealing<'_, '_, D> {
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
        see(found.map_err(lost)?.as_deref());
        Ok(())
    }
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.put_cf(self.families[family], key, value).map_err(lost)
    }
}
