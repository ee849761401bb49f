//! [`TxnTable`]: a table in a transaction: how puts, inserts, updates and deletes become writes of
//! rows and index entries.

use crate::binding::Binding;
use crate::error::{Error, ErrorKind, Result};
use crate::index_entry::{IndexEntry, index_entries};
use crate::key::{FullKey, KeyPrefix, read_values};
use crate::row::Row;
use crate::row_format::{WriteKind, write_row};
use crate::row_reads::{
    ReadPoint, RowSource, decode_row, malformed_row, with_key_buffer, with_row_buffer,
    write_row_key,
};
use crate::table_state::{ROWS, TableState};
use crate::txn::{RowWrite, TableTxn};
use crate::value::DisplayTuple;
use perigee::ValueWithTtl;
use std::sync::Arc;
use std::time::Duration;

/// When a written row expires.
#[derive(Clone, Copy, Debug)]
pub enum RowExpiry {
    /// After the default time to live of the table, if it has one.
    Default,
    After(Duration),
    /// In milliseconds since 1970.
    At(u64),
    /// Like the row that it replaces.
    Kept(Option<u64>),
}

/// A table in a transaction; see [`TableTxn::on`]. Has the reads and writes of
/// [`Table`](crate::Table); reads see the writes of the transaction.
///
/// ```
/// # use perigee_tables::*;
/// # let db = perigee::example_db()?;
/// let schema = Schema::new().key("id", ColumnType::U32).column("name", ColumnType::Text);
/// let users = db.create_dyn_table("users", schema)?;
/// let tx = db.begin_tables(Default::default())?;
/// tx.on(&users).put(&vec![Value::U32(1), "ann".into()])?;
/// assert!(tx.on(&users).contains([Value::U32(1)])?);
/// assert!(!users.contains([Value::U32(1)])?);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct TxnTable<'a, R> {
    pub(crate) state: &'a Arc<TableState>,
    pub(crate) tx: &'a TableTxn<'a>,
    pub(crate) row: std::marker::PhantomData<fn() -> R>,
}

