//! The background threads. Each looks for a job, runs it and starts over; without a job it waits
//! for the signal.

use super::{compact, due_compactions, flush, scrub};
use crate::limits::{EXPIRY_RECHECK_US, JOB_BACKOFF_US_MAX, JOB_BACKOFF_US_MIN};
use crate::log::Log;
use crate::log::commit::segment;
use crate::maintenance::Maintenance;
use crate::resources::Resources;
use crate::runtime::Runtime;
use crate::runtime::events::EngineEvent;
use crate::runtime::health::BackgroundTask;
use crate::runtime::signal::SignalGeneration;
use perigee_base::{Error, ErrorKind, Result};
use perigee_env::Join;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Looks for one job and runs it; returns false if there was none.
type JobFn = fn(&Maintenance) -> Result<bool>;

/// The running background threads.
pub struct Workers(Vec<Box<dyn Join>>);

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workers({})", self.0.len())
    }
}

/// Starts the background threads.
pub fn start_workers(maintenance: &Arc<Maintenance>) -> Result<Workers> {
    let runtime = &maintenance.runtime;
    let mut jobs: Vec<(&'static str, JobFn, BackgroundTask)> = vec![
        ("perigee-flush", flush::flush_oldest, BackgroundTask::Flush),
        ("perigee-compact", compact::compact_most_urgent, BackgroundTask::Compact),
        ("perigee-sync", |maintenance| sync_if_due(&maintenance.log), BackgroundTask::Sync),
    ];
    if !runtime.settings.scrub_interval.is_zero() {
        jobs.push(("perigee-scrub", scrub::scrub_next_file, BackgroundTask::Scrub));
    }
    let work = |(name, job, slot): (&'static str, JobFn, BackgroundTask)| {
        let maintenance = Arc::clone(maintenance);
        (name, Box::new(move || run_worker(&maintenance, job, slot)) as Box<dyn FnOnce() + Send>)
    };
    let mut threads: Vec<_> = jobs.into_iter().map(work).collect();
    if runtime.listener_queue().has_listener() {
        let runtime = Arc::clone(runtime);
        threads.push(("perigee-listen", Box::new(move || deliver_log_lines(&runtime))));
    }
    let mut workers = Workers(Vec::new());
    for (name, body) in threads {
        match runtime.env.spawn.spawn(name, body) {
            Ok(thread) => workers.0.push(thread),
            Err(e) => {
                runtime.begin_closing();
                runtime.signal.notify();
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
fn deliver_log_lines(runtime: &Runtime) {
    loop {
        let generation = runtime.signal.generation();
        runtime.listener_queue().deliver();
        if runtime.is_closing() {
            return;
        }
        runtime.signal.wait(generation);
    }
}

fn run_worker(maintenance: &Maintenance, job: JobFn, slot: BackgroundTask) {
    let Maintenance { runtime, resources, catalog, .. } = maintenance;
    let mut back_off = JOB_BACKOFF_US_MIN;
    loop {
        // The generation is read before the state that a notification announces, including
        // `closing`, so no change is missed.
        let generation = runtime.signal.generation();
        if runtime.is_closing() {
            return;
        }
        match catch_unwind(AssertUnwindSafe(|| job(maintenance))) {
            Ok(Ok(done)) => {
                back_off = JOB_BACKOFF_US_MIN;
                if done {
                    catalog.release_job_memory();
                }
                if done && slot == BackgroundTask::Flush {
                    resources.maintain_ballast(|| catalog.table_bytes());
                }
                runtime.health.set_background_error(
                    slot,
                    if done { catalog.delete_unreferenced().err() } else { None },
                );
                if done {
                    runtime.signal.notify()
                } else {
                    wait_for_work(&maintenance.log, slot, generation)
                }
            }
            Ok(Err(e)) => {
                if e.kind() != ErrorKind::Closed {
                    runtime.report_event(&EngineEvent::Failed { what: slot.name(), error: &e });
                    runtime.health.set_background_error(slot, Some(e));
                    runtime.signal.notify();
                }
                if runtime.health.poisoned().is_some() {
                    return;
                }
                sleep_backoff(resources, back_off);
                back_off = (back_off * 2).min(JOB_BACKOFF_US_MAX);
            }
            Err(panic) => {
                let e = Error::internal(format!(
                    "a background thread panicked: {}",
                    panic_message(&*panic)
                ));
                runtime.report_event(&EngineEvent::Failed { what: slot.name(), error: &e });
                runtime.health.poison(&e);
                runtime.signal.notify();
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
fn sleep_backoff(resources: &Resources, us: u64) {
    let start = resources.runtime.env.clock.monotonic_us();
    let (until, retries) = (start.saturating_add(us), resources.no_space_refusals());
    loop {
        let generation = resources.runtime.signal.generation();
        let now = resources.runtime.env.clock.monotonic_us();
        let retry_requested = resources.no_space_refusals() != retries;
        if resources.runtime.is_closing()
            || now >= until
            || (retry_requested && now >= start + JOB_BACKOFF_US_MIN)
        {
            return;
        }
        let rest = if retry_requested { start + JOB_BACKOFF_US_MIN } else { until };
        resources.runtime.signal.wait_timeout_us(generation, rest - now);
    }
}

/// Waits for a notification; the sync thread also waits for the next sync, and the compaction
/// thread for the next expiry.
fn wait_for_work(log: &Log, slot: BackgroundTask, generation: SignalGeneration) {
    if slot == BackgroundTask::Compact
        && let Some(us) = due_compactions::next_expiry_us(&log.catalog)
    {
        log.runtime.signal.wait_timeout_us(generation, us.min(EXPIRY_RECHECK_US));
        return;
    }
    match log.next_due_us() {
        due if slot == BackgroundTask::Sync && due != u64::MAX => {
            log.runtime.signal.wait_timeout_us(
                generation,
                due.saturating_sub(log.runtime.env.clock.monotonic_us()).max(1),
            );
        }
        _ => log.runtime.signal.wait(generation),
    }
}

/// Syncs the log if that is due. This thread has the least to do, so it also creates spare log
/// segments, sorts memtables and returns freed memory to the system.
fn sync_if_due(log: &Log) -> Result<bool> {
    log.resources.release_freed_memory();
    log.run_due_syncs()?;
    segment::make_spare_segment(log)?;
    log.catalog.unsorted_memtables().sort_all();
    Ok(false)
}
