//! Transactions: private writes over a snapshot, validated and committed in the same commit section
//! as batches.
//!
//! A transaction holds no shared state: its writes are a batch in log format ([`writes`]) and,
//! beyond a size limit, private tables ([`spill_store`]). Its snapshot is a sequence number, and
//! its reads are a list that [`validate`] checks at commit. Serializable transactions are
//! registered with each other ([`crate::serializable_txns`]). Writers without transactions pay
//! nothing.

pub mod settings;
pub mod validate;
pub mod spill_store;
pub mod writes;
mod transaction;

pub use settings::{IsolationLevel, TxnSettings};
pub use transaction::{EngineTxn, PrepareRequest, ScanTracker, TxnAbortHandle};
