//! [`TableIndex`]: reads of rows through a secondary index.

use crate::binding::{Binding, IndexPlan};
use crate::error::{Error, ErrorKind, Malformed, Result};
use crate::index_entry::read_row_key;
use crate::key::{IndexPrefix, write_values};
use crate::row::Row;
use crate::row_reads::{DirectedCursor, KeyRange, ReadPoint, RowSource, decode_row, encode_range};
use crate::table_state::{SCHEMA_KEY, TableState, read_schema};
use crate::txn::TableTxn;
use perigee::Snapshot;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// A secondary index of a table, for reads of the newest state, a snapshot or a transaction; from
/// `index` of [`Table`](crate::Table), [`TableAt`](crate::TableAt) or
/// [`TxnTable`](crate::TxnTable). An index of the newest state shows the state in which it was
/// returned: rows and index agree, whatever other writers do.
///
/// ```
/// # use perigee_tables::*;
/// # let db = perigee::example_db()?;
/// #[derive(Row)]
/// struct User {
///     #[key]
///     id: u32,
///     name: String,
///     age: Option<u8>,
/// }
/// let users = db.table::<User>("users")?;
/// users.create_index(IndexDef::new("by_age").column("age").column("name"))?;
/// users.put(&User { id: 1, name: "ann".into(), age: Some(40) })?;
/// users.put(&User { id: 2, name: "bob".into(), age: None })?;
/// let by_age = users.index("by_age")?;
/// let adults: Result<Vec<User>> = by_age.range(18..)?.collect();
/// assert_eq!(adults?.len(), 1);
/// assert_eq!(by_age.prefix(Value::Null)?.count(), 1);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct TableIndex<'a, R> {
    state: Arc<TableState>,
    read_point: IndexReadPoint<'a>,
    binding: Arc<Binding>,
    plan: Arc<IndexPlan>,
    row: std::marker::PhantomData<fn() -> R>,
}

/// Which state an index reader sees. Never the newest one, because a row must be read in the same
/// state as its index entry.
#[derive(Clone, Debug)]
pub enum IndexReadPoint<'a> {
    Own(Arc<Snapshot>),
    Snapshot(&'a Snapshot),
    Txn(&'a TableTxn<'a>),
}

