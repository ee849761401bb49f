//! The background threads. Each looks for a job, runs it and starts over; without a job it waits
//! for the signal.

use super::{compact, due_compactions, flush, scrub, watermark};
use crate::commit::segment;
use crate::core::EngineCore;
use crate::events::EngineEvent;
use crate::health::BackgroundTask;
use crate::signal::SignalGeneration;
use perigee_base::{Error, ErrorKind, Result};
use perigee_env::spawn::Join;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

const BACK_OFF_US_MIN: u64 = 50_000;
const BACK_OFF_US_MAX: u64 = 5_000_000;

/// Interval at which the clock is rechecked while expiring entries exist: it may have been set.
const EXPIRY_RECHECK_US: u64 = 600_000_000;

/// Looks for one job and runs it; returns false if there was none.
type JobFn = fn(&Arc<EngineCore>) -> Result<bool>;

/// The running background threads.
pub struct Workers(Vec<Box<dyn Join>>);

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workers({})", self.0.len())
    }
}

/// Starts the background threads.
pub fn start_workers(core: &Arc<EngineCore>) -> Result<Workers> {
    let mut jobs: Vec<(&'static str, JobFn, BackgroundTask)> = vec![
        ("perigee-flush", flush::flush_oldest, BackgroundTask::Flush),
        ("perigee-compact", compact::compact_most_urgent, BackgroundTask::Compact),
        ("perigee-sync", sync_if_due, BackgroundTask::Sync),
    ];
    if core.settings.scrub_interval_us > 0 {
        jobs.push(("perigee-scrub", scrub::scrub_next_file, BackgroundTask::Scrub));
    }
    let work = |(name, job, slot): (&'static str, JobFn, BackgroundTask)| {
        let core_ref = Arc::clone(core);
        (name, Box::new(move || run_worker(&core_ref, job, slot)) as Box<dyn FnOnce() + Send>)
    };
    let mut threads: Vec<_> = jobs.into_iter().map(work).collect();
    if core.listener_queue.has_listener() {
        let core_ref = Arc::clone(core);
        threads.push(("perigee-listen", Box::new(move || deliver_log_lines(&core_ref))));
    }
    let mut workers = Workers(Vec::new());
    for (name, body) in threads {
        match core.env.spawn.spawn(name, body) {
            Ok(thread) => workers.0.push(thread),
            Err(e) => {
                core.closing.store(true, SeqCst);
                core.signal.notify();
                workers.join();
                return Err(e);
            }
        }
    }
    Ok(workers)
}

impl Workers {
    /// Waits for the threads to end; `closing` must be set.
    pub fn join(self) {
        for thread in self.0 {
            // A panic was caught and has poisoned the database.
            let _ = thread.join();
        }
    }
}

/// Delivers log lines to the log listener. Runs on a thread of its own, because the listener may
/// call functions that wait for the other threads.
fn deliver_log_lines(core: &EngineCore) {
    loop {
        let generation = core.signal.generation();
        core.listener_queue.deliver();
        if core.closing.load(SeqCst) {
            return;
        }
        core.signal.wait(generation);
    }
}

fn run_worker(core: &Arc<EngineCore>, job: JobFn, slot: BackgroundTask) {
    let mut back_off = BACK_OFF_US_MIN;
    loop {
        // The generation is read before the state that a notification announces, including
        // `closing`, so no change is missed.
        let generation = core.signal.generation();
        if core.closing.load(SeqCst) {
            return;
        }
        match catch_unwind(AssertUnwindSafe(|| job(core))) {
            Ok(Ok(done)) => {
                back_off = BACK_OFF_US_MIN;
                if done {
                    core.release_job_memory();
                }
                if done && slot == BackgroundTask::Flush {
                    core.maintain_ballast();
                }
                core.health.set_background_error(
                    slot,
                    if done {
                        core.obsolete_files.delete_unreferenced(&core.table_cache).err()
                    } else {
                        None
                    },
                );
                if done { core.signal.notify() } else { wait_for_work(core, slot, generation) }
            }
            Ok(Err(e)) => {
                if e.kind() != ErrorKind::Closed {
                    core.report_event(&EngineEvent::Failed { what: slot.name(), error: &e });
                    core.health.set_background_error(slot, Some(e));
                    core.signal.notify();
                }
                if core.health.poisoned().is_some() {
                    return;
                }
                sleep_backoff(core, back_off);
                back_off = (back_off * 2).min(BACK_OFF_US_MAX);
            }
            Err(panic) => {
                let e = Error::internal(format!(
                    "a background thread panicked: {}",
                    panic_message(&*panic)
                ));
                core.report_event(&EngineEvent::Failed { what: slot.name(), error: &e });
                core.health.poison(&e);
                core.signal.notify();
                return;
            }
        }
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Sleeps for `us` microseconds, despite notifications. Ends early if the database is closing, or,
/// after the minimum back-off, if a writer was refused for lack of space.
fn sleep_backoff(core: &EngineCore, us: u64) {
    let start = core.env.clock.monotonic_us();
    let (until, retries) = (start.saturating_add(us), core.no_space_refusals.load(SeqCst));
    loop {
        let generation = core.signal.generation();
        let now = core.env.clock.monotonic_us();
        let retry_requested = core.no_space_refusals.load(SeqCst) != retries;
        if core.closing.load(SeqCst)
            || now >= until
            || (retry_requested && now >= start + BACK_OFF_US_MIN)
        {
            return;
        }
        let rest = if retry_requested { start + BACK_OFF_US_MIN } else { until };
        core.signal.wait_timeout_us(generation, rest - now);
    }
}

/// Waits for a notification; the sync thread also for the next sync or watermark, the compaction
/// thread also for the next expiry.
fn wait_for_work(core: &EngineCore, slot: BackgroundTask, generation: SignalGeneration) {
    if slot == BackgroundTask::Compact
        && let Some(us) = due_compactions::next_expiry_us(core)
    {
        core.signal.wait_timeout_us(generation, us.min(EXPIRY_RECHECK_US));
        return;
    }
    match core.sync_due_us.load(SeqCst).min(core.watermark_timer.due_us()) {
        due if slot == BackgroundTask::Sync && due != u64::MAX => {
            core.signal.wait_timeout_us(
                generation,
                due.saturating_sub(core.env.clock.monotonic_us()).max(1),
            );
        }
        _ => core.signal.wait(generation),
    }
}

/// Syncs the log if that is due. This thread has the least to do, so it also creates spare log
/// segments and returns freed memory to the system.
fn sync_if_due(core: &Arc<EngineCore>) -> Result<bool> {
    core.release_freed_memory();
    let due = core.sync_due_us.load(SeqCst);
    if due != u64::MAX && core.env.clock.monotonic_us() >= due {
        core.sync_due_us.store(u64::MAX, SeqCst);
        core.sync_log()?;
    }
    watermark::write_watermark_if_due(core)?;
    segment::make_spare_segment(core)?;
    Ok(false)
}
