//! The commit pipeline: admit, group, log, apply, publish. One file per stage.
//!
//! Writers that need a sync go through the commit queue (`group`). The others enter the commit
//! section directly and, under contention, back off (`contention_backoff`).
//!
//! Writers without a sync may bypass the queue because the queue does not define the commit order.
//! A leader, whether for one batch or for a group, holds `wal.appender` from the first sequence
//! number it takes until the visible sequence number has passed its last one. So sequence numbers,
//! log records, memtable entries and the visible sequence number all grow in the same order. A
//! group that is being synced excludes every other writer, so nothing behind an unsynced `Full`
//! commit becomes visible before it. The queue only decides which writers share a sync.

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

/// Writers of larger batches block on the lock right away: they hold it longer than a wake-up
/// costs.
const SMALL_BATCH_BYTES: usize = 8 << 10;

/// Entry points of the commit section.
#[derive(Debug)]
pub struct CommitPipeline {
    /// Writers that need a sync.
    queue: CommitQueue,
    /// Writers that do not.
    backoff: ContentionBackoff,
}

impl CommitPipeline {
    /// Creates a pipeline without waiting writers.
    pub fn new() -> CommitPipeline {
        CommitPipeline { queue: CommitQueue::new(), backoff: ContentionBackoff::new() }
    }
}

/// Makes everything up to `seq` visible and queues the hook calls. Called in the commit section.
pub fn publish_up_to(core: &EngineCore, seq: SeqNo, hooks: apply::PendingHooks) {
    apply::publish_group(core, seq, hooks);
}

/// Commits a batch and runs pending commit hooks. Returns the sequence number of its last
/// operation.
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

/// Commits a batch if `conditions` hold when it enters the commit section. Returns the sequence
/// number of its last operation, or the visible sequence number if the batch is empty. The caller
/// runs the pending commit hooks once it holds no locks.
///
/// # Errors
/// `Conflict` if a condition does not hold.
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
    let mut request = CommitRequest::from_batch(core, batch, durability)?;
    admit::throttle_write(core, request.log_bytes())?;
    if let Some(mut conditions) = conditions {
        conditions.check_before_section(core, &request)?;
        request.conditions = Some(conditions);
    }
    let outcome = match durability {
        DurabilityLevel::Full => writers.queue.submit(&*core.env.clock, request, |group| {
            commit_group(core, &mut core.wal.appender(), group)
        }),
        _ => commit_without_queue(core, &writers.backoff, request),
    };
    let last = outcome?;
    core.counters.commits.add(1);
    core.counters.operations.add(operations);
    core.counters.user_bytes_written.add(user_bytes);
    Ok(last)
}

/// Commits one batch without the queue: without a sync, there is nothing to share with other
/// writers.
fn commit_without_queue(
    core: &EngineCore,
    backoff: &ContentionBackoff,
    mut request: CommitRequest,
) -> Result<SeqNo> {
    let wait = || core.wal.appender();
    let small = request.log_bytes() <= SMALL_BATCH_BYTES;
    let mut appender = if small {
        backoff.enter(&*core.env.clock, || core.wal.try_appender(), wait)
    } else {
        wait()
    };
    commit_group(core, &mut appender, std::slice::from_mut(&mut request))?;
    drop(appender);
    request.into_result()
}

/// Runs the stages of the commit section for a group, on the leader's thread.
fn commit_group(
    core: &EngineCore,
    appender: &mut Appender,
    group: &mut [CommitRequest],
) -> Result<()> {
    // Dropped before the commit lock is released: no writer enters between a panic and the
    // poisoning.
    let _poison_on_panic = PoisonOnPanic(core);
    core.health.check_writable()?;
    group.iter_mut().for_each(|request| request.reject_unwritable(core));
    request::reject_conflicts(core, group);
    rotate::seal_full_memtables(core, appender, group)?;
    let first = log::append_group(core, appender, group)?;
    let hooks = apply::apply_group(core, group, first)?;
    apply::publish_group(core, appender.next_lsn.prev(), hooks);
    Ok(())
}

/// Poisons the database if a leader panics between log and publish: that leaves operations that
/// have sequence numbers but are not applied, and nothing may be written behind them.
struct PoisonOnPanic<'a>(&'a EngineCore);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if perigee_env::spawn::panicking() {
            self.0.health.poison(&Error::internal("the leader of a commit group panicked"));
        }
    }
}