impl<'p> IndexReadPoint<'p> {
    /// Returns the read point of an index reader: a new snapshot for the newest state.
    pub fn new(source: &RowSource<'p>) -> Result<IndexReadPoint<'p>> {
        Ok(match source.read_point {
            ReadPoint::Latest => {
                let snapshot = source.state.db.snapshot();
                let snapshot = snapshot.map_err(|e| source.state.engine_error(e))?;
                IndexReadPoint::Own(Arc::new(snapshot))
            }
            ReadPoint::Snapshot(snapshot) => IndexReadPoint::Snapshot(snapshot),
            ReadPoint::Txn(tx) => IndexReadPoint::Txn(tx),
        })
    }
    pub fn source<'a>(&'a self, state: &'a Arc<TableState>) -> RowSource<'a> {
        let read_point = match self {
            IndexReadPoint::Own(snapshot) => ReadPoint::Snapshot(snapshot),
            IndexReadPoint::Snapshot(snapshot) => ReadPoint::Snapshot(snapshot),
            IndexReadPoint::Txn(tx) => ReadPoint::Txn(tx),
        };
        RowSource { state, read_point }
    }
}

impl<'a, R: Row> TableIndex<'a, R> {
    /// Returns a reader of the index `name` as of the source.
    pub(crate) fn open(source: RowSource<'a>, name: &str) -> Result<TableIndex<'a, R>> {
        let state = Arc::clone(source.state);
        let read_point = IndexReadPoint::new(&source)?;
        let binding = read_point.source(&state).binding()?;
        let plan = find_index(&read_point.source(&state), &binding, name)
            .map_err(|e| e.in_table(&state.name).in_index(name))?;
        let plan = Arc::new(plan);
        Ok(TableIndex { state, read_point, binding, plan, row: std::marker::PhantomData })
    }
    /// Returns the rows of a range of the index, in its order. A bound is a value for the first
    /// column, or a tuple for the first columns: an included one stands for all entries that start
    /// with it, an excluded one for none of them. Bounds are in the order of the index: for a
    /// descending column the larger value comes first.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let schema = Schema::new().key("id", ColumnType::U32).column("age", ColumnType::U8);
    /// let users = db.create_dyn_table("users", schema)?;
    /// users.create_index(IndexDef::new("by_age").column_desc("age"))?;
    /// for (id, age) in [(1u32, 40u8), (2, 50), (3, 60)] {
    ///     users.put(&vec![id.into(), age.into()])?;
    /// }
    /// let older = users.index("by_age")?.range(..=50)?; // descending: from the oldest on
    /// assert_eq!(older.count(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if a value does not fit its column.
    pub fn range<P: IndexPrefix>(&self, range: impl RangeBounds<P>) -> Result<IndexIter<'a, R>> {
        let encode = |prefix: &P, out: &mut Vec<u8>| self.encode_prefix(&prefix.to_values(), out);
        self.iter(encode_range(self.plan.number, &range, encode)?)
    }
    /// Returns the rows whose first columns of the index have these values.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let schema = Schema::new().key("id", ColumnType::U32).column("age", ColumnType::U8);
    /// let users = db.create_dyn_table("users", schema)?;
    /// users.create_index(IndexDef::new("by_age").column("age"))?;
    /// users.put(&vec![Value::U32(1), Value::U8(40)])?;
    /// assert_eq!(users.index("by_age")?.prefix(40)?.count(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if a value does not fit its column.
    pub fn prefix(&self, prefix: impl IndexPrefix) -> Result<IndexIter<'a, R>> {
        let values = prefix.to_values();
        let range = (Bound::Included(&values), Bound::Included(&values));
        self.range::<Vec<crate::value::Value>>(range)
    }
    /// Returns all rows in the order of the index.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let schema = Schema::new().key("id", ColumnType::U32).column("age", ColumnType::U8);
    /// let users = db.create_dyn_table("users", schema)?;
    /// users.create_index(IndexDef::new("by_age").column("age"))?;
    /// users.put(&vec![Value::U32(1), Value::U8(40)])?;
    /// assert_eq!(users.index("by_age")?.scan()?.count(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn scan(&self) -> Result<IndexIter<'a, R>> {
        let number = self.plan.number;
        self.iter((Bound::Included(vec![number]), Bound::Excluded(vec![number + 1])))
    }
    /// Returns the first row whose first columns of the index have these values: the only one, if
    /// the index is unique and `values` has all its columns.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let schema = Schema::new().key("id", ColumnType::U32).column("mail", ColumnType::Text);
    /// let users = db.create_dyn_table("users", schema)?;
    /// users.create_index(IndexDef::new("by_mail").column("mail").unique())?;
    /// users.put(&vec![Value::U32(1), "a@example.org".into()])?;
    /// let user = users.index("by_mail")?.get("a@example.org")?.expect("it was put");
    /// assert_eq!(user[0], Value::U32(1));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if a value does not fit its column.
    pub fn get(&self, values: impl IndexPrefix) -> Result<Option<R>> {
        self.prefix(values)?.next().transpose()
    }

    fn encode_prefix(&self, values: &[crate::value::Value], out: &mut Vec<u8>) -> Result<usize> {
        write_values(values, &self.plan.columns, out)
            .map_err(|e| e.in_table(&self.state.name).in_index(&self.plan.name))
    }
    fn iter(&self, range: KeyRange) -> Result<IndexIter<'a, R>> {
        let cursor = self.read_point.source(&self.state).cursor(range)?;
        Ok(IndexIter {
            cursor: Some(DirectedCursor::new(cursor)),
            state: Arc::clone(&self.state),
            read_point: self.read_point.clone(),
            binding: Arc::clone(&self.binding),
            plan: Arc::clone(&self.plan),
            row_key: Vec::new(),
            row: std::marker::PhantomData,
        })
    }
}

