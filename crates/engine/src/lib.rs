//! L4: the storage engine. Combines the LSM trees of all column families under one sequence of
//! operations: write-ahead log, commits, column families, manifest, recovery, background jobs,
//! back-pressure. It does not know user-facing types.
//!
//! The modules are declared in dependency order; `engine` constructs the components in that order
//! and closes them in reverse. Lock order: `wal.appender` (the commit section), then `wal.sync`,
//! then the manifest; never the reverse.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod log_listener;
pub mod compaction_filters;
pub mod commit_hooks;
pub mod history;
pub mod isolation;
pub mod settings;
pub mod health;
pub mod dir_sync;
pub mod signal;
pub mod snapshot;
pub mod read_write_sets;
pub mod locks;
pub mod serializable_txns;
pub mod prepared_txns;
pub mod open_txns;
pub mod logical_clock;
pub mod obsolete_files;
pub mod wal;
pub mod manifest;
mod compaction_cursor;
pub mod family_counters;
pub mod skipped_tombstones;
pub mod family;
pub mod memory_budget;
pub mod shared_batches;
pub mod disk_space;
pub mod ballast;
pub mod write_pressure;
pub mod write_throttle;
pub mod rate_limiter;
pub mod info_log;
pub mod events;
pub mod job_control;
pub mod write_stalls;
pub mod watermark_timer;
pub mod scrub;
pub mod core;
pub mod txn;
pub mod commit;
pub mod change_feed;
pub mod named_snapshots;
pub mod jobs;
pub mod ddl;
pub mod load;
pub mod txn_spill;
pub mod recover;
pub mod verify;
pub mod safety;
pub mod repair;
pub mod report;
pub mod engine;
mod close;
mod maintenance;
#[doc(hidden)]
pub mod fuzz;

pub use commit::TwoPhaseDecision;
pub use engine::Engine;
pub use family::FamilyState;
pub use settings::{DurabilityLevel, FamilySettings, Settings};
