//! Bulk load: tables are built beside the living tree, then installed by one edit at one sequence
//! number.
//!
//! Rooms: `publish` (the argument why nothing can see half of it, or see
//! it under the wrong age), `build` (a load in the making, on a caller's thread).
//!
//! Invariant: whoever builds holds a [`LoadGuard`], so that closing waits for it; outputs that no
//! edit named are removed.

pub mod publish;
pub mod load_builder;
pub mod ingest;

pub use ingest::ingest_files;
pub use load_builder::{LoadBuilder, LoadStatus, finish_loads};
pub use publish::LoadedTables;

use crate::core::EngineCore;
use crate::jobs::pace::wait_for_rate;
use crate::rate_limiter::RateLimitClass;
use perigee_base::{Error, ErrorKind, Result};
use perigee_tree::rewrite::{RewritePacer, RewriteProgress};
use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;

/// A caller's thread at work on a load. Closing waits until there is none.
#[derive(Debug)]
pub struct LoadGuard<'a>(&'a EngineCore);

impl<'a> LoadGuard<'a> {
    /// Starts to work.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`.
    pub fn start(core: &'a EngineCore) -> Result<LoadGuard<'a>> {
        core.running_loads.fetch_add(1, SeqCst);
        let working = LoadGuard(core);
        check_closing(core)?;
        core.health.check_writable()?;
        Ok(working)
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
            "the database is closing, the load was given up",
        ));
    }
    Ok(())
}

/// The pace of a load's rewrites: within the background rate like a compaction (nobody waits for
/// it), until the database closes.
#[derive(Debug)]
pub struct LoadPace<'a> {
    core: &'a EngineCore,
    /// Memory that the outputs hold.
    held_bytes: Cell<u64>,
}

impl<'a> LoadPace<'a> {
    /// The pace of a rewrite that begins.
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
    /// The reserve is for deletes and compactions: a load gives up before it takes that.
    pub fn check_free_space(&self, bytes: u64) -> Result<()> {
        self.core.disk_space.admit(&*self.core.dir, self.core.env.clock.monotonic_us(), bytes)
    }
}

impl Drop for LoadPace<'_> {
    fn drop(&mut self) {
        self.set_held_bytes(0);
    }
}

impl RewritePacer for LoadPace<'_> {
    fn throttle(&self, moved: RewriteProgress) -> Result<()> {
        check_closing(self.core)?;
        self.set_held_bytes(moved.memory_bytes);
        self.check_free_space(moved.written_bytes)?;
        let bytes = moved.read_bytes + moved.written_bytes;
        wait_for_rate(self.core, RateLimitClass::Compaction, bytes, &|| check_closing(self.core))
    }
    fn record_final(&self, moved: RewriteProgress) {
        self.set_held_bytes(moved.memory_bytes);
        let bytes = moved.read_bytes + moved.written_bytes;
        let _owed = self.core.rate_limiter.charge(
            self.core.env.clock.monotonic_us(),
            bytes,
            RateLimitClass::Compaction,
        );
    }
}
