//! The threads. Each looks for work, does one job, looks again; with nothing to do it waits for the bell.

use super::{compact, due, flush, scrub, watermark};
use crate::commit::segment;
use crate::core::Core;
use crate::events::Event;
use crate::health::Slot;
use perigee_base::{Error, ErrorKind, Result};
use perigee_env::spawn::Join;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

const BACK_OFF_US_MIN: u64 = 50_000;
const BACK_OFF_US_MAX: u64 = 5_000_000;

/// The clock is looked at this often while somebody waits for entries to expire: it may have been set.
const EXPIRY_US_MAX: u64 = 600_000_000;

/// Looks for one job and does it; false if there was none.
type Job = fn(&Arc<Core>) -> Result<bool>;

/// Running threads.
pub struct Workers(Vec<Box<dyn Join>>);

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workers({})", self.0.len())
    }
}

/// Starts the threads.
pub fn start(core: &Arc<Core>) -> Result<Workers> {
    let mut jobs: Vec<(&'static str, Job, Slot)> = vec![
        ("perigee-flush", flush::one, Slot::Flush),
        ("perigee-compact", compact::one, Slot::Compact),
        ("perigee-sync", sync_when_due, Slot::Sync),
    ];
    if core.settings.scrub_interval_us > 0 {
        jobs.push(("perigee-scrub", scrub::one, Slot::Scrub));
    }
    let work = |(name, job, slot): (&'static str, Job, Slot)| {
        let mine = Arc::clone(core);
        (name, Box::new(move || work(&mine, job, slot)) as Box<dyn FnOnce() + Send>)
    };
    let mut threads: Vec<_> = jobs.into_iter().map(work).collect();
    if core.audience.is_there() {
        let mine = Arc::clone(core);
        threads.push(("perigee-listen", Box::new(move || listen(&mine))));
    }
    let mut workers = Workers(Vec::new());
    for (name, body) in threads {
        match core.env.spawn.spawn(name, body) {
            Ok(thread) => workers.0.push(thread),
            Err(e) => {
                core.closing.store(true, SeqCst);
                core.signal.ring();
                workers.join();
                return Err(e);
            }
        }
    }
    Ok(workers)
}

impl Workers {
    /// Waits for their end; `closing` is set already.
    pub fn join(self) {
        for thread in self.0 {
            // A panic was caught and has poisoned the database.
            let _ = thread.join();
        }
    }
}

/// Tells the log listener its lines, as they come, on a thread that does nothing else: what it calls may wait for the others.
fn listen(core: &Core) {
    loop {
        let seen = core.signal.now();
        core.audience.call();
        if core.closing.load(SeqCst) {
            return;
        }
        core.signal.wait(seen);
    }
}

fn work(core: &Arc<Core>, job: Job, slot: Slot) {
    let mut back_off = BACK_OFF_US_MIN;
    loop {
        // The bell is read before the state that it announces, `closing` included: no change is missed.
        let seen = core.signal.now();
        if core.closing.load(SeqCst) {
            return;
        }
        match catch_unwind(AssertUnwindSafe(|| job(core))) {
            Ok(Ok(done)) => {
                back_off = BACK_OFF_US_MIN;
                if done {
                    core.job_over();
                }
                if done && slot == Slot::Flush {
                    core.keep_ballast();
                }
                core.health
                    .set_background(slot, if done { core.retire.sweep(&core.shelf).err() } else { None });
                if done { core.signal.ring() } else { wait(core, slot, seen) }
            }
            Ok(Err(e)) => {
                if e.kind() != ErrorKind::Closed {
                    core.tell(&Event::Failed { what: slot.name(), error: &e });
                    core.health.set_background(slot, Some(e));
                    core.signal.ring();
                }
                if core.health.poisoned().is_some() {
                    return;
                }
                rest(core, back_off);
                back_off = (back_off * 2).min(BACK_OFF_US_MAX);
            }
            Err(panic) => {
                let e = Error::internal(format!("a background thread panicked: {}", message(&*panic)));
                core.tell(&Event::Failed { what: slot.name(), error: &e });
                core.health.poison(&e);
                core.signal.ring();
                return;
            }
        }
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Waits so long whatever rings, unless the database is closing, or somebody asks for another try (not at once, either).
fn rest(core: &Core, us: u64) {
    let start = core.env.clock.monotonic_us();
    let (until, retries) = (start.saturating_add(us), core.retries.load(SeqCst));
    loop {
        let seen = core.signal.now();
        let now = core.env.clock.monotonic_us();
        let asked = core.retries.load(SeqCst) != retries;
        if core.closing.load(SeqCst) || now >= until || (asked && now >= start + BACK_OFF_US_MIN) {
            return;
        }
        let rest = if asked { start + BACK_OFF_US_MIN } else { until };
        core.signal.wait_us(seen, rest - now);
    }
}

/// Until the bell rings, or, for the log syncer, until a sync or a watermark is due, and for compaction until entries expire.
fn wait(core: &Core, slot: Slot, seen: u64) {
    if slot == Slot::Compact
        && let Some(us) = due::next_expiry_us(core)
    {
        core.signal.wait_us(seen, us.min(EXPIRY_US_MAX));
        return;
    }
    match core.sync_due.load(SeqCst).min(core.watermark.due_us()) {
        due if slot == Slot::Sync && due != u64::MAX => {
            core.signal.wait_us(seen, due.saturating_sub(core.env.clock.monotonic_us()).max(1));
        }
        _ => core.signal.wait(seen),
    }
}

/// Also the thread that makes the next log segment, and looks whether freed memory goes back: the one that has least to do.
fn sync_when_due(core: &Arc<Core>) -> Result<bool> {
    core.give_back();
    let due = core.sync_due.load(SeqCst);
    if due != u64::MAX && core.env.clock.monotonic_us() >= due {
        core.sync_due.store(u64::MAX, SeqCst);
        core.sync_log()?;
    }
    watermark::write_when_due(core)?;
    segment::prepare(core)?;
    Ok(false)
}
