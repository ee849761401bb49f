//! [`TableLoad`]: bulk loads of rows, directly to table files and atomically.
//!
//! A load excludes writers: it holds the lock of loads, and sets a flag in the schema, so that
//! every transaction that began before conflicts and every later one waits for the lock (see
//! [`crate::table_state`]). So it can compare its keys with the existing rows before it makes its
//! own visible. A load with fewer distinct keys than entries has rows with the same key, which are
//! found by hashes: 16 bytes of hash and 8 bytes of row number in memory for each key. Two
//! different keys have the same hash with a probability of n * n / 2^129 for n rows.

pub mod staged;

use crate::binding::Binding;
use crate::error::{DuplicateRows, Error, ErrorKind, Result};
use crate::index_entry::index_entries;
use crate::key::read_values;
use crate::limits::SCHEMA_LOCK_SECONDS_MAX;
use crate::row::Row;
use crate::row_format::{WriteKind, write_row};
use crate::row_reads::malformed_row;
use crate::table::Table;
use crate::table_state::{ROWS, TableState};
use crate::value::DisplayTuple;
use perigee::load::BulkLoad;
use perigee::{Txn, TxnOptions};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

/// Result of a bulk load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableLoadReport {
    /// Number of rows.
    pub rows: u64,
    /// Number of entries: rows and index entries.
    pub entries: u64,
    /// Bytes of keys and values before compression.
    pub bytes: u64,
    /// The sequence number of all loaded rows.
    pub sequence: u64,
}

/// A running bulk load; see [`Table::begin_load`]. Dropping it discards the rows.
pub struct TableLoad<'a, R> {
    table: &'a Table<R>,
    binding: Arc<Binding>,
    load: BulkLoad,
    /// Holds the lock of loads. Before it ends, the flag in the schema is removed.
    lock: Option<Txn>,
    rows: u64,
    expires_at_ms: Option<u64>,
    /// True if keys must be compared with existing rows.
    check_existing: bool,
    sorted: bool,
    /// True after a row was rejected: a part of its entries may have been written.
    rejected: bool,
    last_key: Vec<u8>,
    hashes: KeyHashes,
    key_buffer: Vec<u8>,
    row_buffer: Vec<u8>,
}

/// Hashes of the keys that must not occur twice.
struct KeyHashes {
    states: [RandomState; 2],
    seen: Vec<KeyHash>,
}

/// The hash of a key, in two words: 24 bytes, where a `u128` would make it 32.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct KeyHash {
    hash: [u64; 2],
    row: u64,
}

const _: () = assert!(size_of::<KeyHash>() == 24, "docs/tables.md names the memory of a load");

impl KeyHashes {
    fn new() -> KeyHashes {
        KeyHashes { states: [RandomState::new(), RandomState::new()], seen: Vec::new() }
    }
    fn add(&mut self, key: &[u8], row: u64) {
        let hash = [0, 1].map(|i| self.states[i].hash_one(key));
        self.seen.push(KeyHash { hash, row });
    }
    /// Returns two rows with the same key.
    fn find_duplicate(&mut self) -> Option<DuplicateRows> {
        // The first word tells nearly all keys apart.
        self.seen.sort_unstable_by_key(|key| key.hash[0]);
        let mut alike = self.seen.chunk_by_mut(|a, b| a.hash[0] == b.hash[0]);
        alike.find_map(|keys| {
            keys.sort_unstable();
            let pair = keys.windows(2).find(|pair| pair[0].hash == pair[1].hash)?;
            Some(DuplicateRows { first: pair[0].row, second: pair[1].row })
        })
    }
}

/// Prints the table and the number of rows.
impl<R> std::fmt::Debug for TableLoad<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableLoad({:?}, {} rows)", self.table, self.rows)
    }
}

