//! Bulk load: tables are built outside of the tree, then installed by one edit at one sequence
//! number.
//!
//! Modules: `publish` (installs the tables; explains why no reader sees a partial load or one at
//! the wrong sequence number), `load_builder` (builds a load on a caller's thread), `ingest` (loads
//! standalone tables).
//!
//! Invariant: a thread that builds holds a [`LoadGuard`], so that close waits for it; outputs that
//! no edit references are removed.

pub mod publish;
pub mod load_builder;
pub mod ingest;

pub use ingest::ingest_files;
pub use load_builder::{LoadBuilder, LoadStatus, finish_loads};
pub use publish::LoadedTables;

use crate::core::EngineCore;
use crate::jobs::pace::wait_for_rate;
use crate::rate_limiter::RateLimitClass;
use perigee_base::{Bytes, Error, ErrorKind, Micros, Result};
use perigee_tree::rewrite::{RewritePacer, RewriteProgress};
use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;

/// Held while a caller's thread works on a load. Close waits until there is none.
#[derive(Debug)]
pub struct LoadGuard<'a>(&'a EngineCore);

impl<'a> LoadGuard<'a> {
    /// Registers the calling thread.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`.
    pub fn start(core: &'a EngineCore) -> Result<LoadGuard<'a>> {
        core.running_loads.fetch_add(1, SeqCst);
        let guard = LoadGuard(core);
        check_closing(core)?;
        core.health.check_writable()?;
        Ok(guard)
    }
}

impl Drop for LoadGuard<'_> {
    fn drop(&mut self) {
        self.0.running_loads.fetch_sub(1, SeqCst);
        self.0.signal.notify();
    }
}

fn check_closing(core: &EngineCore) -> Result<()> {
    if core.closing.load(SeqCst) {
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
    core: &'a EngineCore,
    /// Memory held by the outputs.
    held_bytes: Cell<u64>,
}

impl<'a> LoadPace<'a> {
    /// Creates the pacing for a rewrite.
    pub fn new(core: &'a EngineCore) -> LoadPace<'a> {
        LoadPace { core, held_bytes: Cell::new(0) }
    }
    fn set_held_bytes(&self, bytes: u64) {
        let mut held = self.held_bytes.get();
        if held != bytes {
            self.core.memory_budget.set_load_bytes(&mut held, bytes);
            self.held_bytes.set(held);
            self.core.update_job_memory();
        }
    }
    /// Fails before the load would use the reserved disk space, which is for deletes and
    /// compactions.
    pub fn check_free_space(&self, bytes: u64) -> Result<()> {
        let now = Micros(self.core.env.clock.monotonic_us());
        self.core.disk_space.admit(&*self.core.dir, now, Bytes(bytes))
    }
}

impl Drop for LoadPace<'_> {
    fn drop(&mut self) {
        self.set_held_bytes(0);
    }
}

impl RewritePacer for LoadPace<'_> {
    fn throttle(&self, progress: RewriteProgress) -> Result<()> {
        check_closing(self.core)?;
        self.set_held_bytes(progress.memory_bytes);
        self.check_free_space(progress.written_bytes)?;
        let bytes = progress.read_bytes + progress.written_bytes;
        wait_for_rate(self.core, RateLimitClass::Compaction, bytes, &|| check_closing(self.core))
    }
    fn record_final(&self, progress: RewriteProgress) {
        self.set_held_bytes(progress.memory_bytes);
        let bytes = progress.read_bytes + progress.written_bytes;
        let _debt = self.core.rate_limiter.charge(
            Micros(self.core.env.clock.monotonic_us()),
            Bytes(bytes),
            RateLimitClass::Compaction,
        );
    }
}
