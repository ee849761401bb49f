//! [`RowSource`]: reads of rows of the newest state, a snapshot or a transaction.

use crate::binding::{Binding, StoredRow};
use crate::error::{Error, Malformed, Result};
use crate::key::{FullKey, KeyPrefix, read_values};
use crate::limits::THREAD_BUFFER_BYTES_MAX;
use crate::ordered::prefix_successor;
use crate::row::Row;
use crate::table_state::{ROWS, TableState};
use crate::txn::TableTxn;
use crate::value::DisplayTuple;
use perigee::{Cursor, Readable, Slice, Snapshot, ValueWithTtl};
use std::cell::Cell;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// Which state a read sees.
#[derive(Clone, Copy, Debug)]
pub enum ReadPoint<'a> {
    Latest,
    Snapshot(&'a Snapshot),
    Txn(&'a TableTxn<'a>),
}

/// A range of encoded keys.
pub type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A table as of a read point.
#[derive(Clone, Copy, Debug)]
pub struct RowSource<'a> {
    pub state: &'a Arc<TableState>,
    pub read_point: ReadPoint<'a>,
}

/// Reads a row of the newest state: the only function that does, except for scans. This is the
/// place for a cache of rows.
#[inline]
fn read_latest_row(state: &TableState, key: &[u8]) -> Result<Option<Slice>> {
    state.family.get_pinned(key).map_err(|e| state.engine_error(e))
}

/// Buffers of a thread, so that reads and writes allocate nothing for encoded keys and rows.
struct ThreadBuffers {
    key: Cell<Vec<u8>>,
    row: Cell<Vec<u8>>,
}

thread_local! {
    static BUFFERS: ThreadBuffers =
        const { ThreadBuffers { key: Cell::new(Vec::new()), row: Cell::new(Vec::new()) } };
}

/// Calls `use_buffer` with a buffer of the thread, emptied. A thread does not keep the memory of
/// its largest key or row.
#[inline]
fn with_buffer<T>(
    select: impl Fn(&ThreadBuffers) -> &Cell<Vec<u8>>,
    use_buffer: impl FnOnce(&mut Vec<u8>) -> T,
) -> T {
    let mut buffer = BUFFERS.with(|buffers| select(buffers).take());
    buffer.clear();
    let result = use_buffer(&mut buffer);
    if buffer.capacity() <= THREAD_BUFFER_BYTES_MAX {
        BUFFERS.with(|buffers| select(buffers).set(buffer));
    }
    result
}

/// Calls `use_buffer` with an empty buffer for a key.
#[inline]
pub fn with_key_buffer<T>(use_buffer: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    with_buffer(|buffers| &buffers.key, use_buffer)
}

/// Calls `use_buffer` with an empty buffer for a row.
#[inline]
pub fn with_row_buffer<T>(use_buffer: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    with_buffer(|buffers| &buffers.row, use_buffer)
}

/// Appends the key of a row, with the index number.
#[inline]
pub fn write_row_key<K>(binding: &Binding, key: &impl FullKey<K>, out: &mut Vec<u8>) -> Result<()> {
    out.push(ROWS);
    let n = key.write_prefix(&binding.key, out).map_err(|e| e.in_table(&binding.table))?;
    if n == binding.key.len() {
        return Ok(());
    }
    let text = format!("{n} values for a primary key of {} columns", binding.key.len());
    Err(Error::invalid(text).in_table(&binding.table))
}

/// Decodes a row.
#[inline]
pub fn decode_row<R: Row>(
    state: &TableState,
    binding: &mut Arc<Binding>,
    key: &[u8],
    row: &[u8],
) -> Result<R> {
    with_stored_row(state, binding, key, row, R::read)
}

