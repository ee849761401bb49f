//! L4: many trees, one order of events. The write-ahead log, commits, families, the manifest, recovery, background
//! jobs, back-pressure. It knows nothing of user-facing types.
//!
//! The module order is the dependency order; `engine` builds the rooms in that order and closes them in reverse.
//! Lock order: `wal.appender` (the commit section), then `wal.sync`, then the manifest. Never the other way round.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod listener;
pub mod filters;
pub mod hooks;
pub mod history;
pub mod isolation;
pub mod settings;
pub mod health;
pub mod dirsync;
pub mod signal;
pub mod snapshot;
pub mod footprint;
pub mod locks;
pub mod serial;
pub mod prepared;
pub mod open_txns;
pub mod now;
pub mod retire;
pub mod wal;
pub mod manifest;
mod picked;
pub mod figures;
pub mod passed;
pub mod family;
pub mod memory;
pub mod shared;
pub mod space;
pub mod ballast;
pub mod pressure;
pub mod intake;
pub mod throttle;
pub mod info_log;
pub mod events;
pub mod control;
pub mod stalls;
pub mod watermark;
pub mod scrub;
pub mod core;
pub mod txn;
pub mod commit;
pub mod feed;
pub mod past;
pub mod jobs;
pub mod ddl;
pub mod load;
pub mod spill;
pub mod recover;
pub mod verify;
pub mod safety;
pub mod repair;
pub mod report;
pub mod engine;
mod closing;
mod operate;
#[doc(hidden)]
pub mod fuzz;

pub use commit::Verdict;
pub use engine::Engine;
pub use family::Family;
pub use settings::{Durability, FamilySettings, Settings};
