//! A batch on its way: checked, sealed but for its place in the log and sorted by family, before anything is locked.
//! Must not know queues or the log. One operation on one family, the commonest batch, allocates nothing here.

use super::admit;
use crate::core::Core;
use crate::family::Family;
use crate::footprint::{Parts, Written};
use crate::hooks;
use crate::prepared::Undecided;
use crate::settings::Durability;
use crate::shared;
use crate::txn::validate::{self, Admitted, Conditions};
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, FamilyId, Result, SeqNo};
use perigee_file::log::batch::Finished;
use perigee_file::log::{Batch, Op, Ops};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// Operations of a batch, each with its position in it as a sequence number.
pub type Numbered = SmallVec<[(Op, SeqNo); 1]>;

/// What one family receives of a batch.
#[derive(Debug)]
pub struct Part {
    id: FamilyId,
    /// Found before the commit section, or in it if that is quickly done.
    family: Option<Arc<Family>>,
    /// Its operations.
    pub ops: Numbered,
}

impl Part {
    /// The family; of a batch that was not refused.
    pub fn family(&self) -> &Arc<Family> {
        self.family.as_ref().expect("a batch whose families were not found was refused")
    }
    /// Bytes of its operations, for dividing the batch.
    pub fn bytes(&self) -> u64 {
        shared::bytes_of(&self.ops)
    }
}

/// So many operations find their families in the commit section: there the list of families is at hand, and outside writers
/// would meet at its lock.
const FEW: u32 = 4;

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of it happens.
    Commit,
    /// Nothing of it does.
    RollBack,
}

/// A step of two-phase commit.
#[derive(Debug)]
pub enum Step {
    /// A transaction is prepared: its operations are claims, and go into no memtable.
    Prepare(Arc<Undecided>),
    /// It is decided: its operations, if there are any, come true.
    Decide(Arc<Undecided>, Verdict),
}

/// A batch ready to be logged.
#[derive(Debug)]
pub struct Work {
    /// The record.
    pub record: Finished,
    /// Its operations by family.
    pub parts: SmallVec<[Part; 1]>,
    /// What the writer asked for.
    pub durability: Durability,
    /// What must not have changed, if a transaction wrote it.
    pub conditions: Option<Box<Conditions>>,
    /// Its part in two-phase commit, if it has one.
    pub step: Option<Step>,
    /// Why it was left out of its group, if it was.
    pub refused: Option<Error>,
    /// The number of its last operation, once it is applied.
    pub last: SeqNo,
    /// The thread that commits it, which runs the hooks.
    pub owner: u64,
}

impl Work {
    /// Checks and prepares a batch.
    ///
    /// # Errors
    /// `NotFound` if it is a large one and writes to a family that was dropped. Small ones hear it in the commit section.
    pub fn prepare(core: &Core, batch: Batch, durability: Durability) -> Result<Work> {
        let record = batch.finish();
        let ops = record.payload();
        Work::of(core, record, ops, durability)
    }
    /// The same for a record whose operations lie at `ops`.
    pub fn of(core: &Core, record: Finished, ops: Range<usize>, durability: Durability) -> Result<Work> {
        let mut parts: SmallVec<[Part; 1]> = SmallVec::new();
        for (i, op) in Ops::new(&record.buf, ops).enumerate() {
            let op = op?;
            let at = match parts.iter().position(|p| p.id == op.family) {
                Some(at) => at,
                None => {
                    // Nearly every batch writes to one family.
                    let room = if parts.is_empty() { record.count as usize } else { 0 };
                    let family = if record.count > FEW { Some(find(core, op.family)?) } else { None };
                    parts.push(Part { id: op.family, family, ops: SmallVec::with_capacity(room) });
                    parts.len() - 1
                }
            };
            parts[at].ops.push((op, SeqNo(i as u64)));
        }
        let (conditions, step, refused) = (None, None, None);
        let (last, owner) = (SeqNo::ZERO, hooks::this_thread());
        Ok(Work { record, parts, durability, conditions, step, refused, last, owner })
    }
    /// Whether it does anything but delete.
    pub fn grows(&self) -> bool {
        self.parts.iter().flat_map(|p| &p.ops).any(|(op, _)| !op.kind.deletes())
    }
    /// What its writer is answered after its group went well: its number, or why it was left out.
    pub fn answer(self) -> Result<SeqNo> {
        self.refused.map_or(Ok(self.last), Err)
    }
    /// Bytes of its keys and values.
    pub fn user_bytes(&self) -> u64 {
        let ops = self.parts.iter().flat_map(|p| &p.ops);
        ops.map(|(op, _)| op.key.len() as u64 + op.user_value_bytes()).sum()
    }
    /// Bytes it takes in the log.
    pub fn bytes(&self) -> usize {
        self.record.buf.len()
    }
    /// Leaves it out if a family that it writes to was dropped, or if the disk is all but full; in the commit section.
    pub fn refuse_if_vain(&mut self, core: &Core) {
        let check = |part: &mut Part| {
            if part.family.is_none() {
                part.family = Some(find(core, part.id)?);
            }
            part.family().check()
        };
        self.refused = self.parts.iter_mut().find_map(|p| check(p).err());
        if self.refused.is_none() && self.grows() {
            self.refused = admit::space(core, self.bytes()).err();
        }
    }
}

impl Parts for Work {
    fn each(&self, visit: &mut dyn FnMut(FamilyId, &[u8], &Op)) {
        for part in &self.parts {
            part.ops.iter().for_each(|(op, _)| visit(part.id, &self.record.buf, op));
        }
    }
}

/// Leaves out what transactions wrote whose conditions do not hold, in the commit section.
pub fn refuse_conflicts(core: &Core, group: &mut [Work]) {
    let special = |w: &Work| w.conditions.is_some() || w.step.is_some();
    if !core.prepared.any() && !group.iter().any(special) {
        return;
    }
    let alone = group.len() == 1;
    let mut earlier = Admitted::default();
    for work in group.iter_mut().filter(|w| w.refused.is_none()) {
        work.refused = refuse(core, work, &earlier).err();
        let writes = !matches!(work.step, Some(Step::Prepare(_)));
        if !alone && writes && work.refused.is_none() {
            earlier.add(core, work);
        }
    }
}

fn refuse(core: &Core, work: &mut Work, earlier: &Admitted) -> Result<()> {
    // Nobody can be in the way of a transaction that was prepared.
    if let Some(Step::Decide(undecided, verdict)) = &work.step {
        if let Some(member) = undecided.member.as_ref().filter(|_| *verdict == Verdict::Commit) {
            let order_of = |id| core.families.by_id(id).map(|f| f.tree.order());
            core.serial.decided(member, Written::of(work, &order_of), core.visible().plus(1));
        }
        return Ok(());
    }
    if core.prepared.any() && !bug::on(Bug::WriterPassesPrepared) {
        validate::leaves_prepared_alone(core, work)?;
    }
    let conditions = work.conditions.take();
    match &work.step {
        Some(Step::Prepare(undecided)) => {
            if let Some(mut conditions) = conditions {
                conditions.check_prepare(core, work, earlier)?;
            }
            core.prepared.enter(undecided)
        }
        _ => conditions.map_or(Ok(()), |mut c| c.check_last(core, work, earlier)),
    }
}

fn find(core: &Core, id: FamilyId) -> Result<Arc<Family>> {
    core.families.by_id(id).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("the batch writes to family {id}, which was dropped"))
    })
}
