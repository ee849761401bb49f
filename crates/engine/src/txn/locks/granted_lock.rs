//! A granted lock, [`GrantedLock`], and its owner.

use super::lock_mode::LockMode;

/// The owner of a lock: the number of a transaction. A larger one is younger.
pub type LockOwner = u64;

/// Who requests a lock, and in which mode.
#[derive(Clone, Copy, Debug)]
pub struct Requester {
    /// The transaction.
    pub owner: LockOwner,
    /// The requested mode.
    pub mode: LockMode,
}

/// A granted lock.
#[derive(Clone, Copy, Debug)]
pub struct GrantedLock {
    /// The transaction that holds it.
    pub owner: LockOwner,
    /// Its mode.
    pub mode: LockMode,
    /// Its number among its owner's locks, ascending in the order in which they were granted:
    /// rolling back to a savepoint keeps those before it.
    pub number: u64,
    /// Number of requests that it has served: as many unlocks release it.
    pub requests: u32,
}
