//! Throttles writers: the only module in which a writer waits for background work.

use crate::limits::{DELAY_CHUNK_BYTES, DELAY_SLICE_US, STALL_RECHECK_US};
use crate::resources::Resources;
use crate::resources::job_control::JobKind;
use crate::resources::write_pressure::{StallReason, WritePressure};
use crate::resources::write_throttle::ChunkDelay;
use crate::runtime::events::{self, EngineEvent};
use perigee_base::{Bytes, ErrorKind, Micros, Result};
use std::sync::atomic::Ordering::Relaxed;

impl Resources {
    /// Lets jobs that failed for lack of space retry at once, without their back-off: a writer needs
    /// the space.
    fn retry_failed_jobs(&self) {
        self.no_space_refusals.fetch_add(1, Relaxed);
        self.runtime.signal.notify();
    }

    /// Rejects a write while the disk is nearly full. Callers skip the check for batches that only
    /// delete.
    ///
    /// # Errors
    /// `NoSpace`: nothing was written.
    pub fn check_free_space(&self, bytes: usize) -> Result<()> {
        self.check_free_space_for_load(bytes as u64).inspect_err(|_| self.retry_failed_jobs())
    }
    /// Fails before a load would use the reserved disk space, which is for deletes and compactions.
    pub fn check_free_space_for_load(&self, bytes: u64) -> Result<()> {
        let now = Micros(self.runtime.env.clock.monotonic_us());
        self.disk_space.admit(&*self.runtime.dir, now, Bytes(bytes))
    }

    /// Sleeps for `us` microseconds, or until the write pressure ends; returns the time slept.
    fn sleep_while_throttled(&self, us: u64) -> u64 {
        let mut slept = 0;
        while slept < us
            && (slept == 0
                || self.write_pressure() != WritePressure::None
                    && self.runtime.health.check_writable().is_ok())
        {
            let slice = DELAY_SLICE_US.min(us - slept);
            self.runtime.env.clock.sleep_us(slice);
            slept += slice;
        }
        slept
    }

    /// Delays or stops the writer of a batch of `bytes`, as the write pressure requires.
    ///
    /// # Errors
    /// The failure of the background work that the writer would have to wait for.
    pub fn throttle_write(&self, bytes: usize) -> Result<()> {
        // The common case: only a few atomic loads.
        if self.write_pressure() == WritePressure::None {
            return self.runtime.health.check_writable();
        }
        let mut stopped_since = None;
        let mut _span = None;
        loop {
            let generation = self.runtime.signal.generation();
            match self.write_pressure() {
                WritePressure::None => break,
                WritePressure::Delay(us_per_chunk, reason) => {
                    let now = Micros(self.runtime.env.clock.monotonic_us());
                    let per_chunk =
                        ChunkDelay { chunk: Bytes(DELAY_CHUNK_BYTES), delay: Micros(us_per_chunk) };
                    let wait = self.write_throttle.charge(now, Bytes(bytes as u64), per_chunk);
                    let us = self.sleep_while_throttled(wait.0);
                    if us > 0 {
                        self.runtime.counters.delay_us.add(us);
                        self.write_stalls.record_delay(reason.name(), us);
                    }
                    break;
                }
                WritePressure::Stop(reason) => {
                    self.runtime.health.check_writable()?;
                    if let Some(cause) = self.runtime.health.background_error() {
                        if cause.kind() == ErrorKind::NoSpace {
                            self.retry_failed_jobs();
                        }
                        let kind = if cause.kind() == ErrorKind::NoSpace {
                            ErrorKind::NoSpace
                        } else {
                            ErrorKind::Busy
                        };
                        return Err(cause.wrap(
                            kind,
                            &format!(
                                "writes are stopped ({}) until background work succeeds again",
                                reason.name()
                            ),
                        ));
                    }
                    // Paused work might be resumed only by this thread: waiting for it could deadlock.
                    let job = match reason {
                        StallReason::ImmutableMemtables | StallReason::Memory => JobKind::Flush,
                        StallReason::Level0Runs | StallReason::Space => JobKind::Compaction,
                    };
                    if let Err(paused) = self.job_control().check_allowed(job) {
                        // A caller that cancelled compactions accepts that level 0 grows; writes do not
                        // wait for them.
                        if job == JobKind::Compaction
                            && self.job_control().pause_state() == (0, true)
                        {
                            break;
                        }
                        return Err(paused.wrap(
                            ErrorKind::Busy,
                            &format!(
                                "writes are stopped ({}) while background work is paused",
                                reason.name()
                            ),
                        ));
                    }
                    _span.get_or_insert_with(|| events::enter_span("stall", reason.name()));
                    stopped_since.get_or_insert_with(|| {
                        (self.runtime.env.clock.monotonic_us(), reason.name())
                    });
                    self.runtime.signal.wait_timeout_us(generation, STALL_RECHECK_US);
                }
            }
        }
        if let Some((since, reason)) = stopped_since {
            let us = self.runtime.env.clock.monotonic_us().saturating_sub(since);
            self.runtime.counters.stop_us.add(us);
            self.write_stalls.record_stop(reason, us);
            self.runtime.report_event(&EngineEvent::Stalled { reason, us });
        }
        self.runtime.health.check_writable()
    }
}
