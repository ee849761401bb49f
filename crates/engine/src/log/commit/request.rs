//! A batch on its way through the commit pipeline: checked, encoded except for its log position,
//! and divided by column family before any lock is taken. Independent of the queue and of the log.
//! A batch with a single operation, the most common kind, allocates nothing here.

use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::limits::LATE_LOOKUP_OPS_MAX;
use crate::log::commit_hooks;
use crate::resources::shared_batches;
use crate::settings::durability::Durability;
use crate::txn::TxnManager;
use crate::txn::prepared_txn::PreparedTxn;
use crate::txn::read_write_sets::{BatchOperations, WriteSet};
use crate::txn::validate::{self, AdmittedWrites, CommitConditions};
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, FamilyId, OpIndex, Result, SeqNo};
use perigee_file::log::{Batch, BatchOp, BatchOps, EncodedRecord};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// Operations of a batch, each with its index in the batch.
pub type IndexedOps = SmallVec<[(BatchOp, OpIndex); 1]>;

/// The operations of a batch on one column family.
#[derive(Debug)]
pub struct FamilyBatch {
    id: FamilyId,
    /// Looked up before the commit section, or inside it for small batches.
    family: Option<Arc<FamilyState>>,
    /// The operations.
    pub ops: IndexedOps,
}

impl FamilyBatch {
    /// Returns the column family; panics for a request that was rejected.
    pub fn family(&self) -> &Arc<FamilyState> {
        self.family.as_ref().expect("a batch with an unknown column family is rejected")
    }
    /// Returns the bytes of the operations, used to divide the batch's buffer among column
    /// families.
    pub fn op_bytes(&self) -> u64 {
        shared_batches::operation_bytes(&self.ops)
    }
}

/// The outcome of a prepared transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TwoPhaseDecision {
    /// Applies all of its operations.
    Commit,
    /// Discards all of its operations.
    RollBack,
}

/// A step of two-phase commit.
#[derive(Debug)]
pub enum TwoPhaseStep {
    /// Prepares a transaction: its operations become claims and are not applied to memtables.
    Prepare(Arc<PreparedTxn>),
    /// Commits or rolls back a prepared transaction; on commit its operations are applied.
    Decide(Arc<PreparedTxn>, TwoPhaseDecision),
}

/// A batch that is ready to be logged.
#[derive(Debug)]
pub struct CommitRequest {
    /// The encoded log record.
    pub record: EncodedRecord,
    /// The operations, divided by column family.
    pub family_batches: SmallVec<[FamilyBatch; 1]>,
    /// The requested durability.
    pub durability: Durability,
    /// What must not have changed since, if a transaction wrote the batch.
    pub conditions: Option<Box<CommitConditions>>,
    /// The two-phase commit step, if this is one.
    pub step: Option<TwoPhaseStep>,
    /// The reason, if the request was excluded from its group.
    pub rejected: Option<Error>,
    /// Sequence number of the last operation; set when it is applied.
    pub last_seq: SeqNo,
    /// The committing thread, which also runs the hooks.
    pub thread_id: u64,
}