impl<R: Row> Table<R> {
    /// Loads rows, sorted or not, directly to table files. All become visible at once, with their
    /// index entries; after a crash either all or none of them are present. Rows get the default
    /// time to live of the table.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let report = users.load((0..10_000u32).map(|id| vec![id.into()]))?;
    /// assert_eq!(report.rows, 10_000);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// No row is visible then. `KeyExists` or `UniqueViolation` if a key occurs twice, or exists in
    /// the table; as [`Table::begin_load`] and [`TableLoad::finish`] otherwise.
    pub fn load(&self, rows: impl IntoIterator<Item = R>) -> Result<TableLoadReport> {
        self.load_all(rows, false)
    }
    /// Loads rows like [`Table::load`], in ascending order of their keys. Needs no memory for the
    /// keys.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.load_sorted((0..10_000u32).map(|id| vec![id.into()]))?;
    /// assert_eq!(users.scan()?.count(), 10_000);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if a key is smaller than the one before; as [`Table::load`] otherwise.
    pub fn load_sorted(&self, rows: impl IntoIterator<Item = R>) -> Result<TableLoadReport> {
        self.load_all(rows, true)
    }
    fn load_all(&self, rows: impl IntoIterator<Item = R>, sorted: bool) -> Result<TableLoadReport> {
        let mut load = self.begin_load()?;
        load.sorted = sorted;
        for row in rows {
            load.push(&row)?;
        }
        load.finish()
    }
    /// Begins a bulk load. Until it ends, readers see the table without its rows, and writers of
    /// the table wait, up to 10 seconds.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let mut load = users.begin_load()?;
    /// for line in ["3", "1"] {
    ///     let id: u32 = line.parse().expect("a number");
    ///     load.push(&vec![id.into()])?;
    /// }
    /// load.finish()?;
    /// assert_eq!(users.scan()?.count(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Busy` if another load runs, the build of an index has not been completed, or a transaction
    /// has locked the schema for too long.
    pub fn begin_load(&self) -> Result<TableLoad<'_, R>> {
        let state = &self.state;
        let options = TxnOptions::new().lock_timeout(Duration::from_secs(SCHEMA_LOCK_SECONDS_MAX));
        let lock = state.db.begin(options).map_err(|e| state.engine_error(e))?;
        state.lock_load(&lock)?;
        state.change_schema(|_, schema| {
            use crate::schema::stored::IndexStatus;
            if let Some(index) = schema.indexes.iter().find(|i| i.status == IndexStatus::Building) {
                let text = "the index is being built: load after it. If its build was interrupted, \
                            complete it with create_index, or drop it";
                return Err(Error::new(ErrorKind::Busy, text).in_index(&index.name));
            }
            schema.loading = true;
            Ok(())
        })?;
        let mut guard = UnstartedLoad { state, lock: Some(lock) };
        let binding = state.refresh()?;
        let load = state.family.bulk_load().map_err(|e| state.engine_error(e))?;
        let check_existing = !is_empty_of_rows(state)?;
        Ok(TableLoad {
            table: self,
            expires_at_ms: state.default_expiry(&binding),
            binding,
            load,
            lock: guard.lock.take(),
            rows: 0,
            check_existing,
            sorted: false,
            rejected: false,
            last_key: Vec::new(),
            hashes: KeyHashes::new(),
            key_buffer: Vec::new(),
            row_buffer: Vec::new(),
        })
    }
}

/// Ends a load that could not begin.
struct UnstartedLoad<'a> {
    state: &'a TableState,
    lock: Option<Txn>,
}

impl Drop for UnstartedLoad<'_> {
    fn drop(&mut self) {
        end_load(self.state, &mut self.lock);
    }
}

/// Removes the flag in the schema, then releases the lock. If the first fails, the next writer does
/// it.
fn end_load(state: &TableState, lock: &mut Option<Txn>) {
    if lock.is_some() {
        let _ = state.remove_load_flag();
    }
    *lock = None;
}

fn is_empty_of_rows(state: &TableState) -> Result<bool> {
    let fails = |e| state.engine_error(e);
    let mut cursor = state.family.cursor_within(vec![ROWS]..vec![ROWS + 1]).map_err(fails)?;
    cursor.seek_to_first().map_err(fails)?;
    Ok(!cursor.is_valid())
}

