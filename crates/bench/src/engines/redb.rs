//! Adapter for redb, through its public API.

use crate::engine::{Cursor, EffectiveOptions, Engine, Result, Session, Sink};
use crate::settings::{Compression, Settings, Sync, human_bytes};
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, Table, TableDefinition,
    WriteTransaction,
};
use std::path::Path;

/// Returns the table of a family.
fn table(name: &str) -> TableDefinition<'_, &'static [u8], &'static [u8]> {
    TableDefinition::new(name)
}

struct Redb {
    db: Database,
    /// Names of the tables.
    names: Vec<String>,
    durability: Durability,
    options: EffectiveOptions,
}

pub fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    std::fs::create_dir_all(dir)?;
    let cache = usize::try_from(settings.cache + settings.memtable)?;
    let db = Database::builder().set_cache_size(cache).create(dir.join("bench.redb"))?;
    let durability =
        if settings.sync == Sync::None { Durability::None } else { Durability::Immediate };
    let names: Vec<_> = (0..settings.families()).map(|f| format!("bench{f}")).collect();
    let txn = db.begin_write()?;
    for name in &names {
        txn.open_table(table(name))?;
    }
    txn.commit()?;
    let mut effective = EffectiveOptions::new();
    let mut say = |k: &str, v: String| effective.insert(k.to_owned(), v);
    say(
        "durability",
        match durability {
            Durability::None => {
                "None: weaker than asked for, lost if the process dies; one durable commit at close"
                    .into()
            }
            _ => "Immediate".into(),
        },
    );
    say("cache", format!("{}: cache and memtable together", human_bytes(cache as u64)));
    say("memtable", "not honoured: there is none; its bytes went to the cache".into());
    say("writers", "one at a time".into());
    if settings.compression != Compression::None {
        say("compression", "not honoured: there is none".into());
    }
    say("iterator", "a range on one read transaction for each seek".into());
    Ok(Box::new(Redb { db, names, durability, options: effective }))
}

impl Redb {
    /// Makes everything committed so far durable.
    fn persist(&self) -> Result<()> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(Durability::Immediate)?;
        Ok(txn.commit()?)
    }
}

impl Engine for Redb {
    fn version(&self) -> String {
        super::locked_version("redb")
    }
    fn effective_options(&self) -> EffectiveOptions {
        self.options.clone()
    }
    fn with_session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut RedbSession { db: &self.db, names: &self.names, durability: self.durability })
    }
    fn wait_idle(&self) -> Result<()> {
        self.persist()
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.persist()
    }
    fn max_value_bytes(&self) -> u64 {
        3 << 30
    }
}

struct RedbSession<'e> {
    db: &'e Database,
    names: &'e [String],
    durability: Durability,
}

type OpenTable<'t> = Table<'t, &'static [u8], &'static [u8]>;

/// A transaction with the table of the family that was used last.
struct RedbWriteTxn<'t> {
    txn: &'t WriteTransaction,
    names: &'t [String],
    open_table: Option<(usize, OpenTable<'t>)>,
}

impl<'t> RedbWriteTxn<'t> {
    fn table(&mut self, family: usize) -> Result<&mut OpenTable<'t>> {
        if self.open_table.as_ref().is_none_or(|(f, _)| *f != family) {
            self.open_table = None;
            self.open_table = Some((family, self.txn.open_table(table(&self.names[family]))?));
        }
        let (_, table) = self.open_table.as_mut().ok_or("no table is open")?;
        Ok(table)
    }
}

impl Sink for RedbWriteTxn<'_> {
    fn put(&mut self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.table(family)?.insert(key, value)?;
        Ok(())
    }
    fn delete(&mut self, family: usize, key: &[u8]) -> Result<()> {
        self.table(family)?.remove(key)?;
        Ok(())
    }
}

impl Session for RedbSession<'_> {
    fn write(
        &mut self,
        _n: usize,
        fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>,
    ) -> Result<()> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(self.durability)?;
        fill(&mut RedbWriteTxn { txn: &txn, names: self.names, open_table: None })?;
        Ok(txn.commit()?)
    }
    fn get(&mut self, family: usize, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let found = self.db.begin_read()?.open_table(table(&self.names[family]))?;
        see(ReadableTable::get(&found, key)?.as_ref().map(|v| v.value()));
        Ok(())
    }
    fn with_cursor(
        &mut self,
        family: usize,
        work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>,
    ) -> Result<()> {
        work(&mut RedbCursor(self.db.begin_read()?.open_table(table(&self.names[family]))?))
    }
}

struct RedbCursor(ReadOnlyTable<&'static [u8], &'static [u8]>);

impl Cursor for RedbCursor {
    fn scan(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        for entry in ReadableTable::range(&self.0, key..)? {
            let (key, value) = entry?;
            if !see(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }
}
