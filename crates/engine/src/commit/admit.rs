//! Throttles writers: the only module in which a writer waits for background work.

use crate::core::EngineCore;
use crate::events::{self, EngineEvent};
use crate::job_control::JobKind;
use crate::write_pressure::{DELAY_CHUNK_BYTES, StallReason, WritePressure};
use crate::write_throttle::ChunkDelay;
use perigee_base::{Bytes, ErrorKind, Micros, Result};
use std::sync::atomic::Ordering::Relaxed;

/// A delayed writer checks at this interval whether the write pressure has ended.
const DELAY_SLICE_US: u64 = 20_000;
/// A stopped writer rechecks at least this often.
const STALL_RECHECK_US: u64 = 50_000;

/// Lets jobs that failed for lack of space retry at once, without their back-off: a writer needs
/// the space.
fn retry_failed_jobs(core: &EngineCore) {
    core.no_space_refusals.fetch_add(1, Relaxed);
    core.signal.notify();
}

/// Rejects a write while the disk is nearly full. Callers skip the check for batches that only
/// delete.
///
/// # Errors
/// `NoSpace`: nothing was written.
pub fn check_free_space(core: &EngineCore, bytes: usize) -> Result<()> {
    let now = Micros(core.env.clock.monotonic_us());
    let admitted = core.disk_space.admit(&*core.dir, now, Bytes(bytes as u64));
    admitted.inspect_err(|_| retry_failed_jobs(core))
}

/// Sleeps for `us` microseconds, or until the write pressure ends; returns the time slept.
fn sleep_while_throttled(core: &EngineCore, us: u64) -> u64 {
    let mut slept = 0;
    while slept < us
        && (slept == 0
            || core.write_pressure() != WritePressure::None && core.health.check_writable().is_ok())
    {
        let slice = DELAY_SLICE_US.min(us - slept);
        core.env.clock.sleep_us(slice);
        slept += slice;
    }
    slept
}

/// Delays or stops the writer of a batch of `bytes`, as the write pressure requires.
///
/// # Errors
/// The failure of the background work that the writer would have to wait for.
pub fn throttle_write(core: &EngineCore, bytes: usize) -> Result<()> {
    // The common case: only a few atomic loads.
    if core.write_pressure() == WritePressure::None {
        return core.health.check_writable();
    }
    let mut stopped_since = None;
    let mut _span = None;
    loop {
        let generation = core.signal.generation();
        match core.write_pressure() {
            WritePressure::None => break,
            WritePressure::Delay(us_per_chunk, reason) => {
                let now = Micros(core.env.clock.monotonic_us());
                let per_chunk =
                    ChunkDelay { chunk: Bytes(DELAY_CHUNK_BYTES), delay: Micros(us_per_chunk) };
                let wait = core.write_throttle.charge(now, Bytes(bytes as u64), per_chunk);
                let us = sleep_while_throttled(core, wait.0);
                if us > 0 {
                    core.counters.delay_us.add(us);
                    core.write_stalls.record_delay(reason.name(), us);
                }
                break;
            }
            WritePressure::Stop(reason) => {
                core.health.check_writable()?;
                if let Some(cause) = core.health.background_error() {
                    if cause.kind() == ErrorKind::NoSpace {
                        retry_failed_jobs(core);
                    }
                    let kind = if cause.kind() == ErrorKind::NoSpace {
                        ErrorKind::NoSpace
                    } else {
                        ErrorKind::Busy
                    };
                    return Err(cause.wrap(
                        kind,
                        &format!(
                            "writes are stopped and background work fails ({})",
                            reason.name()
                        ),
                    ));
                }
                // Paused work might be resumed only by this thread: waiting for it could deadlock.
                let job = match reason {
                    StallReason::ImmutableMemtables | StallReason::Memory => JobKind::Flush,
                    StallReason::Level0Runs | StallReason::Space => JobKind::Compaction,
                };
                if let Err(paused) = core.job_control.check_allowed(job) {
                    // A caller that cancelled compactions accepts that level 0 grows; writes do not
                    // wait for them.
                    if job == JobKind::Compaction && core.job_control.pause_state() == (0, true) {
                        break;
                    }
                    return Err(paused.wrap(
                        ErrorKind::Busy,
                        &format!(
                            "writes are stopped and background work is paused ({})",
                            reason.name()
                        ),
                    ));
                }
                _span.get_or_insert_with(|| events::enter_span("stall", reason.name()));
                stopped_since.get_or_insert_with(|| (core.env.clock.monotonic_us(), reason.name()));
                core.signal.wait_timeout_us(generation, STALL_RECHECK_US);
            }
        }
    }
    if let Some((since, reason)) = stopped_since {
        let us = core.env.clock.monotonic_us().saturating_sub(since);
        core.counters.stop_us.add(us);
        core.write_stalls.record_stop(reason, us);
        core.report_event(&EngineEvent::Stalled { reason, us });
    }
    core.health.check_writable()
}
