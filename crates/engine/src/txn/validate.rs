//! Whether a transaction may commit: exact, by asking for what was written since it began. First
//! before the commit section, for all that was committed by then; in the section only for the rest,
//! which lies in memtables.

use crate::core::EngineCore;
use crate::family::FamilyState;
use crate::prepared_txns::display_gid;
use crate::read_write_sets::{BatchOperations, KeyOrRange, KeyOrRangeRef, ReadSet, WriteSet};
use crate::serializable_txns::{SerializableTxn, SerializableTxns, SerializationFailure};
use perigee_base::bug::{self, Bug};
use perigee_base::key_boundary::KeyBoundary;
use perigee_base::{Error, ErrorKind, FamilyId, KeyComparator, Result, SeqNo};
use perigee_file::log::BatchOp;
use perigee_tree::{Run, Table, conflict_check};
use std::collections::HashMap;
use std::sync::Arc;

/// What a transaction depends on beside what it writes.
#[derive(Debug)]
pub enum ReadDependencies {
    /// On these, as they were.
    Reads(ReadSet),
    /// On what the registry makes of them.
    Serial(Arc<SerializableTxns>, Arc<SerializableTxn>),
}

/// What must hold for a transaction to commit.
#[derive(Debug)]
pub struct CommitConditions {
    /// What it has seen reaches up to here, or was checked up to here.
    pub checked_seq: SeqNo,
    /// The era that it began in.
    pub era: u64,
    /// What it has read.
    pub depends: ReadDependencies,
    /// What it has read was written since (of serializable ones, which may commit all the same).
    pub reads_overwritten: bool,
}

