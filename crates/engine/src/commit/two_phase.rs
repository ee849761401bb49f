//! Two-phase commit: a transaction is prepared and decided later, possibly after a crash, by any
//! caller that knows its global identifier. Prepare and decision are ordinary log records in
//! ordinary commit groups; both are synced, whatever the durability setting.
//!
//! A decision to commit repeats the whole batch with sequence numbers of its own, so it replays by
//! itself and the prepare record can be dropped with it. The price: the batch is logged twice.

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

/// Prepares a transaction durably, from what it has handed over.
///
/// # Errors
/// `Conflict`, `AlreadyExists`, `InvalidArgument`, `NoSpace`: it is not prepared and has no effect.
/// `OutcomeUnknown`: after reopen it may be prepared.
pub fn prepare_txn(
    core: &EngineCore,
    writers: &CommitPipeline,
    gid: &[u8],
    level: IsolationLevel,
    handover: PrepareRequest,
) -> Result<()> {
    let PrepareRequest { batch, conditions, locks: (owner, mut txn_locks) } = handover;
    let built = build_prepared(core, gid, level, &batch, conditions.as_deref(), owner, &txn_locks);
    let (prepared, request) =
        built.inspect_err(|_| core.locks.release(owner, &mut txn_locks, 0))?;
    prepared.set_locks(txn_locks);
    charge_memory(core, 0, prepared.memory_bytes());
    submit_prepare(core, writers, &prepared, request, conditions).inspect_err(|_| {
        core.prepared_txns.remove(&prepared);
        prepared.release_locks(&core.locks);
        charge_memory(core, prepared.memory_bytes(), 0);
    })
}

/// Replaces the `before` bytes of a transaction in the memory budget with `now` bytes.
fn charge_memory(core: &EngineCore, mut before: u64, now: u64) {
    core.memory_budget.set_load_bytes(&mut before, now);
    core.update_job_memory();
}

/// Builds the in-memory form of the prepared transaction and its log record.
fn build_prepared(
    core: &EngineCore,
    gid: &[u8],
    level: IsolationLevel,
    batch: &Batch,
    conditions: Option<&CommitConditions>,
    owner: LockOwner,
    txn_locks: &TxnLocks,
) -> Result<(Arc<PreparedTxn>, CommitRequest)> {
    check_gid(gid)?;
    core.health.check_writable()?;
    let record = encode_prepare_record(core, gid, level, batch, conditions, owner, txn_locks)?;
    let payload = Arc::new(record.buf[record.payload_range()].to_vec());
    let at = PrepareRecord::decode(&payload)?.ops_range;
    let comparator_of = |id: FamilyId| core.families.by_id(id).map(|f| f.tree.comparator());
    let prepared = PreparedTxn::decode(payload, &comparator_of, owner)?;
    let ops = RECORD_HEADER_BYTES + at.start..RECORD_HEADER_BYTES + at.end;
    let durability = if bug::is_active(Bug::PrepareNotSynced) {
        DurabilityLevel::None
    } else {
        DurabilityLevel::Full
    };
    Ok((Arc::new(prepared), CommitRequest::from_record(core, record, ops, durability)?))
}

fn submit_prepare(
    core: &EngineCore,
    writers: &CommitPipeline,
    prepared: &Arc<PreparedTxn>,
    mut request: CommitRequest,
    mut conditions: Option<Box<CommitConditions>>,
) -> Result<()> {
    admit::throttle_write(core, request.log_bytes())?;
    if let Some(conditions) = &mut conditions {
        conditions.check_before_section(core, &request)?;
    }
    request.conditions = conditions;
    request.step = Some(TwoPhaseStep::Prepare(Arc::clone(prepared)));
    submit_and_wait(core, writers, request).map(drop)
}

