//! Ranges and iterators over them. A range is a description: each iteration reads the column family
//! anew. An iterator shows the state at its start.
//!
//! An iterator reads ahead in chunks with the interpreter lock released, and returns entries of the
//! chunk without further calls of the engine. Its lock is never held while Python code runs or
//! while a Python object is created, because both may run a finalizer that uses the same iterator.

use crate::convert;
use crate::error::{OrRaise, closed};
use crate::input::Data;
use crate::source::{OpenDatabase, Source, View, read_source};
use perigee::{Cursor, Error, Iter, KeyComparator, Result};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice, PyTuple};
use std::ops::Bound as KeyBound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Bytes of keys and values after which a chunk is complete.
const CHUNK_BYTES: usize = 256 << 10;
/// Most entries of a chunk.
const CHUNK_ENTRIES_MAX: usize = 1024;
/// Most entries of a chunk in a transaction: what it reads ahead counts as read in conflict checks.
const TXN_CHUNK_ENTRIES_MAX: usize = 32;
/// Entries of the first chunk; each further one has twice as many.
const FIRST_CHUNK_ENTRIES: usize = 4;
/// Entries counted between two checks for signals.
const COUNTED_ENTRIES: usize = 1 << 20;

/// What an iterator returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Item {
    Keys,
    Values,
    Entries,
}

impl Item {
    fn name(self) -> &'static str {
        match self {
            Item::Keys => "keys",
            Item::Values => "values",
            Item::Entries => "items",
        }
    }
}

/// The keys of a range: all, or those from `start` (inclusive) to `end` (exclusive) that begin with
/// `prefix`.
#[derive(Clone, Default)]
pub struct KeyRange {
    pub prefix: Option<Vec<u8>>,
    pub start: Option<Vec<u8>>,
    pub end: Option<Vec<u8>>,
}

/// Lower and upper bound of a scan.
pub type Bounds = (KeyBound<Vec<u8>>, KeyBound<Vec<u8>>);

/// Returns the smallest key that is greater than all keys with this prefix, if there is one.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    match KeyComparator::Bytes.prefix_range(prefix) {
        Ok((_, KeyBound::Excluded(end))) => Some(end),
        _ => None,
    }
}

impl KeyRange {
    /// Returns the range for keyword arguments.
    pub fn new(
        py: Python<'_>,
        prefix: Option<Data<'_>>,
        start: Option<Data<'_>>,
        end: Option<Data<'_>>,
    ) -> KeyRange {
        let copy = |data: Option<Data<'_>>| data.map(|d| d.to_vec(py));
        KeyRange { prefix: copy(prefix), start: copy(start), end: copy(end) }
    }
    /// Returns the range and direction of a slice.
    ///
    /// # Errors
    /// `TypeError` for bounds that are no keys; `ValueError` for a step other than 1 and -1, or if
    /// the bounds are in the wrong order.
    pub fn from_slice(slice: &Bound<'_, PySlice>, byte_order: bool) -> PyResult<(Self, bool)> {
        let py = slice.py();
        let (start, stop) = (slice.getattr("start")?, slice.getattr("stop")?);
        let (start, stop): (Option<Data<'_>>, Option<Data<'_>>) =
            (start.extract()?, stop.extract()?);
        let step: Option<i64> = slice.getattr("step")?.extract().map_err(|_| wrong_step())?;
        let reverse = match step {
            None | Some(1) => false,
            Some(-1) => true,
            Some(_) => return Err(wrong_step()),
        };
        let range = KeyRange::new(py, None, start, stop);
        if byte_order
            && let (Some(start), Some(end)) = (&range.start, &range.end)
            && start > end
        {
            return Err(PyValueError::new_err(
                "the start of the range is after its end: pass the smaller key first, also with \
                 the step -1, which only reverses the order",
            ));
        }
        Ok((range, reverse))
    }
    pub fn is_everything(&self) -> bool {
        self.prefix.is_none() && self.start.is_none() && self.end.is_none()
    }
    /// Returns the bounds. A range with a prefix needs keys that are sorted byte by byte. If
    /// `byte_order`, bounds in the wrong order become an empty range.
    pub fn bounds(&self, byte_order: bool) -> Bounds {
        let mut start = self.start.clone();
        let mut end = self.end.clone();
        if let Some(prefix) = &self.prefix {
            start = start.max(Some(prefix.clone()));
            end = match (end, prefix_end(prefix)) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        // An empty range in the form that the engine accepts.
        if byte_order
            && let (Some(a), Some(b)) = (&start, &end)
            && a > b
        {
            end = start.clone();
        }
        let lower = start.map_or(KeyBound::Unbounded, KeyBound::Included);
        (lower, end.map_or(KeyBound::Unbounded, KeyBound::Excluded))
    }
    /// Returns the prefix if the engine has to interpret it, because keys are not sorted byte by
    /// byte.
    ///
    /// # Errors
    /// `InvalidArgument` if it is combined with other bounds.
    pub fn engine_prefix(&self, source: &Source) -> Result<Option<&[u8]>> {
        match &self.prefix {
            Some(prefix) if !source.byte_order => {
                if self.start.is_some() || self.end.is_some() {
                    return Err(Error::invalid(
                        "a prefix cannot be combined with start or end in a column family whose \
                         comparator is not 'bytes'",
                    ));
                }
                Ok(Some(prefix))
            }
            _ => Ok(None),
        }
    }
    /// Returns true if a key is in the range, for keys that are sorted byte by byte.
    fn contains(&self, key: &[u8]) -> bool {
        self.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix))
            && self.start.as_ref().is_none_or(|start| key >= &start[..])
            && self.end.as_ref().is_none_or(|end| key < &end[..])
    }
}

