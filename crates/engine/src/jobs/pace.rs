//! The pace of a running job: it tells how far it is, keeps to the rate, and gives up when told. Called by the rewrite road
//! after every quantum, with no lock held but `compacting`.

use crate::control::{Kind, Running};
use crate::core::Core;
use crate::throttle::Class;
use perigee_base::{Error, ErrorKind, Result};
use perigee_tree::rewrite::{Moved, Pace};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Longest wait without a look at whether to give up.
const LOOK_US: u64 = 50_000;

/// The pace of one job.
#[derive(Debug)]
pub struct JobPace<'a> {
    core: &'a Core,
    running: &'a Running<'a>,
}

impl<'a> JobPace<'a> {
    /// The pace of a job that is in the list.
    pub fn new(core: &'a Core, running: &'a Running<'a>) -> JobPace<'a> {
        JobPace { core, running }
    }
    fn check(&self) -> Result<()> {
        if self.core.closing.load(SeqCst) {
            return Err(Error::new(ErrorKind::Closed, "the database is closing, the job gave up"));
        }
        match self.running.job.kind {
            Kind::Flush => Ok(()),
            Kind::Compaction => self.core.control.check_cancelled(),
        }
    }
}

impl Pace for JobPace<'_> {
    fn step(&self, moved: Moved) -> Result<()> {
        let job = &self.running.job;
        let entries = job.entries_done.fetch_add(moved.entries, Relaxed) + moved.entries;
        if job.kind == Kind::Flush {
            self.core.flushed.store(entries.saturating_mul(1000) / job.entries.max(1), Relaxed);
        }
        job.written.fetch_add(moved.written_bytes, Relaxed);
        self.check()?;
        let (class, bytes) = match job.kind {
            Kind::Flush => (Class::Flush, moved.written_bytes),
            Kind::Compaction => (Class::Compaction, moved.read_bytes + moved.written_bytes),
        };
        let clock = &self.core.env.clock;
        let now = clock.monotonic_us();
        let debt = self.core.throttle.take(now, bytes, class);
        if debt.wait_us == 0 {
            return Ok(());
        }
        let until = now.saturating_add(debt.wait_us);
        loop {
            let seen = self.core.signal.now();
            let now = clock.monotonic_us();
            // A new rate forgives what the old one asked.
            if now >= until || self.core.throttle.generation() != debt.generation {
                return Ok(());
            }
            self.check()?;
            self.core.signal.wait_us(seen, (until - now).min(LOOK_US));
        }
    }
}
