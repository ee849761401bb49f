//! State shared by the JavaScript objects of a database.

use perigee::{Db, Error, ErrorKind, Family, Result, Snapshot, Txn};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Locks a mutex. None of them guards an invariant that a panic could break.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open database and the column families that JavaScript has got from it.
pub struct Shared {
    db: Option<Db>,
    /// By the id of the column family, which operations in a packed list refer to.
    families: Mutex<HashMap<u32, Family>>,
}

impl Shared {
    /// Returns the state of a database that was just opened.
    pub fn new(db: Db) -> Arc<Shared> {
        let default = db.default_family();
        let families = Mutex::new(HashMap::from([(default.id(), default)]));
        Arc::new(Shared { db: Some(db), families })
    }
    /// Returns the database.
    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("taken only when the state is dropped")
    }
    /// Makes a column family known to packed operations.
    pub fn add_family(&self, family: &Family) {
        lock(&self.families).insert(family.id(), family.clone());
    }
    /// Returns the column family with this id.
    pub fn family(&self, id: u32) -> Result<Family> {
        lock(&self.families).get(&id).cloned().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("no column family has the id {id}"))
        })
    }
}

/// Closing can wait for a sync: an object that is collected must not do that on the thread that
/// runs JavaScript.
impl Drop for Shared {
    fn drop(&mut self) {
        let families = std::mem::take(&mut self.families);
        if let Some(db) = self.db.take() {
            // If no thread can be started, the closure is dropped here, and closes the database.
            let drop_all = move || drop((families, db));
            let _ = std::thread::Builder::new().name("perigee-drop".into()).spawn(drop_all);
        }
    }
}

/// A snapshot that can be closed while reads use it: these finish first.
pub struct SnapshotCell(Mutex<Option<Arc<Snapshot>>>);

impl SnapshotCell {
    /// Returns an open snapshot.
    pub fn new(snapshot: Snapshot) -> Arc<SnapshotCell> {
        Arc::new(SnapshotCell(Mutex::new(Some(Arc::new(snapshot)))))
    }
    /// Returns the snapshot, or an error if it is closed.
    pub fn get(&self) -> Result<Arc<Snapshot>> {
        lock(&self.0).clone().ok_or_else(|| {
            Error::new(ErrorKind::Closed, "the snapshot is closed: take another one")
        })
    }
    /// Closes the snapshot.
    pub fn close(&self) {
        let snapshot = lock(&self.0).take();
        drop(snapshot);
    }
}

/// States of a transaction.
pub const ACTIVE: u8 = 0;
/// A commit was attempted.
pub const COMMITTED: u8 = 1;
/// Rolled back.
pub const ROLLED_BACK: u8 = 2;

/// A transaction and how it ended.
pub struct TxnCell {
    txn: Txn,
    /// True if writes wait for locks of other transactions.
    pub pessimistic: bool,
    state: AtomicU8,
}

impl TxnCell {
    /// Returns a transaction that has just begun.
    pub fn new(txn: Txn, pessimistic: bool) -> Arc<TxnCell> {
        Arc::new(TxnCell { txn, pessimistic, state: AtomicU8::new(ACTIVE) })
    }
    /// Returns the transaction, or an error if it has ended.
    pub fn get(&self) -> Result<&Txn> {
        let how = match self.state.load(Ordering::Acquire) {
            ACTIVE => return Ok(&self.txn),
            COMMITTED => "a commit",
            _ => "a rollback",
        };
        let text = format!("the transaction has ended with {how}: begin another one");
        Err(Error::new(ErrorKind::Closed, text))
    }
    /// Marks the transaction as ended. Returns false if it had ended before.
    pub fn end(&self, how: u8) -> bool {
        self.state.compare_exchange(ACTIVE, how, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
    /// Begins again in the same object, after a rollback or a failed commit.
    pub fn reset(&self) -> Result<()> {
        self.txn.reset()?;
        self.state.store(ACTIVE, Ordering::Release);
        Ok(())
    }
    /// Returns the transaction in whatever state it is.
    pub fn raw(&self) -> &Txn {
        &self.txn
    }
}
