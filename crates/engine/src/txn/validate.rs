//! Whether a transaction may commit: exact, by asking for what was written since it began. First before the commit section,
//! for all that was committed by then; in the section only for the rest, which lies in memtables.

use crate::core::Core;
use crate::family::Family;
use crate::footprint::{Parts, Place, Reads, Target, Written};
use crate::prepared::shown;
use crate::serial::{Member, Refused, Registry};
use perigee_base::bug::{self, Bug};
use perigee_base::cut::Cut;
use perigee_base::{Error, ErrorKind, FamilyId, KeyOrder, Result, SeqNo};
use perigee_file::log::Op;
use perigee_tree::{Run, Table, since};
use std::collections::HashMap;
use std::sync::Arc;

/// What a transaction depends on beside what it writes.
#[derive(Debug)]
pub enum Depends {
    /// On these, as they were.
    Reads(Reads),
    /// On what the registry makes of them.
    Serial(Arc<Registry>, Arc<Member>),
}

/// What must hold for a transaction to commit.
#[derive(Debug)]
pub struct Conditions {
    /// What it has seen reaches up to here, or was checked up to here.
    pub since: SeqNo,
    /// The era that it began in.
    pub era: u64,
    /// What it has read.
    pub depends: Depends,
    /// What it has read was written since (of serializable ones, which may commit all the same).
    pub overwritten: bool,
}