fn wrong_step() -> PyErr {
    PyValueError::new_err("the step of a range must be 1 (ascending) or -1 (descending)")
}

/// What a scan reads from.
enum Position {
    /// Not positioned yet.
    Start(Cursor),
    /// On the next entry.
    Cursor(Cursor),
    /// A scan over a prefix of keys that are not sorted byte by byte.
    Iter(Box<Iter>),
    /// All entries were returned, or an error.
    End,
}

/// Opens a scan. Call it with the interpreter lock released.
fn open_scan(source: &Source, range: &KeyRange) -> Result<Position> {
    if let Some(prefix) = range.engine_prefix(source)? {
        return read_source!(source, reader => reader.prefix(prefix))
            .map(|iter| Position::Iter(Box::new(iter)));
    }
    let bounds = range.bounds(source.byte_order);
    read_source!(source, reader => reader.cursor_within::<Vec<u8>>(bounds)).map(Position::Start)
}

/// Entries that were read together.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// End of the key and end of the value of each entry.
    ends: Vec<(usize, usize)>,
}

impl Chunk {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }
    fn entry(&self, index: usize) -> (&[u8], &[u8]) {
        let start = if index == 0 { 0 } else { self.ends[index - 1].1 };
        let (key_end, value_end) = self.ends[index];
        (&self.bytes[start..key_end], &self.bytes[key_end..value_end])
    }
    fn is_full(&self, entries: usize) -> bool {
        self.ends.len() >= entries || self.bytes.len() >= CHUNK_BYTES
    }
}

/// An entry of a chunk.
struct ChunkEntry {
    chunk: Arc<Chunk>,
    index: usize,
}

struct ScanState {
    position: Position,
    reverse: bool,
    item: Item,
    chunk: Arc<Chunk>,
    /// Index in the chunk of the next entry to return.
    next: usize,
    /// Entries of the next chunk.
    entries: usize,
    entries_max: usize,
}

impl ScanState {
    fn take_buffered(&mut self) -> Option<ChunkEntry> {
        if self.next == self.chunk.ends.len() {
            return None;
        }
        self.next += 1;
        Some(ChunkEntry { chunk: Arc::clone(&self.chunk), index: self.next - 1 })
    }
    /// Returns the next entry; reads a chunk if necessary.
    fn take(&mut self) -> Result<Option<ChunkEntry>> {
        if let Some(entry) = self.take_buffered() {
            return Ok(Some(entry));
        }
        // What was read before an error is lost: a scan that fails returns nothing more.
        let read = self.read_chunk();
        if read.is_err() {
            self.position = Position::End;
        }
        self.chunk = Arc::new(read?);
        self.next = 0;
        Ok(self.take_buffered())
    }
    fn read_chunk(&mut self) -> Result<Chunk> {
        let entries = self.entries;
        // Usually the entries are about as long as the last ones.
        let bytes = self.chunk.bytes.len() / self.chunk.ends.len().max(1) * entries;
        let mut chunk = Chunk {
            bytes: Vec::with_capacity(bytes.min(CHUNK_BYTES)),
            ends: Vec::with_capacity(entries),
        };
        self.entries = (entries * 2).min(self.entries_max);
        self.position = match std::mem::replace(&mut self.position, Position::End) {
            Position::Start(mut cursor) => {
                if self.reverse {
                    cursor.seek_to_last()?
                } else {
                    cursor.seek_to_first()?
                }
                Position::Cursor(cursor)
            }
            other => other,
        };
        let is_end = match &mut self.position {
            Position::Start(_) | Position::End => true,
            Position::Cursor(cursor) => {
                read_cursor(cursor, self.reverse, self.item, entries, &mut chunk)?
            }
            Position::Iter(iter) => read_iter(iter, self.reverse, entries, &mut chunk)?,
        };
        if is_end {
            // Releases the files that the scan pinned.
            self.position = Position::End;
        }
        Ok(chunk)
    }
}

