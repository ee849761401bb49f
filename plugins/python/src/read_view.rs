//! [`ReadView`]: the read-only mapping that all views of a column family share.

use crate::convert;
use crate::error::{OrRaise, missing_key};
use crate::input::Data;
use crate::scan::{Item, KeyRange, Range, RangeIterator, not_copyable};
use crate::source::{Source, View, read_source};
use perigee::Slice;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySlice, PyTuple};
use std::sync::Arc;

/// A read-only mapping from keys to values, sorted by key. Keys and values can be given as `bytes`,
/// as `str` (encoded as UTF-8) or as any other bytes-like object; results are `bytes`. It is the
/// base class of databases, column families, snapshots and transactions.
#[pyclass(frozen, subclass, mapping, module = "perigeedb")]
pub struct ReadView {
    pub source: Arc<Source>,
}

impl ReadView {
    fn range(&self, range: KeyRange, item: Item, reverse: bool) -> Range {
        Range::new(Arc::clone(&self.source), range, item, reverse)
    }
    fn first_entry<'py>(
        &self,
        py: Python<'py>,
        range: &KeyRange,
        reverse: bool,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let source = &self.source;
        let read = || match range.engine_prefix(source)? {
            Some(prefix) => {
                let mut iter = read_source!(source, reader => reader.prefix(prefix))?;
                if reverse { iter.next_back() } else { iter.next() }.transpose()
            }
            None => {
                let bounds = range.bounds(source.byte_order);
                let mut iter = read_source!(source, reader => reader.range::<Vec<u8>>(bounds))?;
                if reverse { iter.next_back() } else { iter.next() }.transpose()
            }
        };
        let found: Option<(Slice, Slice)> = py.detach(read).or_raise()?;
        found.map(|(key, value)| convert::entry(py, &key, &value)).transpose()
    }
}

