//! [`Batch`]: writes that are applied atomically. The batch is locked only while an operation is
//! added to it, never while Python code runs or the engine writes.

use crate::error::{OrRaise, closed};
use crate::family::FamilyArg;
use crate::input::{Data, DurabilityArg, Operand, Seconds};
use crate::scan::{KeyRange, not_copyable};
use crate::source::{Source, View};
use crate::write_view::write_batch;
use perigee::{Result, WriteBatch};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PySlice};
use std::sync::{Arc, Mutex, PoisonError};

/// The operations collected so far; `None` after the batch was written or discarded.
type Operations = Mutex<Option<WriteBatch>>;

/// A column family in a batch: the same writes as in a batch itself.
#[pyclass(frozen, subclass, module = "perigeedb")]
pub struct BatchView {
    source: Arc<Source>,
    operations: Arc<Operations>,
}

impl BatchView {
    fn add<T>(&self, add: impl FnOnce(&mut WriteBatch) -> Result<T>) -> PyResult<T> {
        let mut guard = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match guard.as_mut() {
            Some(batch) => add(batch),
            None => Err(closed("batch")),
        };
        drop(guard);
        result.or_raise()
    }
    fn delete_keys(&self, range: &KeyRange) -> PyResult<()> {
        // The engine refuses bounds in the wrong order, which would delete nothing.
        let bounds = range.bounds(false);
        self.add(|batch| batch.delete_range::<Vec<u8>>(&self.source.family, bounds))
    }
}

#[pymethods]
impl BatchView {
    fn __setitem__(&self, py: Python<'_>, key: Data<'_>, value: Data<'_>) -> PyResult<()> {
        let (key, value) = (key.bytes(py), value.bytes(py));
        self.add(|batch| batch.put(&self.source.family, key, value))
    }
    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(slice) = key.cast::<PySlice>() {
            return self.delete_keys(&KeyRange::from_slice(slice, self.source.byte_order)?.0);
        }
        self.delete(py, key.extract()?)
    }
    /// Adds a put of a value, with `ttl` seconds (or a `timedelta`) to live from now on.
    #[pyo3(signature = (key, value, /, *, ttl=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Data<'_>,
        value: Data<'_>,
        ttl: Option<Seconds>,
    ) -> PyResult<()> {
        let (family, key, value) = (&self.source.family, key.bytes(py), value.bytes(py));
        self.add(|batch| match ttl {
            Some(ttl) => batch.put_with_ttl(family, key, value, ttl.0),
            None => batch.put(family, key, value),
        })
    }
    /// Adds a delete of a key, which need not exist.
    #[pyo3(signature = (key, /))]
    fn delete(&self, py: Python<'_>, key: Data<'_>) -> PyResult<()> {
        let key = key.bytes(py);
        self.add(|batch| batch.delete(&self.source.family, key))
    }
    /// Adds a merge of an operand; see `Family.merge`.
    #[pyo3(signature = (key, operand, /))]
    fn merge(&self, py: Python<'_>, key: Data<'_>, operand: Operand<'_>) -> PyResult<()> {
        let (key, operand) = (key.bytes(py), operand.bytes(py));
        self.add(|batch| batch.merge(&self.source.family, key, operand))
    }
    /// Adds a delete of the keys from `start` (inclusive) to `end` (exclusive). It applies to
    /// earlier operations of the batch, but not to later ones.
    #[pyo3(signature = (start=None, end=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<Data<'_>>,
        end: Option<Data<'_>>,
    ) -> PyResult<()> {
        self.delete_keys(&KeyRange::new(py, None, start, end))
    }
    /// Adds a delete of the keys that begin with `prefix`.
    #[pyo3(signature = (prefix, /))]
    fn delete_prefix(&self, py: Python<'_>, prefix: Data<'_>) -> PyResult<()> {
        let prefix = prefix.bytes(py);
        self.add(|batch| batch.delete_prefix(&self.source.family, prefix))
    }
    fn __reduce__(&self) -> PyResult<()> {
        Err(not_copyable("a batch"))
    }
}

/// A sequence of writes to any number of column families that is applied atomically. As a context
/// manager it is written at the end, and discarded if the block raises an exception.
///
/// >>> tides = db.family("tides")
/// >>> with db.batch() as batch:
/// ...     batch["moon"] = "full"
/// ...     batch.delete("sun")
/// ...     batch.on(tides)["06:12"] = "high"
/// >>> db["moon"], tides["06:12"]
/// (b'full', b'high')
#[pyclass(frozen, extends = BatchView, module = "perigeedb")]
pub struct Batch {
    source: Arc<Source>,
    operations: Arc<Operations>,
    durability: Option<DurabilityArg>,
}

/// Returns the initializer of an empty batch.
pub fn batch(source: &Arc<Source>, durability: Option<DurabilityArg>) -> PyClassInitializer<Batch> {
    let operations = Arc::new(Mutex::new(Some(WriteBatch::new())));
    let view = BatchView { source: Arc::clone(source), operations: Arc::clone(&operations) };
    let batch = Batch { source: Arc::clone(source), operations, durability };
    PyClassInitializer::from(view).add_subclass(batch)
}

impl Batch {
    fn take(&self) -> Option<WriteBatch> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
    fn read<T>(&self, read: impl FnOnce(&WriteBatch) -> T) -> Option<T> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(read)
    }
}

#[pymethods]
impl Batch {
    /// Returns a column family, given by name or handle, in the batch.
    #[pyo3(signature = (family, /))]
    fn on(&self, py: Python<'_>, family: FamilyArg) -> PyResult<Py<BatchView>> {
        let source = family.to_source(&self.source, View::Live)?;
        Py::new(py, BatchView { source, operations: Arc::clone(&self.operations) })
    }
    /// Writes the batch and returns the sequence number of its last operation. The batch has ended,
    /// also after an error.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let batch = self.take().ok_or_else(|| closed("batch")).or_raise()?;
        write_batch(py, &self.source, batch, self.durability.map(|d| d.0))
    }
    /// Discards the batch. Has no effect on a batch that has ended.
    fn discard(&self) {
        drop(self.take());
    }
    /// Number of operations so far; 0 for a batch that has ended.
    fn __len__(&self) -> usize {
        self.read(WriteBatch::len).unwrap_or(0)
    }
    /// Size of the operations so far in bytes.
    #[getter]
    fn bytes(&self) -> usize {
        self.read(WriteBatch::encoded_bytes).unwrap_or(0)
    }
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }
    #[pyo3(signature = (kind=None, value=None, traceback=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (value, traceback);
        match self.take() {
            Some(batch) if kind.is_none() => {
                write_batch(py, &self.source, batch, self.durability.map(|d| d.0)).map(drop)
            }
            // Discarded, or already written by the block.
            _ => Ok(()),
        }
    }
    fn __repr__(&self) -> String {
        match self.read(|batch| (batch.len(), batch.encoded_bytes())) {
            Some((operations, bytes)) => {
                format!("<perigeedb.Batch of {operations} operations, {bytes} bytes>")
            }
            None => "<perigeedb.Batch, ended>".to_owned(),
        }
    }
}
