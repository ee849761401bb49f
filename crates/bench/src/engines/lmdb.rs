//! LMDB, through heed. The only file of this tool with `unsafe`: mapping a file is, and heed says so.

use crate::engine::{Cursor, Engine, Result, Session, Sink, Told};
use crate::settings::{Compression, Settings, Sync};
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn};
use std::ops::Bound;
use std::path::Path;

/// Address space, not memory: far above any run's data.
const MAP_BYTES: usize = 1 << 38;

struct Lmdb {
    env: Env,
    told: Told,
}

pub fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    std::fs::create_dir_all(dir)?;
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(1024);
    if settings.sync == Sync::None {
        // SAFETY: NO_SYNC gives up durability after a power cut, which is what the run asked for; nobody pulls the plug
        // on a database of this tool and opens it afterwards.
        unsafe { options.flags(EnvFlags::NO_SYNC) };
    }
    // SAFETY: the directory was made by this process for this run; no other process or thread maps or changes its files.
    let env = unsafe { options.open(dir)? };
    let mut told = Told::new();
    let mut say = |k: &str, v: &str| told.insert(k.to_owned(), v.to_owned());
    say("durability", if settings.sync == Sync::None { "NO_SYNC" } else { "sync on commit" });
    say("cache", "not honoured: the operating system's whole page cache (bound it with --memory)");
    say("memtable", "not honoured: there is none");
    if settings.compression != Compression::None {
        say("compression", "not honoured: there is none");
    }
    say("checksums", "none");
    say("writers", "one at a time");
    say("iterator", "a range on one read transaction for each seek");
    let wtxn = env.write_txn()?;
    env.create_databases_and_commit(wtxn, |o, t| {
        o.create_database::<Bytes, Bytes>(t, None).map(CommitOrAbort::<_, ()>::Commit)
    })?;
    Ok(Box::new(Lmdb { env, told }))
}

impl Engine for Lmdb {
    fn version(&self) -> String {
        format!("0.9 (lmdb-master-sys {}, heed {})", super::locked("lmdb-master-sys"), super::locked("heed"))
    }
    fn told(&self) -> Told {
        self.told.clone()
    }
    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        let rtxn = self.env.read_txn()?;
        let opened = self.env.open_databases_and_commit(rtxn, |o, t| {
            o.open_database::<Bytes, Bytes>(t, None).map(CommitOrAbort::<_, ()>::Commit)
        })?;
        let db = opened.unwrap_commit().ok_or("the unnamed database is missing")?;
        work(&mut Asking { env: &self.env, db: &db })
    }
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.env.force_sync()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

struct Asking<'e> {
    env: &'e Env,
    db: &'e Database<'e, Bytes, Bytes>,
}

struct Writing<'a, 'e> {
    txn: &'a mut RwTxn<'e>,
    db: &'a Database<'e, Bytes, Bytes>,
}

impl Sink for Writing<'_, '_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(self.txn, key, value)?)
    }
    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.db.delete(self.txn, key)?;
        Ok(())
    }
}

impl Session for Asking<'_> {
    fn write(&mut self, _n: usize, fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        fill(&mut Writing { txn: &mut txn, db: self.db })?;
        Ok(txn.commit()?)
    }
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let txn = self.env.read_txn()?;
        see(self.db.get(&txn, key)?);
        Ok(())
    }
    fn cursor(&mut self, work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>) -> Result<()> {
        let txn = self.env.read_txn()?;
        work(&mut Walk { txn: &txn, db: self.db })
    }
}

struct Walk<'a, 'e> {
    txn: &'a RoTxn<'e>,
    db: &'a Database<'e, Bytes, Bytes>,
}

impl Cursor for Walk<'_, '_> {
    fn scan(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        // LMDB has no empty key, not even to begin from.
        let lower = if key.is_empty() { Bound::Unbounded } else { Bound::Included(key) };
        let from = (lower, Bound::Unbounded);
        for entry in self.db.range(self.txn, &from)? {
            let (key, value) = entry?;
            if !see(key, value) {
                break;
            }
        }
        Ok(())
    }
}
