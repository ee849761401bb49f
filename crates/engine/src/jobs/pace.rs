//! The pace of a running job: it tells how far it is and what it holds, keeps to the rate, and gives up when told. Called by the
//! rewrite road after every quantum, with no lock held but `compacting`.

use crate::control::{Kind, Running};
use crate::core::Core;
use crate::throttle::Class;
use perigee_base::{Error, ErrorKind, Result};
use perigee_tree::rewrite::{Moved, Pace};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// Longest wait without a look at whether to give up.
const LOOK_US: u64 = 50_000;

/// What a job holds is told on when it has changed by so many bits' worth: 64 KiB.
const TELL_BITS: u32 = 16;

/// The pace of one job.
#[derive(Debug)]
pub struct JobPace<'a> {
    core: &'a Core,
    running: &'a Running<'a>,
    /// What this part of the job holds.
    held: AtomicU64,
}

impl Drop for JobPace<'_> {
    fn drop(&mut self) {
        self.holds(0);
    }
}

impl<'a> JobPace<'a> {
    /// The pace of a job that is in the list, or of a part of it.
    pub fn new(core: &'a Core, running: &'a Running<'a>) -> JobPace<'a> {
        JobPace { core, running, held: AtomicU64::new(0) }
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

impl JobPace<'_> {
    fn holds(&self, bytes: u64) {
        let before = self.held.swap(bytes, Relaxed);
        if bytes >= before {
            self.running.job.held.fetch_add(bytes - before, Relaxed);
        } else {
            self.running.job.held.fetch_sub(before - bytes, Relaxed);
        }
        if before >> TELL_BITS != bytes >> TELL_BITS {
            self.core.jobs_hold();
        }
    }
    /// Tells how far the job is and what it holds; bytes of the rate that it has to pay for.
    fn tell(&self, moved: Moved) -> (Class, u64) {
        let job = &self.running.job;
        let entries = job.entries_done.fetch_add(moved.entries, Relaxed) + moved.entries;
        if job.kind == Kind::Flush {
            self.core.flushed.store(entries.saturating_mul(1000) / job.entries.max(1), Relaxed);
        }
        job.written.fetch_add(moved.written_bytes, Relaxed);
        self.holds(moved.held_bytes);
        match job.kind {
            Kind::Flush => (Class::Flush, moved.written_bytes),
            Kind::Compaction => (Class::Compaction, moved.read_bytes + moved.written_bytes),
        }
    }
}

impl Pace for JobPace<'_> {
    fn step(&self, moved: Moved) -> Result<()> {
        let (class, bytes) = self.tell(moved);
        self.check()?;
        keep_to_rate(self.core, class, bytes, &|| self.check())
    }
    fn done(&self, moved: Moved) {
        let (class, bytes) = self.tell(moved);
        let _owed = self.core.throttle.take(self.core.env.clock.monotonic_us(), bytes, class);
    }
}

/// Takes `bytes` of the background rate and waits until they are paid for; `check` says when to give up.
pub fn keep_to_rate(core: &Core, class: Class, bytes: u64, check: &dyn Fn() -> Result<()>) -> Result<()> {
    let clock = &core.env.clock;
    let now = clock.monotonic_us();
    let debt = core.throttle.take(now, bytes, class);
    if debt.wait_us == 0 {
        return Ok(());
    }
    let until = now.saturating_add(debt.wait_us);
    loop {
        let seen = core.signal.now();
        let now = clock.monotonic_us();
        // A new rate forgives what the old one asked.
        if now >= until || core.throttle.generation() != debt.generation {
            return Ok(());
        }
        check()?;
        core.signal.wait_us(seen, (until - now).min(LOOK_US));
    }
}
