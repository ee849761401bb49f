//! A batch on its way: checked, sealed but for its place in the log and sorted by family, before
//! anything is locked. Must not know queues or the log. One operation on one family, the commonest
//! batch, allocates nothing here.

use super::admit;
use crate::commit_hooks;
use crate::core::EngineCore;
use crate::family::FamilyState;
use crate::prepared_txns::PreparedTxn;
use crate::read_write_sets::{BatchOperations, WriteSet};
use crate::settings::DurabilityLevel;
use crate::shared_batches;
use crate::txn::validate::{self, AdmittedWrites, CommitConditions};
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, FamilyId, Result, SeqNo};
use perigee_file::log::batch::EncodedRecord;
use perigee_file::log::{Batch, BatchOp, BatchOps};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// Operations of a batch, each with its position in it as a sequence number.
pub type IndexedOps = SmallVec<[(BatchOp, SeqNo); 1]>;

/// What one family receives of a batch.
#[derive(Debug)]
pub struct FamilyBatch {
    id: FamilyId,
    /// Found before the commit section, or in it if that is quickly done.
    family: Option<Arc<FamilyState>>,
    /// Its operations.
    pub ops: IndexedOps,
}

impl FamilyBatch {
    /// The family; of a batch that was not refused.
    pub fn family(&self) -> &Arc<FamilyState> {
        self.family.as_ref().expect("a batch whose families were not found was refused")
    }
    /// Bytes of its operations, for dividing the batch.
    pub fn op_bytes(&self) -> u64 {
        shared_batches::operation_bytes(&self.ops)
    }
}

/// So many operations find their families in the commit section: there the list of families is at
/// hand, and outside writers would meet at its lock.
const LATE_LOOKUP_OPS_MAX: u32 = 4;

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TwoPhaseDecision {
    /// All of it happens.
    Commit,
    /// Nothing of it does.
    RollBack,
}

/// A step of two-phase commit.
#[derive(Debug)]
pub enum TwoPhaseStep {
    /// A transaction is prepared: its operations are claims, and go into no memtable.
    Prepare(Arc<PreparedTxn>),
    /// It is decided: its operations, if there are any, come true.
    Decide(Arc<PreparedTxn>, TwoPhaseDecision),
}

/// A batch ready to be logged.
#[derive(Debug)]
pub struct CommitRequest {
    /// The record.
    pub record: EncodedRecord,
    /// Its operations by family.
    pub family_batches: SmallVec<[FamilyBatch; 1]>,
    /// What the writer asked for.
    pub durability: DurabilityLevel,
    /// What must not have changed, if a transaction wrote it.
    pub conditions: Option<Box<CommitConditions>>,
    /// Its part in two-phase commit, if it has one.
    pub step: Option<TwoPhaseStep>,
    /// Why it was left out of its group, if it was.
    pub rejected: Option<Error>,
    /// The number of its last operation, once it is applied.
    pub last_seq: SeqNo,
    /// The thread that commits it, which runs the hooks.
    pub thread_id: u64,
}

