//! [`Snapshot`]: a read-only view of all column families at one moment.

use crate::error::OrRaise;
use crate::family::FamilyArg;
use crate::read_view::ReadView;
use crate::source::{SnapshotCell, Source, View};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;

/// A read-only view of the database at one moment: a mapping of the column family `default`, with
/// `on` for others. Costs nothing to make; until it is closed, old versions are kept on disk.
///
/// >>> db["moon"] = "new"
/// >>> with db.snapshot() as snapshot:
/// ...     db["moon"] = "full"
/// ...     print(snapshot["moon"], db["moon"])
/// b'new' b'full'
#[pyclass(frozen, mapping, extends = ReadView, module = "perigeedb")]
pub struct Snapshot {
    source: Arc<Source>,
    cell: Arc<SnapshotCell>,
}

/// Returns the initializer of a snapshot object.
pub fn snapshot(source: &Source, snapshot: perigee::Snapshot) -> PyClassInitializer<Snapshot> {
    let cell = SnapshotCell::new(snapshot);
    let source = source.with(source.family.clone(), View::Snapshot(Arc::clone(&cell)));
    PyClassInitializer::from(ReadView { source: Arc::clone(&source) })
        .add_subclass(Snapshot { source, cell })
}

#[pymethods]
impl Snapshot {
    /// Returns a column family, given by name or handle, as of the snapshot.
    ///
    /// >>> tides = db.family("tides")
    /// >>> tides["06:12"] = "high"
    /// >>> snapshot = db.snapshot()
    /// >>> del tides["06:12"]
    /// >>> list(snapshot.on("tides"))
    /// [b'06:12']
    #[pyo3(signature = (family, /))]
    fn on(&self, py: Python<'_>, family: FamilyArg) -> PyResult<Py<ReadView>> {
        let view = View::Snapshot(Arc::clone(&self.cell));
        Py::new(py, ReadView { source: family.to_source(&self.source, view)? })
    }
    /// Sequence number of the last write that the snapshot sees.
    #[getter]
    fn sequence(&self) -> PyResult<u64> {
        Ok(self.cell.get().or_raise()?.sequence())
    }
    /// Releases the snapshot. Reads of it fail from now on; closing it again has no effect.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.cell.close());
    }
    /// True after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.cell.get().is_err()
    }
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}
