//! redb as its documentation recommends: a table with typed keys and values, a read transaction
//! that stays open for many gets, one write transaction per bulk load.

use super::dataset::{Dataset, RowKey};
use super::store::{RowSession, RowStore};
use crate::engine::{EffectiveOptions, Result};
use crate::settings::{Compression, RowDurability, Settings, human_bytes};
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, Table, TableDefinition,
    TableError, WriteTransaction,
};
use std::marker::PhantomData;
use std::path::Path;

/// Type of the values.
type Bytes = &'static [u8];

/// Returns the definition of the table of rows.
fn definition<K: RowKey>() -> TableDefinition<'static, K::RedbKey, Bytes> {
    TableDefinition::new("rows")
}

struct RedbRows<K> {
    db: Database,
    durability: Durability,
    options: EffectiveOptions,
    key: PhantomData<fn() -> K>,
}

/// Opens or creates the database.
pub fn open<K: RowKey>(dir: &Path, settings: &Settings) -> Result<Box<dyn RowStore<K>>> {
    std::fs::create_dir_all(dir)?;
    let cache = usize::try_from(settings.cache + settings.memtable)?;
    let db = Database::builder().set_cache_size(cache).create(dir.join("rows.redb"))?;
    let created = match db.begin_read()?.open_table(definition::<K>()) {
        Err(TableError::TableDoesNotExist(_)) => false,
        opened => opened.map(|_| true)?,
    };
    if !created {
        let txn = db.begin_write()?;
        txn.open_table(definition::<K>())?;
        txn.commit()?;
    }
    let (durability, explanation) = match settings.rows.durability {
        RowDurability::Power => (Durability::Immediate, "Immediate"),
        // Between `Immediate` and `None` there is no level.
        RowDurability::Crash => (
            Durability::None,
            "None: weaker than asked for, commits since the last durable one are lost if the \
             process dies; only Immediate survives that, with a sync for each commit",
        ),
        RowDurability::Close => (Durability::None, "None; one durable commit before the close"),
    };
    let mut effective = vec![
        ("durability", explanation.to_owned()),
        ("cache", format!("{}: cache and memtable together", human_bytes(cache as u64))),
        ("memtable", "not honoured: there is none; its bytes went to the cache".to_owned()),
        ("table", format!("keys {}, values &[u8]", K::REDB_TYPE)),
        ("bulk load", "all rows in one durable write transaction".to_owned()),
        ("writers", "one at a time".to_owned()),
        ("reads", "values are borrowed; without a transaction, one is begun for each".to_owned()),
        ("compaction", "none: the documentation does not recommend it for use".to_owned()),
    ];
    if settings.compression != Compression::None {
        effective.push(("compression", "not honoured: there is none".to_owned()));
    }
    let options = effective.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    Ok(Box::new(RedbRows { db, durability, options, key: PhantomData::<fn() -> K> }))
}

impl<K: RowKey> RedbRows<K> {
    fn begin_write(&self, durability: Durability) -> Result<WriteTransaction> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(durability)?;
        Ok(txn)
    }
    /// Writes to the table in a transaction of its own, which an error rolls back.
    fn write(
        &self,
        durability: Durability,
        write: impl FnOnce(&mut Table<'_, K::RedbKey, Bytes>) -> Result<()>,
    ) -> Result<()> {
        let txn = self.begin_write(durability)?;
        write(&mut txn.open_table(definition::<K>())?)?;
        Ok(txn.commit()?)
    }
    fn begin_read(&self) -> Result<ReadOnlyTable<K::RedbKey, Bytes>> {
        Ok(self.db.begin_read()?.open_table(definition::<K>())?)
    }
}

/// Inserts a row; fails if the key exists.
fn insert_row<K: RowKey>(
    table: &mut Table<'_, K::RedbKey, Bytes>,
    key: &K,
    value: &[u8],
) -> Result<()> {
    match table.insert(key.to_redb(), value)? {
        Some(_) => Err("the key exists".into()),
        None => Ok(()),
    }
}

impl<K: RowKey> RowStore<K> for RedbRows<K> {
    fn version(&self) -> String {
        crate::engines::locked_version("redb")
    }
    fn effective_options(&self) -> EffectiveOptions {
        self.options.clone()
    }
    fn load(&self, data: &Dataset<K>, sorted: bool) -> Result<()> {
        self.write(Durability::Immediate, |table| {
            let mut value = Vec::new();
            data.load_order(sorted).try_for_each(|i| {
                data.write_value(i, 1, &mut value);
                insert_row(table, &data.key(i), &value)
            })
        })
    }
    fn with_session(
        &self,
        work: &mut dyn FnMut(&mut dyn RowSession<K>) -> Result<()>,
    ) -> Result<()> {
        work(&mut RedbSession { store: self })
    }
    /// Makes everything committed so far durable.
    fn wait_idle(&self) -> Result<()> {
        Ok(self.begin_write(Durability::Immediate)?.commit()?)
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.wait_idle()
    }
}

struct RedbSession<'s, K> {
    store: &'s RedbRows<K>,
}

impl<K: RowKey> RowSession<K> for RedbSession<'_, K> {
    fn insert_rows(&mut self, rows: &[(K, Vec<u8>)]) -> Result<()> {
        self.store.write(self.store.durability, |table| {
            rows.iter().try_for_each(|(key, value)| insert_row(table, key, value))
        })
    }
    fn insert(&mut self, key: K, value: &[u8]) -> Result<()> {
        self.store.write(self.store.durability, |table| insert_row(table, &key, value))
    }
    fn put(&mut self, key: K, value: &[u8]) -> Result<()> {
        self.store.write(self.store.durability, |table| {
            table.insert(key.to_redb(), value)?;
            Ok(())
        })
    }
    fn get(&mut self, key: K, see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let table = self.store.begin_read()?;
        see(ReadableTable::get(&table, key.to_redb())?.as_ref().map(|value| value.value()));
        Ok(())
    }
    fn get_in_txn(
        &mut self,
        keys: &mut dyn Iterator<Item = K>,
        see: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let table = self.store.begin_read()?;
        for (at, key) in keys.enumerate() {
            let found = ReadableTable::get(&table, key.to_redb())?;
            see(at, found.as_ref().map(|value| value.value()));
        }
        Ok(())
    }
    fn range(&mut self, from: K, limit: usize, see: &mut dyn FnMut(K, &[u8])) -> Result<()> {
        let table = self.store.begin_read()?;
        for entry in ReadableTable::range(&table, from.to_redb()..)?.take(limit) {
            let (key, value) = entry?;
            see(K::from_redb(key.value()), value.value());
        }
        Ok(())
    }
}
