//! [`WriteView`]: the mutable mapping that column families and transactions share.

use crate::convert;
use crate::error::{OrRaise, exception, missing_key};
use crate::input::{Data, DurabilityArg, Operand, Seconds, write_options};
use crate::read_view::ReadView;
use crate::scan::KeyRange;
use crate::source::{Source, View};
use perigee::{Durability, Error, Readable, Result, WriteBatch};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PyTuple};
use std::sync::Arc;
use std::time::Duration;

/// A mutable mapping from keys to values, sorted by key: a column family, or a column family in a
/// transaction.
#[pyclass(frozen, subclass, mapping, extends = ReadView, module = "perigeedb")]
pub struct WriteView {
    pub source: Arc<Source>,
}

/// Returns the initializer of a view that can be written.
pub fn write_view(source: &Arc<Source>) -> PyClassInitializer<WriteView> {
    PyClassInitializer::from(ReadView { source: Arc::clone(source) })
        .add_subclass(WriteView { source: Arc::clone(source) })
}

fn durability_in_txn() -> Error {
    Error::invalid(
        "a write in a transaction has no durability of its own: pass it to transaction() or \
         commit()",
    )
}

fn not_writable() -> Error {
    Error::invalid("a snapshot cannot be written")
}

/// Puts a value; call it with the interpreter lock released.
fn put(
    source: &Source,
    key: &[u8],
    value: &[u8],
    ttl: Option<Duration>,
    durability: Option<DurabilityArg>,
) -> Result<()> {
    let family = &source.family;
    match (&source.view, ttl) {
        (View::Txn(_), _) if durability.is_some() => Err(durability_in_txn()),
        (View::Txn(cell), None) => cell.with(|txn| txn.put(family, key, value)),
        (View::Txn(cell), Some(ttl)) => cell.with(|txn| txn.put_with_ttl(family, key, value, ttl)),
        (View::Live, None) => family.put_with(key, value, write_options(durability)),
        (View::Live, Some(ttl)) if durability.is_none() => family.put_with_ttl(key, value, ttl),
        (View::Live, Some(ttl)) => {
            let mut batch = WriteBatch::new();
            batch.put_with_ttl(family, key, value, ttl)?;
            source.database.db.write_with(batch, write_options(durability)).map(drop)
        }
        (View::Snapshot(_), _) => Err(not_writable()),
    }
}

/// Deletes a key; call it with the interpreter lock released.
fn delete(source: &Source, key: &[u8], durability: Option<DurabilityArg>) -> Result<()> {
    let family = &source.family;
    match &source.view {
        View::Txn(_) if durability.is_some() => Err(durability_in_txn()),
        View::Txn(cell) => cell.with(|txn| txn.delete(family, key)),
        View::Live => family.delete_with(key, write_options(durability)),
        View::Snapshot(_) => Err(not_writable()),
    }
}

/// Deletes a key and returns its value; call it with the interpreter lock released.
fn take(source: &Source, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let family = &source.family;
    match &source.view {
        View::Live => family.take(key),
        View::Txn(cell) => cell.with(|txn| {
            let value = txn.get(family, key)?;
            if value.is_some() {
                txn.delete(family, key)?;
            }
            Ok(value)
        }),
        View::Snapshot(_) => Err(not_writable()),
    }
}

/// Returns the value of a key, or puts `value` if the key does not exist; call it with the
/// interpreter lock released.
fn get_or_put(source: &Source, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
    let family = &source.family;
    match &source.view {
        View::Live => {
            let current = family.get(key)?;
            if current.is_some() {
                return Ok(current);
            }
            match family.compare_and_swap(key, None, Some(value))? {
                Ok(()) => Ok(None),
                Err(e) => Ok(e.current.map(Vec::from)),
            }
        }
        View::Txn(cell) => cell.with(|txn| {
            let current = txn.get(family, key)?;
            if current.is_none() {
                txn.put(family, key, value)?;
            }
            Ok(current)
        }),
        View::Snapshot(_) => Err(not_writable()),
    }
}

