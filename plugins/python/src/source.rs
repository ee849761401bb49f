//! What a view reads and writes: a column family now, in a snapshot or in a transaction. All Python
//! classes share these types; none of them refers to Python objects.
//!
//! Every call of the engine that may wait or do I/O is made while the interpreter lock is released,
//! and no lock of this module is held while Python code runs.

use crate::error::closed;
use perigee::{Db, ErrorKind, Family, KeyComparator, Result, Snapshot, Txn, TxnFamily};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, PoisonError, RwLock};

/// An open database, shared by all objects that were made from it. It is closed by `close`, or when
/// the last of these objects is dropped.
pub struct OpenDatabase {
    pub db: Db,
    closed: AtomicBool,
}

impl OpenDatabase {
    pub fn new(db: Db) -> Arc<OpenDatabase> {
        Arc::new(OpenDatabase { db, closed: AtomicBool::new(false) })
    }
    /// Closes the database; iterators that live on report this from now on.
    pub fn close(&self) -> Result<()> {
        self.closed.store(true, SeqCst);
        self.db.close()
    }
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }
    /// Fails after `close`.
    pub fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(closed("database")) } else { Ok(()) }
    }
}

impl Drop for OpenDatabase {
    /// Closes the database with the interpreter lock released, because closing syncs the log.
    fn drop(&mut self) {
        if self.is_closed() {
            return;
        }
        // While the interpreter shuts down, its lock must not be released.
        let done = Python::try_attach(|py| py.detach(|| self.close()));
        let result = done.unwrap_or_else(|| self.close());
        if let Err(e) = result {
            // A forked child must not close what its parent has open.
            if e.kind() != ErrorKind::Closed {
                Python::try_attach(|py| crate::error::exception(e).write_unraisable(py, None));
            }
        }
    }
}

/// A snapshot that can be closed while views of it live on.
pub struct SnapshotCell(RwLock<Option<Arc<Snapshot>>>);

impl SnapshotCell {
    pub fn new(snapshot: Snapshot) -> Arc<SnapshotCell> {
        Arc::new(SnapshotCell(RwLock::new(Some(Arc::new(snapshot)))))
    }
    /// Returns the snapshot.
    ///
    /// # Errors
    /// `Closed` after [`SnapshotCell::close`].
    pub fn get(&self) -> Result<Arc<Snapshot>> {
        let guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        guard.clone().ok_or_else(|| closed("snapshot"))
    }
    /// Releases the snapshot.
    pub fn close(&self) {
        let taken = self.0.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(taken);
    }
}

const ACTIVE: u8 = 0;
const COMMITTED: u8 = 1;
const ROLLED_BACK: u8 = 2;

/// A transaction, its state, and whether one of its calls failed with a conflict.
pub struct TxnCell {
    pub txn: Txn,
    state: AtomicU8,
    had_conflict: AtomicBool,
}

impl TxnCell {
    pub fn new(txn: Txn) -> Arc<TxnCell> {
        Arc::new(TxnCell {
            txn,
            state: AtomicU8::new(ACTIVE),
            had_conflict: AtomicBool::new(false),
        })
    }
    pub fn is_active(&self) -> bool {
        self.state.load(SeqCst) == ACTIVE
    }
    /// Returns `active`, `committed` or `rolled back`.
    pub fn state_name(&self) -> &'static str {
        match self.state.load(SeqCst) {
            ACTIVE => "active",
            COMMITTED => "committed",
            _ => "rolled back",
        }
    }
    /// Records a conflict, after which the work must be done again.
    fn record_conflict<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(e) = &result
            && e.kind() == ErrorKind::Conflict
        {
            self.had_conflict.store(true, SeqCst);
        }
        result
    }
    pub fn had_conflict(&self) -> bool {
        self.had_conflict.load(SeqCst)
    }
    /// Calls `work` with the transaction.
    pub fn with<T>(&self, work: impl FnOnce(&Txn) -> Result<T>) -> Result<T> {
        self.record_conflict(work(&self.txn))
    }
    /// Commits. The transaction has ended, also after an error.
    pub fn commit(&self, durability: Option<perigee::Durability>) -> Result<u64> {
        let result = self.record_conflict(self.txn.commit_in_place(durability));
        let state = if result.is_ok() { COMMITTED } else { ROLLED_BACK };
        // An error because it had already ended does not change how it ended.
        let _ = self.state.compare_exchange(ACTIVE, state, SeqCst, SeqCst);
        result
    }
    pub fn roll_back(&self) {
        self.txn.rollback_in_place();
        let _ = self.state.compare_exchange(ACTIVE, ROLLED_BACK, SeqCst, SeqCst);
    }
    /// Begins again on the current state.
    pub fn reset(&self) -> Result<()> {
        self.txn.reset()?;
        self.had_conflict.store(false, SeqCst);
        self.state.store(ACTIVE, SeqCst);
        Ok(())
    }
}

/// The state of the column family that a view shows.
#[derive(Clone)]
pub enum View {
    /// The current state.
    Live,
    /// The state in a snapshot.
    Snapshot(Arc<SnapshotCell>),
    /// The state that a transaction sees.
    Txn(Arc<TxnCell>),
}

/// A column family and the state of it that is read.
pub struct Source {
    pub database: Arc<OpenDatabase>,
    pub family: Family,
    pub view: View,
    /// True if keys are sorted byte by byte.
    pub byte_order: bool,
}

impl Source {
    pub fn new(database: Arc<OpenDatabase>, family: Family, view: View) -> Arc<Source> {
        let byte_order = family.options().comparator == KeyComparator::Bytes;
        Arc::new(Source { database, family, view, byte_order })
    }
    /// Returns the same column family as another view shows it, or another column family.
    pub fn with(&self, family: Family, view: View) -> Arc<Source> {
        Source::new(Arc::clone(&self.database), family, view)
    }
}

/// Calls the code `$body` with `$reader`, a [`perigee::Readable`] for the source; a macro, because
/// the trait has generic methods.
macro_rules! read_source {
    ($source:expr, $reader:ident => $body:expr) => {
        match &$source.view {
            $crate::source::View::Live => {
                let $reader = &$source.family;
                $body
            }
            $crate::source::View::Snapshot(cell) => cell.get().and_then(|snapshot| {
                let $reader = &snapshot.family(&$source.family);
                $body
            }),
            $crate::source::View::Txn(cell) => cell.with(|txn| {
                let $reader: &$crate::source::ReadInTxn<'_> = &txn.family(&$source.family);
                $body
            }),
        }
    };
}
pub(crate) use read_source;

/// A column family in a transaction.
pub type ReadInTxn<'a> = TxnFamily<'a>;
