//! The pace of a running job: it tells how far it is and what it holds, keeps to the rate, and
//! gives up when told. Called by the rewrite road after every quantum, with no lock held but
//! `compacting`.

use crate::core::EngineCore;
use crate::job_control::{JobKind, JobRegistration};
use crate::rate_limiter::RateLimitClass;
use perigee_base::{Error, ErrorKind, Result};
use perigee_tree::rewrite::{RewritePacer, RewriteProgress};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// Longest wait without a look at whether to give up.
const CANCEL_CHECK_US: u64 = 50_000;

/// What a job holds is told on when it has changed by so many bits' worth: 64 KiB.
const REPORT_SHIFT: u32 = 16;

/// The pace of one job.
#[derive(Debug)]
pub struct JobPace<'a> {
    core: &'a EngineCore,
    running: &'a JobRegistration<'a>,
    /// What this part of the job holds.
    held_bytes: AtomicU64,
}

impl Drop for JobPace<'_> {
    fn drop(&mut self) {
        self.set_held_bytes(0);
    }
}

impl<'a> JobPace<'a> {
    /// The pace of a job that is in the list, or of a part of it.
    pub fn new(core: &'a EngineCore, running: &'a JobRegistration<'a>) -> JobPace<'a> {
        JobPace { core, running, held_bytes: AtomicU64::new(0) }
    }
    fn check_cancelled(&self) -> Result<()> {
        if self.core.closing.load(SeqCst) {
            return Err(Error::new(ErrorKind::Closed, "the database is closing, the job gave up"));
        }
        match self.running.job.kind {
            JobKind::Flush => Ok(()),
            JobKind::Compaction => self.core.job_control.check_cancelled(),
        }
    }
}

impl JobPace<'_> {
    fn set_held_bytes(&self, bytes: u64) {
        let before = self.held_bytes.swap(bytes, Relaxed);
        if bytes >= before {
            self.running.job.output_memory_bytes.fetch_add(bytes - before, Relaxed);
        } else {
            self.running.job.output_memory_bytes.fetch_sub(before - bytes, Relaxed);
        }
        if before >> REPORT_SHIFT != bytes >> REPORT_SHIFT {
            self.core.update_job_memory();
        }
    }
    /// Tells how far the job is and what it holds; bytes of the rate that it has to pay for.
    fn report_progress(&self, moved: RewriteProgress) -> (RateLimitClass, u64) {
        let job = &self.running.job;
        let entries = job.entries_done.fetch_add(moved.entries, Relaxed) + moved.entries;
        if job.kind == JobKind::Flush {
            self.core
                .flush_progress
                .store(entries.saturating_mul(1000) / job.input_entries.max(1), Relaxed);
        }
        job.bytes_written.fetch_add(moved.written_bytes, Relaxed);
        self.set_held_bytes(moved.memory_bytes);
        match job.kind {
            JobKind::Flush => (RateLimitClass::Flush, moved.written_bytes),
            JobKind::Compaction => {
                (RateLimitClass::Compaction, moved.read_bytes + moved.written_bytes)
            }
        }
    }
}

impl RewritePacer for JobPace<'_> {
    fn throttle(&self, moved: RewriteProgress) -> Result<()> {
        let (class, bytes) = self.report_progress(moved);
        self.check_cancelled()?;
        wait_for_rate(self.core, class, bytes, &|| self.check_cancelled())
    }
    fn record_final(&self, moved: RewriteProgress) {
        let (class, bytes) = self.report_progress(moved);
        let _owed = self.core.rate_limiter.charge(self.core.env.clock.monotonic_us(), bytes, class);
    }
}

/// Takes `bytes` of the background rate and waits until they are paid for; `check` says when to
/// give up.
pub fn wait_for_rate(
    core: &EngineCore,
    class: RateLimitClass,
    bytes: u64,
    check: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let clock = &core.env.clock;
    let now = clock.monotonic_us();
    let debt = core.rate_limiter.charge(now, bytes, class);
    if debt.wait_us == 0 {
        return Ok(());
    }
    let until = now.saturating_add(debt.wait_us);
    loop {
        let seen = core.signal.generation();
        let now = clock.monotonic_us();
        // A new rate forgives what the old one asked.
        if now >= until || core.rate_limiter.generation() != debt.generation {
            return Ok(());
        }
        check()?;
        core.signal.wait_timeout_us(seen, (until - now).min(CANCEL_CHECK_US));
    }
}
