//! L4: the storage engine. Combines the LSM trees of all column families under one sequence of
//! operations: write-ahead log, commits, column families, manifest, recovery, background jobs,
//! back-pressure. It does not know user-facing types other than the option tables.
//!
//! The state of an open database belongs to six subsystems, each defined in the `mod.rs` of its
//! directory: `runtime`, `resources`, `catalog`, `txn`, `log` and `maintenance`. The modules are
//! declared in dependency order; `recover` constructs the subsystems in that order, and `engine`
//! owns and closes them. Lock order: `wal.appender` (the commit section), then `wal.sync`, then the
//! manifest; never the reverse.
//!
//! Interface: [`Engine`], the names re-exported below, and six public modules by subject: reads
//! ([`reader`]), statistics ([`stats`]), [`backup`] and repair, [`bulk_load`], the [`change_feed`],
//! and the [`callbacks`] of users. The other modules are private.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

#[macro_use(check, check_slow, seeded)]
extern crate perigee_base;
mod limits;
mod encrypted_env;
mod settings;
pub mod stats;
mod stats_text;
mod runtime;
mod resources;
mod catalog;
mod txn;
mod log;
mod ddl;
mod maintenance;
mod recover;
mod repair;
mod engine;
pub mod reader;
pub mod backup;
pub mod bulk_load;
pub mod callbacks;
pub mod change_feed;
#[doc(hidden)]
#[cfg(feature = "sim")]
pub mod fuzz;

// An open database, its column families and snapshots.
pub use catalog::family::FamilyState;
pub use catalog::snapshot::SnapshotHandle;
pub use engine::{Engine, RetainedDirLock};
pub use maintenance::jobs::CompactionRange;
pub use runtime::logical_clock::LogicalClockStatus;

// What users set.
pub use settings::durability::Durability;
pub use settings::history::HistoryPolicy;
pub use settings::isolation::Isolation;
pub use settings::value_syntax;
pub use settings::{FamilySettings, Settings};

// Transactions.
pub use log::commit::TwoPhaseDecision;
pub use txn::locks::LockMode;
pub use txn::prepared_txn::PreparedTxn;
pub use txn::read_write_sets::KeyOrRangeRef;
pub use txn::{EngineTxn, EngineTxnHandle, TxnSettings};

/// Reports of lock waits and deadlocks.
pub mod locks {
    pub use crate::txn::locks::{Deadlock, LockListener, LockWait};
}

/// Values that are written in parts.
pub mod value_parts {
    pub use crate::maintenance::value_writer::EngineValueWriter;
}

/// Encryption at rest.
pub mod encryption {
    pub use crate::encrypted_env::encrypt_env;
}

// What the public crate needs from the layers below: it depends on this crate only.
pub use perigee_base::{
    BytesPreview, Error, ErrorKind, Expiry, FamilyId, KeyBoundary, KeyBoundaryRef, Operation,
    PinnedSlice, Result, SeqNo, ValueRef, check, limits as base_limits,
};
pub use perigee_env as env;
pub use perigee_file::log::Batch;
pub use perigee_file::{Compression, bits_per_key_for_rate, false_positive_rate};

#[cfg(test)]
mod invariant_tests;
