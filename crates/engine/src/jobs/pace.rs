//! Pacing of a running job: reports its progress and memory use, enforces the rate limit and
//! cancels the job on request. Called by rewrites after every quantum, with no lock held but
//! `compaction_lock`.

use crate::core::EngineCore;
use crate::job_control::{JobKind, JobRegistration};
use crate::rate_limiter::RateLimitClass;
use perigee_base::{Bytes, Error, ErrorKind, Micros, Result};
use perigee_tree::rewrite::{RewritePacer, RewriteProgress};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// Maximum wait between two checks for cancellation, in microseconds.
const CANCEL_CHECK_US: u64 = 50_000;

/// Changes of a job's memory use are reported at a granularity of 2^16 bytes (64 KiB).
const REPORT_SHIFT: u32 = 16;

/// The pacing of one job, or of one task of it.
#[derive(Debug)]
pub struct JobPace<'a> {
    core: &'a EngineCore,
    running: &'a JobRegistration<'a>,
    /// Memory held by this task of the job.
    held_bytes: AtomicU64,
}

impl Drop for JobPace<'_> {
    fn drop(&mut self) {
        self.set_held_bytes(0);
    }
}

impl<'a> JobPace<'a> {
    /// Creates the pacing for a registered job, or for one task of it.
    pub fn new(core: &'a EngineCore, running: &'a JobRegistration<'a>) -> JobPace<'a> {
        JobPace { core, running, held_bytes: AtomicU64::new(0) }
    }
    fn check_cancelled(&self) -> Result<()> {
        if self.core.closing.load(SeqCst) {
            return Err(Error::new(
                ErrorKind::Closed,
                "the database is closing; the job was cancelled",
            ));
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
    /// Updates the job's progress and memory use. Returns the bytes to charge to the rate limiter.
    fn report_progress(&self, progress: RewriteProgress) -> (RateLimitClass, u64) {
        let job = &self.running.job;
        let entries = job.entries_done.fetch_add(progress.entries, Relaxed) + progress.entries;
        if job.kind == JobKind::Flush {
            self.core
                .flush_progress
                .store(entries.saturating_mul(1000) / job.input_entries.max(1), Relaxed);
        }
        job.bytes_written.fetch_add(progress.written_bytes, Relaxed);
        self.set_held_bytes(progress.memory_bytes);
        match job.kind {
            JobKind::Flush => (RateLimitClass::Flush, progress.written_bytes),
            JobKind::Compaction => {
                (RateLimitClass::Compaction, progress.read_bytes + progress.written_bytes)
            }
        }
    }
}

impl RewritePacer for JobPace<'_> {
    fn throttle(&self, progress: RewriteProgress) -> Result<()> {
        let (class, bytes) = self.report_progress(progress);
        self.check_cancelled()?;
        wait_for_rate(self.core, class, bytes, &|| self.check_cancelled())
    }
    fn record_final(&self, progress: RewriteProgress) {
        let (class, bytes) = self.report_progress(progress);
        let _owed = self.core.rate_limiter.charge(
            Micros(self.core.env.clock.monotonic_us()),
            Bytes(bytes),
            class,
        );
    }
}

/// Charges `bytes` to the background rate limiter and waits until they are paid for, or until
/// `check` fails.
pub fn wait_for_rate(
    core: &EngineCore,
    class: RateLimitClass,
    bytes: u64,
    check: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let clock = &core.env.clock;
    let now = clock.monotonic_us();
    let debt = core.rate_limiter.charge(Micros(now), Bytes(bytes), class);
    if debt.wait_us == 0 {
        return Ok(());
    }
    let until = now.saturating_add(debt.wait_us);
    loop {
        let signal_generation = core.signal.generation();
        let now = clock.monotonic_us();
        // A changed rate cancels debts incurred at the old rate.
        if now >= until || core.rate_limiter.generation() != debt.generation {
            return Ok(());
        }
        check()?;
        core.signal.wait_timeout_us(signal_generation, (until - now).min(CANCEL_CHECK_US));
    }
}
