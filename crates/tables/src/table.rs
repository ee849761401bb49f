//! [`Table`]: the handle to a table, for reads of the newest state and writes in transactions of
//! their own; [`TableAt`]: a table as of a snapshot.

use crate::error::Result;
use crate::key::{FullKey, KeyPrefix};
use crate::row::Row;
use crate::row_reads::{ReadPoint, RowSource};
use crate::row_writes::TxnTable;
use crate::schema::{IndexDef, Schema};
use crate::table_state::TableState;
use crate::txn::{TableTxn, run_table_txn};
use crate::value::Value;
use perigee::{Snapshot, TxnOptions};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// A table of rows of type `R`, from [`TableDb::table`](crate::TableDb::table). Rows are ordered by
/// their primary key. Clones refer to the same table; handles can be used from any number of
/// threads.
///
/// Reads see the newest state. Each write is a transaction of its own, which is repeated after a
/// conflict; [`Table::write`] and [`TableDb::write_tables`](crate::TableDb::write_tables) combine
/// several operations in one.
///
/// ```
/// use perigee_tables::{Row, TableDb, Timestamp};
///
/// #[derive(Row)]
/// struct Reading {
///     #[key]
///     sensor: u32,
///     #[key]
///     at: Timestamp,
///     value: f64,
///     note: Option<String>,
/// }
/// # let db = perigee::example_db()?;
/// let readings = db.table::<Reading>("readings")?;
/// for second in 0..60 {
///     let at = Timestamp::from_secs(second);
///     readings.insert(&Reading { sensor: 7, at, value: second as f64, note: None })?;
/// }
/// let (from, to) = (Timestamp::from_secs(10), Timestamp::from_secs(20));
/// assert_eq!(readings.range((7, from)..(7, to))?.count(), 10);
/// let newest = readings.prefix(7)?.rev().next().expect("there are rows")?;
/// assert_eq!(newest.value, 59.0);
/// readings.update((7, from), |r| r.note = Some("checked".into()))?;
/// assert!(readings.delete((7, to))?);
/// # Ok::<(), perigee_tables::Error>(())
/// ```
///
/// # Errors
/// Every call can fail with `NotFound` if the table was dropped, `Corruption` if stored bytes are
/// damaged, and with errors of the engine ([`Error::engine`](crate::Error::engine)). Writes fail as
/// stated at [`TxnTable::put`], and with `Conflict` if other writers changed the row in each of 100
/// attempts.
pub struct Table<R> {
    pub(crate) state: Arc<TableState>,
    row: PhantomData<fn() -> R>,
}

/// A table whose schema is known at run time only. Its rows are the values of all columns, in the
/// order of the schema; keys are slices of values.
///
/// After [`TableDb::alter_table`](crate::TableDb::alter_table) has added or dropped columns, rows
/// have the new columns; [`Table::schema`] returns what the handle uses.
///
/// ```
/// use perigee_tables::{ColumnType, Schema, TableDb, Value};
/// # let db = perigee::example_db()?;
/// let schema = Schema::new().key("id", ColumnType::U64).nullable("name", ColumnType::Text);
/// let users = db.create_dyn_table("users", schema)?;
/// users.insert(&vec![Value::U64(7), Value::from("ann")])?;
/// let user = users.get([Value::U64(7)])?.expect("it was inserted");
/// assert_eq!(user[1], Value::from("ann"));
/// # Ok::<(), perigee_tables::Error>(())
/// ```
pub type DynTable = Table<Vec<Value>>;

impl<R> Clone for Table<R> {
    fn clone(&self) -> Table<R> {
        Table { state: Arc::clone(&self.state), row: PhantomData }
    }
}

/// Prints the name of the table.
impl<R> std::fmt::Debug for Table<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({:?})", self.state)
    }
}

