//! Bulk load: tables are built outside of the tree, then installed by one edit at one sequence
//! number.
//!
//! Modules: `publish` (installs the tables; explains why no reader sees a partial load or one at
//! the wrong sequence number), `load_builder` (builds a load on a caller's thread), `ingest` (loads
//! standalone tables, which `table_builder` writes).
//!
//! Invariant: a thread that builds holds a [`LoadGuard`], so that close waits for it; outputs that
//! no edit references are removed.

mod table_builder;
pub mod publish;
pub mod load_builder;
pub mod ingest;

pub use ingest::ingest_files;
pub use load_builder::{LoadBuilder, LoadStatus, finish_loads};
pub use table_builder::{StandaloneTableBuilder, StandaloneTableContents};

use crate::maintenance::Maintenance;
use crate::resources::Resources;
use crate::resources::rate_limiter::RateLimitClass;
use crate::runtime::Runtime;
use perigee_base::{Error, ErrorKind, Result};
use perigee_tree::rewrite::{RewritePacer, RewriteProgress};
use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;

/// Held while a caller's thread works on a load. Close waits until there is none.
#[derive(Debug)]
pub struct LoadGuard<'a>(&'a Maintenance);

impl<'a> LoadGuard<'a> {
    /// Registers the calling thread.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`.
    pub fn start(maintenance: &'a Maintenance) -> Result<LoadGuard<'a>> {
        maintenance.running_loads.fetch_add(1, SeqCst);
        let guard = LoadGuard(maintenance);
        check_closing(&maintenance.runtime)?;
        maintenance.runtime.health.check_writable()?;
        Ok(guard)
    }
}

impl Drop for LoadGuard<'_> {
    fn drop(&mut self) {
        let before = self.0.running_loads.fetch_sub(1, SeqCst);
        check_slow!(
            before > 0 || perigee_env::panicking(),
            "a close waits for each running load",
            before
        );
        self.0.runtime.signal.notify();
    }
}

fn check_closing(runtime: &Runtime) -> Result<()> {
    if runtime.is_closing() {
        return Err(Error::new(
            ErrorKind::Closed,
            "the database is closing; the load was cancelled",
        ));
    }
    Ok(())
}

/// Pacing of a load's rewrites: uses the background rate like a compaction, since no writer waits
/// for it, and stops when the database closes.
#[derive(Debug)]
pub struct LoadPace<'a> {
    resources: &'a Resources,
    /// Memory held by the outputs.
    held_bytes: Cell<u64>,
}

impl<'a> LoadPace<'a> {
    /// Creates the pacing for a rewrite.
    pub fn new(resources: &'a Resources) -> LoadPace<'a> {
        LoadPace { resources, held_bytes: Cell::new(0) }
    }
    fn set_held_bytes(&self, bytes: u64) {
        let mut held = self.held_bytes.get();
        if held != bytes {
            self.resources.charge(&mut held, bytes);
            self.held_bytes.set(held);
        }
    }
    /// Fails before the load would use the reserved disk space, which is for deletes and
    /// compactions.
    pub fn check_free_space(&self, bytes: u64) -> Result<()> {
        self.resources.check_free_space_for_load(bytes)
    }
}

impl Drop for LoadPace<'_> {
    fn drop(&mut self) {
        self.set_held_bytes(0);
    }
}

impl RewritePacer for LoadPace<'_> {
    fn throttle(&self, progress: RewriteProgress) -> Result<()> {
        check_closing(&self.resources.runtime)?;
        self.set_held_bytes(progress.memory_bytes);
        self.check_free_space(progress.written_bytes)?;
        let bytes = progress.read_bytes + progress.written_bytes;
        self.resources.wait_for_rate(RateLimitClass::Compaction, bytes, &|| {
            check_closing(&self.resources.runtime)
        })
    }
    fn record_final(&self, progress: RewriteProgress) {
        self.set_held_bytes(progress.memory_bytes);
        let bytes = progress.read_bytes + progress.written_bytes;
        let _debt = self.resources.charge_rate(RateLimitClass::Compaction, bytes);
    }
}