impl CommitRequest {
    /// Checks and prepares a batch.
    ///
    /// # Errors
    /// `NotFound` if a large batch writes to a column family that was dropped. For small batches
    /// this is checked in the commit section.
    pub fn from_batch(
        catalog: &Catalog,
        batch: Batch,
        durability: Durability,
    ) -> Result<CommitRequest> {
        let record = batch.finish();
        let ops = record.payload_range();
        CommitRequest::from_record(catalog, record, ops, durability)
    }
    /// Like [`from_batch`](CommitRequest::from_batch), for an encoded record with its operations in
    /// the byte range `ops`.
    #[inline]
    pub fn from_record(
        catalog: &Catalog,
        record: EncodedRecord,
        ops: Range<usize>,
        durability: Durability,
    ) -> Result<CommitRequest> {
        let mut parts: SmallVec<[FamilyBatch; 1]> = SmallVec::new();
        for (i, op) in BatchOps::new(&record.buf, ops).enumerate() {
            let op = op?;
            let index = match parts.iter().position(|p| p.id == op.family) {
                Some(at) => at,
                None => {
                    // Nearly every batch writes to one column family.
                    let capacity = if parts.is_empty() { record.lsn_count as usize } else { 0 };
                    let family = if record.lsn_count > LATE_LOOKUP_OPS_MAX {
                        Some(find_family(catalog, op.family)?)
                    } else {
                        None
                    };
                    parts.push(FamilyBatch {
                        id: op.family,
                        family,
                        ops: SmallVec::with_capacity(capacity),
                    });
                    parts.len() - 1
                }
            };
            parts[index].ops.push((op, OpIndex(i as u64)));
        }
        check_slow!(
            record.kind != perigee_file::log::RecordKind::Batch
                || parts.iter().map(|p| p.ops.len()).sum::<usize>() == record.lsn_count as usize,
            "each operation of a batch belongs to one column family",
            record.lsn_count
        );
        let (conditions, step, rejected) = (None, None, None);
        let (last, thread_id) = (SeqNo::ZERO, commit_hooks::this_thread_id());
        Ok(CommitRequest {
            record,
            family_batches: parts,
            durability,
            conditions,
            step,
            rejected,
            last_seq: last,
            thread_id,
        })
    }
    /// Returns true if the batch contains anything but deletes.
    pub fn writes_data(&self) -> bool {
        self.family_batches.iter().flat_map(|p| &p.ops).any(|(op, _)| !op.kind.is_delete())
    }
    /// Returns the sequence number of the last operation, or the reason for the rejection. Called
    /// after the group was committed.
    pub fn into_result(self) -> Result<SeqNo> {
        check_slow!(
            self.rejected.is_some() || self.step.is_none(),
            "the step of a committed request was carried out",
            self.last_seq,
            self.step
        );
        self.rejected.map_or(Ok(self.last_seq), Err)
    }
    /// Returns the bytes of keys and values.
    pub fn user_bytes(&self) -> u64 {
        let ops = self.family_batches.iter().flat_map(|p| &p.ops);
        ops.map(|(op, _)| op.key.len() as u64 + op.user_value_bytes()).sum()
    }
    /// Returns the bytes of the log record.
    pub fn log_bytes(&self) -> usize {
        self.record.buf.len()
    }
    /// Rejects the request if one of its column families was dropped or the disk is nearly full.
    /// Called in the commit section.
    pub fn reject_unwritable(&mut self, catalog: &Catalog) {
        let check = |part: &mut FamilyBatch| {
            if part.family.is_none() {
                part.family = Some(find_family(catalog, part.id)?);
            }
            part.family().check_not_dropped()
        };
        self.rejected = self.family_batches.iter_mut().find_map(|p| check(p).err());
        if self.rejected.is_none() && self.writes_data() {
            self.rejected = catalog.resources.check_free_space(self.log_bytes()).err();
        }
    }
}

impl BatchOperations for CommitRequest {
    fn for_each_operation(&self, visit: &mut dyn FnMut(FamilyId, &[u8], &BatchOp)) {
        for part in &self.family_batches {
            part.ops.iter().for_each(|(op, _)| visit(part.id, &self.record.buf, op));
        }
    }
}

/// Rejects the requests of transactions whose conditions do not hold. Called in the commit section.
pub fn reject_conflicts(txns: &TxnManager, group: &mut [CommitRequest]) {
    let special = |w: &CommitRequest| w.conditions.is_some() || w.step.is_some();
    if !txns.prepared_txns().has_any() && !group.iter().any(special) {
        return;
    }
    let alone = group.len() == 1;
    let mut earlier = AdmittedWrites::default();
    for request in group.iter_mut().filter(|w| w.rejected.is_none()) {
        request.rejected = check_request_conflicts(txns, request, &earlier).err();
        let writes = !matches!(request.step, Some(TwoPhaseStep::Prepare(_)));
        if !alone && writes && request.rejected.is_none() {
            earlier.add_writes(&txns.catalog, request);
        }
    }
}

fn check_request_conflicts(
    txns: &TxnManager,
    request: &mut CommitRequest,
    earlier: &AdmittedWrites,
) -> Result<()> {
    // Nothing can conflict with a prepared transaction.
    if let Some(TwoPhaseStep::Decide(prepared, decision)) = &request.step {
        if let Some(member) =
            prepared.serializable.as_ref().filter(|_| *decision == TwoPhaseDecision::Commit)
        {
            let comparator_of = |id| txns.catalog.families().by_id(id).map(|f| f.tree.comparator());
            txns.commit_prepared(member, WriteSet::of_batch(request, &comparator_of));
        }
        return Ok(());
    }
    if txns.prepared_txns().has_any() && !bug::is_active(Bug::WriterIgnoresPrepared) {
        validate::check_prepared_writes(txns, request)?;
    }
    let conditions = request.conditions.take();
    match &request.step {
        Some(TwoPhaseStep::Prepare(prepared)) => {
            if let Some(mut conditions) = conditions {
                conditions.check_prepare(txns, request, earlier)?;
            }
            txns.prepared_txns().insert(prepared)
        }
        _ => conditions.map_or(Ok(()), |mut c| c.check_in_section(&txns.catalog, request, earlier)),
    }
}

fn find_family(catalog: &Catalog, id: FamilyId) -> Result<Arc<FamilyState>> {
    catalog.families().by_id(id).ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            format!("the batch writes to column family {id}, which was dropped"),
        )
    })
}