/// Calls `read` with a stored row; binds the schema again if the row has a newer layout.
#[inline]
fn with_stored_row<T>(
    state: &TableState,
    binding: &mut Arc<Binding>,
    key: &[u8],
    row: &[u8],
    mut read: impl FnMut(&StoredRow<'_>) -> std::result::Result<T, Malformed>,
) -> Result<T> {
    let mut read = |binding: &Binding| read(&binding.stored_row(&key[1..], row)?);
    match read(binding) {
        Ok(read) => Ok(read),
        Err(Malformed::UnknownLayout) => {
            *binding = state.refresh()?;
            read(binding).map_err(|e| malformed_row(state, binding, key, e))
        }
        Err(e) => Err(malformed_row(state, binding, key, e)),
    }
}

/// Returns the error for a row that cannot be decoded.
#[cold]
pub fn malformed_row(
    state: &TableState,
    binding: &Binding,
    key: &[u8],
    malformed: Malformed,
) -> Error {
    let what = match malformed {
        Malformed::Bytes(what) => format!("a row is damaged ({what})"),
        Malformed::UnknownLayout => "a row has an unknown layout".to_owned(),
    };
    let error = state.damaged(&what);
    match read_values(&key[1..], &binding.key) {
        Ok(values) => error.with_key(DisplayTuple(&values)),
        Err(_) => error.with_key(key.escape_ascii()),
    }
}

impl<'a> RowSource<'a> {
    /// Returns the binding for reads of rows. Rows of a snapshot are read with the newest one,
    /// which knows all older layouts.
    pub fn binding(&self) -> Result<Arc<Binding>> {
        match self.read_point {
            ReadPoint::Latest | ReadPoint::Snapshot(_) => Ok(self.state.binding()),
            ReadPoint::Txn(tx) => tx.binding(self.state, false),
        }
    }
    /// Returns the value of an encoded key.
    #[inline]
    pub fn read_value(&self, key: &[u8]) -> Result<Option<Slice>> {
        let family = &self.state.family;
        let value = match self.read_point {
            ReadPoint::Latest => return read_latest_row(self.state, key),
            ReadPoint::Snapshot(snapshot) => snapshot.family(family).get_pinned(key),
            ReadPoint::Txn(tx) => tx.engine_txn().family(family).get_pinned(key),
        };
        value.map_err(|e| self.state.engine_error(e))
    }
    /// Returns the value of an encoded key with its expiry time.
    pub fn read_with_ttl(&self, key: &[u8]) -> Result<Option<ValueWithTtl>> {
        let family = &self.state.family;
        let value = match self.read_point {
            ReadPoint::Latest => family.get_with_ttl(key),
            ReadPoint::Snapshot(snapshot) => snapshot.family(family).get_with_ttl(key),
            ReadPoint::Txn(tx) => tx.engine_txn().family(family).get_with_ttl(key),
        };
        value.map_err(|e| self.state.engine_error(e))
    }
    /// Returns a cursor over a range of encoded keys.
    pub fn cursor(&self, range: KeyRange) -> Result<Cursor> {
        let family = &self.state.family;
        let cursor = match self.read_point {
            ReadPoint::Latest => Readable::cursor_within(family, range),
            ReadPoint::Snapshot(snapshot) => snapshot.family(family).cursor_within(range),
            ReadPoint::Txn(tx) => tx.engine_txn().family(family).cursor_within(range),
        };
        cursor.map_err(|e| self.state.engine_error(e))
    }

    #[inline]
    pub fn get<R: Row>(&self, key: &impl FullKey<R::Key>) -> Result<Option<R>> {
        let mut binding = self.binding()?;
        with_key_buffer(|buffer| {
            write_row_key(&binding, key, buffer)?;
            let row = self.read_value(buffer)?;
            row.map(|row| decode_row(self.state, &mut binding, buffer, &row)).transpose()
        })
    }
    pub fn contains<K>(&self, key: &impl FullKey<K>) -> Result<bool> {
        let binding = self.binding()?;
        with_key_buffer(|buffer| {
            write_row_key(&binding, key, buffer)?;
            Ok(self.read_value(buffer)?.is_some())
        })
    }
    /// Returns the rows of many keys, read together, in the order of the keys.
    pub fn get_many<R: Row, K: FullKey<R::Key>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<R>>> {
        let mut binding = self.binding()?;
        let encode = |key: K| {
            let mut encoded = Vec::new();
            write_row_key(&binding, &key, &mut encoded).map(|()| encoded)
        };
        let keys = keys.into_iter().map(encode).collect::<Result<Vec<_>>>()?;
        let family = &self.state.family;
        let values = match self.read_point {
            ReadPoint::Latest => family.multi_get(&keys),
            ReadPoint::Snapshot(snapshot) => snapshot.family(family).multi_get(&keys),
            ReadPoint::Txn(tx) => tx.engine_txn().family(family).multi_get(&keys),
        };
        let mut rows = Vec::with_capacity(keys.len());
        for (key, value) in keys.iter().zip(values) {
            let value = value.map_err(|e| self.state.engine_error(e))?;
            let row = value.map(|row| decode_row(self.state, &mut binding, key, &row));
            rows.push(row.transpose()?);
        }
        Ok(rows)
    }
    /// Returns the rows of a range of keys.
    pub fn range<R: Row, P: KeyPrefix<R::Key>>(
        &self,
        range: &impl RangeBounds<P>,
    ) -> Result<RowIter<R>> {
        let binding = self.binding()?;
        let encode = |prefix: &P, out: &mut Vec<u8>| {
            prefix.write_prefix(&binding.key, out).map_err(|e| e.in_table(&binding.table))
        };
        let range = encode_range(ROWS, range, encode)?;
        RowIter::new(self, range, binding)
    }
    /// Returns the rows whose key starts with `prefix`.
    pub fn prefix<R: Row, P: KeyPrefix<R::Key>>(&self, prefix: &P) -> Result<RowIter<R>> {
        self.range::<R, P>(&(Bound::Included(prefix), Bound::Included(prefix)))
    }
    pub fn scan<R: Row>(&self) -> Result<RowIter<R>> {
        let range = (Bound::Included(vec![ROWS]), Bound::Excluded(vec![ROWS + 1]));
        RowIter::new(self, range, self.binding()?)
    }
}

/// Encodes a range of prefixes. A prefix stands for all keys that start with it: an included bound
/// includes them all, an excluded one excludes them all. An empty range becomes one that is empty
/// in the order of keys.
pub fn encode_range<P>(
    number: u8,
    range: &impl RangeBounds<P>,
    encode: impl Fn(&P, &mut Vec<u8>) -> Result<usize>,
) -> Result<KeyRange> {
    let encoded = |prefix: &P| {
        let mut out = vec![number];
        encode(prefix, &mut out).map(|_| out)
    };
    // The index number is below 255, so there is always a successor.
    let after = |prefix: &P| encoded(prefix).map(|key| prefix_successor(key).unwrap_or_default());
    let start = match range.start_bound() {
        Bound::Included(prefix) => encoded(prefix)?,
        Bound::Excluded(prefix) => after(prefix)?,
        Bound::Unbounded => vec![number],
    };
    let end = match range.end_bound() {
        Bound::Included(prefix) => after(prefix)?,
        Bound::Excluded(prefix) => encoded(prefix)?,
        Bound::Unbounded => vec![number + 1],
    };
    let end = if end < start { start.clone() } else { end };
    Ok((Bound::Included(start), Bound::Excluded(end)))
}

/// A cursor that moves in one direction only.
#[derive(Debug)]
pub struct DirectedCursor {
    cursor: Cursor,
    reversed: bool,
    started: bool,
}

impl DirectedCursor {
    pub fn new(cursor: Cursor) -> DirectedCursor {
        DirectedCursor { cursor, reversed: false, started: false }
    }
    /// Turns the direction around; has an effect before the first move only.
    pub fn reverse(&mut self) {
        self.reversed = !self.reversed;
    }
    /// Moves to the next entry and returns the cursor there; `None` at the end.
    pub fn advance(&mut self) -> perigee::Result<Option<&mut Cursor>> {
        match (self.started, self.reversed) {
            (false, false) => self.cursor.seek_to_first()?,
            (false, true) => self.cursor.seek_to_last()?,
            (true, false) => self.cursor.next()?,
            (true, true) => self.cursor.prev()?,
        }
        self.started = true;
        Ok(if self.cursor.is_valid() { Some(&mut self.cursor) } else { None })
    }
}

/// An iterator over rows in the order of their keys. Rows are read as the iterator advances, all
/// as of its creation. After an error it ends.
///
/// ```
/// # use perigee_tables::*;
/// # let db = perigee::example_db()?;
/// #[derive(Row)]
/// struct Moon {
///     #[key]
///     name: String,
///     km: u32,
/// }
/// let moons = db.table::<Moon>("moons")?;
/// moons.put(&Moon { name: "Io".into(), km: 1821 })?;
/// moons.put(&Moon { name: "Rhea".into(), km: 764 })?;
/// let last = moons.scan()?.rev().next().expect("two rows")?;
/// assert_eq!(last.name, "Rhea");
/// # Ok::<(), Error>(())
/// ```
pub struct RowIter<R> {
    /// `None` after the end.
    cursor: Option<DirectedCursor>,
    state: Arc<TableState>,
    binding: Arc<Binding>,
    row: std::marker::PhantomData<fn() -> R>,
}

impl<R: Row> RowIter<R> {
    fn new(source: &RowSource<'_>, range: KeyRange, binding: Arc<Binding>) -> Result<RowIter<R>> {
        let cursor = Some(DirectedCursor::new(source.cursor(range)?));
        let state = Arc::clone(source.state);
        Ok(RowIter { cursor, state, binding, row: std::marker::PhantomData })
    }
    /// Returns the rows in reverse order. Call it before the first row is read.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// let users = db.create_dyn_table("users", Schema::new().key("id", ColumnType::U32))?;
    /// for id in [1u32, 2] {
    ///     users.put(&vec![id.into()])?;
    /// }
    /// let ids: Result<Vec<_>> = users.scan()?.rev().collect();
    /// assert_eq!(ids?, [[Value::U32(2)], [Value::U32(1)]]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn rev(mut self) -> RowIter<R> {
        if let Some(cursor) = &mut self.cursor {
            cursor.reverse();
        }
        self
    }
    /// Reads the next row into `row`; returns false at the end. The memory of the texts and byte
    /// strings of `row` is used again, so a scan allocates nothing for them.
    ///
    /// ```
    /// # use perigee_tables::*;
    /// # let db = perigee::example_db()?;
    /// # #[derive(Row, Default)]
    /// # struct Moon {
    /// #     #[key]
    /// #     name: String,
    /// #     km: u32,
    /// # }
    /// # let moons = db.table::<Moon>("moons")?;
    /// # moons.put(&Moon { name: "Io".into(), km: 1821 })?;
    /// # moons.put(&Moon { name: "Rhea".into(), km: 764 })?;
    /// let mut moon = Moon::default();
    /// let (mut scan, mut km) = (moons.scan()?, 0);
    /// while scan.read_into(&mut moon)? {
    ///     km += moon.km;
    /// }
    /// assert_eq!(km, 2585);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As for the iterator, which ends with the error; `row` may then be a mixture of two rows.
    #[inline]
    pub fn read_into(&mut self, row: &mut R) -> Result<bool> {
        let read = self.read_next(|stored| row.replace_by(stored));
        self.end_unless(matches!(read, Ok(Some(()))));
        read.map(|read| read.is_some())
    }
    #[inline]
    fn read_next<T>(
        &mut self,
        read: impl FnMut(&StoredRow<'_>) -> std::result::Result<T, Malformed>,
    ) -> Result<Option<T>> {
        let fails = |e| self.state.engine_error(e);
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        let Some(cursor) = cursor.advance().map_err(fails)? else { return Ok(None) };
        let (key, row) = cursor.entry().map_err(fails)?;
        with_stored_row(&self.state, &mut self.binding, key, row, read).map(Some)
    }
    #[inline]
    fn end_unless(&mut self, goes_on: bool) {
        if !goes_on {
            self.cursor = None;
        }
    }
}

impl<R: Row> Iterator for RowIter<R> {
    type Item = Result<R>;
    fn next(&mut self) -> Option<Result<R>> {
        let item = self.read_next(R::read).transpose();
        self.end_unless(matches!(item, Some(Ok(_))));
        item
    }
}

impl<R: Row> std::iter::FusedIterator for RowIter<R> {}

/// Prints the table.
impl<R> std::fmt::Debug for RowIter<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowIter({:?})", self.state)
    }
}