/// Deletes the key with the smallest or largest key and returns the entry.
fn take_end(source: &Source, last: bool) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    loop {
        let end = match &source.view {
            View::Live => if last { source.family.last() } else { source.family.first() }?,
            View::Txn(cell) => cell.with(|txn| {
                let reader = txn.family(&source.family);
                if last { Readable::last(&reader) } else { Readable::first(&reader) }
            })?,
            View::Snapshot(_) => return Err(not_writable()),
        };
        let Some((key, _)) = end else { return Ok(None) };
        // Another thread may have deleted it in the meantime.
        if let Some(value) = take(source, &key)? {
            return Ok(Some((key.to_vec(), value)));
        }
    }
}

/// Collects puts in a batch, or puts them in a transaction.
struct PutMany<'a> {
    source: &'a Source,
    batch: WriteBatch,
}

impl PutMany<'_> {
    fn put(&mut self, py: Python<'_>, pair: (Data<'_>, Data<'_>)) -> PyResult<()> {
        let (key, value) = (pair.0.bytes(py), pair.1.bytes(py));
        match &self.source.view {
            View::Live => self.batch.put(&self.source.family, key, value).or_raise(),
            _ => py.detach(|| put(self.source, key, value, None, None)).or_raise(),
        }
    }
    fn put_all(&mut self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = other.py();
        if let Ok(dict) = other.cast::<PyDict>() {
            // A copy: other threads may change the dictionary while a put releases the lock.
            for entry in dict.items() {
                self.put_pair(&entry)?;
            }
        } else if let Ok(view) = other.cast::<ReadView>() {
            for entry in view.call_method0("items")?.try_iter()? {
                self.put_pair(&entry?)?;
            }
        } else if other.hasattr("keys")? {
            for key in other.call_method0("keys")?.try_iter()? {
                let key = key?;
                let value = other.get_item(&key)?;
                self.put(py, (key.extract()?, value.extract()?))?;
            }
        } else {
            for entry in other.try_iter()? {
                self.put_pair(&entry?)?;
            }
        }
        Ok(())
    }
    fn put_pair(&mut self, pair: &Bound<'_, PyAny>) -> PyResult<()> {
        let entry: (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract().map_err(|_| {
            PyTypeError::new_err(
                "update() takes a mapping or pairs (key, value) of keys and values",
            )
        })?;
        self.put(pair.py(), (entry.0.extract()?, entry.1.extract()?))
    }
    fn finish(self, py: Python<'_>, durability: Option<DurabilityArg>) -> PyResult<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let (db, batch) = (&self.source.database.db, self.batch);
        py.detach(|| db.write_with(batch, write_options(durability))).map(drop).or_raise()
    }
}

impl WriteView {
    fn delete_keys(&self, py: Python<'_>, range: &KeyRange) -> PyResult<()> {
        // The engine refuses bounds in the wrong order, which would delete nothing.
        let (source, bounds) = (&self.source, range.bounds(false));
        let delete = || match &source.view {
            View::Live => source.family.delete_range::<Vec<u8>>(bounds),
            View::Txn(cell) => cell.with(|txn| txn.delete_range::<Vec<u8>>(&source.family, bounds)),
            View::Snapshot(_) => Err(not_writable()),
        };
        py.detach(delete).or_raise()
    }
}

