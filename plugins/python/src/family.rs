//! [`Family`]: the handle to a column family.

use crate::convert;
use crate::error::OrRaise;
use crate::input::Data;
use crate::options;
use crate::scan::KeyRange;
use crate::source::{Source, View};
use crate::write_view::{WriteView, write_view};
use perigee::{Result, load::BulkLoad};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::sync::Arc;

/// Entries of a bulk load that are handed to the engine together.
const LOADED_TOGETHER: usize = 1024;
/// Bytes of them after which no more are collected.
const LOADED_TOGETHER_BYTES: usize = 1 << 20;

/// A column family: a separate mapping with its own options, in the same database. Batches and
/// transactions change several column families atomically.
///
/// >>> tides = db.family("tides", compression="zstd 3")
/// >>> tides["06:12"] = "high"
/// >>> tides.name, "06:12" in db
/// ('tides', False)
#[pyclass(frozen, subclass, mapping, extends = WriteView, module = "perigeedb")]
pub struct Family {
    pub source: Arc<Source>,
}

/// Returns the initializer of a handle to a column family.
pub fn family(source: &Arc<Source>) -> PyClassInitializer<Family> {
    write_view(source).add_subclass(Family { source: Arc::clone(source) })
}

/// A column family as an argument: its name or a handle.
pub enum FamilyArg {
    Name(String),
    Handle(Arc<Source>),
}

impl<'py> FromPyObject<'_, 'py> for FamilyArg {
    type Error = PyErr;

    fn extract(obj: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if obj.is_instance_of::<PyString>() {
            return Ok(FamilyArg::Name(obj.extract()?));
        }
        match obj.cast::<Family>() {
            Ok(family) => Ok(FamilyArg::Handle(Arc::clone(&family.get().source))),
            Err(_) => {
                Err(PyTypeError::new_err("a column family must be a Family, a Database or a name"))
            }
        }
    }
}

impl FamilyArg {
    /// Returns the column family as `view` shows it. A handle must belong to the database of
    /// `source`: the engine reports one that does not.
    pub fn to_source(&self, source: &Source, view: View) -> PyResult<Arc<Source>> {
        let family = match self {
            FamilyArg::Name(name) => source.database.db.family(name).or_raise()?,
            FamilyArg::Handle(handle) => handle.family.clone(),
        };
        Ok(source.with(family, view))
    }
}

/// Adds the collected entries to the load.
fn load_some(load: &mut BulkLoad, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
    entries.iter().try_for_each(|(key, value)| load.put(key, value))
}

#[pymethods]
impl Family {
    /// Name of the column family.
    #[getter]
    fn name(&self) -> String {
        self.source.family.name()
    }
    /// Number of the column family, which is never reused in a database.
    #[getter]
    fn id(&self) -> u32 {
        self.source.family.id()
    }
    /// Returns the options of the column family: names and values as in an options file.
    ///
    /// >>> db.family("logs", compression="zstd 3").options()["compression"]
    /// 'zstd 3'
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::report(py, &self.source.family.options())
    }
    /// Changes some options of the column family, durably; they apply to files written from now on.
    /// The comparator and an existing merge operator cannot be changed.
    ///
    /// >>> logs = db.family("logs")
    /// >>> logs.set_options(compression="zstd 3", block_bytes="16 KiB")
    /// >>> logs.options()["block_bytes"]
    /// '16 KiB'
    #[pyo3(signature = (**options))]
    fn set_options(&self, py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let family = &self.source.family;
        let changed = options::changed_family_options(&family.options(), "set_options", options)?;
        py.detach(|| family.set_options(changed)).or_raise()
    }
    /// Returns statistics of the column family as a dictionary (`docs/STATISTICS.md`).
    ///
    /// >>> db.family("logs").stats()["name"]
    /// 'logs'
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let family = &self.source.family;
        convert::report(py, &py.detach(|| family.stats()).or_raise()?)
    }
    /// Writes the memtable of the column family to a table file.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let family = &self.source.family;
        py.detach(|| family.flush()).or_raise()
    }
    /// Merges the tables that contain keys from `start` to `end` (by default all) and drops
    /// overwritten and deleted entries.
    #[pyo3(signature = (start=None, end=None))]
    fn compact(
        &self,
        py: Python<'_>,
        start: Option<Data<'_>>,
        end: Option<Data<'_>>,
    ) -> PyResult<()> {
        let source = &self.source;
        let range = KeyRange::new(py, None, start, end);
        let compact = || {
            if range.is_everything() {
                return source.family.compact();
            }
            source.family.compact_range::<Vec<u8>>(range.bounds(source.byte_order))
        };
        py.detach(compact).or_raise()
    }
    /// Reclaims the space of all deleted, overwritten and expired entries.
    fn purge(&self, py: Python<'_>) -> PyResult<()> {
        let family = &self.source.family;
        py.detach(|| family.purge()).or_raise()
    }
    /// Replaces the value of a key with `new` if it is `expected`; `None` stands for a key that
    /// does not exist. Returns true if the value was replaced. Atomic.
    ///
    /// >>> db.compare_and_swap("leader", None, "node 1")
    /// True
    /// >>> db.compare_and_swap("leader", "node 2", "node 3"), db["leader"]
    /// (False, b'node 1')
    #[pyo3(signature = (key, expected, new, /))]
    fn compare_and_swap(
        &self,
        py: Python<'_>,
        key: Data<'_>,
        expected: Option<Data<'_>>,
        new: Option<Data<'_>>,
    ) -> PyResult<bool> {
        let (family, key) = (&self.source.family, key.bytes(py));
        let expected = expected.as_ref().map(|d| d.bytes(py));
        let new = new.as_ref().map(|d| d.bytes(py));
        Ok(py.detach(|| family.compare_and_swap(key, expected, new)).or_raise()?.is_ok())
    }
    /// Adds the entries of an iterable of pairs, in any order, directly to table files: much faster
    /// than single writes, and not limited by memory. All of them become visible at once at the
    /// end, or none if an error occurs. Returns a dictionary with `entries`, `bytes` and
    /// `sequence`.
    ///
    /// >>> report = db.bulk_load((f"{i:06}", str(i * i)) for i in range(1000))
    /// >>> report["entries"], db["000012"]
    /// (1000, b'144')
    #[pyo3(signature = (items, /, *, memory_bytes=None))]
    fn bulk_load<'py>(
        &self,
        py: Python<'py>,
        items: &Bound<'py, PyAny>,
        memory_bytes: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let family = &self.source.family;
        let mut load = py.detach(|| family.bulk_load()).or_raise()?;
        if let Some(bytes) = memory_bytes {
            load = load.memory_bytes(bytes);
        }
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut bytes = 0;
        for pair in items.try_iter()? {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?
                .extract()
                .map_err(|_| PyTypeError::new_err("bulk_load() takes pairs (key, value)"))?;
            let (key, value): (Data<'_>, Data<'_>) = (key.extract()?, value.extract()?);
            let (key, value) = (key.to_vec(py), value.to_vec(py));
            bytes += key.len() + value.len();
            entries.push((key, value));
            if entries.len() >= LOADED_TOGETHER || bytes >= LOADED_TOGETHER_BYTES {
                py.detach(|| load_some(&mut load, &entries)).or_raise()?;
                entries.clear();
                bytes = 0;
                py.check_signals()?;
            }
        }
        let finish = || {
            load_some(&mut load, &entries)?;
            load.finish()
        };
        convert::report(py, &py.detach(finish).or_raise()?)
    }
}