impl CommitRequest {
    /// Checks and prepares a batch.
    ///
    /// # Errors
    /// `NotFound` if it is a large one and writes to a family that was dropped. Small ones hear it
    /// in the commit section.
    pub fn from_batch(
        core: &EngineCore,
        batch: Batch,
        durability: DurabilityLevel,
    ) -> Result<CommitRequest> {
        let record = batch.finish();
        let ops = record.payload_range();
        CommitRequest::from_record(core, record, ops, durability)
    }
    /// The same for a record whose operations lie at `ops`.
    pub fn from_record(
        core: &EngineCore,
        record: EncodedRecord,
        ops: Range<usize>,
        durability: DurabilityLevel,
    ) -> Result<CommitRequest> {
        let mut parts: SmallVec<[FamilyBatch; 1]> = SmallVec::new();
        for (i, op) in BatchOps::new(&record.buf, ops).enumerate() {
            let op = op?;
            let at = match parts.iter().position(|p| p.id == op.family) {
                Some(at) => at,
                None => {
                    // Nearly every batch writes to one family.
                    let room = if parts.is_empty() { record.lsn_count as usize } else { 0 };
                    let family = if record.lsn_count > LATE_LOOKUP_OPS_MAX {
                        Some(find_family(core, op.family)?)
                    } else {
                        None
                    };
                    parts.push(FamilyBatch {
                        id: op.family,
                        family,
                        ops: SmallVec::with_capacity(room),
                    });
                    parts.len() - 1
                }
            };
            parts[at].ops.push((op, SeqNo(i as u64)));
        }
        let (conditions, step, refused) = (None, None, None);
        let (last, owner) = (SeqNo::ZERO, commit_hooks::this_thread_id());
        Ok(CommitRequest {
            record,
            family_batches: parts,
            durability,
            conditions,
            step,
            rejected: refused,
            last_seq: last,
            thread_id: owner,
        })
    }
    /// Whether it does anything but delete.
    pub fn writes_data(&self) -> bool {
        self.family_batches.iter().flat_map(|p| &p.ops).any(|(op, _)| !op.kind.is_delete())
    }
    /// What its writer is answered after its group went well: its number, or why it was left out.
    pub fn into_result(self) -> Result<SeqNo> {
        self.rejected.map_or(Ok(self.last_seq), Err)
    }
    /// Bytes of its keys and values.
    pub fn user_bytes(&self) -> u64 {
        let ops = self.family_batches.iter().flat_map(|p| &p.ops);
        ops.map(|(op, _)| op.key.len() as u64 + op.user_value_bytes()).sum()
    }
    /// Bytes it takes in the log.
    pub fn log_bytes(&self) -> usize {
        self.record.buf.len()
    }
    /// Leaves it out if a family that it writes to was dropped, or if the disk is all but full; in
    /// the commit section.
    pub fn reject_unwritable(&mut self, core: &EngineCore) {
        let check = |part: &mut FamilyBatch| {
            if part.family.is_none() {
                part.family = Some(find_family(core, part.id)?);
            }
            part.family().check_not_dropped()
        };
        self.rejected = self.family_batches.iter_mut().find_map(|p| check(p).err());
        if self.rejected.is_none() && self.writes_data() {
            self.rejected = admit::check_free_space(core, self.log_bytes()).err();
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

/// Leaves out what transactions wrote whose conditions do not hold, in the commit section.
pub fn reject_conflicts(core: &EngineCore, group: &mut [CommitRequest]) {
    let special = |w: &CommitRequest| w.conditions.is_some() || w.step.is_some();
    if !core.prepared_txns.has_any() && !group.iter().any(special) {
        return;
    }
    let alone = group.len() == 1;
    let mut earlier = AdmittedWrites::default();
    for work in group.iter_mut().filter(|w| w.rejected.is_none()) {
        work.rejected = check_request_conflicts(core, work, &earlier).err();
        let writes = !matches!(work.step, Some(TwoPhaseStep::Prepare(_)));
        if !alone && writes && work.rejected.is_none() {
            earlier.add_writes(core, work);
        }
    }
}

fn check_request_conflicts(
    core: &EngineCore,
    work: &mut CommitRequest,
    earlier: &AdmittedWrites,
) -> Result<()> {
    // Nobody can be in the way of a transaction that was prepared.
    if let Some(TwoPhaseStep::Decide(undecided, verdict)) = &work.step {
        if let Some(member) =
            undecided.serializable.as_ref().filter(|_| *verdict == TwoPhaseDecision::Commit)
        {
            let order_of = |id| core.families.by_id(id).map(|f| f.tree.comparator());
            core.serializable_txns.commit_prepared(
                member,
                WriteSet::of_batch(work, &order_of),
                core.visible_seq().plus(1),
            );
        }
        return Ok(());
    }
    if core.prepared_txns.has_any() && !bug::is_active(Bug::WriterPassesPrepared) {
        validate::check_prepared_writes(core, work)?;
    }
    let conditions = work.conditions.take();
    match &work.step {
        Some(TwoPhaseStep::Prepare(undecided)) => {
            if let Some(mut conditions) = conditions {
                conditions.check_prepare(core, work, earlier)?;
            }
            core.prepared_txns.insert(undecided)
        }
        _ => conditions.map_or(Ok(()), |mut c| c.check_in_section(core, work, earlier)),
    }
}

fn find_family(core: &EngineCore, id: FamilyId) -> Result<Arc<FamilyState>> {
    core.families.by_id(id).ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            format!("the batch writes to family {id}, which was dropped"),
        )
    })
}
