//! Two-phase commit: a transaction is prepared, and decided later, perhaps after a crash, by
//! whoever knows its identifier. Both are records like any other, in a group of writers like any
//! other; both are synced, whatever the durability.
//!
//! A decision to commit carries the whole batch again, under its own numbers: so it replays by
//! itself, and the prepare record may be forgotten with it. Price: the batch is logged twice.

use super::request::{CommitRequest, TwoPhaseDecision, TwoPhaseStep};
use super::{CommitPipeline, admit, commit_group, publish_up_to};
use crate::core::EngineCore;
use crate::locks::{LockOwner, TxnLocks};
use crate::prepared_txns::PreparedTxn;
use crate::read_write_sets::KeyOrRangeRef;
use crate::settings::DurabilityLevel;
use crate::txn::validate::CommitConditions;
use crate::txn::{IsolationLevel, PrepareRequest};
use crate::wal::Appender;
use perigee_base::bug::{self, Bug};
use perigee_base::{FamilyId, KeyComparator, Result, SeqNo};
use perigee_file::log::batch::EncodedRecord;
use perigee_file::log::layout::RECORD_HEADER_BYTES;
use perigee_file::log::prepare::{check_gid, encode_decision, encode_prepare};
use perigee_file::log::{
    Batch, ClaimTarget, PrepareHeader, PrepareRecord, PreparedClaim, RecordKind,
};
use std::sync::Arc;

/// Prepares what a transaction has left, durably.
///
/// # Errors
/// `Conflict`, `AlreadyExists`, `InvalidArgument`, `NoSpace`: it is not prepared, and nothing of it
/// will happen. `OutcomeUnknown`: after reopen it may be there, undecided.
pub fn prepare_txn(
    core: &EngineCore,
    writers: &CommitPipeline,
    gid: &[u8],
    level: IsolationLevel,
    leaving: PrepareRequest,
) -> Result<()> {
    let PrepareRequest { batch, conditions, locks: (owner, mut mine) } = leaving;
    let made = build_prepared(core, gid, level, &batch, conditions.as_deref(), (owner, &mine));
    let (undecided, work) = made.inspect_err(|_| core.locks.release(owner, &mut mine, 0))?;
    undecided.set_locks(mine);
    charge_memory(core, 0, undecided.memory_bytes());
    submit_prepare(core, writers, &undecided, work, conditions).inspect_err(|_| {
        core.prepared_txns.remove(&undecided);
        undecided.release_locks(&core.locks);
        charge_memory(core, undecided.memory_bytes(), 0);
    })
}

/// Tells the memory budget what a transaction held, and holds.
fn charge_memory(core: &EngineCore, mut before: u64, now: u64) {
    core.memory_budget.set_load_bytes(&mut before, now);
    core.update_job_memory();
}

/// The transaction as others will know it, and its record.
fn build_prepared(
    core: &EngineCore,
    gid: &[u8],
    level: IsolationLevel,
    batch: &Batch,
    conditions: Option<&CommitConditions>,
    (owner, mine): (LockOwner, &TxnLocks),
) -> Result<(Arc<PreparedTxn>, CommitRequest)> {
    check_gid(gid)?;
    core.health.check_writable()?;
    let record = encode_prepare_record(core, gid, level, batch, conditions, (owner, mine))?;
    let payload = Arc::new(record.buf[record.payload_range()].to_vec());
    let at = PrepareRecord::decode(&payload)?.ops_range;
    let order_of = |id: FamilyId| core.families.by_id(id).map(|f| f.tree.comparator());
    let undecided = PreparedTxn::decode(payload, &order_of, owner)?;
    let ops = RECORD_HEADER_BYTES + at.start..RECORD_HEADER_BYTES + at.end;
    let durability = if bug::is_active(Bug::PrepareNotSynced) {
        DurabilityLevel::None
    } else {
        DurabilityLevel::Full
    };
    Ok((Arc::new(undecided), CommitRequest::from_record(core, record, ops, durability)?))
}

fn submit_prepare(
    core: &EngineCore,
    writers: &CommitPipeline,
    undecided: &Arc<PreparedTxn>,
    mut work: CommitRequest,
    mut conditions: Option<Box<CommitConditions>>,
) -> Result<()> {
    admit::throttle_write(core, work.log_bytes())?;
    if let Some(conditions) = &mut conditions {
        conditions.check_before_section(core, &work)?;
    }
    work.conditions = conditions;
    work.step = Some(TwoPhaseStep::Prepare(Arc::clone(undecided)));
    submit_and_wait(core, writers, work).map(drop)
}

