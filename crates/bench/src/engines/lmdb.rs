//! Adapter for LMDB, through heed. Opening is `unsafe` in heed because it maps a file.

use crate::engine::{Cursor, EffectiveOptions, Engine, Result, Session, Sink, TxnOps};
use crate::settings::{Compression, Level, Settings, Sync};
use heed::types::Bytes;
use heed::{
    CommitOrAbort, CommitToken, Database, Env, EnvFlags, EnvOpenOptions, OnCommit, RoTxn, RwTxn,
    WithTls,
};
use std::ops::Bound;
use std::path::Path;

/// Address space, not memory: far above any run's data.
const MAP_BYTES: usize = 1 << 38;

type Table = Database<'static, Bytes, Bytes>;

struct Lmdb {
    env: Env,
    tables: Vec<Table>,
    options: EffectiveOptions,
}

/// Tables opened in a transaction, which other transactions may use once it has been committed.
struct OpenTables<'t>(Vec<Database<'t, Bytes, Bytes>>);

impl OnCommit for OpenTables<'_> {
    type Committed = Vec<Table>;
    fn on_commit(self, token: &CommitToken) -> Vec<Table> {
        self.0.into_iter().map(|t| t.on_commit(token)).collect()
    }
}

pub fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    std::fs::create_dir_all(dir)?;
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(1024).max_dbs(u32::try_from(settings.families())?);
    if settings.sync == Sync::None {
        // SAFETY: NO_SYNC gives up durability after a power cut, as the settings requested; no
        // database of this tool is reopened after a power cut.
        unsafe { options.flags(EnvFlags::NO_SYNC) };
    }
    // SAFETY: this process created the directory for this run; no other process or thread maps or
    // changes its files.
    let env = unsafe { options.open(dir)? };
    let mut effective = EffectiveOptions::new();
    let mut say = |k: &str, v: &str| effective.insert(k.to_owned(), v.to_owned());
    say("durability", if settings.sync == Sync::None { "NO_SYNC" } else { "sync on commit" });
    say("cache", "not honoured: the operating system's whole page cache (bound it with --memory)");
    say("memtable", "not honoured: there is none");
    if settings.compression != Compression::None {
        say("compression", "not honoured: there is none");
    }
    say("checksums", "none");
    say("bulk load", "all entries in one transaction");
    say("writers", "one at a time");
    say("iterator", "a range on one read transaction for each seek");
    let wtxn = env.write_txn()?;
    let created = env.create_databases_and_commit(wtxn, |o, t| {
        // A single table needs no name; named tables are entries of the unnamed one.
        let name = |f: usize| (settings.families() > 1).then(|| format!("family {f}"));
        let tables = (0..settings.families())
            .map(|f| o.create_database::<Bytes, Bytes>(t, name(f).as_deref()));
        tables
            .collect::<heed::Result<Vec<_>>>()
            .map(|all| CommitOrAbort::<_, ()>::Commit(OpenTables(all)))
    })?;
    Ok(Box::new(Lmdb { env, tables: created.unwrap_commit(), options: effective }))
}

impl Engine for Lmdb {
    fn version(&self) -> String {
        format!(
            "0.9 (lmdb-master-sys {}, heed {})",
            super::locked_version("lmdb-master-sys"),
            super::locked_version("heed")
        )
    }
    fn effective_options(&self) -> EffectiveOptions {
        self.options.clone()
    }
    fn with_session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut LmdbSession { env: &self.env, tables: &self.tables, read_txn: None })
    }
    fn wait_idle(&self) -> Result<()> {
        Ok(())
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.env.force_sync()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
    /// There is one writer at a time, so all levels behave alike.
    fn supports_level(&self, _level: Level) -> bool {
        true
    }
    fn max_value_bytes(&self) -> u64 {
        u64::from(u32::MAX)
    }
}

struct LmdbSession<'e> {
    env: &'e Env,
    tables: &'e [Table],
    read_txn: Option<RoTxn<'e, WithTls>>,
}

struct LmdbWriteTxn<'a, 'e> {
    txn: &'a mut RwTxn<'e>,
    tables: &'a [Table],
}

impl Sink for LmdbWriteTxn<'_, '_> {
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.tables[family].put(self.txn, key, value)?)
    }
    fn delete(&mut self, family: usize, key: &[u8]) -> Result<()> {
        self.tables[family].delete(self.txn, key)?;
        Ok(())
    }
}

impl TxnOps for LmdbWriteTxn<'_, '_> {
    fn get(
        &mut self,
        family: usize,
        key: &[u8],
        _change: bool,
        see: &mut dyn FnMut(Option<&[u8]>),
    ) -> Result<()> {
        see(self.tables[family].get(self.txn, key)?);
        Ok(())
    }
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        Sink::put(self, family, key, value)
    }
}

impl Session for LmdbSession<'_> {
    fn write(
        &mut self,
        _n: usize,
        fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>,
    ) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        fill(&mut LmdbWriteTxn { txn: &mut txn, tables: self.tables })?;
        Ok(txn.commit()?)
    }
    fn get(&mut self, family: usize, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        match &self.read_txn {
            Some(txn) => see(self.tables[family].get(txn, key)?),
            None => {
                let txn = self.env.read_txn()?;
                see(self.tables[family].get(&txn, key)?);
            }
        }
        Ok(())
    }
    fn bulk_load(
        &mut self,
        n: u64,
        put: &mut dyn FnMut(u64, &mut dyn Sink) -> Result<()>,
    ) -> Result<()> {
        self.write(n as usize, &mut |sink| (0..n).try_for_each(|i| put(i, sink)))
    }
    fn set_shared_view(&mut self, begin: bool) -> Result<bool> {
        self.read_txn = if begin { Some(self.env.read_txn()?) } else { None };
        Ok(true)
    }
    fn with_cursor(
        &mut self,
        family: usize,
        work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>,
    ) -> Result<()> {
        let txn = self.env.read_txn()?;
        work(&mut LmdbCursor { txn: &txn, db: &self.tables[family] })
    }
    fn run_txn(&mut self, work: &mut dyn FnMut(&mut dyn TxnOps) -> Result<()>) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        work(&mut LmdbWriteTxn { txn: &mut txn, tables: self.tables })?;
        Ok(txn.commit()?)
    }
}

struct LmdbCursor<'a, 'e> {
    txn: &'a RoTxn<'e>,
    db: &'a Table,
}

impl Cursor for LmdbCursor<'_, '_> {
    fn scan(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        // LMDB does not allow an empty key, not even as a bound.
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
