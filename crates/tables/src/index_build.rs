//! Creates and drops secondary indexes, while other threads write.
//!
//! An index is built in three steps:
//! 1. **Register.** A change of the schema adds the index as *building*. Every commit that changes
//!    rows after it maintains the index, because a writer that began with the old schema conflicts
//!    (see [`crate::table_state`]).
//! 2. **Backfill.** Transactions scan the rows in batches, and put the entry of each row.
//! 3. **Complete.** A change of the schema marks the index as ready.
//!
//! **Why this is correct.** Claim: after the commit of a batch, each row of its key range that
//! exists has exactly its entries, and this stays true; and at any time each entry of the index
//! belongs to a row that exists and has the values of the entry.
//! - A row that a writer changes after the registration gets its entries in the commit of the
//!   change, and its old entries are deleted in the same commit; deleting an entry that the backfill
//!   has not put yet has no effect.
//! - Consider a batch B and a writer W that changes or deletes a row r of it, both concurrently:
//!   neither sees the other. If r keeps its entry, what B puts is right whenever it is committed. If
//!   not, W deletes the entry that B puts: both write the same key of the index, so the one that
//!   commits second conflicts, and is repeated on the new state. The same holds if W changes the
//!   expiry time of r, because it puts the entry then. If r does not exist for W, it does not exist
//!   for B either: B puts nothing for it.
//! - Rows that are inserted behind the scan have their entries already; rows that are inserted
//!   ahead of it are read again, and their entry is put again, unchanged.
//! - An entry expires at the same time as its row, so expired rows need no entries.
//!
//! A unique index: a writer that finds the entry of another row fails with `UniqueViolation`, also
//! while the index is being built. The backfill that finds the entry of another row ends the build
//! with this error, and the index is dropped. During the build a new row can get the entry that an
//! older row, not yet read, should have; so a writer that changes or deletes the older row looks
//! whose entry it is, and leaves that of the new row as it is. It writes it again, so that it
//! conflicts with a batch that puts the entry at the same time.
//!
//! If the program ends during a build, writers go on to maintain the index, and the next call of
//! `create_index` reads the rows from the beginning. Several calls for the same index can run at
//! once: both put the same entries.

use crate::binding::Binding;
use crate::error::{Error, ErrorKind, Result};
use crate::index_entry::index_entry;
use crate::key::read_values;
use crate::limits::{BACKFILL_ROWS_MAX, INDEXES_MAX};
use crate::row::Row;
use crate::row_reads::{ReadPoint, RowSource, decode_row, malformed_row};
use crate::schema::IndexDef;
use crate::schema::codec::FIRST_INDEX_NUMBER;
use crate::schema::stored::{IndexStatus, OrderedColumn, StoredIndex, StoredSchema};
use crate::table::Table;
use crate::table_state::ROWS;
use crate::txn::{RowWrite, TableTxn, run_table_txn};
use crate::value::DisplayTuple;
use perigee::{Txn, TxnOptions};
use std::ops::Bound;

/// The rows of one transaction of a backfill.
struct BackfillBatch {
    /// Key of the last row that was read; `None`: there are no more rows.
    last_key: Option<Vec<u8>>,
}