/// Defines the reads of a type with a method `source`, which returns a [`RowSource`].
macro_rules! inherent_reads {
    () => {
        /// Returns the row with this key: a value for a key of one column, or a tuple.
        pub fn get(&self, key: impl FullKey<R::Key>) -> Result<Option<R>> {
            self.source().get(&key)
        }
        /// Returns true if there is a row with this key.
        pub fn contains(&self, key: impl FullKey<R::Key>) -> Result<bool> {
            self.source().contains(&key)
        }
        /// Returns the rows with these keys, in the order of the keys; they are read together.
        pub fn get_many<K: FullKey<R::Key>>(
            &self,
            keys: impl IntoIterator<Item = K>,
        ) -> Result<Vec<Option<R>>> {
            self.source().get_many(keys)
        }
        /// Returns the rows of a range of keys, in key order. A bound is a value for the first
        /// column of the key, or a tuple for the first columns: an included bound stands for all
        /// keys that start with it, an excluded one for none of them. Bounds are in the order of
        /// the table: for a descending column the larger value comes first.
        pub fn range<P: KeyPrefix<R::Key>>(
            &self,
            range: impl std::ops::RangeBounds<P>,
        ) -> Result<$crate::RowIter<R>> {
            self.source().range(&range)
        }
        /// Returns the rows of [`Self::range`] in reverse order.
        pub fn range_rev<P: KeyPrefix<R::Key>>(
            &self,
            range: impl std::ops::RangeBounds<P>,
        ) -> Result<$crate::RowIter<R>> {
            Ok(self.source().range(&range)?.rev())
        }
        /// Returns the rows whose first key columns have these values, in key order.
        pub fn prefix<P: KeyPrefix<R::Key>>(&self, prefix: P) -> Result<$crate::RowIter<R>> {
            self.source().prefix(&prefix)
        }
        /// Returns all rows in key order.
        pub fn scan(&self) -> Result<$crate::RowIter<R>> {
            self.source().scan()
        }
        /// Returns a reader of a secondary index.
        ///
        /// # Errors
        /// `NotFound` if there is no such index; `Busy` while it is being built.
        pub fn index(&self, name: &str) -> Result<$crate::TableIndex<'_, R>> {
            $crate::TableIndex::open(self.source(), name)
        }
        /// Returns the rows of a scan as record batches of Apache Arrow, all as of this call.
        ///
        /// # Errors
        /// `InvalidArgument` if a column or bound does not fit the schema; `NotFound` and `Busy` as
        /// for [`Self::index`].
        #[cfg(feature = "arrow")]
        pub fn batches(&self, scan: &$crate::BatchScan) -> Result<$crate::BatchIter<'_>> {
            $crate::BatchIter::open(&self.source(), scan)
        }
    };
}
pub(crate) use inherent_reads;