impl<R: Row> TableLoad<'_, R> {
    /// Declares that the rows come in ascending order of their keys: the load then needs no memory
    /// for the keys. Call it before the first row.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let mut load = users.begin_load()?.sorted();
    /// load.push(&vec![Value::U32(2)])?;
    /// assert!(load.push(&vec![Value::U32(1)]).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.sorted = true;
        self
    }
    /// Adds a row.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let mut load = users.begin_load()?;
    /// load.push(&vec![Value::U32(1)])?;
    /// load.finish()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `KeyExists` or `UniqueViolation` if the table has a row with this key; `InvalidArgument` if
    /// the row does not fit the schema; those of the engine. Drop the load then: it accepts no more
    /// rows, and cannot be finished.
    pub fn push(&mut self, row: &R) -> Result<()> {
        self.check_no_rejected_row()?;
        let pushed = self.push_row(row);
        self.rejected = pushed.is_err();
        pushed
    }
    fn check_no_rejected_row(&self) -> Result<()> {
        if self.rejected {
            let text = "a row of the load was rejected: drop the load, and begin another one \
                        without this row";
            return Err(Error::invalid(text).in_table(self.table.name()));
        }
        Ok(())
    }
    fn push_row(&mut self, row: &R) -> Result<()> {
        let binding = Arc::clone(&self.binding);
        row.check(&binding).map_err(|e| e.in_table(self.table.name()))?;
        let mut key = std::mem::take(&mut self.key_buffer);
        key.clear();
        key.push(ROWS);
        row.write_key(&binding, &mut key);
        let pushed = self.push_encoded(&binding, row, &key);
        self.key_buffer = std::mem::replace(&mut self.last_key, key);
        pushed
    }
    fn push_encoded(&mut self, binding: &Binding, row: &R, key: &[u8]) -> Result<()> {
        let state = &self.table.state;
        if self.sorted {
            self.check_ascending(key)?;
        } else {
            self.hashes.add(key, self.rows);
        }
        if self.check_existing && self.exists(key)? {
            let text = "there is a row with this key: delete it first, or leave it out of the load";
            return Err(self.error_for(Error::new(ErrorKind::KeyExists, text), key));
        }
        let entries = if binding.indexes.is_empty() {
            Vec::new()
        } else {
            index_entries(binding, row, &key[1..])
                .map_err(|e| malformed_row(state, binding, key, e))?
        };
        for entry in entries {
            if entry.exclusive {
                self.hashes.add(&entry.key, self.rows);
                if self.check_existing && self.exists(&entry.key)? {
                    let text = "a row has the same values in a unique index: leave this one out";
                    let error = Error::new(ErrorKind::UniqueViolation, text);
                    let error = error.in_index(&binding.indexes[entry.index].name);
                    return Err(self.error_for(error, key));
                }
            }
            self.put(&entry.key, &entry.value)
                .map_err(|e| self.error_for(e.in_index(&binding.indexes[entry.index].name), key))?;
        }
        let mut bytes = std::mem::take(&mut self.row_buffer);
        bytes.clear();
        write_row(binding.current_layout(), WriteKind::Insert, &mut bytes, |field, writer| {
            row.write_column(field, writer)
        });
        let put = self.put(key, &bytes).map_err(|e| self.error_for(e, key));
        self.row_buffer = bytes;
        self.rows += u64::from(put.is_ok());
        put
    }
    fn check_ascending(&self, key: &[u8]) -> Result<()> {
        let error = match self.last_key[..].cmp(key) {
            std::cmp::Ordering::Less => return Ok(()),
            std::cmp::Ordering::Equal => {
                Error::new(ErrorKind::KeyExists, "two rows of the load have this key")
            }
            std::cmp::Ordering::Greater => {
                Error::invalid("the key is smaller than that of the row before: use Table::load")
            }
        };
        Err(self.error_for(error, key))
    }
    fn exists(&self, key: &[u8]) -> Result<bool> {
        let state = &self.table.state;
        state.family.contains(key).map_err(|e| state.engine_error(e))
    }
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let put = match self.expires_at_ms {
            Some(ms) => self.load.put_until(key, value, ms),
            None => self.load.put(key, value),
        };
        put.map_err(|e| self.table.state.engine_error(e))
    }
    fn error_for(&self, error: Error, key: &[u8]) -> Error {
        let error = error.in_table(self.table.name());
        match read_values(&key[1..], &self.binding.key) {
            Ok(values) => error.with_key(DisplayTuple(&values)),
            Err(_) => error,
        }
    }
    /// Makes all rows visible, atomically and durably.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let mut load = users.begin_load()?;
    /// load.push(&vec![Value::U32(1)])?;
    /// load.push(&vec![Value::U32(1)])?;
    /// assert_eq!(load.finish().unwrap_err().kind(), ErrorKind::KeyExists);
    /// assert_eq!(users.scan()?.count(), 0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// No row is visible then, except that after `OutcomeUnknown` of the engine either all or none
    /// are after the next open. `KeyExists` if a key, or the values of a unique index, occur twice;
    /// the message says in which rows of the load, counted from 0. `InvalidArgument` if
    /// [`TableLoad::push`] has rejected a row.
    pub fn finish(mut self) -> Result<TableLoadReport> {
        self.check_no_rejected_row()?;
        let rows = self.rows;
        if rows == 0 {
            return Ok(TableLoadReport::default());
        }
        let distinct = self.load.prepare().map_err(|e| self.table.state.engine_error(e))?;
        if distinct < self.load.progress().entries {
            return Err(self.duplicate_error());
        }
        let report = self.load.finish().map_err(|e| self.table.state.engine_error(e))?;
        let perigee::load::LoadReport { entries, bytes, sequence, .. } = report;
        Ok(TableLoadReport { rows, entries, bytes, sequence })
    }
    /// Returns the error of a load with fewer distinct keys than entries.
    fn duplicate_error(&mut self) -> Error {
        let Some(rows) = self.hashes.find_duplicate() else {
            let text = "a load has fewer keys than entries, but no two rows with the same key";
            return perigee::Error::internal(text).into();
        };
        let DuplicateRows { first, second } = rows;
        let text = format!(
            "rows {first} and {second} of the load (counted from 0) have the same primary key, or \
             the same values in a unique index: leave one of them out"
        );
        let error = Error::new(ErrorKind::KeyExists, text).with_duplicate_rows(rows);
        error.in_table(self.table.name())
    }
}

impl<R> Drop for TableLoad<'_, R> {
    fn drop(&mut self) {
        end_load(&self.table.state, &mut self.lock);
    }
}