/// Commits or rolls back a prepared transaction, durably; the number of its last operation. The
/// caller calls the hooks, when it holds nothing.
///
/// # Errors
/// `NotFound`: nobody is prepared under that identifier. `Busy`: another thread is deciding it.
/// `NoSpace`: it is still undecided. `OutcomeUnknown`: after reopen it is committed or still
/// undecided. Never `Conflict`.
pub fn decide_txn(
    core: &EngineCore,
    writers: &CommitPipeline,
    gid: &[u8],
    verdict: TwoPhaseDecision,
) -> Result<SeqNo> {
    check_gid(gid)?;
    core.health.check_writable()?;
    let undecided = core.prepared_txns.claim_decision(gid)?;
    let (batch, operations) = match verdict {
        TwoPhaseDecision::Commit => (undecided.batch(), undecided.operations),
        TwoPhaseDecision::RollBack => (&[][..], 0),
    };
    let record = encode_decision(gid, batch, operations);
    let mut user_bytes = 0;
    let end = record.payload_range().end;
    let durability = if bug::is_active(Bug::DecisionNotSynced) {
        DurabilityLevel::None
    } else {
        DurabilityLevel::Full
    };
    let decided = CommitRequest::from_record(core, record, end - batch.len()..end, durability)
        .and_then(|mut work| {
            admit::throttle_write(core, work.log_bytes())?;
            user_bytes = work.user_bytes();
            work.step = Some(TwoPhaseStep::Decide(Arc::clone(&undecided), verdict));
            submit_and_wait(core, writers, work)
        });
    let last = decided.inspect_err(|_| core.prepared_txns.release_claim(&undecided))?;
    undecided.release_locks(&core.locks);
    charge_memory(core, undecided.memory_bytes(), 0);
    core.counters.commits.add(u64::from(verdict == TwoPhaseDecision::Commit));
    core.counters.operations.add(u64::from(operations));
    core.counters.user_bytes_written.add(user_bytes);
    Ok(last)
}

fn submit_and_wait(
    core: &EngineCore,
    writers: &CommitPipeline,
    work: CommitRequest,
) -> Result<SeqNo> {
    writers
        .queue
        .submit(&*core.env.clock, work, |group| commit_group(core, &mut core.wal.appender(), group))
}

/// The prepare record: the batch, what was read that the level protects, the locks that are held.
fn encode_prepare_record(
    core: &EngineCore,
    gid: &[u8],
    level: IsolationLevel,
    batch: &Batch,
    conditions: Option<&CommitConditions>,
    (owner, mine): (LockOwner, &TxnLocks),
) -> Result<EncodedRecord> {
    let at_ms = core.env.clock.wall_ms();
    let head = PrepareHeader {
        gid,
        isolation_level: level.code(),
        prepared_at_ms: at_ms,
        op_count: batch.count(),
    };
    let locks = core.locks.locks_of(owner, mine);
    let claims = |visit: &mut dyn FnMut(PreparedClaim<'_>)| {
        let mut claim = |family, mode, target: KeyOrRangeRef<'_>| {
            let on = match target {
                KeyOrRangeRef::Key(key) => ClaimTarget::Key(key),
                KeyOrRangeRef::Range(begin, end) => ClaimTarget::Range(begin, end),
            };
            visit(PreparedClaim { family, mode, target: on });
        };
        conditions
            .iter()
            .for_each(|c| c.visit_protected_reads(&mut |family, target| claim(family, 0, target)));
        locks
            .iter()
            .for_each(|(family, place, mode)| claim(*family, mode.code(), place.borrowed()));
    };
    encode_prepare(head, &claims, batch.buf().get(RECORD_HEADER_BYTES..).unwrap_or_default())
}

/// Copies the record of a prepared transaction to the end of the log, in the commit section; not
/// synced.
///
/// # Errors
/// As an append. The record is where it was.
pub fn relog_prepared(
    core: &EngineCore,
    appender: &mut Appender,
    undecided: &PreparedTxn,
) -> Result<()> {
    let mut copy = EncodedRecord::from_payload(RecordKind::Prepare, undecided.payload(), 1);
    let lsn =
        core.wal.append(appender, core.manifest.last_edit(), &mut [&mut copy], &core.health)?;
    undecided.set_lsn(lsn);
    publish_up_to(core, SeqNo(lsn), Vec::new());
    Ok(())
}

/// Puts what recovery found undecided back in its place: records with their numbers.
pub fn restore_prepared(core: &EngineCore, found: Vec<(u64, Arc<Vec<u8>>)>) -> Result<()> {
    let order_of = |id: FamilyId| -> Option<KeyComparator> {
        core.families.by_id(id).map(|f| f.tree.comparator())
    };
    for (lsn, payload) in found {
        let undecided = Arc::new(PreparedTxn::decode(payload, &order_of, core.locks.next_owner())?);
        undecided.set_lsn(lsn);
        undecided.restore_locks(&core.locks, &order_of)?;
        core.prepared_txns.insert(&undecided)?;
        charge_memory(core, 0, undecided.memory_bytes());
    }
    Ok(())
}
