//! A batch on its way: checked, sealed but for its place in the log and sorted by family, before anything is locked.
//! Must not know queues or the log. One operation on one family, the commonest batch, allocates nothing here.

use crate::core::Core;
use crate::family::Family;
use crate::settings::Durability;
use crate::shared;
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
    /// The family.
    pub family: Arc<Family>,
    /// Its operations.
    pub ops: Numbered,
}

impl Part {
    /// Bytes of its operations, for dividing the batch.
    pub fn bytes(&self) -> u64 {
        shared::bytes_of(&self.ops)
    }
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
    /// Why it was left out of its group, if it was.
    pub refused: Option<Error>,
}

impl Work {
    /// Checks and prepares a batch.
    ///
    /// # Errors
    /// `NotFound` if it writes to a family that was dropped.
    pub fn prepare(core: &Core, batch: Batch, durability: Durability) -> Result<Work> {
        let record = batch.finish();
        let mut parts: SmallVec<[Part; 1]> = SmallVec::new();
        for (i, op) in Ops::new(&record.buf, record.payload()).enumerate() {
            let op = op?;
            let at = match parts.iter().position(|p| p.family.id == op.family) {
                Some(at) => at,
                None => {
                    // Nearly every batch writes to one family.
                    let room = if parts.is_empty() { record.count as usize } else { 0 };
                    parts.push(Part { family: find(core, op.family)?, ops: SmallVec::with_capacity(room) });
                    parts.len() - 1
                }
            };
            parts[at].ops.push((op, SeqNo(i as u64)));
        }
        Ok(Work { record, parts, durability, refused: None })
    }
    /// Whether it does anything but delete.
    pub fn grows(&self) -> bool {
        self.parts.iter().flat_map(|p| &p.ops).any(|(op, _)| !op.kind.deletes())
    }
    /// Bytes it takes in the log.
    pub fn bytes(&self) -> usize {
        self.record.buf.len()
    }
    /// Leaves it out if a family that it writes to was dropped; in the commit section.
    pub fn refuse_if_dropped(&mut self) {
        self.refused = self.parts.iter().find_map(|p| p.family.check().err());
    }
}

fn find(core: &Core, id: FamilyId) -> Result<Arc<Family>> {
    core.families.by_id(id).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("the batch writes to family {id}, which was dropped"))
    })
}