impl<R: Row> Table<R> {
    /// Creates a secondary index and fills it, while other threads may read and write the table. If
    /// there is an index of this name with the same definition, returns when it can be read.
    ///
    /// Takes a transaction for each thousand rows. Must not be called in a transaction that uses
    /// the table.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let schema = Schema::new().key("id", ColumnType::U32).column("mail", ColumnType::Text);
    /// let users = db.create_dyn_table("users", schema)?;
    /// users.insert(&vec![Value::U32(1), "a@example.org".into()])?;
    /// users.create_index(IndexDef::new("by_mail").column("mail").unique())?;
    /// let twice = users.insert(&vec![Value::U32(2), "a@example.org".into()]).unwrap_err();
    /// assert_eq!((twice.kind(), twice.index()), (ErrorKind::UniqueViolation, Some("by_mail")));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists` if there is an index of this name with another definition;
    /// `UniqueViolation` if the index is unique and two rows have the same values;
    /// `InvalidArgument` if the definition names an unknown column or breaks a limit, or if the
    /// values of a row are too long for a key of an index; `Busy` if a bulk load runs, or if a
    /// transaction has locked the schema for too long. The index does not exist then. After another
    /// error of the engine, such as a full disk, writers maintain the index, but it cannot be read:
    /// call this again to complete it, or drop it.
    pub fn create_index(&self, def: IndexDef) -> Result<()> {
        self.create_index_in_batches(def, BACKFILL_ROWS_MAX)
    }
    /// Creates an index like [`Table::create_index`] with transactions of `batch_rows` rows: tests
    /// explore interleavings of short builds.
    #[doc(hidden)]
    pub fn create_index_in_batches(&self, def: IndexDef, batch_rows: usize) -> Result<()> {
        let describe = |e: Error| e.in_table(self.name()).in_index(def.name());
        def.validate().map_err(describe)?;
        let register = |_: &Txn, schema: &mut StoredSchema| register_index(schema, &def);
        let (id, ready) = self.state.change_idle_schema(register).map_err(describe)?;
        if ready {
            return Ok(());
        }
        if let Err(e) = self.fill_index(id, batch_rows) {
            // A later build would fail, too.
            if matches!(e.kind(), ErrorKind::UniqueViolation | ErrorKind::InvalidArgument) {
                self.remove_index(id).map_err(describe)?;
            }
            return Err(describe(e));
        }
        let complete = |_: &Txn, schema: &mut StoredSchema| {
            let mut indexes = schema.indexes.iter_mut();
            let index = indexes.find(|i| i.id == id).ok_or_else(dropped_during_build)?;
            index.status = IndexStatus::Ready;
            Ok(())
        };
        self.state.change_idle_schema(complete).map_err(describe)?;
        self.state.refresh().map(drop)
    }
    /// Drops a secondary index with its entries, by one range tombstone.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.create_index(IndexDef::new("newest").column_desc("id"))?;
    /// users.drop_index("newest")?;
    /// assert!(users.indexes()?.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is no such index; `Busy` as for [`Table::create_index`].
    pub fn drop_index(&self, name: &str) -> Result<()> {
        let id = self.state.refresh()?.schema.index_named(name).map(|i| i.id);
        let missing = || Error::new(ErrorKind::NotFound, "there is no such index");
        let removed = id.ok_or_else(missing).and_then(|id| self.remove_index(id));
        removed.map_err(|e| e.in_table(self.name()).in_index(name))?;
        self.state.refresh().map(drop)
    }
    fn remove_index(&self, id: u32) -> Result<()> {
        // Not during a bulk load: the entries that it publishes at its end would be left over.
        self.state.change_idle_schema(|txn, schema| {
            let Some(at) = schema.indexes.iter().position(|i| i.id == id) else { return Ok(()) };
            let index = schema.indexes.remove(at);
            Ok(txn.delete_prefix(&self.state.family, [index.number])?)
        })
    }