impl<R: Row> Table<R> {
    pub(crate) fn new(state: TableState) -> Table<R> {
        Table { state: Arc::new(state), row: PhantomData }
    }
    fn source(&self) -> RowSource<'_> {
        RowSource { state: &self.state, read_point: ReadPoint::Latest }
    }
    /// Returns the name.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// assert_eq!(users.name(), "users");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.state.name
    }
    /// Returns the schema that the handle uses: the stored one when it last had to look.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// assert_eq!(users.schema().columns()[0].name, "id");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn schema(&self) -> Schema {
        self.state.binding().schema.to_schema()
    }
    /// Returns the definitions of the secondary indexes, read from the stored schema.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.create_index(IndexDef::new("newest").column_desc("id"))?;
    /// assert_eq!(users.indexes()?[0].name(), "newest");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn indexes(&self) -> Result<Vec<IndexDef>> {
        let schema = Arc::clone(&self.state.refresh()?.schema);
        Ok(schema.indexes.iter().map(|i| schema.index_def(i)).collect())
    }
    /// Returns the table as of a snapshot: of [`Db::snapshot`](perigee::Db::snapshot), or of an
    /// earlier sequence number by [`History::snapshot_at`](perigee::History::snapshot_at). Rows
    /// have the current columns: those added since have their default.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.insert(&vec![Value::U32(1)])?;
    /// let snapshot = db.snapshot()?;
    /// users.delete([Value::U32(1)])?;
    /// assert!(users.at(&snapshot).contains([Value::U32(1)])?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn at<'a>(&'a self, snapshot: &'a Snapshot) -> TableAt<'a, R> {
        TableAt { state: &self.state, snapshot, row: PhantomData }
    }
    pub(crate) fn in_txn<'a>(&'a self, tx: &'a TableTxn<'a>) -> TxnTable<'a, R> {
        TxnTable { state: &self.state, tx, row: PhantomData }
    }
    /// Runs `work` on the table in a transaction, and commits it; see
    /// [`TableDb::write_tables`](crate::TableDb::write_tables).
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.write(|users| {
    ///     for id in 0..100u32 {
    ///         users.insert(&vec![id.into()])?;
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(users.scan()?.count(), 100);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn write<T>(&self, mut work: impl FnMut(&TxnTable<'_, R>) -> Result<T>) -> Result<T> {
        let result = run_table_txn(&self.state.db, TxnOptions::new(), |tx| work(&self.in_txn(tx)));
        result.map_err(|e| e.in_table(&self.state.name))
    }
    /// Inserts a row.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.insert(&vec![Value::U32(1)])?;
    /// let again = users.insert(&vec![Value::U32(1)]).unwrap_err();
    /// assert_eq!(again.kind(), ErrorKind::KeyExists);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `KeyExists` if there is a row with this key.
    pub fn insert(&self, row: &R) -> Result<()> {
        self.write(|table| table.insert(row))
    }
    /// Inserts a row that expires after `ttl`, with millisecond resolution.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.insert_with_ttl(&vec![Value::U32(1)], std::time::Duration::ZERO)?;
    /// assert!(!users.contains([Value::U32(1)])?); // expired at once
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Table::insert`].
    pub fn insert_with_ttl(&self, row: &R, ttl: Duration) -> Result<()> {
        self.write(|table| table.insert_with_ttl(row, ttl))
    }
    /// Inserts a row or replaces the one with the same key. Does not read an older row if the table
    /// has no index.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.put(&vec![Value::U32(1)])?;
    /// users.put(&vec![Value::U32(1)])?;
    /// assert_eq!(users.scan()?.count(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn put(&self, row: &R) -> Result<()> {
        self.write(|table| table.put(row))
    }
    /// Puts a row that expires after `ttl`, with millisecond resolution. From then on no reader
    /// sees it or its index entries, snapshots included.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.put_with_ttl(&vec![Value::U32(1)], std::time::Duration::from_secs(3600))?;
    /// assert!(users.contains([Value::U32(1)])?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn put_with_ttl(&self, row: &R, ttl: Duration) -> Result<()> {
        self.write(|table| table.put_with_ttl(row, ttl))
    }
    /// Puts a row that expires at `expires_at_ms`, in milliseconds since 1970.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.put_until(&vec![Value::U32(1)], 4_102_444_800_000)?; // the year 2100
    /// assert!(users.contains([Value::U32(1)])?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn put_until(&self, row: &R, expires_at_ms: u64) -> Result<()> {
        self.write(|table| table.put_until(row, expires_at_ms))
    }
    /// Changes the row with this key, and returns the new row; `None` if there is none. The row
    /// keeps its expiry time. `change` can run more than once, on the newest row each time.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// #[derive(Row)]
    /// struct Counter {
    ///     #[key]
    ///     name: String,
    ///     n: u64,
    /// }
    /// let counters = db.table::<Counter>("counters")?;
    /// assert!(counters.update("visits", |c| c.n += 1)?.is_none());
    /// counters.insert(&Counter { name: "visits".into(), n: 0 })?;
    /// let visits = counters.update("visits", |c| c.n += 1)?;
    /// assert_eq!(visits.map(|c| c.n), Some(1));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if `change` changes the key.
    pub fn update(
        &self,
        key: impl FullKey<R::Key>,
        mut change: impl FnMut(&mut R),
    ) -> Result<Option<R>> {
        self.write(|table| table.update(BorrowedKey(&key), &mut change))
    }
    /// Deletes the row with this key; returns true if there was one.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.insert(&vec![Value::U32(1)])?;
    /// assert!(users.delete([Value::U32(1)])?);
    /// assert!(!users.delete([Value::U32(1)])?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn delete(&self, key: impl FullKey<R::Key>) -> Result<bool> {
        self.write(|table| table.delete(BorrowedKey(&key)))
    }
    /// Returns the estimated number of rows of a scan, without its limit;
    /// [`Family::estimate_range`](perigee::Family::estimate_range) says how exact it is. Reads only
    /// metadata in memory.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// users.load((0..100u32).map(|id| vec![id.into()]))?;
    /// assert_eq!(users.estimate_rows(&BatchScan::new())?, 100);
    /// # Ok::<(), Error>(())
    /// ```
    #[cfg(feature = "arrow")]
    pub fn estimate_rows(&self, scan: &crate::BatchScan) -> Result<u64> {
        crate::arrow::scan::estimate_rows(&self.source(), scan)
    }
    crate::row_reads::inherent_reads!();
}

/// A key that an operation can use in each of its attempts.
struct BorrowedKey<'a, P>(&'a P);

impl<K, P: KeyPrefix<K>> KeyPrefix<K> for BorrowedKey<'_, P> {
    fn write_prefix(&self, format: &crate::ordered::KeyFormat, out: &mut Vec<u8>) -> Result<usize> {
        self.0.write_prefix(format, out)
    }
}