#[pymethods]
impl WriteView {
    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if key.is_instance_of::<PySlice>() {
            return Err(PyTypeError::new_err(
                "a range of keys cannot be assigned: use update() for many keys",
            ));
        }
        let (key, value): (Data<'_>, Data<'_>) = (key.extract()?, value.extract()?);
        let (source, key, value) = (&self.source, key.bytes(py), value.bytes(py));
        py.detach(|| put(source, key, value, None, None)).or_raise()
    }
    /// Deletes a key; raises `KeyError` if it does not exist. Deletes a range of keys for a slice.
    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let (range, _) = KeyRange::from_slice(slice, self.source.byte_order)?;
            return self.delete_keys(py, &range);
        }
        let data: Data<'_> = key.extract()?;
        let (source, bytes) = (&self.source, data.bytes(py));
        let delete_existing = || -> Result<bool> {
            let family = &source.family;
            let exists = match &source.view {
                View::Txn(cell) => cell.with(|txn| txn.contains(family, bytes))?,
                _ => family.contains(bytes)?,
            };
            if exists {
                delete(source, bytes, None)?;
            }
            Ok(exists)
        };
        if py.detach(delete_existing).or_raise()? { Ok(()) } else { Err(missing_key(key)) }
    }
    /// Sets the value of a key. With `ttl`, seconds or a `timedelta`, the key does not exist any
    /// more after that time. `durability` is `"full"` (survives a power failure), `"none"` or
    /// `"interval 100 ms"`; by default that of the database.
    ///
    /// >>> from datetime import timedelta
    /// >>> db.put("moon", "full")
    /// >>> db.put("session", b"ann", ttl=timedelta(minutes=10), durability="none")
    #[pyo3(signature = (key, value, /, *, ttl=None, durability=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Data<'_>,
        value: Data<'_>,
        ttl: Option<Seconds>,
        durability: Option<DurabilityArg>,
    ) -> PyResult<()> {
        let (source, key, value) = (&self.source, key.bytes(py), value.bytes(py));
        let ttl = ttl.map(|t| t.0);
        py.detach(|| put(source, key, value, ttl, durability)).or_raise()
    }
    /// Deletes a key. A key that does not exist is no error, and the key is not read.
    ///
    /// >>> db["moon"] = "full"
    /// >>> db.delete("moon")
    /// >>> "moon" in db
    /// False
    #[pyo3(signature = (key, /, *, durability=None))]
    fn delete(
        &self,
        py: Python<'_>,
        key: Data<'_>,
        durability: Option<DurabilityArg>,
    ) -> PyResult<()> {
        let (source, key) = (&self.source, key.bytes(py));
        py.detach(|| delete(source, key, durability)).or_raise()
    }
    /// Deletes a key and returns its value. If the key does not exist, returns `default`, or raises
    /// `KeyError` without one. Atomic: of several threads only one gets the value.
    ///
    /// >>> db["moon"] = "full"
    /// >>> db.pop("moon"), db.pop("moon", None)
    /// (b'full', None)
    #[pyo3(signature = (key, /, *default))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if default.len() > 1 {
            return Err(PyTypeError::new_err("pop() takes a key and at most one default value"));
        }
        let data: Data<'_> = key.extract()?;
        let (source, bytes) = (&self.source, data.bytes(py));
        match py.detach(|| take(source, bytes)).or_raise()? {
            Some(value) => Ok(convert::value_or(py, Some(value), None)),
            None if default.is_empty() => Err(missing_key(key)),
            None => default.get_item(0),
        }
    }
    /// Deletes the entry with the largest key, or with the smallest one if `last` is false, and
    /// returns it. Raises `KeyError` if there are no entries.
    ///
    /// >>> db.update({"a": "1", "b": "2"})
    /// >>> db.popitem(last=False)
    /// (b'a', b'1')
    #[pyo3(signature = (*, last=true))]
    fn popitem<'py>(&self, py: Python<'py>, last: bool) -> PyResult<Bound<'py, PyTuple>> {
        let source = &self.source;
        match py.detach(|| take_end(source, last)).or_raise()? {
            Some((key, value)) => convert::entry(py, &key, &value),
            None => Err(PyKeyError::new_err("popitem(): there are no entries")),
        }
    }
    /// Returns the value of a key. If the key does not exist, puts `default` and returns it.
    /// Atomic.
    ///
    /// >>> db.setdefault("moon", "new"), db.setdefault("moon", "full")
    /// (b'new', b'new')
    #[pyo3(signature = (key, default, /))]
    fn setdefault<'py>(
        &self,
        py: Python<'py>,
        key: Data<'_>,
        default: Data<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (source, key, value) = (&self.source, key.bytes(py), default.bytes(py));
        let current = py.detach(|| get_or_put(source, key, value)).or_raise()?;
        Ok(match current {
            Some(current) => convert::value_or(py, Some(current), None),
            None => convert::value_or(py, Some(value), None),
        })
    }
    /// Puts all entries of a mapping or of an iterable of pairs, and the keyword arguments, as one
    /// atomic batch of at most 2 GiB. For more entries use several calls, or `bulk_load`.
    ///
    /// >>> db.update({"moon": "full"}, tide="high")
    /// >>> dict(db)
    /// {b'moon': b'full', b'tide': b'high'}
    #[pyo3(signature = (other=None, /, **entries))]
    fn update(
        &self,
        py: Python<'_>,
        other: Option<&Bound<'_, PyAny>>,
        entries: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let mut many = PutMany { source: &self.source, batch: WriteBatch::new() };
        if let Some(other) = other {
            many.put_all(other)?;
        }
        if let Some(entries) = entries {
            many.put_all(entries)?;
        }
        many.finish(py, None)
    }
    /// Deletes all keys.
    ///
    /// >>> db.update({"a": "1", "b": "2"})
    /// >>> db.clear()
    /// >>> len(db)
    /// 0
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.delete_keys(py, &KeyRange::default())
    }
    /// Deletes the keys from `start` (inclusive) to `end` (exclusive), at a cost that does not
    /// depend on their number. `del db["a":"f"]` does the same.
    ///
    /// >>> db.update({"a": "1", "b": "2", "c": "3"})
    /// >>> db.delete_range("b")
    /// >>> list(db)
    /// [b'a']
    #[pyo3(signature = (start=None, end=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<Data<'_>>,
        end: Option<Data<'_>>,
    ) -> PyResult<()> {
        self.delete_keys(py, &KeyRange::new(py, None, start, end))
    }
    /// Deletes the keys that begin with `prefix`, at a cost that does not depend on their number.
    ///
    /// >>> db.update({"user/1": "ann", "visits": "7"})
    /// >>> db.delete_prefix("user/")
    /// >>> list(db)
    /// [b'visits']
    #[pyo3(signature = (prefix, /))]
    fn delete_prefix(&self, py: Python<'_>, prefix: Data<'_>) -> PyResult<()> {
        let (source, prefix) = (&self.source, prefix.bytes(py));
        let delete = || match &source.view {
            View::Live => source.family.delete_prefix(prefix),
            View::Txn(cell) => cell.with(|txn| txn.delete_prefix(&source.family, prefix)),
            View::Snapshot(_) => Err(not_writable()),
        };
        py.detach(delete).or_raise()
    }
    /// Merges an operand into the value of a key without reading it. The column family needs a
    /// merge operator: `"counter"` adds integers (8 bytes, little-endian; an `int` can be passed),
    /// `"append:,"` appends text after a separator.
    ///
    /// >>> visits = db.family("visits", merge_operator="counter")
    /// >>> visits.merge("home", 1); visits.merge("home", 2)
    /// >>> int.from_bytes(visits["home"], "little", signed=True)
    /// 3
    #[pyo3(signature = (key, operand, /, *, durability=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: Data<'_>,
        operand: Operand<'_>,
        durability: Option<DurabilityArg>,
    ) -> PyResult<()> {
        let (source, key, operand) = (&self.source, key.bytes(py), operand.bytes(py));
        let merge = || match &source.view {
            View::Txn(_) if durability.is_some() => Err(durability_in_txn()),
            View::Live => source.family.merge_with(key, operand, write_options(durability)),
            View::Txn(cell) => cell.with(|txn| txn.merge(&source.family, key, operand)),
            View::Snapshot(_) => Err(not_writable()),
        };
        py.detach(merge).or_raise()
    }
}

/// Writes a batch; used by the classes that collect one.
pub fn write_batch(
    py: Python<'_>,
    source: &Source,
    batch: WriteBatch,
    durability: Option<Durability>,
) -> PyResult<u64> {
    let db = &source.database.db;
    let options = write_options(durability.map(DurabilityArg));
    py.detach(|| db.write_with(batch, options)).map_err(exception)
}
