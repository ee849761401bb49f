//! The commit pipeline: admit, group, log, apply, publish. One file per stage.
//!
//! Writers that need a sync go through the commit queue (`group`). The others enter the commit
//! section directly and, under contention, back off (`contention_backoff`).
//!
//! Writers without a sync may bypass the queue because the queue does not define the commit order.
//! A leader, whether for one batch or for a group, holds `wal.appender` from the first sequence
//! number it takes until the visible sequence number has passed its last one. So sequence numbers,
//! log records, memtable entries and the visible sequence number all grow in the same order. A
//! group that is being synced excludes every other writer, so nothing after an unsynced `Full`
//! commit becomes visible before it. The queue only decides which writers share a sync.

mod request;
mod group;
mod contention_backoff;
pub mod segment;
mod append;
mod apply;
pub mod rotate;
pub mod sequence;
mod two_phase;

use crate::limits::SMALL_BATCH_BYTES;
use crate::log::Log;
use crate::log::wal::Appender;
use crate::runtime::Runtime;
use crate::settings::durability::Durability;
use crate::txn::validate::CommitConditions;
use contention_backoff::ContentionBackoff;
use group::CommitQueue;
use perigee_base::{Error, Result, SeqNo};
use perigee_file::log::Batch;
use request::CommitRequest;
pub use request::TwoPhaseDecision;
pub use two_phase::{claim_target, decide_txn, prepare_txn, relog_prepared};

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
pub fn publish_up_to(log: &Log, seq: SeqNo, hooks: apply::PendingHooks) {
    apply::publish_group(log, seq, hooks);
}

/// Commits a batch and runs pending commit hooks. Returns the sequence number of its last
/// operation.
pub fn write_batch(log: &Log, batch: Batch, durability: Durability) -> Result<SeqNo> {
    let written = write_batch_if(log, batch, durability, None);
    log.run_commit_hooks();
    written
}

/// Commits a batch if `conditions` hold when it enters the commit section. Returns the sequence
/// number of its last operation, or the visible sequence number if the batch is empty. The caller
/// runs the pending commit hooks once it holds no locks.
///
/// # Errors
/// `Conflict` if a condition does not hold.
pub fn write_batch_if(
    log: &Log,
    batch: Batch,
    durability: Durability,
    conditions: Option<Box<CommitConditions>>,
) -> Result<SeqNo> {
    if batch.count() == 0 {
        return log.runtime.health.check_open().map(|()| log.catalog.visible_seq());
    }
    log.runtime.health.check_writable()?;
    let (operations, user_bytes) = (u64::from(batch.count()), batch.user_bytes());
    let mut request = CommitRequest::from_batch(&log.catalog, batch, durability)?;
    log.resources.throttle_write(request.log_bytes())?;
    if let Some(mut conditions) = conditions {
        conditions.check_before_section(&log.catalog, &request)?;
        request.conditions = Some(conditions);
    }
    let outcome = match durability {
        Durability::Full => log.pipeline.queue.submit(&*log.runtime.env.clock, request, |group| {
            commit_group(log, &mut log.commit_section(), group)
        }),
        _ => commit_without_queue(log, request),
    };
    let last = outcome?;
    log.runtime.counters.commits.add(1);
    log.runtime.counters.operations.add(operations);
    log.runtime.counters.user_bytes_written.add(user_bytes);
    Ok(last)
}

/// Commits one batch without the queue: without a sync, there is nothing to share with other
/// writers.
fn commit_without_queue(log: &Log, mut request: CommitRequest) -> Result<SeqNo> {
    let backoff = &log.pipeline.backoff;
    let wait = || log.commit_section();
    let small = request.log_bytes() <= SMALL_BATCH_BYTES;
    let mut appender = if small {
        backoff.enter(&*log.runtime.env.clock, || log.wal.try_appender(), wait)
    } else {
        wait()
    };
    commit_group(log, &mut appender, std::slice::from_mut(&mut request))?;
    drop(appender);
    request.into_result()
}

/// Runs the stages of the commit section for a group, on the leader's thread.
fn commit_group(log: &Log, appender: &mut Appender, group: &mut [CommitRequest]) -> Result<()> {
    // Dropped before the commit lock is released: no writer enters between a panic and the
    // poisoning.
    let _poison_on_panic = PoisonOnPanic(&log.runtime);
    log.runtime.health.check_writable()?;
    group.iter_mut().for_each(|request| request.reject_unwritable(&log.catalog));
    request::reject_conflicts(&log.txns, group);
    rotate::seal_full_memtables(log, appender, group)?;
    check_slow!(
        group.iter().all(|r| r.rejected.is_some() || r.conditions.is_none()),
        "a transaction is logged only after its conditions were checked",
        group.len()
    );
    let first = append::append_group(log, appender, group)?;
    let hooks = apply::apply_group(&log.txns, group, first)?;
    check_group_applied(log, appender, group);
    apply::publish_group(log, appender.next_lsn.prev(), hooks);
    Ok(())
}

/// Checks a group that is about to become visible.
fn check_group_applied(log: &Log, appender: &Appender, group: &[CommitRequest]) {
    let mut logged = group.iter().filter(|r| r.rejected.is_none());
    check_slow!(
        logged.clone().next_back().is_none_or(|r| r.last_seq.plus(1) == appender.next_lsn),
        "the last operation of a group has the last sequence number",
        appender.next_lsn
    );
    check_slow!(
        logged.all(|r| r.durability != Durability::Full || r.last_seq <= log.durable_seq()),
        "a synchronous commit is durable before it is visible",
        log.durable_seq(),
        appender.next_lsn
    );
}

/// Poisons the database if a leader panics between log and publish: that leaves operations that
/// have sequence numbers but are not applied, and nothing may be written after them.
struct PoisonOnPanic<'a>(&'a Runtime);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if perigee_env::panicking() {
            self.0.health.poison(&Error::internal("the leader of a commit group panicked"));
        }
    }
}