impl<K, P: FullKey<K>> FullKey<K> for BorrowedKey<'_, P> {}

/// A table as of a snapshot; see [`Table::at`]. Has the reads of [`Table`].
///
/// ```
/// # use perigee_tables::*;
/// # let db = perigee::example_db()?;
/// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
/// let before = db.history().latest_seq();
/// users.insert(&vec![Value::U32(1)])?;
/// let past = db.history().snapshot_at(before)?;
/// assert_eq!((users.scan()?.count(), users.at(&past).scan()?.count()), (1, 0));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct TableAt<'a, R> {
    state: &'a Arc<TableState>,
    snapshot: &'a Snapshot,
    row: PhantomData<fn() -> R>,
}

impl<R: Row> TableAt<'_, R> {
    fn source(&self) -> RowSource<'_> {
        RowSource { state: self.state, read_point: ReadPoint::Snapshot(self.snapshot) }
    }
    crate::row_reads::inherent_reads!();
}

impl TableTxn<'_> {
    /// Returns a table in this transaction.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// db.write_tables(|tx| tx.on(&users).put(&vec![Value::U32(7)]))?;
    /// assert_eq!(users.scan()?.count(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn on<'t, R: Row>(&'t self, table: &'t Table<R>) -> TxnTable<'t, R> {
        table.in_txn(self)
    }
}
