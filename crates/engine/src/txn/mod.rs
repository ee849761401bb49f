//! Transactions: private writes over a snapshot, checked and committed in the one commit section.
//!
//! A transaction holds nothing that others meet: its writes are a batch in log format ([`writes`]),
//! and beyond some size tables that nobody else knows ([`runs`]); its snapshot is a number, and
//! what it has read is a list that [`validate`] goes through at commit; serializable ones are known
//! to each other ([`crate::serial`]). Writers that use none pay nothing.

pub mod settings;
pub mod validate;
pub mod spill_store;
pub mod writes;
mod transaction;

pub use settings::{IsolationLevel, TxnSettings};
pub use transaction::{EngineTxn, PrepareRequest, ScanTracker, TxnAbortHandle};
