//! [`ReadState`]: the state of the database that a statement reads: a snapshot, or the transaction
//! of the session.

use crate::error::{Result, SqlError, SqlState};
use perigee::Snapshot;
use perigee_tables::TableTxn;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A transaction that results of the session read while they are fetched.
#[derive(Debug)]
pub struct SharedTxn(RwLock<Option<TableTxn<'static>>>);

impl SharedTxn {
    pub fn new(txn: TableTxn<'static>) -> SharedTxn {
        SharedTxn(RwLock::new(Some(txn)))
    }
    /// Calls `work` with the transaction, unless it has ended.
    pub fn with<T>(&self, work: impl FnOnce(&TableTxn<'static>) -> Result<T>) -> Result<T> {
        let txn = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match &*txn {
            Some(txn) => work(txn),
            None => {
                let text = "the transaction of this result has ended";
                Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, text)
                    .with_hint("fetch all rows of a result before COMMIT or ROLLBACK"))
            }
        }
    }
    /// Ends the transaction for all readers, and returns it.
    pub fn take(&self) -> Option<TableTxn<'static>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub enum ReadState {
    Snapshot(Arc<Snapshot>),
    Txn(Arc<SharedTxn>),
}

/// The read state of the statement that is being planned. Statements of a session are planned one
/// after the other.
#[derive(Debug, Default)]
pub struct CurrentReadState(Mutex<Option<ReadState>>);

impl CurrentReadState {
    pub fn set(&self, state: ReadState) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
    }
    /// Releases the snapshot. Results that are still being fetched keep theirs.
    pub fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
    pub fn get(&self) -> Result<ReadState> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        state.ok_or_else(|| SqlError::new(SqlState::INTERNAL, "no statement is being planned"))
    }
}
