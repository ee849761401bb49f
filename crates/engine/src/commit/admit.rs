//! The only place where a writer waits for background work.

use crate::control::Kind;
use crate::core::Core;
use crate::events::{self, Event};
use crate::pressure::{CHUNK_BYTES, Pressure, Reason};
use perigee_base::{ErrorKind, Result};
use std::sync::atomic::Ordering::Relaxed;

/// A delayed writer looks this often whether the load is gone.
const SLICE_US: u64 = 20_000;
/// A stopped writer looks again at least this often.
const STOP_US: u64 = 50_000;

/// Jobs that failed for want of space need not wait out their back-off: somebody wants to write.
fn try_again(core: &Core) {
    core.retries.fetch_add(1, Relaxed);
    core.signal.ring();
}

/// Refuses a write that is not only deletes while the disk is all but full.
///
/// # Errors
/// `NoSpace`: nothing was written.
pub fn space(core: &Core, bytes: usize) -> Result<()> {
    let admitted = core.space.admit(&*core.dir, core.env.clock.monotonic_us(), bytes as u64);
    admitted.inspect_err(|_| try_again(core))
}

/// Sleeps so long, or until nobody has to wait any more; returns how long it was.
fn delay(core: &Core, us: u64) -> u64 {
    let mut slept = 0;
    while slept < us
        && (slept == 0 || core.pressure() != Pressure::None && core.health.check_writable().is_ok())
    {
        let slice = SLICE_US.min(us - slept);
        core.env.clock.sleep_us(slice);
        slept += slice;
    }
    slept
}

/// Delays or stops the writer of a batch of `bytes`, as the pressure demands.
///
/// # Errors
/// The failure of the background work, if that is why the writer would have to wait.
pub fn wait(core: &Core, bytes: usize) -> Result<()> {
    // Nearly always: nothing but a few loads.
    if core.pressure() == Pressure::None {
        return core.health.check_writable();
    }
    let mut stopped_since = None;
    let mut _span = None;
    loop {
        let seen = core.signal.now();
        match core.pressure() {
            Pressure::None => break,
            Pressure::Delay(us_per_chunk, reason) => {
                let now = core.env.clock.monotonic_us();
                let us = delay(core, core.intake.take(now, bytes as u64, CHUNK_BYTES, us_per_chunk));
                if us > 0 {
                    core.counters.delay_us.add(us);
                    core.stalls.delayed(reason.name(), us);
                }
                break;
            }
            Pressure::Stop(reason) => {
                core.health.check_writable()?;
                if let Some(cause) = core.health.background() {
                    if cause.kind() == ErrorKind::NoSpace {
                        try_again(core);
                    }
                    let kind =
                        if cause.kind() == ErrorKind::NoSpace { ErrorKind::NoSpace } else { ErrorKind::Busy };
                    return Err(
                        cause.wrap(kind, &format!("writes wait for background work ({})", reason.name()))
                    );
                }
                // A writer that waited for work that is held back might wait for itself.
                let wanted = match reason {
                    Reason::SealedMemtables | Reason::Memory => Kind::Flush,
                    Reason::Level0Runs | Reason::Space => Kind::Compaction,
                };
                if let Err(held) = core.control.check(wanted) {
                    // Who has cancelled compactions wants no waiting for them: level 0 grows.
                    if wanted == Kind::Compaction && core.control.holds() == (0, true) {
                        break;
                    }
                    return Err(held.wrap(ErrorKind::Busy, &format!("writes wait ({})", reason.name())));
                }
                _span.get_or_insert_with(|| events::span("stall", reason.name()));
                stopped_since.get_or_insert_with(|| (core.env.clock.monotonic_us(), reason.name()));
                core.signal.wait_us(seen, STOP_US);
            }
        }
    }
    if let Some((since, reason)) = stopped_since {
        let us = core.env.clock.monotonic_us().saturating_sub(since);
        core.counters.stop_us.add(us);
        core.stalls.stopped(reason, us);
        core.tell(&Event::Stalled { reason, us });
    }
    core.health.check_writable()
}
