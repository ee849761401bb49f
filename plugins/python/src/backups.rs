//! [`Backups`]: a directory of backups, and repair. Both work without an open database.

use crate::convert;
use crate::error::OrRaise;
use crate::input::{EncryptionKeys, environment};
use perigee::backup::BackupDir;
use pyo3::prelude::*;
use std::path::PathBuf;

/// A directory of backups, written by `Database.backup`. Each backup is a numbered generation that
/// can be restored to a complete database. No database needs to be open.
///
/// >>> db["moon"] = "full"
/// >>> db.backup(path + "/backups")["generation"]
/// 1
/// >>> backups = perigeedb.Backups(path + "/backups")
/// >>> report = backups.restore(path + "/restored")
/// >>> with perigeedb.open(path + "/restored") as restored:
/// ...     print(restored["moon"])
/// b'full'
#[pyclass(frozen, module = "perigeedb")]
pub struct Backups {
    dir: BackupDir,
    path: PathBuf,
}

#[pymethods]
impl Backups {
    #[new]
    #[pyo3(signature = (path, *, encryption_keys=None))]
    fn new(path: PathBuf, encryption_keys: Option<EncryptionKeys>) -> Backups {
        Backups { dir: BackupDir::open_in(environment(encryption_keys), &path), path }
    }
    /// Returns a dictionary for each generation, the oldest first, with `generation`, `sequence`,
    /// `created_ms`, `bytes` and `files`.
    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::report(py, &py.detach(|| self.dir.list()).or_raise()?)
    }
    /// Compares every file of a generation, or of all, with its checksum. Returns a dictionary;
    /// damage is listed in `errors`.
    #[pyo3(signature = (generation=None))]
    fn verify<'py>(&self, py: Python<'py>, generation: Option<u64>) -> PyResult<Bound<'py, PyAny>> {
        convert::report(py, &py.detach(|| self.dir.verify(generation)).or_raise()?)
    }
    /// Restores a generation, by default the newest, to the directory `target`, which must not
    /// exist or must be empty. Every byte is compared with its checksum.
    #[pyo3(signature = (target, generation=None))]
    fn restore<'py>(
        &self,
        py: Python<'py>,
        target: PathBuf,
        generation: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        convert::report(py, &py.detach(|| self.dir.restore(generation, target)).or_raise()?)
    }
    /// Removes all but the newest `keep` generations.
    fn prune<'py>(&self, py: Python<'py>, keep: usize) -> PyResult<Bound<'py, PyAny>> {
        convert::report(py, &py.detach(|| self.dir.prune(keep)).or_raise()?)
    }
    fn __repr__(&self) -> String {
        format!("perigeedb.Backups({:?})", self.path.display().to_string())
    }
}

/// Writes a new database to `target` with everything that can be read in the damaged database
/// `source`, which is not changed. Returns a dictionary: `lost` lists what could not be read; it is
/// empty if nothing is missing.
#[pyfunction]
#[pyo3(signature = (source, target, *, encryption_keys=None))]
pub fn repair<'py>(
    py: Python<'py>,
    source: PathBuf,
    target: PathBuf,
    encryption_keys: Option<EncryptionKeys>,
) -> PyResult<Bound<'py, PyAny>> {
    let env = environment(encryption_keys);
    let repair = || perigee::repair_in(&env, source, target, |_done, _total| {});
    convert::report(py, &py.detach(repair).or_raise()?)
}