/// Goes through targets until one fails.
type TargetVisitor<'a> = &'a mut dyn FnMut(FamilyId, KeyOrRangeRef<'_>);

fn visit_write_targets(parts: &dyn BatchOperations, visit: TargetVisitor<'_>) {
    parts.for_each_operation(&mut |family, buf, op| {
        visit(family, KeyOrRangeRef::of_operation(buf, op))
    });
}

/// The first of the targets over which there is a conflict.
fn find_first_conflict(
    targets: impl FnOnce(TargetVisitor<'_>),
    mut conflict: impl FnMut(FamilyId, KeyOrRangeRef<'_>) -> Result<Option<Error>>,
) -> Result<Option<Error>> {
    let mut found = Ok(None);
    targets(&mut |family, target| {
        if matches!(found, Ok(None)) {
            found = conflict(family, target);
        }
    });
    found
}

impl CommitConditions {
    fn visit_reads(&self, visit: TargetVisitor<'_>) {
        match &self.depends {
            ReadDependencies::Reads(reads) => reads.for_each(visit),
            ReadDependencies::Serial(_, member) => member.reads().for_each(visit),
        }
    }
    fn is_serializable(&self) -> bool {
        matches!(self.depends, ReadDependencies::Serial(..))
    }

    /// Refuses if what it is about was written since; or notes it, where that alone is no reason.
    fn check_conflicts(
        &mut self,
        core: &EngineCore,
        writes: &dyn BatchOperations,
        conflict: ConflictCheck<'_>,
    ) -> Result<()> {
        if let Some(e) = find_first_conflict(|visit| visit_write_targets(writes, visit), conflict)?
        {
            return Err(e);
        }
        if !self.reads_overwritten
            && let Some(e) = find_first_conflict(|visit| self.visit_reads(visit), conflict)?
        {
            if !self.is_serializable() {
                return Err(e);
            }
            self.reads_overwritten = true;
        }
        core.health.check_open()
    }

    /// The check before the commit section; what it has seen need not be looked at again.
    ///
    /// # Errors
    /// `Conflict`; a read that failed, and then nothing is known.
    pub fn check_before_section(
        &mut self,
        core: &EngineCore,
        writes: &dyn BatchOperations,
    ) -> Result<()> {
        let (seen, since, era) = (core.visible_seq(), self.checked_seq, self.era);
        self.check_conflicts(core, writes, &|id, target| {
            find_conflict_since(core, id, target, since, era)
        })?;
        self.checked_seq = self.checked_seq.max(if bug::is_active(Bug::StaleConditions) {
            read_visible_late(core)
        } else {
            seen
        });
        Ok(())
    }

    /// The last check, in the commit section, beside the `earlier` batches of its group, which are
    /// not applied yet.
    ///
    /// # Errors
    /// As [`CommitConditions::check_before_section`].
    pub fn check_in_section(
        &mut self,
        core: &EngineCore,
        writes: &dyn BatchOperations,
        earlier: &AdmittedWrites,
    ) -> Result<()> {
        if bug::is_active(Bug::SkipLastCheck) {
            return Ok(());
        }
        let (since, era) = (self.checked_seq, self.era);
        self.check_conflicts(core, writes, &|id, target| {
            find_conflict_since(core, id, target, since, era)
        })?;
        if !earlier.is_empty() {
            self.check_conflicts(core, writes, &|id, target| {
                Ok(find_group_conflict(core, id, target, earlier))
            })?;
        }
        let ReadDependencies::Serial(registry, member) = &self.depends else { return Ok(()) };
        let order_of = |id| core.families.by_id(id).map(|f| f.tree.comparator());
        let written = WriteSet::of_batch(writes, &order_of);
        let next = core.visible_seq().plus(1);
        registry
            .commit(member, written, self.reads_overwritten, next)
            .map_err(|r| serialization_error(core, r))
    }
}

/// What a transaction has written beyond its memory: the final tables of each family, which nobody
/// else knows yet.
pub type SpilledFamilyRuns = [(Arc<FamilyState>, Arc<Run>)];

/// No writes.
struct NoWrites;

impl BatchOperations for NoWrites {
    fn for_each_operation(&self, _: &mut dyn FnMut(FamilyId, &[u8], &BatchOp)) {}
}

impl CommitConditions {
    /// Refuses if what tables hold, or what was read, was written since. What it has seen need not
    /// be looked at again: so the last check, in the commit section, has little left to look at.
    ///
    /// # Errors
    /// As [`CommitConditions::check_before_section`].
    pub fn check_spilled(&mut self, core: &EngineCore, spilled: &SpilledFamilyRuns) -> Result<()> {
        let (seen, since, era) = (core.visible_seq(), self.checked_seq, self.era);
        for (family, run) in spilled {
            let view = family.tree.view();
            if family.check_contents_epoch(era).is_err() {
                let text = "the family was cleared or replaced meanwhile";
                return Err(Error::conflict(&family.name(), b"", text));
            }
            if let Some(key) = conflict_check::find_conflict_with_run(&view, run, since)? {
                return Err(conflict_error(family, &key));
            }
        }
        self.check_conflicts(core, &NoWrites, &|id, target| {
            find_conflict_since(core, id, target, since, era)
        })?;
        self.checked_seq = self.checked_seq.max(seen);
        Ok(())
    }
    /// Takes its place among the serializable ones, if it is one, in the commit section. They know
    /// of its writes only from where to where each table reaches: more may meet what they read,
    /// never less.
    ///
    /// # Errors
    /// `Conflict`.
    pub fn register_spilled(&self, core: &EngineCore, spilled: &SpilledFamilyRuns) -> Result<()> {
        let ReadDependencies::Serial(registry, member) = &self.depends else { return Ok(()) };
        let of = |(family, run): &(Arc<FamilyState>, Arc<Run>)| {
            let (id, order) = (family.id, family.tree.comparator());
            let reach = |t: &Arc<Table>| {
                let s = &t.meta.summary;
                (
                    id,
                    order,
                    0,
                    KeyOrRange::Range(s.begin(order).to_boundary(), s.end(order).to_boundary()),
                )
            };
            run.tables.iter().map(reach).collect::<Vec<_>>()
        };
        let written = WriteSet(spilled.iter().flat_map(of).collect());
        let next = core.visible_seq().plus(1);
        registry
            .commit(member, written, self.reads_overwritten, next)
            .map_err(|r| serialization_error(core, r))
    }
}

/// The seeded bug.
fn read_visible_late(core: &EngineCore) -> SeqNo {
    core.env.clock.sleep_us(1);
    core.visible_seq()
}

impl CommitConditions {
    /// The last check of a transaction that is being prepared, in the commit section. It promises
    /// more than a commit does: nothing that it is about may change until the decision, so nothing
    /// may be about to.
    ///
    /// # Errors
    /// As [`CommitConditions::check_before_section`]; also where a serializable transaction might
    /// still commit.
    pub fn check_prepare(
        &mut self,
        core: &EngineCore,
        writes: &dyn BatchOperations,
        earlier: &AdmittedWrites,
    ) -> Result<()> {
        let (since, era) = (self.checked_seq, self.era);
        self.check_conflicts(core, writes, &|id, target| {
            find_conflict_since(core, id, target, since, era)
        })?;
        if !earlier.is_empty() {
            self.check_conflicts(core, writes, &|id, target| {
                Ok(find_group_conflict(core, id, target, earlier))
            })?;
        }
        if self.reads_overwritten && !bug::is_active(Bug::PrepareOverwritten) {
            let text = "what it read was overwritten, so it cannot be prepared; begin the transaction anew";
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        let about_to_be_written =
            |id, target: KeyOrRangeRef<'_>| Ok(find_prepared_conflict(core, id, target, false));
        find_first_conflict(|visit| self.visit_reads(visit), about_to_be_written)?
            .map_or(Ok(()), Err)
    }
    /// Everything that it has read and its level protects.
    pub fn visit_protected_reads(&self, visit: &mut dyn FnMut(FamilyId, KeyOrRangeRef<'_>)) {
        self.visit_reads(visit);
    }
}

/// The conflict, if a prepared transaction wrote something of `target`; `writes`: or has read it.
fn find_prepared_conflict(
    core: &EngineCore,
    id: FamilyId,
    target: KeyOrRangeRef<'_>,
    writes: bool,
) -> Option<Error> {
    let family = core.families.by_id(id)?;
    let met = core.prepared_txns.find_conflict(id, family.tree.comparator(), target, writes)?;
    let text =
        format!("the transaction prepared as {} is not decided; try again", display_gid(&met.gid));
    Some(Error::conflict(&family.name(), &met.key, &text))
}

/// Refuses a write of `target`, as [`check_prepared_writes`] does.
///
/// # Errors
/// `Conflict`.
pub fn check_prepared_target(
    core: &EngineCore,
    id: FamilyId,
    target: KeyOrRangeRef<'_>,
) -> Result<()> {
    find_prepared_conflict(core, id, target, true).map_or(Ok(()), Err)
}

/// Refuses a batch that writes what a prepared transaction wrote, or read where that counts; in the
/// commit section.
///
/// # Errors
/// `Conflict`.
pub fn check_prepared_writes(core: &EngineCore, writes: &dyn BatchOperations) -> Result<()> {
    let conflict =
        |id, target: KeyOrRangeRef<'_>| Ok(find_prepared_conflict(core, id, target, true));
    find_first_conflict(|visit| visit_write_targets(writes, visit), conflict)?.map_or(Ok(()), Err)
}

type ConflictCheck<'a> = &'a dyn Fn(FamilyId, KeyOrRangeRef<'_>) -> Result<Option<Error>>;

/// The conflict, if what `target` is about has a version newer than `since`.
fn find_conflict_since(
    core: &EngineCore,
    id: FamilyId,
    target: KeyOrRangeRef<'_>,
    since: SeqNo,
    era: u64,
) -> Result<Option<Error>> {
    let Some(family) = core.families.by_id(id) else {
        let text = format!("the transaction is about family {id}, which was dropped");
        return Err(Error::new(ErrorKind::NotFound, text));
    };
    let view = family.tree.pin();
    if family.check_contents_epoch(era).is_err() {
        let text = "the family was cleared or replaced meanwhile";
        return Ok(Some(Error::conflict(&family.name(), target.start_key(), text)));
    }
    let changed = match target {
        KeyOrRangeRef::Key(key) => {
            conflict_check::newest_version_since(&view, key, since)?.map(|_| key.to_vec())
        }
        KeyOrRangeRef::Range(begin, end) => {
            conflict_check::find_conflict_in_range(&view, (begin, end), since)?
        }
    };
    Ok(changed.map(|key| conflict_error(&family, &key)))
}

/// What the batches of a group write that were admitted so far.
#[derive(Debug, Default)]
pub struct AdmittedWrites {
    keys: Vec<(FamilyId, Vec<u8>)>,
    /// Where in `keys` those of a hash are (0 for all of an order in which equal keys may differ in
    /// it).
    by_hash: HashMap<(FamilyId, u64), Vec<usize>>,
    ranges: Vec<(FamilyId, KeyBoundary, KeyBoundary)>,
}

impl AdmittedWrites {
    /// Adds a batch.
    pub fn add_writes(&mut self, core: &EngineCore, writes: &dyn BatchOperations) {
        writes.for_each_operation(&mut |id, buf, op| {
            let Some(family) = core.families.by_id(id) else { return };
            match KeyOrRangeRef::of_operation(buf, op) {
                KeyOrRangeRef::Key(key) => {
                    let hash = family.tree.comparator().equality_hash(key);
                    self.by_hash.entry((id, hash)).or_default().push(self.keys.len());
                    self.keys.push((id, key.to_vec()));
                }
                KeyOrRangeRef::Range(begin, end) => {
                    self.ranges.push((id, begin.to_boundary(), end.to_boundary()))
                }
            }
        });
    }
    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }
    /// A key that both `target` and the batches are about.
    fn find_overlap(
        &self,
        order: KeyComparator,
        id: FamilyId,
        target: KeyOrRangeRef<'_>,
    ) -> Option<Vec<u8>> {
        let ranges = self.ranges.iter().filter(|(f, ..)| *f == id);
        let mut ranges = ranges.map(|(_, b, e)| KeyOrRangeRef::Range(b.as_ref(), e.as_ref()));
        let in_range = ranges.find(|r| target.overlaps(order, *r));
        if let Some(range) = in_range {
            let key = if let KeyOrRangeRef::Key(key) = target { key } else { range.start_key() };
            return Some(key.to_vec());
        }
        match target {
            KeyOrRangeRef::Key(key) => {
                let same = self.by_hash.get(&(id, order.equality_hash(key)))?;
                same.iter().map(|at| &self.keys[*at].1).find(|k| order.keys_equal(k, key)).cloned()
            }
            KeyOrRangeRef::Range(..) => {
                let mine = self.keys.iter().filter(|(f, _)| *f == id).map(|(_, k)| k);
                mine.into_iter().find(|k| target.overlaps(order, KeyOrRangeRef::Key(k))).cloned()
            }
        }
    }
}

/// The conflict, if a batch of the group writes what `target` is about.
fn find_group_conflict(
    core: &EngineCore,
    id: FamilyId,
    target: KeyOrRangeRef<'_>,
    earlier: &AdmittedWrites,
) -> Option<Error> {
    let family = core.families.by_id(id)?;
    earlier
        .find_overlap(family.tree.comparator(), id, target)
        .map(|key| conflict_error(&family, &key))
}

fn conflict_error(family: &FamilyState, key: &[u8]) -> Error {
    Error::conflict(&family.name(), key, "another commit came first; begin the transaction anew")
}

/// What the registry answered, as an error.
pub fn serialization_error(core: &EngineCore, why: SerializationFailure) -> Error {
    const TEXT: &str = "it would be in no order with transactions beside it; begin it anew";
    let place = why.0.and_then(|(id, place)| Some((core.families.by_id(id)?, place)));
    match place {
        Some((family, place)) => {
            Error::conflict(&family.name(), place.borrowed().start_key(), TEXT)
        }
        None => Error::new(ErrorKind::Conflict, TEXT),
    }
}
