//! Settings of a transaction.

pub use crate::settings::isolation::Isolation;

/// Settings of a transaction.
#[derive(Clone, Debug)]
pub struct TxnSettings {
    /// The isolation level.
    pub isolation: Isolation,
    /// Writes are rejected, and the transaction never conflicts.
    pub read_only: bool,
    /// Every write locks its key or range first.
    pub pessimistic: bool,
    /// Maximum wait for a lock, in microseconds.
    pub lock_timeout_us: u64,
    /// Maximum duration of the transaction, in microseconds; it is aborted afterwards. 0: no limit.
    pub timeout_us: u64,
    /// Maximum bytes of writes; more are rejected. 0: no limit.
    pub max_bytes: u64,
    /// Memory in bytes beyond which writes are spilled to files; 0: determined by the memory
    /// budget.
    pub spill_bytes: u64,
}
