//! The write walk: admit, group, log, apply, publish. One screen names the stages; each is a file.
//!
//! Writers that want a sync queue for it (`group`). The others go straight to the commit section,
//! and where they meet there all the time, they take turns (`turns`).
//!
//! Why writers without a sync may pass by the queue: the order of commits is not the queue's.
//! Whoever leads, for itself or for a group, holds `wal.appender` from the first number it takes
//! until the watermark has passed the last one. So numbers, log records, memtable entries and the
//! watermark grow in the same order, whoever comes in between; a group that is being synced keeps
//! everybody else out, and nothing behind an unsynced `Full` commit is visible before it. The queue
//! only decides who shares a sync.

mod admit;
mod request;
mod group;
mod contention_backoff;
pub mod segment;
mod log;
mod apply;
pub mod rotate;
pub mod sequence;
mod two_phase;

use crate::core::EngineCore;
use crate::settings::DurabilityLevel;
use crate::txn::validate::CommitConditions;
use crate::wal::Appender;
use contention_backoff::ContentionBackoff;
use group::CommitQueue;
use perigee_base::{Error, Result, SeqNo};
use perigee_file::log::Batch;
use request::CommitRequest;
pub use request::TwoPhaseDecision;
pub use two_phase::{decide_txn, prepare_txn, relog_prepared, restore_prepared};

/// Writers of larger batches sleep for their turn: they are longer inside than waking them costs.
const SMALL_BATCH_BYTES: usize = 8 << 10;

/// Where writers meet.
#[derive(Debug)]
pub struct CommitPipeline {
    /// Those that want a sync.
    queue: CommitQueue,
    /// The others.
    backoff: ContentionBackoff,
}

impl CommitPipeline {
    /// Nobody there.
    pub fn new() -> CommitPipeline {
        CommitPipeline { queue: CommitQueue::new(), backoff: ContentionBackoff::new() }
    }
}

/// Makes everything up to `seq` visible, in the commit section, and lines up what hooks are told.
pub fn publish_up_to(core: &EngineCore, seq: SeqNo, told: apply::PendingHooks) {
    apply::publish_group(core, seq.0, told);
}

/// Commits a batch; the number of its last operation.
pub fn write_batch(
    core: &EngineCore,
    writers: &CommitPipeline,
    batch: Batch,
    durability: DurabilityLevel,
) -> Result<SeqNo> {
    let written = write_batch_if(core, writers, batch, durability, None);
    core.commit_hooks.run_pending();
    written
}

/// Commits a batch if conditions hold when its turn has come; an empty one has the number of the
/// present. The caller calls the hooks, when it holds nothing.
///
/// # Errors
/// `Conflict` if they do not.
pub fn write_batch_if(
    core: &EngineCore,
    writers: &CommitPipeline,
    batch: Batch,
    durability: DurabilityLevel,
    conditions: Option<Box<CommitConditions>>,
) -> Result<SeqNo> {
    if batch.count() == 0 {
        return core.health.check_open().map(|()| core.visible_seq());
    }
    core.health.check_writable()?;
    let (operations, user_bytes) = (u64::from(batch.count()), batch.user_bytes());
    let mut work = CommitRequest::from_batch(core, batch, durability)?;
    admit::throttle_write(core, work.log_bytes())?;
    if let Some(mut conditions) = conditions {
        conditions.check_before_section(core, &work)?;
        work.conditions = Some(conditions);
    }
    let outcome = match durability {
        DurabilityLevel::Full => writers.queue.submit(&*core.env.clock, work, |group| {
            commit_group(core, &mut core.wal.appender(), group)
        }),
        _ => commit_without_queue(core, &writers.backoff, work),
    };
    let last = outcome?;
    core.counters.commits.add(1);
    core.counters.operations.add(operations);
    core.counters.user_bytes_written.add(user_bytes);
    Ok(last)
}

/// A writer that waits for no sync has nothing to share: it goes through the commit section by
/// itself.
fn commit_without_queue(
    core: &EngineCore,
    turns: &ContentionBackoff,
    mut work: CommitRequest,
) -> Result<SeqNo> {
    let wait = || core.wal.appender();
    let small = work.log_bytes() <= SMALL_BATCH_BYTES;
    let mut appender = if small {
        turns.enter(&*core.env.clock, || core.wal.try_appender(), wait)
    } else {
        wait()
    };
    commit_group(core, &mut appender, std::slice::from_mut(&mut work))?;
    drop(appender);
    work.into_result()
}

/// What the leader does for its group, in the commit section.
fn commit_group(
    core: &EngineCore,
    appender: &mut Appender,
    group: &mut [CommitRequest],
) -> Result<()> {
    // Dropped before the lock: nobody gets in between a panic and the poison.
    let _poison_on_panic = PoisonOnPanic(core);
    core.health.check_writable()?;
    group.iter_mut().for_each(|work| work.reject_unwritable(core));
    request::reject_conflicts(core, group);
    rotate::seal_full_memtables(core, appender, group)?;
    let first = log::append_group(core, appender, group)?;
    let told = apply::apply_group(core, group, first)?;
    apply::publish_group(core, appender.next_lsn - 1, told);
    Ok(())
}

/// A leader that panics between log and publish leaves operations that are numbered but not
/// applied: nothing may be written behind them.
struct PoisonOnPanic<'a>(&'a EngineCore);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if perigee_env::spawn::panicking() {
            self.0.health.poison(&Error::internal("the thread that led a commit panicked"));
        }
    }
}
