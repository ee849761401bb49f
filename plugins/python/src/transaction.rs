//! [`Transaction`], and the loop that repeats a function after a conflict.

use crate::convert;
use crate::error::OrRaise;
use crate::family::FamilyArg;
use crate::input::{Data, DurabilityArg};
use crate::source::{Source, TxnCell, View};
use crate::write_view::{WriteView, write_view};
use perigee::LockMode;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyAny;
use std::sync::Arc;
use std::time::Duration;

/// First pause before another attempt, in microseconds; each further one is twice as long.
const RETRY_US_MIN: u64 = 20;
/// Longest such pause.
const RETRY_US_MAX: u64 = 20_000;

/// A column family in a transaction.
#[pyclass(frozen, subclass, mapping, extends = WriteView, module = "perigeedb")]
pub struct TransactionView {
    pub source: Arc<Source>,
    pub cell: Arc<TxnCell>,
}

fn view(source: Arc<Source>, cell: &Arc<TxnCell>) -> PyClassInitializer<TransactionView> {
    let base = write_view(&source);
    base.add_subclass(TransactionView { source, cell: Arc::clone(cell) })
}

fn lock_mode(shared: bool) -> LockMode {
    if shared { LockMode::Shared } else { LockMode::Exclusive }
}

#[pymethods]
impl TransactionView {
    /// Locks a key and returns its value, or `default`. Until the transaction ends, no other one
    /// can lock the key (with `shared`, others can get shared locks), and if the key is changed
    /// without a lock, the commit of this transaction raises `Conflict`. Raises `Busy` if the lock
    /// is not granted within `lock_timeout`.
    ///
    /// >>> with db.transaction(lock=True) as txn:
    /// ...     seats = int(txn.get_for_update("seats", b"5"))
    /// ...     txn["seats"] = str(seats - 1)
    /// >>> db["seats"]
    /// b'4'
    #[pyo3(signature = (key, default=None, /, *, shared=false))]
    fn get_for_update<'py>(
        &self,
        py: Python<'py>,
        key: Data<'_>,
        default: Option<Bound<'py, PyAny>>,
        shared: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (family, key) = (&self.source.family, key.bytes(py));
        let read = || self.cell.with(|txn| txn.get_for_update(family, key, lock_mode(shared)));
        Ok(convert::value_or(py, py.detach(read).or_raise()?, default))
    }
    /// Locks a key, which need not exist, without reading it; see `get_for_update`.
    #[pyo3(signature = (key, /, *, shared=false))]
    fn lock(&self, py: Python<'_>, key: Data<'_>, shared: bool) -> PyResult<()> {
        let (family, key) = (&self.source.family, key.bytes(py));
        py.detach(|| self.cell.with(|txn| txn.lock(family, key, lock_mode(shared)))).or_raise()
    }
}

/// A transaction: a mapping of the column family `default`, with `on` for others. Its writes are
/// private until it is committed, and then become visible together. As a context manager it commits
/// at the end, and rolls back if the block raises an exception.
///
/// >>> db["ann"], db["bob"] = "70", "30"
/// >>> with db.transaction() as txn:
/// ...     amount = 20
/// ...     txn["ann"] = str(int(txn["ann"]) - amount)
/// ...     txn["bob"] = str(int(txn["bob"]) + amount)
/// >>> db["ann"], db["bob"]
/// (b'50', b'50')
#[pyclass(frozen, mapping, extends = TransactionView, module = "perigeedb")]
pub struct Transaction {
    source: Arc<Source>,
    cell: Arc<TxnCell>,
    durability: Option<DurabilityArg>,
}

/// Returns the initializer of a transaction object.
pub fn transaction(
    source: &Source,
    cell: Arc<TxnCell>,
    durability: Option<DurabilityArg>,
) -> PyClassInitializer<Transaction> {
    let source = source.with(source.family.clone(), View::Txn(Arc::clone(&cell)));
    let base = view(Arc::clone(&source), &cell);
    base.add_subclass(Transaction { source, cell, durability })
}

