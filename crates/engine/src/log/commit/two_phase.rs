//! Two-phase commit: a transaction is prepared and decided later, possibly after a crash, by any
//! caller that knows its global identifier. Prepare and decision are ordinary log records in
//! ordinary commit groups; both are synced, whatever the durability setting, except a decision to
//! commit for which the caller asks for less: after a power failure that transaction may be
//! prepared again, as a whole.
//!
//! A decision to commit repeats the whole batch with sequence numbers of its own, so it replays by
//! itself and the prepare record can be dropped with it. The price: the batch is logged twice.

use super::request::{CommitRequest, TwoPhaseDecision, TwoPhaseStep};
use super::{commit_group, commit_without_queue, publish_up_to};
use crate::log::Log;
use crate::log::wal::Appender;
use crate::settings::durability::Durability;
use crate::settings::isolation::Isolation;
use crate::txn::PrepareRequest;
use crate::txn::TxnManager;
use crate::txn::locks::{LockOwner, TxnLocks};
use crate::txn::prepared_txn::PreparedTxn;
use crate::txn::read_write_sets::KeyOrRangeRef;
use crate::txn::validate::CommitConditions;
use perigee_base::bug::{self, Bug};
use perigee_base::{FamilyId, Result, SeqNo};
use perigee_file::log::{
    Batch, ClaimTarget, EncodedRecord, PrepareHeader, PrepareRecord, PreparedClaim,
    RECORD_HEADER_BYTES, RecordKind, check_gid, encode_decision, encode_prepare,
};
use std::sync::Arc;

/// What the record of a prepared transaction contains.
#[derive(Clone, Copy)]
struct PreparedContents<'a> {
    gid: &'a [u8],
    level: Isolation,
    batch: &'a Batch,
    /// With the reads that the isolation level protects.
    conditions: Option<&'a CommitConditions>,
    owner: LockOwner,
    /// The locks of the owner.
    txn_locks: &'a TxnLocks,
}

/// Prepares a transaction durably, from what it has handed over.
///
/// # Errors
/// `Conflict`, `AlreadyExists`, `InvalidArgument`, `NoSpace`: it is not prepared and has no effect.
/// `OutcomeUnknown`: after reopen it may be prepared.
pub fn prepare_txn(
    log: &Log,
    gid: &[u8],
    level: Isolation,
    handover: PrepareRequest,
) -> Result<()> {
    let PrepareRequest { batch, conditions, locks: (owner, mut txn_locks) } = handover;
    let contents = PreparedContents {
        gid,
        level,
        batch: &batch,
        conditions: conditions.as_deref(),
        owner,
        txn_locks: &txn_locks,
    };
    let built = build_prepared(&log.txns, contents);
    let (prepared, request) =
        built.inspect_err(|_| log.txns.release_locks(owner, &mut txn_locks))?;
    prepared.set_locks(txn_locks);
    log.resources.charge(&mut 0, prepared.memory_bytes());
    let submitted = submit_prepare(log, &prepared, request, conditions);
    check!(
        submitted.is_err() || prepared.lsn() < SeqNo::MAX,
        "a prepared transaction has a record in the log",
        prepared.gid
    );
    submitted.inspect_err(|_| {
        log.txns.prepared_txns().remove(&prepared);
        log.txns.end_prepared(&prepared);
    })
}

/// Builds the in-memory form of the prepared transaction and its log record.
fn build_prepared(
    txns: &TxnManager,
    contents: PreparedContents<'_>,
) -> Result<(Arc<PreparedTxn>, CommitRequest)> {
    check_gid(contents.gid)?;
    txns.runtime.health.check_writable()?;
    let record = encode_prepare_record(txns, contents)?;
    let payload = Arc::new(record.buf[record.payload_range()].to_vec());
    let at = PrepareRecord::decode(&payload)?.ops_range;
    let comparator_of =
        |id: FamilyId| txns.catalog.families().by_id(id).map(|f| f.tree.comparator());
    let prepared = PreparedTxn::decode(payload, &comparator_of, contents.owner)?;
    let ops = RECORD_HEADER_BYTES + at.start..RECORD_HEADER_BYTES + at.end;
    let durability =
        if bug::is_active(Bug::PrepareNotSynced) { Durability::None } else { Durability::Full };
    Ok((Arc::new(prepared), CommitRequest::from_record(&txns.catalog, record, ops, durability)?))
}

fn submit_prepare(
    log: &Log,
    prepared: &Arc<PreparedTxn>,
    mut request: CommitRequest,
    mut conditions: Option<Box<CommitConditions>>,
) -> Result<()> {
    log.resources.throttle_write(request.log_bytes())?;
    if let Some(conditions) = &mut conditions {
        conditions.check_before_section(&log.catalog, &request)?;
    }
    request.conditions = conditions;
    request.step = Some(TwoPhaseStep::Prepare(Arc::clone(prepared)));
    submit_and_wait(log, request).map(drop)
}

