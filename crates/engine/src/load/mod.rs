//! Bulk load: tables are built beside the living tree, then installed by one edit at one sequence number.
//!
//! Rooms: `publish` (the argument why nothing can see half of it, or see
//! it under the wrong age), `build` (a load in the making, on a caller's thread).
//!
//! Invariant: whoever builds holds a [`Working`], so that closing waits for it; outputs that no edit named are removed.

pub mod publish;
pub mod build;
pub mod ingest;

pub use build::{Load, Progress, finish};
pub use ingest::ingest;
pub use publish::Part;

use crate::core::Core;
use crate::jobs::pace::keep_to_rate;
use crate::throttle::Class;
use perigee_base::{Error, ErrorKind, Result};
use perigee_tree::rewrite::{Moved, Pace};
use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;

/// A caller's thread at work on a load. Closing waits until there is none.
#[derive(Debug)]
pub struct Working<'a>(&'a Core);

impl<'a> Working<'a> {
    /// Starts to work.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`.
    pub fn start(core: &'a Core) -> Result<Working<'a>> {
        core.loads.fetch_add(1, SeqCst);
        let working = Working(core);
        check_closing(core)?;
        core.health.check_writable()?;
        Ok(working)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.loads.fetch_sub(1, SeqCst);
        self.0.signal.ring();
    }
}

fn check_closing(core: &Core) -> Result<()> {
    if core.closing.load(SeqCst) {
        return Err(Error::new(ErrorKind::Closed, "the database is closing, the load was given up"));
    }
    Ok(())
}

/// The pace of a load's rewrites: within the background rate like a compaction (nobody waits for it), until the database closes.
#[derive(Debug)]
pub struct LoadPace<'a> {
    core: &'a Core,
    /// Memory that the outputs hold.
    held: Cell<u64>,
}

impl<'a> LoadPace<'a> {
    /// The pace of a rewrite that begins.
    pub fn new(core: &'a Core) -> LoadPace<'a> {
        LoadPace { core, held: Cell::new(0) }
    }
    fn holds(&self, bytes: u64) {
        let mut held = self.held.get();
        if held != bytes {
            self.core.memory.load_holds(&mut held, bytes);
            self.held.set(held);
            self.core.jobs_hold();
        }
    }
    /// The reserve is for deletes and compactions: a load gives up before it takes that.
    pub fn room(&self, bytes: u64) -> Result<()> {
        self.core.space.admit(&*self.core.dir, self.core.env.clock.monotonic_us(), bytes)
    }
}

impl Drop for LoadPace<'_> {
    fn drop(&mut self) {
        self.holds(0);
    }
}

impl Pace for LoadPace<'_> {
    fn step(&self, moved: Moved) -> Result<()> {
        check_closing(self.core)?;
        self.holds(moved.held_bytes);
        self.room(moved.written_bytes)?;
        let bytes = moved.read_bytes + moved.written_bytes;
        keep_to_rate(self.core, Class::Compaction, bytes, &|| check_closing(self.core))
    }
    fn done(&self, moved: Moved) {
        self.holds(moved.held_bytes);
        let bytes = moved.read_bytes + moved.written_bytes;
        let _owed = self.core.throttle.take(self.core.env.clock.monotonic_us(), bytes, Class::Compaction);
    }
}
