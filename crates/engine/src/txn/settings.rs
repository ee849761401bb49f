//! What a transaction is asked to be.

pub use crate::isolation::IsolationLevel;

/// Settings of a transaction.
#[derive(Clone, Debug)]
pub struct TxnSettings {
    /// What it is protected from.
    pub isolation: IsolationLevel,
    /// It refuses to write, and never conflicts.
    pub read_only: bool,
    /// What it writes it locks first.
    pub pessimistic: bool,
    /// It waits for a lock no longer than that.
    pub lock_timeout_us: u64,
    /// It is ended when it is older than that; 0: it may last.
    pub timeout_us: u64,
    /// Writes beyond so many bytes are refused; 0: none are.
    pub max_bytes: u64,
    /// Beyond so many bytes of memory writes go to files; 0: as the memory budget says.
    pub spill_bytes: u64,
}