/// Commits or rolls back a prepared transaction with this durability; the caller has claimed its
/// decision. Returns the sequence number of its last operation. The caller runs the pending commit
/// hooks once it holds no locks.
///
/// # Errors
/// `NoSpace`: it is still prepared. `OutcomeUnknown`: after reopen it is committed or still
/// prepared. Never `Conflict`.
pub fn decide_txn(
    log: &Log,
    prepared: &Arc<PreparedTxn>,
    decision: TwoPhaseDecision,
    durability: Durability,
) -> Result<SeqNo> {
    check!(
        prepared.spilled().is_none(),
        "the log decides transactions that it contains",
        prepared.gid
    );
    let (batch, operations) = match decision {
        TwoPhaseDecision::Commit => (prepared.batch(), prepared.operations),
        TwoPhaseDecision::RollBack => (&[][..], 0),
    };
    // The header of its record has the number in 32 bits.
    let record = encode_decision(&prepared.gid, batch, operations as u32);
    let mut user_bytes = 0;
    let end = record.payload_range().end;
    let durability =
        if bug::is_active(Bug::DecisionNotSynced) { Durability::None } else { durability };
    let decided =
        CommitRequest::from_record(&log.catalog, record, end - batch.len()..end, durability)
            .and_then(|mut request| {
                log.resources.throttle_write(request.log_bytes())?;
                user_bytes = request.user_bytes();
                request.step = Some(TwoPhaseStep::Decide(Arc::clone(prepared), decision));
                submit_and_wait(log, request)
            });
    let last = decided.inspect_err(|_| log.txns.prepared_txns().release_claim(prepared))?;
    log.txns.end_prepared(prepared);
    log.runtime.counters.commits.add(u64::from(decision == TwoPhaseDecision::Commit));
    log.runtime.counters.operations.add(operations);
    log.runtime.counters.user_bytes_written.add(user_bytes);
    Ok(last)
}

fn submit_and_wait(log: &Log, request: CommitRequest) -> Result<SeqNo> {
    if request.durability != Durability::Full {
        return commit_without_queue(log, request);
    }
    log.pipeline.queue.submit(&*log.runtime.env.clock, request, |group| {
        commit_group(log, &mut log.commit_section(), group)
    })
}

/// Encodes the prepare record: the batch, the reads that the isolation level protects, and the held
/// locks.
fn encode_prepare_record(
    txns: &TxnManager,
    contents: PreparedContents<'_>,
) -> Result<EncodedRecord> {
    let head = PrepareHeader {
        gid: contents.gid,
        isolation_level: contents.level.code(),
        prepared_at_ms: txns.runtime.env.clock.wall_ms(),
        op_count: contents.batch.count(),
    };
    let locks = txns.held_locks(contents.owner, contents.txn_locks);
    let claims = |visit: &mut dyn FnMut(PreparedClaim<'_>)| {
        let mut claim = |family, mode, target: KeyOrRangeRef<'_>| {
            visit(PreparedClaim { family, mode, target: claim_target(target) })
        };
        contents
            .conditions
            .iter()
            .for_each(|c| c.visit_protected_reads(&mut |family, target| claim(family, 0, target)));
        locks
            .iter()
            .for_each(|(family, target, mode)| claim(*family, mode.code(), target.borrowed()));
    };
    encode_prepare(
        head,
        &claims,
        contents.batch.buf().get(RECORD_HEADER_BYTES..).unwrap_or_default(),
    )
}

/// Returns the target of a claim.
pub fn claim_target(target: KeyOrRangeRef<'_>) -> ClaimTarget<'_> {
    match target {
        KeyOrRangeRef::Key(key) => ClaimTarget::Key(key),
        KeyOrRangeRef::Range(begin, end) => ClaimTarget::Range(begin, end),
    }
}

/// Copies the record of a prepared transaction to the end of the log, without a sync. Called in the
/// commit section.
///
/// # Errors
/// Same as for an append. The original record stays valid.
pub fn relog_prepared(log: &Log, appender: &mut Appender, prepared: &PreparedTxn) -> Result<()> {
    check!(prepared.spilled().is_none(), "a transaction with tables is not logged", prepared.gid);
    let mut copy = EncodedRecord::from_payload(RecordKind::Prepare, prepared.payload(), 1);
    let lsn = log.append(appender, &mut [&mut copy])?;
    prepared.set_lsn(lsn);
    publish_up_to(log, lsn, Vec::new());
    Ok(())
}
