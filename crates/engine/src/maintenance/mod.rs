//! All work other than reads and commits, [`Maintenance`]: background jobs, bulk loads, spilled
//! transactions, verification, checkpoints and backups.

mod parallel_tasks;
pub mod jobs;
pub mod load;
pub mod prepared_spill;
pub mod txn_spill;
pub mod value_writer;
pub mod verify;
pub mod safety;

use crate::catalog::Catalog;
use crate::log::Log;
use crate::resources::Resources;
use crate::runtime::Runtime;
use crate::txn::TxnManager;
use jobs::scrub_progress::Scrub;
use perigee_env::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// What jobs and loads share. The highest subsystem.
#[derive(Debug)]
pub struct Maintenance {
    /// The runtime.
    pub runtime: Arc<Runtime>,
    /// The limited resources.
    pub resources: Arc<Resources>,
    /// The catalog.
    pub catalog: Arc<Catalog>,
    /// Transactions.
    pub txns: Arc<TxnManager>,
    /// The log.
    pub log: Arc<Log>,
    /// Serializes flushes, so that a column family's memtables are installed oldest first.
    flush_lock: Mutex<()>,
    /// Serializes compactions.
    compaction_lock: Mutex<()>,
    /// Bulk loads in progress on callers' threads: closing waits for them.
    running_loads: AtomicU64,
    scrub: Scrub,
}

impl Maintenance {
    /// Creates the state of jobs and loads; none is running.
    pub fn new(log: Arc<Log>) -> Maintenance {
        Maintenance {
            runtime: Arc::clone(&log.runtime),
            resources: Arc::clone(&log.resources),
            catalog: Arc::clone(&log.catalog),
            txns: Arc::clone(&log.txns),
            log,
            flush_lock: Mutex::new(()),
            compaction_lock: Mutex::new(()),
            running_loads: AtomicU64::new(0),
            scrub: Scrub::default(),
        }
    }
    /// Waits until no flush is running, and keeps others from starting.
    pub fn lock_flushes(&self) -> MutexGuard<'_, ()> {
        self.flush_lock.lock()
    }
    /// Waits until no compaction is running, and keeps others from starting.
    pub fn lock_compactions(&self) -> MutexGuard<'_, ()> {
        self.compaction_lock.lock()
    }
    /// Returns true if a bulk load is running on a caller's thread.
    pub fn has_running_loads(&self) -> bool {
        self.running_loads.load(SeqCst) > 0
    }
    /// Returns the progress and the results of the scrub.
    pub fn scrub(&self) -> &Scrub {
        &self.scrub
    }
}
