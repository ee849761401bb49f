//! Whether a transaction may commit: exact, by asking for what was written since it began. First before the commit section,
//! for all that was committed by then; in the section only for the rest, which lies in memtables.

use super::reads::Reads;
use super::writes::{Target, target};
use crate::core::Core;
use crate::family::Family;
use perigee_base::cut::CutRef;
use perigee_base::{Error, FamilyId, Result, SeqNo};
use perigee_file::log::Op;
use perigee_tree::since;
use std::sync::Arc;

/// What must not have changed since a transaction began.
#[derive(Debug)]
pub struct Conditions {
    /// What it has seen reaches up to here, or was checked up to here.
    pub since: SeqNo,
    /// The era that it began in.
    pub era: u64,
    /// Whether keys that it writes must not have changed.
    pub writes: bool,
    /// What it has read and must not have changed.
    pub reads: Reads,
}

/// The operations of a batch by family, as the commit has them.
pub trait Parts {
    /// Every operation with its family; the buffer that it points into.
    fn each(&self, visit: &mut dyn FnMut(FamilyId, &[u8], &Op));
}

impl Conditions {
    /// Everything that it is about, keys as stretches of their own where the order knows them so.
    fn targets(&self, writes: &dyn Parts, visit: &mut dyn FnMut(FamilyId, Target<'_>)) {
        if self.writes {
            writes.each(&mut |family, buf, op| visit(family, target(buf, op)));
        }
        self.reads.keys().for_each(|(family, key)| visit(family, Target::Key(key)));
        self.reads.ranges().for_each(|(family, begin, end)| visit(family, Target::Range(begin, end)));
    }

    /// Refuses if anything that it is about was written since.
    ///
    /// # Errors
    /// `Conflict`; a read that failed, and then nothing is known.
    pub fn check(&self, core: &Core, writes: &dyn Parts) -> Result<()> {
        let mut outcome = Ok(());
        let mut last: Option<Arc<Family>> = None;
        self.targets(writes, &mut |id, target| {
            if outcome.is_err() {
                return;
            }
            let same = last.take().filter(|f| f.id == id);
            let Some(family) = same.or_else(|| core.families.by_id(id)) else {
                outcome = Err(gone(id));
                return;
            };
            outcome = self.check_one(&family, target);
            last = Some(family);
        });
        outcome
    }

    /// The check before the commit section; what it has seen need not be looked at again.
    pub fn check_early(&mut self, core: &Core, writes: &dyn Parts) -> Result<()> {
        let seen = core.visible();
        self.check(core, writes)?;
        self.since = self.since.max(seen);
        Ok(())
    }

    fn check_one(&self, family: &Family, target: Target<'_>) -> Result<()> {
        let view = family.tree.pin();
        if family.check_since(self.era).is_err() {
            return Err(Error::conflict(&family.name(), b"", "the family was cleared or replaced meanwhile"));
        }
        let changed = match target {
            Target::Key(key) => since::newest(&view, key, self.since)?.map(|_| key.to_vec()),
            Target::Range(begin, end) => since::first_between(&view, (begin, end), self.since)?,
        };
        match changed {
            Some(key) => Err(conflict(family, &key)),
            None => Ok(()),
        }
    }

    /// Refuses if an earlier batch of the same group, not yet applied, writes what it is about.
    pub fn check_beside(&self, core: &Core, writes: &dyn Parts, earlier: &[&dyn Parts]) -> Result<()> {
        let mut outcome = Ok(());
        self.targets(writes, &mut |id, mine| {
            let Some(family) = core.families.by_id(id).filter(|_| outcome.is_ok()) else { return };
            for other in earlier {
                other.each(&mut |of, buf, op| {
                    if of == id && outcome.is_ok() && meet(&family, mine, target(buf, op)) {
                        outcome = Err(conflict(&family, key_of(mine, target(buf, op))));
                    }
                });
            }
        });
        outcome
    }
}

fn gone(id: FamilyId) -> Error {
    Error::new(
        perigee_base::ErrorKind::NotFound,
        format!("the transaction is about family {id}, which was dropped"),
    )
}

fn conflict(family: &Family, key: &[u8]) -> Error {
    Error::conflict(&family.name(), key, "another commit came first; begin the transaction anew")
}

/// Whether two operations are about a key in common.
fn meet(family: &Family, a: Target<'_>, b: Target<'_>) -> bool {
    let order = family.tree.order();
    let inside = |key: &[u8], begin: CutRef<'_>, end: CutRef<'_>| {
        begin.is_before(order, key) && !end.is_before(order, key)
    };
    match (a, b) {
        (Target::Key(a), Target::Key(b)) => order.equal(a, b),
        (Target::Key(key), Target::Range(begin, end)) | (Target::Range(begin, end), Target::Key(key)) => {
            inside(key, begin, end)
        }
        (Target::Range(a, b), Target::Range(c, d)) => CutRef::overlap(order, (a, b), (c, d)),
    }
}

fn key_of<'a>(a: Target<'a>, b: Target<'a>) -> &'a [u8] {
    match (a, b) {
        (Target::Key(key), _) | (_, Target::Key(key)) => key,
        (Target::Range(begin, _), _) => begin.key().unwrap_or_default(),
    }
}