#[pymethods]
impl ReadView {
    /// Returns the value of a key, or for a slice of keys such as `db["a":"f"]` the entries from
    /// the first key (inclusive) to the second (exclusive), with the step -1 in descending order.
    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let (range, reverse) = KeyRange::from_slice(slice, self.source.byte_order)?;
            let range = self.range(range, Item::Entries, reverse);
            return Ok(Bound::new(py, range)?.into_any());
        }
        let data: Data<'_> = key.extract()?;
        let (source, bytes) = (&self.source, data.bytes(py));
        match py.detach(|| read_source!(source, reader => reader.get_pinned(bytes))).or_raise()? {
            Some(value) => Ok(convert::value_or(py, Some(value), None)),
            None => Err(missing_key(key)),
        }
    }
    /// Returns the value of a key, or `default` if the key does not exist.
    ///
    /// >>> db["moon"] = "full"
    /// >>> db.get("moon"), db.get("sun"), db.get("sun", b"?")
    /// (b'full', None, b'?')
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Data<'_>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (source, bytes) = (&self.source, key.bytes(py));
        let read = || read_source!(source, reader => reader.get_pinned(bytes));
        Ok(convert::value_or(py, py.detach(read).or_raise()?, default))
    }
    /// Returns the values of many keys as of one moment, in the order of the keys; `default` for
    /// keys that do not exist. Faster than single reads if keys are close to each other or must be
    /// read from disk.
    ///
    /// >>> db.update({"moon": "full", "tide": "high"})
    /// >>> db.get_many(["tide", "wind", "moon"])
    /// [b'high', None, b'full']
    #[pyo3(signature = (keys, default=None, /))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let objects: Vec<Bound<'py, PyAny>> = keys.try_iter()?.collect::<PyResult<_>>()?;
        let data: Vec<Data<'_>> = objects.iter().map(|o| o.extract()).collect::<PyResult<_>>()?;
        let keys: Vec<&[u8]> = data.iter().map(|d| d.bytes(py)).collect();
        let source = &self.source;
        let read = || {
            let read_all = |values: Vec<perigee::Result<Option<Slice>>>| {
                values.into_iter().collect::<perigee::Result<Vec<_>>>()
            };
            read_source!(source, reader => read_all(reader.multi_get(&keys)))
        };
        let values = py.detach(read).or_raise()?;
        let values = values.into_iter().map(|v| convert::value_or(py, v, default.clone()));
        PyList::new(py, values.collect::<Vec<_>>())
    }
    fn __contains__(&self, py: Python<'_>, key: Data<'_>) -> PyResult<bool> {
        let (source, bytes) = (&self.source, key.bytes(py));
        py.detach(|| read_source!(source, reader => reader.contains(bytes))).or_raise()
    }
    fn __iter__(&self, py: Python<'_>) -> PyResult<RangeIterator> {
        RangeIterator::open(py, &self.source, &KeyRange::default(), Item::Keys, false)
    }
    fn __reversed__(&self, py: Python<'_>) -> PyResult<RangeIterator> {
        RangeIterator::open(py, &self.source, &KeyRange::default(), Item::Keys, true)
    }
    /// Returns the exact number of keys, by a scan over all of them. `estimate` is faster.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.range(KeyRange::default(), Item::Keys, false).count(py)
    }
    /// Returns true if there is at least one key.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        let source = &self.source;
        Ok(!py.detach(|| read_source!(source, reader => reader.is_empty())).or_raise()?)
    }
    /// Returns the keys in order, or those from `start` (inclusive) to `end` (exclusive) that begin
    /// with `prefix`; in descending order if `reverse`. Values are not read.
    ///
    /// >>> db.update({"user/1": "ann", "user/2": "bob", "visits": "7"})
    /// >>> list(db.keys(prefix="user/"))
    /// [b'user/1', b'user/2']
    #[pyo3(signature = (*, prefix=None, start=None, end=None, reverse=false))]
    fn keys(
        &self,
        py: Python<'_>,
        prefix: Option<Data<'_>>,
        start: Option<Data<'_>>,
        end: Option<Data<'_>>,
        reverse: bool,
    ) -> Range {
        self.range(KeyRange::new(py, prefix, start, end), Item::Keys, reverse)
    }
    /// Returns the values in the order of their keys; arguments as for `keys`.
    ///
    /// >>> db.update({"user/1": "ann", "user/2": "bob"})
    /// >>> list(db.values(start="user/2"))
    /// [b'bob']
    #[pyo3(signature = (*, prefix=None, start=None, end=None, reverse=false))]
    fn values(
        &self,
        py: Python<'_>,
        prefix: Option<Data<'_>>,
        start: Option<Data<'_>>,
        end: Option<Data<'_>>,
        reverse: bool,
    ) -> Range {
        self.range(KeyRange::new(py, prefix, start, end), Item::Values, reverse)
    }
    /// Returns the entries `(key, value)` in the order of their keys; arguments as for `keys`.
    ///
    /// >>> db.update({"user/1": "ann", "user/2": "bob"})
    /// >>> for key, value in db.items(prefix="user/", reverse=True):
    /// ...     print(key, value)
    /// b'user/2' b'bob'
    /// b'user/1' b'ann'
    #[pyo3(signature = (*, prefix=None, start=None, end=None, reverse=false))]
    fn items(
        &self,
        py: Python<'_>,
        prefix: Option<Data<'_>>,
        start: Option<Data<'_>>,
        end: Option<Data<'_>>,
        reverse: bool,
    ) -> Range {
        self.range(KeyRange::new(py, prefix, start, end), Item::Entries, reverse)
    }
    /// Returns the entry with the smallest key, or `None`; arguments as for `keys`.
    ///
    /// >>> db.update({"06:12": "high", "12:31": "low"})
    /// >>> db.first(), db.first(start="07")
    /// ((b'06:12', b'high'), (b'12:31', b'low'))
    #[pyo3(signature = (*, prefix=None, start=None, end=None))]
    fn first<'py>(
        &self,
        py: Python<'py>,
        prefix: Option<Data<'_>>,
        start: Option<Data<'_>>,
        end: Option<Data<'_>>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.first_entry(py, &KeyRange::new(py, prefix, start, end), false)
    }
    /// Returns the entry with the largest key, or `None`; arguments as for `keys`.
    ///
    /// >>> db.update({"06:12": "high", "12:31": "low"})
    /// >>> db.last(), db.last(end="12")
    /// ((b'12:31', b'low'), (b'06:12', b'high'))
    #[pyo3(signature = (*, prefix=None, start=None, end=None))]
    fn last<'py>(
        &self,
        py: Python<'py>,
        prefix: Option<Data<'_>>,
        start: Option<Data<'_>>,
        end: Option<Data<'_>>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.first_entry(py, &KeyRange::new(py, prefix, start, end), true)
    }
    /// Returns the time in seconds until a key expires, or `None` if it never does. Raises
    /// `KeyError` if the key does not exist.
    ///
    /// >>> db.put("session", "ann", ttl=60)
    /// >>> 0 < db.ttl("session") <= 60
    /// True
    #[pyo3(signature = (key, /))]
    fn ttl(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
        let data: Data<'_> = key.extract()?;
        let (source, bytes) = (&self.source, data.bytes(py));
        let read = || read_source!(source, reader => reader.get_with_ttl(bytes));
        let found = py.detach(read).or_raise()?.ok_or_else(|| missing_key(key))?;
        Ok(convert::seconds(found.remaining))
    }
    /// Returns a value and the time in seconds until it expires (`None`: never), or `None` if the
    /// key does not exist.
    ///
    /// >>> db["moon"] = "full"
    /// >>> db.get_with_ttl("moon"), db.get_with_ttl("sun")
    /// ((b'full', None), None)
    #[pyo3(signature = (key, /))]
    fn get_with_ttl<'py>(
        &self,
        py: Python<'py>,
        key: Data<'_>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Option<f64>)>> {
        let (source, bytes) = (&self.source, key.bytes(py));
        let read = || read_source!(source, reader => reader.get_with_ttl(bytes));
        let found = py.detach(read).or_raise()?;
        Ok(found
            .map(|v| (convert::value_or(py, Some(&v.value), None), convert::seconds(v.remaining))))
    }
    /// Estimates the size of a range of keys without reading it: a dictionary with `keys`,
    /// `entries` (with overwritten versions), `disk_bytes` and `memory_bytes`.
    ///
    /// >>> db.update({"a": "1", "b": "2", "c": "3"})
    /// >>> db.estimate(start="b")["keys"]
    /// 2
    #[pyo3(signature = (*, start=None, end=None))]
    fn estimate<'py>(
        &self,
        py: Python<'py>,
        start: Option<Data<'_>>,
        end: Option<Data<'_>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let source = &self.source;
        let bounds = KeyRange::new(py, None, start, end).bounds(source.byte_order);
        let read = || read_source!(source, reader => reader.estimate_range::<Vec<u8>>(bounds));
        let estimate = py.detach(read).or_raise()?;
        let out = PyDict::new(py);
        out.set_item("keys", estimate.keys)?;
        out.set_item("entries", estimate.entries)?;
        out.set_item("disk_bytes", estimate.disk_bytes)?;
        out.set_item("memory_bytes", estimate.memory_bytes)?;
        Ok(out)
    }
    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let source = &slf.get().source;
        let (class, family) = (slf.get_type().name()?, source.family.name());
        let path = source.database.db.path().display().to_string();
        let state = match &source.view {
            _ if source.database.is_closed() => ", closed",
            View::Snapshot(cell) if cell.get().is_err() => ", closed",
            View::Txn(cell) if !cell.is_active() => ", ended",
            _ => "",
        };
        Ok(format!("<perigeedb.{class} {family:?} of {path:?}{state}>"))
    }
    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(not_copyable(&format!("a {}", slf.get_type().name()?)))
    }
}
