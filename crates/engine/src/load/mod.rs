//! Bulk load: tables are built beside the living tree, then installed by one edit at one sequence number.
//!
//! Rooms: `number` (a sequence number for the whole load), `publish` (the argument why nothing can see half of it, or see
//! it under the wrong age), `build` (a load in the making, on a caller's thread).
//!
//! Invariant: whoever builds holds a [`Working`], so that closing waits for it; outputs that no edit named are removed.

pub mod number;
pub mod publish;
pub mod build;
pub mod ingest;

pub use build::{Load, Progress, finish};
pub use ingest::ingest;
pub use publish::Part;

use crate::core::Core;
use perigee_base::{Error, ErrorKind, Result};
use perigee_tree::rewrite::{Moved, Pace};
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

/// The pace of a load's rewrites: as fast as it goes, until the database closes.
#[derive(Debug)]
pub struct LoadPace<'a>(pub &'a Core);

impl LoadPace<'_> {
    /// The reserve is for deletes and compactions: a load gives up before it takes that.
    pub fn room(&self, bytes: u64) -> Result<()> {
        self.0.space.admit(&*self.0.dir, self.0.env.clock.monotonic_us(), bytes)
    }
}

impl Pace for LoadPace<'_> {
    fn step(&self, moved: Moved) -> Result<()> {
        check_closing(self.0)?;
        self.room(moved.written_bytes)
    }
}
