//! Pacing of a running job: reports its progress and memory use, enforces the rate limit and
//! cancels the job on request. Called by rewrites after every quantum, with no lock held but
//! `compaction_lock`.

use crate::resources::Resources;
use crate::resources::job_control::{JobKind, JobRegistration};
use crate::resources::rate_limiter::RateLimitClass;
use perigee_base::{Error, ErrorKind, Result};
use perigee_tree::rewrite::{RewritePacer, RewriteProgress};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Changes of a job's memory use are reported at a granularity of 2^16 bytes (64 KiB).
const REPORT_SHIFT: u32 = 16;

/// The pacing of one job, or of one task of it.
#[derive(Debug)]
pub struct JobPace<'a> {
    resources: &'a Resources,
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
    pub fn new(resources: &'a Resources, running: &'a JobRegistration<'a>) -> JobPace<'a> {
        JobPace { resources, running, held_bytes: AtomicU64::new(0) }
    }
    fn check_cancelled(&self) -> Result<()> {
        if self.resources.runtime.is_closing() {
            return Err(Error::new(
                ErrorKind::Closed,
                "the database is closing; the job was cancelled",
            ));
        }
        match self.running.job.kind {
            JobKind::Flush => Ok(()),
            JobKind::Compaction => self.resources.job_control().check_cancelled(),
        }
    }
}

impl JobPace<'_> {
    fn set_held_bytes(&self, bytes: u64) {
        let before = self.held_bytes.swap(bytes, Relaxed);
        if bytes >= before {
            self.running.job.output_memory_bytes.fetch_add(bytes - before, Relaxed);
        } else {
            let held = self.running.job.output_memory_bytes.fetch_sub(before - bytes, Relaxed);
            check_slow!(
                held >= before - bytes || perigee_env::panicking(),
                "the memory of a job includes that of its tasks",
                held,
                before,
                bytes
            );
        }
        if before >> REPORT_SHIFT != bytes >> REPORT_SHIFT {
            self.resources.update_job_memory();
        }
    }
    /// Updates the job's progress and memory use. Returns the bytes to charge to the rate limiter.
    fn report_progress(&self, progress: RewriteProgress) -> (RateLimitClass, u64) {
        let job = &self.running.job;
        let entries = job.entries_done.fetch_add(progress.entries, Relaxed) + progress.entries;
        if job.kind == JobKind::Flush {
            self.resources
                .set_flush_progress(entries.saturating_mul(1000) / job.input_entries.max(1));
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
        self.resources.wait_for_rate(class, bytes, &|| self.check_cancelled())
    }
    fn record_final(&self, progress: RewriteProgress) {
        let (class, bytes) = self.report_progress(progress);
        let _owed = self.resources.charge_rate(class, bytes);
    }
}