/// Returns the plan of an index by the schema as of the source, which can be older than the
/// binding.
pub fn find_index(source: &RowSource<'_>, binding: &Binding, name: &str) -> Result<IndexPlan> {
    let plan = match source.read_point {
        // The binding of a transaction is that of its state.
        ReadPoint::Txn(_) => binding.indexes.iter().find(|plan| plan.name == name).cloned(),
        ReadPoint::Latest | ReadPoint::Snapshot(_) => {
            // A snapshot can be older than the table.
            let schema = source.read_value(SCHEMA_KEY)?.map(|bytes| read_schema(&bytes));
            let schema = schema.transpose()?;
            let index = schema.as_ref().and_then(|s| Some((s, s.index_named(name)?)));
            index.map(|(schema, index)| Binding::plan_index_of(schema, index)).transpose()?
        }
    };
    let missing = || {
        let text = "there is no such index: create it with Table::create_index";
        Error::new(ErrorKind::NotFound, text)
    };
    let plan = plan.ok_or_else(missing)?;
    if !plan.ready {
        let text = "the index is being built: wait for the call of create_index that builds it, or \
                    call it again if its program has ended";
        return Err(Error::new(ErrorKind::Busy, text));
    }
    Ok(plan)
}

/// An iterator over rows in the order of an index; see [`TableIndex::range`]. After an error it
/// ends. In a transaction it shows the index as it was when it was created, and rows as they are
/// now: rows that the transaction has deleted since are skipped.
pub struct IndexIter<'a, R> {
    /// `None` after the end.
    cursor: Option<DirectedCursor>,
    state: Arc<TableState>,
    read_point: IndexReadPoint<'a>,
    binding: Arc<Binding>,
    plan: Arc<IndexPlan>,
    row_key: Vec<u8>,
    row: std::marker::PhantomData<fn() -> R>,
}

impl<R: Row> IndexIter<'_, R> {
    /// Returns the rows in reverse order. Call it before the first row is read.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let schema = Schema::new().key("id", ColumnType::U32).column("age", ColumnType::U8);
    /// let users = db.create_dyn_table("users", schema)?;
    /// users.create_index(IndexDef::new("by_age").column("age"))?;
    /// users.put(&vec![Value::U32(1), Value::U8(40)])?;
    /// users.put(&vec![Value::U32(2), Value::U8(30)])?;
    /// let oldest = users.index("by_age")?.scan()?.rev().next().expect("two rows")?;
    /// assert_eq!(oldest[0], Value::U32(1));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn rev(mut self) -> Self {
        if let Some(cursor) = &mut self.cursor {
            cursor.reverse();
        }
        self
    }
    fn read_next(&mut self) -> Result<Option<R>> {
        let fails = |e| self.state.engine_error(e);
        loop {
            let Some(cursor) = &mut self.cursor else { return Ok(None) };
            let Some(cursor) = cursor.advance().map_err(fails)? else { return Ok(None) };
            let expires = cursor.expires_at_ms().is_some();
            let (key, value) = cursor.entry().map_err(fails)?;
            read_row_key(&self.plan, &self.binding.key, key, value, &mut self.row_key)
                .map_err(|e| self.damaged(e))?;
            let row = self.read_point.source(&self.state).read_value(&self.row_key)?;
            match row {
                Some(row) => {
                    return decode_row(&self.state, &mut self.binding, &self.row_key, &row)
                        .map(Some);
                }
                // The row has expired since, or the transaction has deleted it.
                None if expires || matches!(self.read_point, IndexReadPoint::Txn(_)) => {}
                None => return Err(self.damaged(Malformed::Bytes("its row does not exist"))),
            }
        }
    }
    fn damaged(&self, malformed: Malformed) -> Error {
        let what = match malformed {
            Malformed::Bytes(what) => what,
            Malformed::UnknownLayout => "an unknown column",
        };
        let what = format!("an index entry is damaged ({what})");
        self.state.damaged(&what).in_index(&self.plan.name)
    }
}

impl<R: Row> Iterator for IndexIter<'_, R> {
    type Item = Result<R>;
    fn next(&mut self) -> Option<Result<R>> {
        let item = self.read_next().transpose();
        if !matches!(item, Some(Ok(_))) {
            self.cursor = None;
        }
        item
    }
}

impl<R: Row> std::iter::FusedIterator for IndexIter<'_, R> {}

/// Prints the table and the index.
impl<R> std::fmt::Debug for IndexIter<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IndexIter({:?}, {:?})", self.state, self.plan.name)
    }
}