/// Reads up to `entries` entries; returns true at the end of the range.
fn read_cursor(
    cursor: &mut Cursor,
    reverse: bool,
    item: Item,
    entries: usize,
    chunk: &mut Chunk,
) -> Result<bool> {
    while cursor.is_valid() {
        if chunk.is_full(entries) {
            return Ok(false);
        }
        match item {
            Item::Keys => chunk.push(cursor.key(), &[]),
            Item::Values | Item::Entries => {
                let (key, value) = cursor.entry()?;
                chunk.push(if item == Item::Values { &[] } else { key }, value);
            }
        }
        if reverse { cursor.prev()? } else { cursor.next()? }
    }
    Ok(true)
}

/// Reads up to `entries` entries; returns true at the end of the range.
fn read_iter(iter: &mut Iter, reverse: bool, entries: usize, chunk: &mut Chunk) -> Result<bool> {
    while !chunk.is_full(entries) {
        let Some(entry) = (if reverse { iter.next_back() } else { iter.next() }) else {
            return Ok(true);
        };
        let (key, value) = entry?;
        chunk.push(&key, &value);
    }
    Ok(false)
}

/// An iterator over entries, keys or values in key order. It shows the state at its start: later
/// writes do not change it. Several threads can share an iterator: each entry is returned once.
#[pyclass(frozen, module = "perigeedb")]
pub struct RangeIterator {
    state: Mutex<ScanState>,
    item: Item,
    database: Arc<OpenDatabase>,
}

impl RangeIterator {
    /// Opens an iterator.
    pub fn open(
        py: Python<'_>,
        source: &Source,
        range: &KeyRange,
        item: Item,
        reverse: bool,
    ) -> PyResult<RangeIterator> {
        let position = py.detach(|| open_scan(source, range)).or_raise()?;
        let in_txn = matches!(source.view, View::Txn(_));
        let state = ScanState {
            position,
            reverse,
            item,
            chunk: Arc::default(),
            next: 0,
            entries: if in_txn { 1 } else { FIRST_CHUNK_ENTRIES },
            entries_max: if in_txn { TXN_CHUNK_ENTRIES_MAX } else { CHUNK_ENTRIES_MAX },
        };
        Ok(RangeIterator { state: Mutex::new(state), item, database: source.database.clone() })
    }
    fn lock(&self) -> MutexGuard<'_, ScanState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn next_entry(&self, py: Python<'_>) -> PyResult<Option<ChunkEntry>> {
        if self.database.is_closed() {
            return Err(closed("database")).or_raise();
        }
        let buffered = match self.state.try_lock() {
            Ok(mut state) => state.take_buffered(),
            Err(TryLockError::Poisoned(guard)) => guard.into_inner().take_buffered(),
            // Another thread reads the next chunk.
            Err(TryLockError::WouldBlock) => None,
        };
        if buffered.is_some() {
            return Ok(buffered);
        }
        // Ends calls such as `list(db)`, in which the interpreter does not check for signals.
        py.check_signals()?;
        py.detach(|| self.lock().take()).or_raise()
    }
}

#[pymethods]
impl RangeIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(ChunkEntry { chunk, index }) = self.next_entry(py)? else { return Ok(None) };
        let (key, value) = chunk.entry(index);
        Ok(Some(match self.item {
            Item::Keys => PyBytes::new(py, key).into_any(),
            Item::Values => PyBytes::new(py, value).into_any(),
            Item::Entries => convert::entry(py, key, value)?.into_any(),
        }))
    }
    /// Ends the iteration and releases the files that it pinned. An iterator that has returned its
    /// last entry is closed already.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let mut state = self.lock();
            state.position = Position::End;
            state.chunk = Arc::default();
            state.next = 0;
        });
    }
    fn __reduce__(&self) -> PyResult<()> {
        Err(not_copyable("an iterator"))
    }
}

/// Returns the exception for pickling or copying an object.
pub fn not_copyable(what: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "{what} cannot be pickled or copied, because it refers to an open database: open the \
         database where it is needed, or pass keys and values"
    ))
}

/// The keys, values or entries of a range of keys, read again by each iteration. Made by `keys()`,
/// `values()` and `items()` of a view, and by slices such as `db["a":"f"]`.
///
/// >>> db.update({"a": "1", "b": "2", "c": "3"})
/// >>> days = db.keys(start="b")
/// >>> list(days), list(reversed(days)), days.count()
/// ([b'b', b'c'], [b'c', b'b'], 2)
#[pyclass(frozen, generic, module = "perigeedb")]
pub struct Range {
    source: Arc<Source>,
    range: KeyRange,
    item: Item,
    reverse: bool,
}