impl<'a, R: Row> TxnTable<'a, R> {
    pub(crate) fn source(&self) -> RowSource<'_> {
        RowSource { state: self.state, read_point: ReadPoint::Txn(self.tx) }
    }
    /// Inserts a row.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let tx = db.begin_tables(Default::default())?;
    /// tx.on(&users).insert(&vec![Value::U32(1)])?;
    /// let again = tx.on(&users).insert(&vec![Value::U32(1)]).unwrap_err();
    /// assert_eq!(again.kind(), ErrorKind::KeyExists);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `KeyExists`; as [`TxnTable::put`] otherwise.
    pub fn insert(&self, row: &R) -> Result<()> {
        self.put_row(row, RowExpiry::Default, true)
    }
    /// Inserts a row that expires after `ttl`.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let tx = db.begin_tables(Default::default())?;
    /// tx.on(&users).insert_with_ttl(&vec![Value::U32(1)], std::time::Duration::from_secs(60))?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`TxnTable::insert`].
    pub fn insert_with_ttl(&self, row: &R, ttl: Duration) -> Result<()> {
        self.put_row(row, RowExpiry::After(ttl), true)
    }
    /// Inserts a row or replaces the one with the same key.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let tx = db.begin_tables(Default::default())?;
    /// tx.on(&users).put(&vec![Value::U32(1)])?;
    /// tx.commit()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The row is not written: `UniqueViolation`; `InvalidArgument` if it does not fit the schema
    /// or is too large; `SchemaMismatch` if the schema has changed and the row type does not fit
    /// it; `Busy` if a bulk load of the table takes too long; those of the engine.
    pub fn put(&self, row: &R) -> Result<()> {
        self.put_row(row, RowExpiry::Default, false)
    }
    /// Puts a row that expires after `ttl`, with millisecond resolution.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let tx = db.begin_tables(Default::default())?;
    /// tx.on(&users).put_with_ttl(&vec![Value::U32(1)], std::time::Duration::from_secs(60))?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`TxnTable::put`].
    pub fn put_with_ttl(&self, row: &R, ttl: Duration) -> Result<()> {
        self.put_row(row, RowExpiry::After(ttl), false)
    }
    /// Puts a row that expires at `expires_at_ms`, in milliseconds since 1970.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let tx = db.begin_tables(Default::default())?;
    /// tx.on(&users).put_until(&vec![Value::U32(1)], 4_102_444_800_000)?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`TxnTable::put`].
    pub fn put_until(&self, row: &R, expires_at_ms: u64) -> Result<()> {
        self.put_row(row, RowExpiry::At(expires_at_ms), false)
    }
    /// Changes the row with this key, and returns the new row; `None` if there is none. The row
    /// keeps its expiry time.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let schema = Schema::new().key("id", ColumnType::U32).column("visits", ColumnType::U32);
    /// let users = db.create_dyn_table("users", schema)?;
    /// let tx = db.begin_tables(Default::default())?;
    /// tx.on(&users).put(&vec![Value::U32(1), Value::U32(0)])?;
    /// tx.on(&users).update([Value::U32(1)], |user| user[1] = Value::U32(1))?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if `change` changes the key; as [`TxnTable::put`] otherwise.
    pub fn update(
        &self,
        key: impl FullKey<R::Key>,
        change: impl FnOnce(&mut R),
    ) -> Result<Option<R>> {
        let mut binding = self.tx.binding(self.state, true)?;
        let mut row_key = Vec::new();
        write_row_key(&binding, &key, &mut row_key)?;
        let Some(old) = self.source().read_with_ttl(&row_key)? else { return Ok(None) };
        let mut row: R = decode_row(self.state, &mut binding, &row_key, &old.value)?;
        let old_entries = self.entries(&binding, &row, &row_key)?;
        change(&mut row);
        row.check(&binding).map_err(|e| e.in_table(&self.state.name))?;
        let mut new_key = vec![ROWS];
        row.write_key(&binding, &mut new_key);
        if new_key != row_key {
            let text = "an update changes the primary key: delete the row and insert the new one";
            return Err(self.error_for(Error::invalid(text), &binding, &row_key));
        }
        let expiry = RowExpiry::Kept(old.expires_at_ms);
        let old = Some((&old, &old_entries[..]));
        self.write(&binding, &row, &row_key, expiry, WriteKind::Update, old)?;
        Ok(Some(row))
    }
    /// Deletes the row with this key; returns true if there was one.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// let tx = db.begin_tables(Default::default())?;
    /// tx.on(&users).put(&vec![Value::U32(1)])?;
    /// assert!(tx.on(&users).delete([Value::U32(1)])?);
    /// assert!(!tx.on(&users).delete([Value::U32(1)])?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`TxnTable::put`], except `UniqueViolation`.
    pub fn delete(&self, key: impl FullKey<R::Key>) -> Result<bool> {
        let mut binding = self.tx.binding(self.state, true)?;
        with_key_buffer(|row_key| {
            write_row_key(&binding, &key, row_key)?;
            let Some(old) = self.source().read_value(row_key)? else { return Ok(false) };
            let mut old_entries = Vec::new();
            if !binding.indexes.is_empty() {
                let row: R = decode_row(self.state, &mut binding, row_key, &old)?;
                old_entries = self.entries(&binding, &row, row_key)?;
            }
            self.tx.write_row(&RowWrite {
                state: self.state,
                binding: &binding,
                key: row_key,
                row: None,
                old_entries: &old_entries,
                new_entries: &[],
                expires_at_ms: None,
                expiry_changes: false,
            })?;
            Ok(true)
        })
    }

    fn put_row(&self, row: &R, expiry: RowExpiry, must_be_new: bool) -> Result<()> {
        let mut binding = self.tx.binding(self.state, true)?;
        row.check(&binding).map_err(|e| e.in_table(&self.state.name))?;
        with_key_buffer(|row_key| {
            row_key.push(ROWS);
            row.write_key(&binding, row_key);
            if binding.indexes.is_empty() {
                let kind = if must_be_new { WriteKind::Insert } else { WriteKind::Put };
                if must_be_new && self.source().read_value(row_key)?.is_some() {
                    return Err(self.key_exists(&binding, row_key));
                }
                return self.write(&binding, row, row_key, expiry, kind, None);
            }
            let Some(old) = self.source().read_with_ttl(row_key)? else {
                return self.write(&binding, row, row_key, expiry, WriteKind::Insert, None);
            };
            if must_be_new {
                return Err(self.key_exists(&binding, row_key));
            }
            let old_row: R = decode_row(self.state, &mut binding, row_key, &old.value)?;
            let old_entries = self.entries(&binding, &old_row, row_key)?;
            let old = Some((&old, &old_entries[..]));
            self.write(&binding, row, row_key, expiry, WriteKind::Update, old)
        })
    }
    /// Writes a row over the old one with its index entries, if there is one.
    fn write(
        &self,
        binding: &Binding,
        row: &R,
        row_key: &[u8],
        expiry: RowExpiry,
        kind: WriteKind,
        old: Option<(&ValueWithTtl, &[IndexEntry])>,
    ) -> Result<()> {
        let expires_at_ms = match expiry {
            RowExpiry::Default => self.state.default_expiry(binding),
            RowExpiry::After(ttl) => Some(self.state.expiry_after(ttl)),
            RowExpiry::At(ms) => Some(ms),
            RowExpiry::Kept(old) => old,
        };
        let new_entries = self.entries(binding, row, row_key)?;
        with_row_buffer(|buffer| {
            write_row(binding.current_layout(), kind, buffer, |field, writer| {
                row.write_column(field, writer)
            });
            self.tx.write_row(&RowWrite {
                state: self.state,
                binding,
                key: row_key,
                row: Some(buffer),
                old_entries: old.map_or(&[], |(_, entries)| entries),
                new_entries: &new_entries,
                expires_at_ms,
                expiry_changes: old.is_some_and(|(old, _)| old.expires_at_ms != expires_at_ms),
            })
        })
    }
    fn entries(&self, binding: &Binding, row: &R, row_key: &[u8]) -> Result<Vec<IndexEntry>> {
        if binding.indexes.is_empty() {
            return Ok(Vec::new());
        }
        index_entries(binding, row, &row_key[1..])
            .map_err(|e| malformed_row(self.state, binding, row_key, e))
    }
    #[cold]
    fn key_exists(&self, binding: &Binding, row_key: &[u8]) -> Error {
        let text = "there is a row with this key: use put to replace it, update to change it";
        self.error_for(Error::new(ErrorKind::KeyExists, text), binding, row_key)
    }
    fn error_for(&self, error: Error, binding: &Binding, row_key: &[u8]) -> Error {
        let error = error.in_table(&self.state.name);
        match read_values(&row_key[1..], &binding.key) {
            Ok(values) => error.with_key(DisplayTuple(&values)),
            Err(_) => error,
        }
    }
    crate::row_reads::inherent_reads!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::THREAD_BUFFER_BYTES_MAX;

    #[test]
    fn threads_do_not_keep_large_buffers() {
        with_row_buffer(|buffer| buffer.resize(THREAD_BUFFER_BYTES_MAX + 1, 0));
        with_row_buffer(|buffer| assert_eq!(buffer.capacity(), 0));
        with_key_buffer(|buffer| buffer.resize(THREAD_BUFFER_BYTES_MAX + 1, 0));
        with_key_buffer(|buffer| assert_eq!(buffer.capacity(), 0));
        with_row_buffer(|buffer| buffer.resize(1000, 0));
        with_row_buffer(|buffer| assert!(buffer.is_empty() && buffer.capacity() >= 1000));
    }
}
