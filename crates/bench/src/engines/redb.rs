//! redb, by its public API.

use crate::engine::{Cursor, Engine, Result, Session, Sink, Told};
use crate::settings::{Compression, Settings, Sync, shown};
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, Table, TableDefinition};
use std::path::Path;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("bench");

struct Redb {
    db: Database,
    durability: Durability,
    told: Told,
}

pub fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
    std::fs::create_dir_all(dir)?;
    let cache = usize::try_from(settings.cache + settings.memtable)?;
    let db = Database::builder().set_cache_size(cache).create(dir.join("bench.redb"))?;
    let durability = if settings.sync == Sync::None { Durability::None } else { Durability::Immediate };
    let txn = db.begin_write()?;
    txn.open_table(TABLE)?;
    txn.commit()?;
    let mut told = Told::new();
    let mut say = |k: &str, v: String| told.insert(k.to_owned(), v);
    say(
        "durability",
        match durability {
            Durability::None => {
                "None: weaker than asked for, lost if the process dies; one durable commit at close".into()
            }
            _ => "Immediate".into(),
        },
    );
    say("cache", format!("{}: cache and memtable together", shown(cache as u64)));
    say("memtable", "not honoured: there is none; its bytes went to the cache".into());
    say("writers", "one at a time".into());
    if settings.compression != Compression::None {
        say("compression", "not honoured: there is none".into());
    }
    say("iterator", "a range on one read transaction for each seek".into());
    Ok(Box::new(Redb { db, durability, told }))
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
        super::locked("redb")
    }
    fn told(&self) -> Told {
        self.told.clone()
    }
    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut Asking { db: &self.db, durability: self.durability })
    }
    fn settle(&self) -> Result<()> {
        self.persist()
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.persist()
    }
}

struct Asking<'e> {
    db: &'e Database,
    durability: Durability,
}

impl Sink for Table<'_, &[u8], &[u8]> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert(key, value)?;
        Ok(())
    }
    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.remove(key)?;
        Ok(())
    }
}

impl Session for Asking<'_> {
    fn write(&mut self, _n: usize, fill: &mut dyn FnMut(&mut dyn Sink) -> Result<()>) -> Result<()> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(self.durability)?;
        {
            let mut table = txn.open_table(TABLE)?;
            fill(&mut table)?;
        }
        Ok(txn.commit()?)
    }
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let table = self.db.begin_read()?.open_table(TABLE)?;
        see(ReadableTable::get(&table, key)?.as_ref().map(|v| v.value()));
        Ok(())
    }
    fn cursor(&mut self, work: &mut dyn FnMut(&mut dyn Cursor) -> Result<()>) -> Result<()> {
        work(&mut Walk(self.db.begin_read()?.open_table(TABLE)?))
    }
}

struct Walk(ReadOnlyTable<&'static [u8], &'static [u8]>);

impl Cursor for Walk {
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