    /// Puts the entries of all rows.
    fn fill_index(&self, id: u32, batch_rows: usize) -> Result<()> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let mut rows = batch_rows.max(1);
            let batch = run_table_txn(&self.state.db, TxnOptions::new(), |tx| {
                let batch = self.fill_batch(tx, id, after.as_deref(), rows);
                // After a conflict with a writer, a smaller batch is less likely to have another.
                rows = (rows / 2).max(1);
                batch
            })?;
            match batch.last_key {
                Some(key) => after = Some(key),
                None => return Ok(()),
            }
        }
    }
    fn fill_batch(
        &self,
        tx: &TableTxn<'_>,
        id: u32,
        after: Option<&[u8]>,
        rows: usize,
    ) -> Result<BackfillBatch> {
        let mut binding = tx.binding(&self.state, false)?;
        let source = RowSource { state: &self.state, read_point: ReadPoint::Txn(tx) };
        let start = after.map_or(Bound::Included(vec![ROWS]), |key| Bound::Excluded(key.to_vec()));
        let mut cursor = source.cursor((start, Bound::Excluded(vec![ROWS + 1])))?;
        let fails = |e| self.state.engine_error(e);
        cursor.seek_to_first().map_err(fails)?;
        let mut last_key = None;
        for _ in 0..rows {
            if !cursor.is_valid() {
                return Ok(BackfillBatch { last_key: None });
            }
            let expires_at_ms = cursor.expires_at_ms();
            let (key, value) = cursor.entry().map_err(fails)?;
            let row: R = decode_row(&self.state, &mut binding, key, value)?;
            let key = key.to_vec();
            self.fill_entry(tx, &binding, id, &key, &row, expires_at_ms)?;
            last_key = Some(key);
            cursor.next().map_err(fails)?;
        }
        Ok(BackfillBatch { last_key })
    }
    fn fill_entry(
        &self,
        tx: &TableTxn<'_>,
        binding: &Binding,
        id: u32,
        key: &[u8],
        row: &R,
        expires_at_ms: Option<u64>,
    ) -> Result<()> {
        let position = binding.schema.indexes.iter().position(|i| i.id == id);
        let position = position.ok_or_else(dropped_during_build)?;
        let entry = index_entry(binding, position, row, &key[1..])
            .map_err(|e| malformed_row(&self.state, binding, key, e))?;
        if entry.exclusive {
            tx.check_unique(
                &RowWrite {
                    state: &self.state,
                    binding,
                    key,
                    row: None,
                    old_entries: &[],
                    new_entries: &[],
                    expires_at_ms,
                    expiry_changes: false,
                },
                &entry,
            )?;
        }
        let (txn, family) = (tx.engine_txn(), &self.state.family);
        let put = match expires_at_ms {
            Some(ms) => txn.put_until(family, &entry.key, &entry.value, ms),
            None => txn.put(family, &entry.key, &entry.value),
        };
        put.map_err(|e| {
            let e = self.state.engine_error(e).in_index(&binding.indexes[position].name);
            match read_values(&key[1..], &binding.key) {
                Ok(values) => e.with_key(DisplayTuple(&values)),
                Err(_) => e,
            }
        })
    }
}

fn dropped_during_build() -> Error {
    Error::new(ErrorKind::NotFound, "the index was dropped while it was being built")
}

/// Adds the index as building, unless it exists. Returns its id, and true if it is ready.
fn register_index(schema: &mut StoredSchema, def: &IndexDef) -> Result<(u32, bool)> {
    if let Some(existing) = schema.index_named(def.name()) {
        if schema.index_def(existing) != *def {
            let text = "there is an index of this name with another definition: drop it first, or \
                        choose another name";
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        return Ok((existing.id, existing.status == IndexStatus::Ready));
    }
    let mut columns = Vec::new();
    for column in def.columns() {
        let missing = || Error::invalid("the table has no such column").in_column(&column.column);
        let id = schema.column_named(&column.column).ok_or_else(missing)?.id;
        columns.push(OrderedColumn { column: id, order: column.order });
    }
    let is_free = |number: &u8| schema.indexes.iter().all(|i| i.number != *number);
    let number = (FIRST_INDEX_NUMBER..).take(INDEXES_MAX).find(is_free);
    let number = number.ok_or_else(|| Error::invalid("the table has too many indexes"))?;
    let id = schema.next_index_id;
    let next = id.checked_add(1);
    let too_often =
        || Error::invalid("indexes were created too often: copy the rows to a new table");
    schema.next_index_id = next.ok_or_else(too_often)?;
    schema.indexes.push(StoredIndex {
        number,
        id,
        name: def.name().to_owned(),
        unique: def.is_unique(),
        status: IndexStatus::Building,
        columns,
    });
    Ok((id, false))
}