#[pymethods]
impl Transaction {
    /// Returns a column family, given by name or handle, in the transaction.
    ///
    /// >>> tides = db.family("tides")
    /// >>> with db.transaction() as txn:
    /// ...     txn["moon"] = "full"
    /// ...     txn.on("tides")["06:12"] = "high"
    /// >>> db["moon"], tides["06:12"]
    /// (b'full', b'high')
    #[pyo3(signature = (family, /))]
    fn on(&self, py: Python<'_>, family: FamilyArg) -> PyResult<Py<TransactionView>> {
        let source = family.to_source(&self.source, View::Txn(Arc::clone(&self.cell)))?;
        Py::new(py, view(source, &self.cell))
    }
    /// Commits the transaction and returns the sequence number of its last write. Raises `Conflict`
    /// if another commit came first: then nothing was written, and the work has to be done again
    /// from the start, as `Database.run` does.
    #[pyo3(signature = (*, durability=None))]
    fn commit(&self, py: Python<'_>, durability: Option<DurabilityArg>) -> PyResult<u64> {
        let durability = durability.or(self.durability).map(|d| d.0);
        py.detach(|| self.cell.commit(durability)).or_raise()
    }
    /// Discards all writes. Has no effect on a transaction that has ended.
    fn rollback(&self, py: Python<'_>) {
        if self.cell.is_active() {
            py.detach(|| self.cell.roll_back());
        }
    }
    /// Sets a savepoint with this name at the current end of the writes.
    ///
    /// >>> with db.transaction() as txn:
    /// ...     txn["moon"] = "full"
    /// ...     txn.savepoint("s")
    /// ...     txn["moon"] = "new"
    /// ...     txn.rollback_to("s")
    /// >>> db["moon"]
    /// b'full'
    #[pyo3(signature = (name, /))]
    fn savepoint(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| self.cell.with(|txn| txn.savepoint(name))).or_raise()
    }
    /// Discards the writes since a savepoint and releases the locks taken since then. The savepoint
    /// stays set.
    #[pyo3(signature = (name, /))]
    fn rollback_to(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| self.cell.with(|txn| txn.rollback_to(name))).or_raise()
    }
    /// Removes a savepoint and all later ones; the writes stay.
    #[pyo3(signature = (name, /))]
    fn release_savepoint(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| self.cell.with(|txn| txn.release_savepoint(name))).or_raise()
    }
    /// State of the transaction: `"active"`, `"committed"` or `"rolled back"`.
    #[getter]
    fn state(&self) -> &'static str {
        self.cell.state_name()
    }
    /// Isolation level of the transaction, such as `"snapshot"`.
    #[getter]
    fn isolation(&self, py: Python<'_>) -> &'static str {
        py.detach(|| self.cell.txn.isolation().name())
    }
    /// Number of writes so far.
    #[getter]
    fn operations(&self, py: Python<'_>) -> usize {
        py.detach(|| self.cell.txn.len())
    }
    /// Size of the writes so far in bytes.
    #[getter]
    fn bytes(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.cell.txn.encoded_bytes())
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
        if !self.cell.is_active() {
            // The block has ended the transaction itself.
            return Ok(());
        }
        if kind.is_some() {
            self.rollback(py);
            return Ok(());
        }
        self.commit(py, None).map(drop)
    }
}

/// Calls `work` with the transaction and commits; after a conflict, up to `retries` times, begins
/// again and calls it once more. Returns the result of `work`.
pub fn run<'py>(
    txn: &Bound<'py, Transaction>,
    work: &Bound<'py, PyAny>,
    retries: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, this) = (txn.py(), txn.get());
    let cell = &this.cell;
    let mut pause_us = RETRY_US_MIN;
    for attempt in 0..=retries {
        let error = match work.call1((txn,)) {
            Ok(result) if !cell.is_active() => return Ok(result),
            Ok(result) => match this.commit(py, None) {
                Ok(_) => return Ok(result),
                Err(e) => e,
            },
            Err(e) => e,
        };
        // An exception after a conflict may be a consequence of it; an interrupt is not.
        let may_retry =
            attempt < retries && cell.had_conflict() && error.is_instance_of::<PyException>(py);
        py.detach(|| cell.roll_back());
        if !may_retry {
            return Err(error);
        }
        // Spread over threads by the address of the object: they must not collide again.
        let spread = (txn.as_ptr() as u64 >> 4) ^ u64::from(attempt).wrapping_mul(0x9E37_79B9);
        let sleep_us = pause_us / 2 + spread % pause_us;
        py.detach(|| std::thread::sleep(Duration::from_micros(sleep_us)));
        pause_us = (pause_us * 2).min(RETRY_US_MAX);
        py.check_signals()?;
        py.detach(|| cell.reset()).or_raise()?;
    }
    Err(perigee::Error::internal("the retry loop ended without a result")).or_raise()
}