/// Commits or rolls back a prepared transaction durably. Returns the sequence number of its last
/// operation. The caller runs the pending commit hooks once it holds no locks.
///
/// # Errors
/// `NotFound`: no transaction is prepared under that identifier. `Busy`: another thread is deciding
/// it. `NoSpace`: it is still prepared. `OutcomeUnknown`: after reopen it is committed or still
/// prepared. Never `Conflict`.
pub fn decide_txn(
    core: &EngineCore,
    writers: &CommitPipeline,
    gid: &[u8],
    decision: TwoPhaseDecision,
) -> Result<SeqNo> {
    check_gid(gid)?;
    core.health.check_writable()?;
    let prepared = core.prepared_txns.claim_decision(gid)?;
    let (batch, operations) = match decision {
        TwoPhaseDecision::Commit => (prepared.batch(), prepared.operations),
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
        .and_then(|mut request| {
            admit::throttle_write(core, request.log_bytes())?;
            user_bytes = request.user_bytes();
            request.step = Some(TwoPhaseStep::Decide(Arc::clone(&prepared), decision));
            submit_and_wait(core, writers, request)
        });
    let last = decided.inspect_err(|_| core.prepared_txns.release_claim(&prepared))?;
    prepared.release_locks(&core.locks);
    charge_memory(core, prepared.memory_bytes(), 0);
    core.counters.commits.add(u64::from(decision == TwoPhaseDecision::Commit));
    core.counters.operations.add(u64::from(operations));
    core.counters.user_bytes_written.add(user_bytes);
    Ok(last)
}

fn submit_and_wait(
    core: &EngineCore,
    writers: &CommitPipeline,
    request: CommitRequest,
) -> Result<SeqNo> {
    writers.queue.submit(&*core.env.clock, request, |group| {
        commit_group(core, &mut core.wal.appender(), group)
    })
}

/// Encodes the prepare record: the batch, the reads that the isolation level protects, and the held
/// locks.
fn encode_prepare_record(
    core: &EngineCore,
    gid: &[u8],
    level: IsolationLevel,
    batch: &Batch,
    conditions: Option<&CommitConditions>,
    owner: LockOwner,
    txn_locks: &TxnLocks,
) -> Result<EncodedRecord> {
    let at_ms = core.env.clock.wall_ms();
    let head = PrepareHeader {
        gid,
        isolation_level: level.code(),
        prepared_at_ms: at_ms,
        op_count: batch.count(),
    };
    let locks = core.locks.locks_of(owner, txn_locks);
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
            .for_each(|(family, target, mode)| claim(*family, mode.code(), target.borrowed()));
    };
    encode_prepare(head, &claims, batch.buf().get(RECORD_HEADER_BYTES..).unwrap_or_default())
}

/// Copies the record of a prepared transaction to the end of the log, without a sync. Called in the
/// commit section.
///
/// # Errors
/// Same as for an append. The original record stays valid.
pub fn relog_prepared(
    core: &EngineCore,
    appender: &mut Appender,
    prepared: &PreparedTxn,
) -> Result<()> {
    let mut copy = EncodedRecord::from_payload(RecordKind::Prepare, prepared.payload(), 1);
    let lsn =
        core.wal.append(appender, core.manifest.last_edit(), &mut [&mut copy], &core.health)?;
    prepared.set_lsn(lsn);
    publish_up_to(core, lsn, Vec::new());
    Ok(())
}

/// Registers the prepared transactions that recovery found, given as LSN and payload.
pub fn restore_prepared(core: &EngineCore, found: Vec<(SeqNo, Arc<Vec<u8>>)>) -> Result<()> {
    let comparator_of = |id: FamilyId| -> Option<KeyComparator> {
        core.families.by_id(id).map(|f| f.tree.comparator())
    };
    for (lsn, payload) in found {
        let prepared =
            Arc::new(PreparedTxn::decode(payload, &comparator_of, core.locks.next_owner())?);
        prepared.set_lsn(lsn);
        prepared.restore_locks(&core.locks, &comparator_of)?;
        core.prepared_txns.insert(&prepared)?;
        charge_memory(core, 0, prepared.memory_bytes());
    }
    Ok(())
}