/// Goes through targets until one fails.
type Visit<'a> = &'a mut dyn FnMut(FamilyId, Target<'_>);

fn all_of(parts: &dyn Parts, visit: Visit<'_>) {
    parts.each(&mut |family, buf, op| visit(family, Target::of(buf, op)));
}

/// The first of the targets over which there is a conflict.
fn first_conflict(
    targets: impl FnOnce(Visit<'_>),
    mut conflict: impl FnMut(FamilyId, Target<'_>) -> Result<Option<Error>>,
) -> Result<Option<Error>> {
    let mut found = Ok(None);
    targets(&mut |family, target| {
        if matches!(found, Ok(None)) {
            found = conflict(family, target);
        }
    });
    found
}

impl Conditions {
    fn reads(&self, visit: Visit<'_>) {
        match &self.depends {
            Depends::Reads(reads) => reads.each(visit),
            Depends::Serial(_, member) => member.reads().each(visit),
        }
    }
    fn serial(&self) -> bool {
        matches!(self.depends, Depends::Serial(..))
    }

    /// Refuses if what it is about was written since; or notes it, where that alone is no reason.
    fn check(&mut self, core: &Core, writes: &dyn Parts, conflict: Conflict<'_>) -> Result<()> {
        if let Some(e) = first_conflict(|visit| all_of(writes, visit), conflict)? {
            return Err(e);
        }
        if !self.overwritten
            && let Some(e) = first_conflict(|visit| self.reads(visit), conflict)?
        {
            if !self.serial() {
                return Err(e);
            }
            self.overwritten = true;
        }
        core.health.check_open()
    }

    /// The check before the commit section; what it has seen need not be looked at again.
    ///
    /// # Errors
    /// `Conflict`; a read that failed, and then nothing is known.
    pub fn check_early(&mut self, core: &Core, writes: &dyn Parts) -> Result<()> {
        let (seen, since, era) = (core.visible(), self.since, self.era);
        self.check(core, writes, &|id, target| written_since(core, id, target, since, era))?;
        self.since = self.since.max(if bug::on(Bug::StaleConditions) { seen_late(core) } else { seen });
        Ok(())
    }

    /// The last check, in the commit section, beside the `earlier` batches of its group, which are not applied yet.
    ///
    /// # Errors
    /// As [`Conditions::check_early`].
    pub fn check_last(&mut self, core: &Core, writes: &dyn Parts, earlier: &Admitted) -> Result<()> {
        if bug::on(Bug::SkipLastCheck) {
            return Ok(());
        }
        let (since, era) = (self.since, self.era);
        self.check(core, writes, &|id, target| written_since(core, id, target, since, era))?;
        if !earlier.is_empty() {
            self.check(core, writes, &|id, target| Ok(written_by(core, id, target, earlier)))?;
        }
        let Depends::Serial(registry, member) = &self.depends else { return Ok(()) };
        let order_of = |id| core.families.by_id(id).map(|f| f.tree.order());
        let written = Written::of(writes, &order_of);
        let next = core.visible().plus(1);
        registry.commit(member, written, self.overwritten, next).map_err(|r| refused(core, r))
    }
}

/// What a transaction has written beyond its memory: the final tables of each family, which nobody else knows yet.
pub type Spilled = [(Arc<Family>, Arc<Run>)];

/// No writes.
struct Nothing;

impl Parts for Nothing {
    fn each(&self, _: &mut dyn FnMut(FamilyId, &[u8], &Op)) {}
}

impl Conditions {
    /// Refuses if what tables hold, or what was read, was written since. What it has seen need not be looked at again: so
    /// the last check, in the commit section, has little left to look at.
    ///
    /// # Errors
    /// As [`Conditions::check_early`].
    pub fn check_spilled(&mut self, core: &Core, spilled: &Spilled) -> Result<()> {
        let (seen, since, era) = (core.visible(), self.since, self.era);
        for (family, run) in spilled {
            let view = family.tree.view();
            if family.check_since(era).is_err() {
                let text = "the family was cleared or replaced meanwhile";
                return Err(Error::conflict(&family.name(), b"", text));
            }
            if let Some(key) = since::first_met(&view, run, since)? {
                return Err(conflict(family, &key));
            }
        }
        self.check(core, &Nothing, &|id, target| written_since(core, id, target, since, era))?;
        self.since = self.since.max(seen);
        Ok(())
    }
    /// Takes its place among the serializable ones, if it is one, in the commit section. They know of its writes only from
    /// where to where each table reaches: more may meet what they read, never less.
    ///
    /// # Errors
    /// `Conflict`.
    pub fn enter_spilled(&self, core: &Core, spilled: &Spilled) -> Result<()> {
        let Depends::Serial(registry, member) = &self.depends else { return Ok(()) };
        let of = |(family, run): &(Arc<Family>, Arc<Run>)| {
            let (id, order) = (family.id, family.tree.order());
            let reach = |t: &Arc<Table>| {
                let s = &t.meta.summary;
                (id, order, 0, Place::Stretch(s.begin(order).to_cut(), s.end(order).to_cut()))
            };
            run.tables.iter().map(reach).collect::<Vec<_>>()
        };
        let written = Written(spilled.iter().flat_map(of).collect());
        let next = core.visible().plus(1);
        registry.commit(member, written, self.overwritten, next).map_err(|r| refused(core, r))
    }
}

/// The seeded bug.
fn seen_late(core: &Core) -> SeqNo {
    core.env.clock.sleep_us(1);
    core.visible()
}

impl Conditions {
    /// The last check of a transaction that is being prepared, in the commit section. It promises more than a commit does: nothing that
    /// it is about may change until the decision, so nothing may be about to.
    ///
    /// # Errors
    /// As [`Conditions::check_early`]; also where a serializable transaction might still commit.
    pub fn check_prepare(&mut self, core: &Core, writes: &dyn Parts, earlier: &Admitted) -> Result<()> {
        let (since, era) = (self.since, self.era);
        self.check(core, writes, &|id, target| written_since(core, id, target, since, era))?;
        if !earlier.is_empty() {
            self.check(core, writes, &|id, target| Ok(written_by(core, id, target, earlier)))?;
        }
        if self.overwritten && !bug::on(Bug::PrepareOverwritten) {
            let text = "what it read was overwritten, so it cannot be prepared; begin the transaction anew";
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        let about_to_be_written = |id, target: Target<'_>| Ok(guarded(core, id, target, false));
        first_conflict(|visit| self.reads(visit), about_to_be_written)?.map_or(Ok(()), Err)
    }
    /// Everything that it has read and its level protects.
    pub fn each_read(&self, visit: &mut dyn FnMut(FamilyId, Target<'_>)) {
        self.reads(visit);
    }
}

/// The conflict, if a prepared transaction wrote something of `target`; `writes`: or has read it.
fn guarded(core: &Core, id: FamilyId, target: Target<'_>, writes: bool) -> Option<Error> {
    let family = core.families.by_id(id)?;
    let met = core.prepared.met(id, family.tree.order(), target, writes)?;
    let text = format!("the transaction prepared as {} is not decided; try again", shown(&met.gid));
    Some(Error::conflict(&family.name(), &met.key, &text))
}

/// Refuses a write of `target`, as [`leaves_prepared_alone`] does.
///
/// # Errors
/// `Conflict`.
pub fn check_undecided(core: &Core, id: FamilyId, target: Target<'_>) -> Result<()> {
    guarded(core, id, target, true).map_or(Ok(()), Err)
}

/// Refuses a batch that writes what a prepared transaction wrote, or read where that counts; in the commit section.
///
/// # Errors
/// `Conflict`.
pub fn leaves_prepared_alone(core: &Core, writes: &dyn Parts) -> Result<()> {
    let conflict = |id, target: Target<'_>| Ok(guarded(core, id, target, true));
    first_conflict(|visit| all_of(writes, visit), conflict)?.map_or(Ok(()), Err)
}

type Conflict<'a> = &'a dyn Fn(FamilyId, Target<'_>) -> Result<Option<Error>>;

/// The conflict, if what `target` is about has a version newer than `since`.
fn written_since(
    core: &Core,
    id: FamilyId,
    target: Target<'_>,
    since: SeqNo,
    era: u64,
) -> Result<Option<Error>> {
    let Some(family) = core.families.by_id(id) else {
        let text = format!("the transaction is about family {id}, which was dropped");
        return Err(Error::new(ErrorKind::NotFound, text));
    };
    let view = family.tree.pin();
    if family.check_since(era).is_err() {
        let text = "the family was cleared or replaced meanwhile";
        return Ok(Some(Error::conflict(&family.name(), target.key(), text)));
    }
    let changed = match target {
        Target::Key(key) => since::newest(&view, key, since)?.map(|_| key.to_vec()),
        Target::Range(begin, end) => since::first_between(&view, (begin, end), since)?,
    };
    Ok(changed.map(|key| conflict(&family, &key)))
}

/// What the batches of a group write that were admitted so far.
#[derive(Debug, Default)]
pub struct Admitted {
    keys: Vec<(FamilyId, Vec<u8>)>,
    /// Where in `keys` those of a hash are (0 for all of an order in which equal keys may differ in it).
    by_hash: HashMap<(FamilyId, u64), Vec<usize>>,
    ranges: Vec<(FamilyId, Cut, Cut)>,
}

impl Admitted {
    /// Adds a batch.
    pub fn add(&mut self, core: &Core, writes: &dyn Parts) {
        writes.each(&mut |id, buf, op| {
            let Some(family) = core.families.by_id(id) else { return };
            match Target::of(buf, op) {
                Target::Key(key) => {
                    let hash = family.tree.order().equal_hash(key);
                    self.by_hash.entry((id, hash)).or_default().push(self.keys.len());
                    self.keys.push((id, key.to_vec()));
                }
                Target::Range(begin, end) => self.ranges.push((id, begin.to_cut(), end.to_cut())),
            }
        });
    }
    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }
    /// A key that both `target` and the batches are about.
    fn met(&self, order: KeyOrder, id: FamilyId, target: Target<'_>) -> Option<Vec<u8>> {
        let ranges = self.ranges.iter().filter(|(f, ..)| *f == id);
        let mut ranges = ranges.map(|(_, b, e)| Target::Range(b.as_ref(), e.as_ref()));
        let in_range = ranges.find(|r| target.meets(order, *r));
        if let Some(range) = in_range {
            let key = if let Target::Key(key) = target { key } else { range.key() };
            return Some(key.to_vec());
        }
        match target {
            Target::Key(key) => {
                let same = self.by_hash.get(&(id, order.equal_hash(key)))?;
                same.iter().map(|at| &self.keys[*at].1).find(|k| order.equal(k, key)).cloned()
            }
            Target::Range(..) => {
                let mine = self.keys.iter().filter(|(f, _)| *f == id).map(|(_, k)| k);
                mine.into_iter().find(|k| target.meets(order, Target::Key(k))).cloned()
            }
        }
    }
}

/// The conflict, if a batch of the group writes what `target` is about.
fn written_by(core: &Core, id: FamilyId, target: Target<'_>, earlier: &Admitted) -> Option<Error> {
    let family = core.families.by_id(id)?;
    earlier.met(family.tree.order(), id, target).map(|key| conflict(&family, &key))
}

fn conflict(family: &Family, key: &[u8]) -> Error {
    Error::conflict(&family.name(), key, "another commit came first; begin the transaction anew")
}

/// What the registry answered, as an error.
pub fn refused(core: &Core, why: Refused) -> Error {
    const TEXT: &str = "it would be in no order with transactions beside it; begin it anew";
    let place = why.0.and_then(|(id, place)| Some((core.families.by_id(id)?, place)));
    match place {
        Some((family, place)) => Error::conflict(&family.name(), place.target().key(), TEXT),
        None => Error::new(ErrorKind::Conflict, TEXT),
    }
}