impl Range {
    pub fn new(source: Arc<Source>, range: KeyRange, item: Item, reverse: bool) -> Range {
        Range { source, range, item, reverse }
    }
    fn iterate(&self, py: Python<'_>, item: Item, reverse: bool) -> PyResult<RangeIterator> {
        RangeIterator::open(py, &self.source, &self.range, item, reverse)
    }
    fn contains_key(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        let source = &self.source;
        if !self.range.is_everything() && !source.byte_order {
            // Only a scan knows which keys are in the range.
            let keys = self.iterate(py, Item::Keys, false)?;
            while let Some(ChunkEntry { chunk, index }) = keys.next_entry(py)? {
                if chunk.entry(index).0 == key {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        if !self.range.contains(key) {
            return Ok(false);
        }
        py.detach(|| read_source!(source, reader => reader.contains(key))).or_raise()
    }
}

#[pymethods]
impl Range {
    fn __iter__(&self, py: Python<'_>) -> PyResult<RangeIterator> {
        self.iterate(py, self.item, self.reverse)
    }
    fn __reversed__(&self, py: Python<'_>) -> PyResult<RangeIterator> {
        self.iterate(py, self.item, !self.reverse)
    }
    /// Returns true if the range has the key, the entry `(key, value)` or, by a scan, the value.
    fn __contains__(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        match self.item {
            Item::Keys => {
                let key: Data<'_> = item.extract()?;
                self.contains_key(py, key.bytes(py))
            }
            Item::Values => {
                let value: Data<'_> = item.extract()?;
                let values = self.iterate(py, Item::Values, false)?;
                while let Some(ChunkEntry { chunk, index }) = values.next_entry(py)? {
                    if chunk.entry(index).1 == value.bytes(py) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Item::Entries => {
                let pair = item.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
                let pair = pair.ok_or_else(|| {
                    PyTypeError::new_err("an entry is a tuple of a key and a value")
                })?;
                let (key, value) = (pair.get_item(0)?, pair.get_item(1)?);
                let (key, value): (Data<'_>, Data<'_>) = (key.extract()?, value.extract()?);
                let (key, source) = (key.bytes(py), &self.source);
                if !self.contains_key(py, key)? {
                    return Ok(false);
                }
                let read = || read_source!(source, reader => reader.get_pinned(key));
                Ok(py.detach(read).or_raise()?.is_some_and(|found| found[..] == *value.bytes(py)))
            }
        }
    }
    /// Returns the exact number of entries, by a scan over the keys. `estimate` is faster.
    ///
    /// >>> db.update({"a": "1", "b": "2"})
    /// >>> db["a":"b"].count()
    /// 1
    pub fn count(&self, py: Python<'_>) -> PyResult<usize> {
        let (source, range) = (&self.source, &self.range);
        let mut position = py.detach(|| open_scan(source, range)).or_raise()?;
        let mut total = 0;
        loop {
            let (counted, is_end) = py.detach(|| count_some(&mut position)).or_raise()?;
            total += counted;
            if is_end {
                return Ok(total);
            }
            py.check_signals()?;
        }
    }
    fn __repr__(&self) -> String {
        let mut text = format!("<perigeedb.Range of {}", self.item.name());
        let range = &self.range;
        for (name, key) in [("prefix", &range.prefix), ("start", &range.start), ("end", &range.end)]
        {
            if let Some(key) = key {
                text += &format!(" {name}=b\"{}\"", key.escape_ascii());
            }
        }
        text + if self.reverse { " descending>" } else { ">" }
    }
    fn __reduce__(&self) -> PyResult<()> {
        Err(not_copyable("a range"))
    }
}

/// Counts some of the remaining entries; returns true at the end.
fn count_some(position: &mut Position) -> Result<(usize, bool)> {
    if let Position::Start(_) = position
        && let Position::Start(mut cursor) = std::mem::replace(position, Position::End)
    {
        cursor.seek_to_first()?;
        *position = Position::Cursor(cursor);
    }
    let mut counted = 0;
    while counted < COUNTED_ENTRIES {
        match position {
            Position::Cursor(cursor) if cursor.is_valid() => cursor.next()?,
            Position::Iter(iter) => match iter.next() {
                Some(entry) => drop(entry?),
                None => return Ok((counted, true)),
            },
            _ => return Ok((counted, true)),
        }
        counted += 1;
    }
    Ok((counted, false))
}
