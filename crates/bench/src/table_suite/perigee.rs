//! `perigeedb-tables`, through its public API.

use super::dataset::{Dataset, RowKey, StoredRow};
use super::store::{EngineReader, RowSession, RowStore};
use crate::engine::{EffectiveOptions, Result};
use crate::settings::{Compression, RowDurability, Settings, human_bytes};
use perigee::{Db, Durability, Family, FamilyOptions, Options};
use perigee_tables::{Table, TableDb};
use std::path::Path;

/// Name of the table, and of its column family.
const TABLE: &str = "rows";
const FAMILY: &str = "@table/rows";
/// First byte of the keys of rows (docs/format/tables.md).
const ROWS: u8 = 1;

struct PerigeeRows<K: RowKey> {
    db: Db,
    table: Table<K::Row>,
    family: Family,
    options: EffectiveOptions,
}

/// Opens or creates the database.
pub fn open<K: RowKey>(dir: &Path, settings: &Settings) -> Result<Box<dyn RowStore<K>>> {
    let durability = match settings.rows.durability {
        RowDurability::Power => Durability::Full,
        RowDurability::Crash | RowDurability::Close => Durability::None,
    };
    let compression = match settings.compression {
        Compression::None => perigee::Compression::None,
        Compression::Lz4 => perigee::Compression::Lz4,
    };
    let family = FamilyOptions::new().memtable_bytes(settings.memtable).compression(compression);
    let options = Options::new()
        .block_cache_bytes(settings.cache.saturating_sub(settings.rows.row_cache))
        .row_cache_bytes(settings.rows.row_cache)
        .durability(durability)
        .default_family(family);
    let effective = [
        ("durability", format!("{durability:?}")),
        ("memtable", human_bytes(settings.memtable)),
        ("cache", human_bytes(settings.cache)),
        ("of it, row cache", human_bytes(settings.rows.row_cache)),
        ("compression", format!("{compression:?}")),
        ("table", "u64 or UUID key, value of bytes; no secondary index".to_owned()),
        ("bulk load", "Table::load_sorted and Table::load: synced".to_owned()),
        ("transactions", "Table::write, repeatable read".to_owned()),
        ("reads in a transaction", "Table::at a snapshot".to_owned()),
    ];
    let db = Db::open(dir, options)?;
    let table = db.table::<K::Row>(TABLE)?;
    let family = db.family(FAMILY)?;
    let options = effective.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    Ok(Box::new(PerigeeRows::<K> { db, table, family, options }))
}

impl<K: RowKey> RowStore<K> for PerigeeRows<K> {
    fn version(&self) -> String {
        crate::engines::locked_version("perigee-tables")
    }
    fn effective_options(&self) -> EffectiveOptions {
        self.options.clone()
    }
    fn load(&self, data: &Dataset<K>, sorted: bool) -> Result<()> {
        let rows = data.load_order(sorted).map(|i| K::Row::new(data.key(i), data.value(i, 1)));
        if sorted {
            self.table.load_sorted(rows)?;
        } else {
            self.table.load(rows)?;
        }
        Ok(())
    }
    fn with_session(
        &self,
        work: &mut dyn FnMut(&mut dyn RowSession<K>) -> Result<()>,
    ) -> Result<()> {
        let row = K::Row::new(K::new(crate::settings::RowKeys::Ascending, 0, false), Vec::new());
        work(&mut PerigeeSession { store: self, row })
    }
    fn wait_idle(&self) -> Result<()> {
        self.db.admin().flush()?;
        Ok(self.db.admin().wait_idle()?)
    }
    fn close(self: Box<Self>) -> Result<()> {
        let PerigeeRows { db, table, family, .. } = *self;
        drop((table, family));
        Ok(db.close()?)
    }
    fn engine_reader(&self) -> Option<Box<dyn EngineReader<K> + '_>> {
        Some(Box::new(Reader(self)))
    }
}

struct PerigeeSession<'s, K: RowKey> {
    store: &'s PerigeeRows<K>,
    /// The row to write, reused so that writes allocate nothing for it.
    row: K::Row,
}

impl<K: RowKey> RowSession<K> for PerigeeSession<'_, K> {
    fn insert_rows(&mut self, rows: &[(K, Vec<u8>)]) -> Result<()> {
        let row = &mut self.row;
        self.store.table.write(|table| {
            rows.iter().try_for_each(|(key, value)| {
                row.set(*key, value);
                table.insert(row)
            })
        })?;
        Ok(())
    }
    fn insert(&mut self, key: K, value: &[u8]) -> Result<()> {
        self.row.set(key, value);
        Ok(self.store.table.insert(&self.row)?)
    }
    fn put(&mut self, key: K, value: &[u8]) -> Result<()> {
        self.row.set(key, value);
        Ok(self.store.table.put(&self.row)?)
    }
    fn get(&mut self, key: K, see: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let row = self.store.table.get(key)?;
        see(row.as_ref().map(|row| row.value()));
        Ok(())
    }
    fn get_in_txn(
        &mut self,
        keys: &mut dyn Iterator<Item = K>,
        see: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let snapshot = self.store.db.snapshot()?;
        let table = self.store.table.at(&snapshot);
        for (at, key) in keys.enumerate() {
            let row = table.get(key)?;
            see(at, row.as_ref().map(|row| row.value()));
        }
        Ok(())
    }
    fn range(&mut self, from: K, limit: usize, see: &mut dyn FnMut(K, &[u8])) -> Result<()> {
        let (mut rows, row) = (self.store.table.range(from..)?, &mut self.row);
        for _ in 0..limit {
            if !rows.read_into(row)? {
                break;
            }
            see(row.key(), row.value());
        }
        Ok(())
    }
}

struct Reader<'s, K: RowKey>(&'s PerigeeRows<K>);

impl<K: RowKey> EngineReader<K> for Reader<'_, K> {
    fn get_row(&self, key: K) -> Result<usize> {
        Ok(self.0.table.get(key)?.map_or(0, |row| row.value().len()))
    }
    fn find_row(&self, key: K) -> Result<bool> {
        Ok(self.0.table.contains(key)?)
    }
    fn find_encoded(&self, key: &[u8]) -> Result<bool> {
        Ok(self.0.family.contains(key)?)
    }
    fn get_encoded(&self, key: &[u8]) -> Result<bool> {
        Ok(self.0.family.get_pinned(key)?.is_some())
    }
}

/// Appends the key of a row as the column family of the table has it.
pub fn encode_row_key<K: RowKey>(key: K, out: &mut Vec<u8>) {
    out.push(ROWS);
    key.encode(out);
}
