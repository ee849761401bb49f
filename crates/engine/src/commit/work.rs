//! A batch on its way: checked, sealed but for its place in the log and sorted by family, before anything is locked.
//! Must not know queues or the log. One operation on one family, the commonest batch, allocates nothing here.

use super::admit;
use crate::core::Core;
use crate::family::Family;
use crate::footprint::Parts;
use crate::settings::Durability;
use crate::shared;
use crate::txn::validate::{Admitted, Conditions};
use perigee_base::{Error, ErrorKind, FamilyId, Result, SeqNo};
use perigee_file::log::batch::Finished;
use perigee_file::log::{Batch, Op, Ops};
use smallvec::SmallVec;
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
    /// Why it was left out of its group, if it was.
    pub refused: Option<Error>,
    /// The number of its last operation, once it is applied.
    pub last: SeqNo,
}

impl Work {
    /// Checks and prepares a batch.
    ///
    /// # Errors
    /// `NotFound` if it is a large one and writes to a family that was dropped. Small ones hear it in the commit section.
    pub fn prepare(core: &Core, batch: Batch, durability: Durability) -> Result<Work> {
        let record = batch.finish();
        let mut parts: SmallVec<[Part; 1]> = SmallVec::new();
        for (i, op) in Ops::new(&record.buf, record.payload()).enumerate() {
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
        Ok(Work { record, parts, durability, conditions: None, refused: None, last: SeqNo::ZERO })
    }
    /// Whether it does anything but delete.
    pub fn grows(&self) -> bool {
        self.parts.iter().flat_map(|p| &p.ops).any(|(op, _)| !op.kind.deletes())
    }
    /// What its writer is answered after its group went well: its number, or why it was left out.
    pub fn answer(self) -> Result<SeqNo> {
        self.refused.map_or(Ok(self.last), Err)
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
    if group.iter().all(|w| w.conditions.is_none()) {
        return;
    }
    let alone = group.len() == 1;
    let mut earlier = Admitted::default();
    for work in group.iter_mut().filter(|w| w.refused.is_none()) {
        if let Some(mut conditions) = work.conditions.take() {
            work.refused = conditions.check_last(core, work, &earlier).err();
        }
        if !alone && work.refused.is_none() {
            earlier.add(core, work);
        }
    }
}

fn find(core: &Core, id: FamilyId) -> Result<Arc<Family>> {
    core.families.by_id(id).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("the batch writes to family {id}, which was dropped"))
    })
}
