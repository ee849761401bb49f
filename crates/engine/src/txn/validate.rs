//! Validates transactions at commit: exactly, by searching for versions written since the
//! transaction began. The first check runs outside of the commit section, for everything committed
//! by then; the second, in the section, only has to check the rest, which is in memtables.

use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::runtime::Runtime;
use crate::txn::TxnManager;
use crate::txn::guarded_keys::GuardedKeys;
use crate::txn::prepared_txn::PreparedTxn;
use crate::txn::prepared_txns::display_gid;
use crate::txn::read_write_sets::{BatchOperations, KeyOrRangeRef, ReadSet, WriteSet};
use crate::txn::serializable_txns::{SerializableTxn, SerializableTxns, SerializationFailure};
use crate::txn::spilled_tables::{SpilledFamilyRuns, find_in_run, write_set_of};
use perigee_base::bug::Bug;
use perigee_base::{Error, ErrorKind, FamilyId, KeyBoundary, KeyComparator, Result, SeqNo, bug};
use perigee_file::log::BatchOp;
use perigee_tree::{StripedGuard, View, read};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;

/// What a transaction depends on besides its writes.
#[derive(Debug)]
pub enum ReadDependencies {
    /// Its reads must be unchanged.
    Reads(ReadSet),
    /// The registry of serializable transactions decides.
    Serial(Arc<SerializableTxns>, Arc<SerializableTxn>),
}

/// The conditions for a transaction to commit.
#[derive(Debug)]
pub struct CommitConditions {
    /// Sequence number of its snapshot, or up to which its conditions were checked.
    pub checked_seq: SeqNo,
    /// The contents epoch in which it began.
    pub contents_epoch: u64,
    /// Its reads.
    pub depends: ReadDependencies,
    /// Something it has read was overwritten (serializable transactions only, which may still
    /// commit).
    pub reads_overwritten: bool,
}

/// Callback for each key or range to check.
type TargetVisitor<'a> = &'a mut dyn FnMut(FamilyId, KeyOrRangeRef<'_>);

fn visit_write_targets(parts: &dyn BatchOperations, visit: TargetVisitor<'_>) {
    parts.for_each_operation(&mut |family, buf, op| {
        visit(family, KeyOrRangeRef::of_operation(buf, op))
    });
}

/// Returns the first conflict of the targets.
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
    fn check_position(&self, catalog: &Catalog) {
        check_slow!(
            self.checked_seq <= catalog.visible_seq(),
            "a transaction is checked only against what was visible",
            self.checked_seq,
            catalog.visible_seq()
        );
    }
    fn is_serializable(&self) -> bool {
        matches!(self.depends, ReadDependencies::Serial(..))
    }

    /// Returns the search for what was committed since the last check.
    fn committed_conflicts<'a>(&self, catalog: &'a Catalog) -> CommittedConflicts<'a> {
        let (since, contents_epoch) = (self.checked_seq, self.contents_epoch);
        CommittedConflicts { catalog, since, contents_epoch, families: SmallVec::new() }
    }

    /// Fails if a target was written since; for the reads of a serializable transaction only
    /// records that.
    fn check_conflicts(
        &mut self,
        runtime: &Runtime,
        writes: &dyn BatchOperations,
        conflict: ConflictCheck<'_>,
    ) -> Result<()> {
        let of_writes =
            find_first_conflict(|visit| visit_write_targets(writes, visit), &mut *conflict)?;
        if let Some(e) = of_writes {
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
        check_slow!(
            !self.reads_overwritten || self.is_serializable(),
            "only a serializable transaction commits although its reads were overwritten",
            self.checked_seq
        );
        runtime.health.check_open()
    }

    /// The check before the commit section; what it covers need not be checked again.
    ///
    /// # Errors
    /// `Conflict`; the error of a failed read, and then the result is unknown.
    pub fn check_before_section(
        &mut self,
        catalog: &Catalog,
        writes: &dyn BatchOperations,
    ) -> Result<()> {
        let seen = catalog.visible_seq();
        let mut committed = self.committed_conflicts(catalog);
        self.check_conflicts(&catalog.runtime, writes, &mut |id, target| {
            committed.find(id, target)
        })?;
        self.checked_seq = self.checked_seq.max(if bug::is_active(Bug::StaleConditions) {
            read_visible_late(catalog)
        } else {
            seen
        });
        Ok(())
    }

    /// The final check, in the commit section; includes the `earlier` batches of the same group,
    /// which are not applied yet.
    ///
    /// # Errors
    /// Same as [`CommitConditions::check_before_section`].
    pub fn check_in_section(
        &mut self,
        catalog: &Catalog,
        writes: &dyn BatchOperations,
        earlier: &AdmittedWrites,
    ) -> Result<()> {
        if bug::is_active(Bug::SkipLastCheck) {
            return Ok(());
        }
        self.check_position(catalog);
        let mut committed = self.committed_conflicts(catalog);
        self.check_conflicts(&catalog.runtime, writes, &mut |id, target| {
            committed.find(id, target)
        })?;
        if !earlier.is_empty() {
            self.check_conflicts(&catalog.runtime, writes, &mut |id, target| {
                Ok(find_group_conflict(catalog, id, target, earlier))
            })?;
        }
        let ReadDependencies::Serial(registry, member) = &self.depends else { return Ok(()) };
        let comparator_of = |id| catalog.families().by_id(id).map(|f| f.tree.comparator());
        let written = WriteSet::of_batch(writes, &comparator_of);
        let next = catalog.visible_seq().plus(1);
        registry
            .commit(member, written, self.reads_overwritten, next)
            .map_err(|r| serialization_error(catalog, r))
    }
}

/// An empty set of writes.
struct NoWrites;

impl BatchOperations for NoWrites {
    fn for_each_operation(&self, _: &mut dyn FnMut(FamilyId, &[u8], &BatchOp)) {}
}

impl CommitConditions {
    /// Fails if entries of the spilled tables, or reads, were written since. What it covers need
    /// not be checked again, so the final check in the commit section is short.
    ///
    /// # Errors
    /// Same as [`CommitConditions::check_before_section`].
    pub fn check_spilled(&mut self, catalog: &Catalog, spilled: &SpilledFamilyRuns) -> Result<()> {
        let (seen, since, contents_epoch) =
            (catalog.visible_seq(), self.checked_seq, self.contents_epoch);
        for (family, run) in spilled {
            let view = family.tree.view();
            if family.check_contents_epoch(contents_epoch).is_err() {
                let text = "the column family was cleared or replaced in the meantime";
                return Err(Error::conflict(&family.name(), b"", text));
            }
            if let Some(key) = read::find_conflict_with_run(&view, run, since)? {
                return Err(conflict_error(family, &key));
            }
        }
        let mut committed = self.committed_conflicts(catalog);
        self.check_conflicts(&catalog.runtime, &NoWrites, &mut |id, target| {
            committed.find(id, target)
        })?;
        self.checked_seq = self.checked_seq.max(seen);
        Ok(())
    }
    /// Registers the commit with the serializable transactions, if it is one. Called in the commit
    /// section. Its writes are approximated by the key range of each table: that may cause more
    /// conflicts, never fewer.
    ///
    /// # Errors
    /// `Conflict`.
    pub fn register_spilled(&self, catalog: &Catalog, spilled: &SpilledFamilyRuns) -> Result<()> {
        let ReadDependencies::Serial(registry, member) = &self.depends else { return Ok(()) };
        let next = catalog.visible_seq().plus(1);
        registry
            .commit(member, write_set_of(spilled), self.reads_overwritten, next)
            .map_err(|r| serialization_error(catalog, r))
    }
}

/// Seeded bug: reads the visible sequence number after the check.
fn read_visible_late(catalog: &Catalog) -> SeqNo {
    catalog.runtime.env.clock.sleep_us(1);
    catalog.visible_seq()
}

impl CommitConditions {
    /// The final check before a transaction is prepared, in the commit section. It promises more
    /// than a commit: nothing it depends on may change until the decision, so no prepared
    /// transaction may have a pending write to it.
    ///
    /// # Errors
    /// Same as [`CommitConditions::check_before_section`]; also where a serializable transaction
    /// might still commit.
    pub fn check_prepare(
        &mut self,
        txns: &TxnManager,
        writes: &dyn BatchOperations,
        earlier: &AdmittedWrites,
    ) -> Result<()> {
        self.check_position(&txns.catalog);
        let mut committed = self.committed_conflicts(&txns.catalog);
        self.check_conflicts(&txns.runtime, writes, &mut |id, target| committed.find(id, target))?;
        if !earlier.is_empty() {
            self.check_conflicts(&txns.runtime, writes, &mut |id, target| {
                Ok(find_group_conflict(&txns.catalog, id, target, earlier))
            })?;
        }
        self.check_prepared_reads(txns)
    }
    /// Fails if something that the transaction has read was overwritten, or will be by a prepared
    /// transaction: the check of a prepare, after the writes were checked. Called in the commit
    /// section.
    ///
    /// # Errors
    /// `Conflict`.
    pub fn check_prepared_reads(&self, txns: &TxnManager) -> Result<()> {
        let overwritten = seeded!(PrepareOverwritten, self.reads_overwritten, false);
        if overwritten {
            let text = "the transaction cannot be prepared because a key it has read was \
                overwritten; begin it again";
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        let pending_write =
            |id, target: KeyOrRangeRef<'_>| find_prepared_conflict(txns, id, target, false);
        find_first_conflict(|visit| self.visit_reads(visit), pending_write)?.map_or(Ok(()), Err)
    }
    /// Calls `visit` for everything it has read that its isolation level protects.
    pub fn visit_protected_reads(&self, visit: &mut dyn FnMut(FamilyId, KeyOrRangeRef<'_>)) {
        self.visit_reads(visit);
    }
}

/// Returns the conflict if a prepared transaction wrote something in `target`; with `writes`, also
/// if it read it.
fn find_prepared_conflict(
    txns: &TxnManager,
    id: FamilyId,
    target: KeyOrRangeRef<'_>,
    writes: bool,
) -> Result<Option<Error>> {
    let Some(family) = txns.catalog.families().by_id(id) else { return Ok(None) };
    let comparator = family.tree.comparator();
    if let Some(claim) = txns.prepared_txns().find_conflict(id, comparator, target, writes) {
        return Ok(Some(undecided_error(&family, &claim.key, &claim.gid)));
    }
    for prepared in txns.prepared_txns().spilled_in(id) {
        let spilled =
            prepared.spilled().filter(|_| !bug::is_active(Bug::WriterIgnoresPreparedTables));
        let Some(spilled) = spilled else { continue };
        if let Some(key) = spilled.find_write(id, target)? {
            return Ok(Some(undecided_error(&family, &key, &prepared.gid)));
        }
    }
    Ok(None)
}

/// Returns the error for a conflict with an undecided transaction.
fn undecided_error(family: &FamilyState, key: &[u8], gid: &[u8]) -> Error {
    let text =
        format!("the transaction prepared as {} is not decided; try again", display_gid(gid));
    Error::conflict(&family.name(), key, &text)
}

/// Checks the writes of a spilled transaction against prepared ones. Each prepared transaction is
/// checked once: what the first call covers, the call in the commit section does not read again.
#[derive(Debug, Default)]
pub struct SpilledWriteCheck {
    checked: Vec<Arc<PreparedTxn>>,
}

impl SpilledWriteCheck {
    /// Fails if a prepared transaction wrote or read something that the spilled tables write.
    ///
    /// # Errors
    /// `Conflict`; those of reading a table.
    pub fn check(&mut self, txns: &TxnManager, spilled: &SpilledFamilyRuns) -> Result<()> {
        if !txns.prepared_txns().has_any() {
            return Ok(());
        }
        for prepared in txns.prepared_txns().all_guarding() {
            if self.checked.iter().any(|p| Arc::ptr_eq(p, &prepared)) {
                continue;
            }
            for (family, run) in spilled {
                let Some(guards) = prepared.guards.get(&family.id) else { continue };
                for target in guards.guarded_sets(true).flat_map(GuardedKeys::targets) {
                    if let Some(key) = find_in_run(family, run, target)? {
                        return Err(undecided_error(family, &key, &prepared.gid));
                    }
                }
                let others = prepared.spilled().map_or(&[][..], |s| &s.runs);
                let Some((_, other)) = others.iter().find(|(f, _)| f.id == family.id) else {
                    continue;
                };
                let comparator = family.tree.comparator();
                if let Some(key) = run.find_common_key(other, comparator)? {
                    return Err(undecided_error(family, &key, &prepared.gid));
                }
            }
            self.checked.push(prepared);
        }
        Ok(())
    }
}

/// Fails for a write of `target`, like [`check_prepared_writes`].
///
/// # Errors
/// `Conflict`.
pub fn check_prepared_target(
    txns: &TxnManager,
    id: FamilyId,
    target: KeyOrRangeRef<'_>,
) -> Result<()> {
    find_prepared_conflict(txns, id, target, true)?.map_or(Ok(()), Err)
}

/// Fails if a batch writes what a prepared transaction wrote, or read where that counts. Called in
/// the commit section.
///
/// # Errors
/// `Conflict`.
pub fn check_prepared_writes(txns: &TxnManager, writes: &dyn BatchOperations) -> Result<()> {
    let conflict = |id, target: KeyOrRangeRef<'_>| find_prepared_conflict(txns, id, target, true);
    find_first_conflict(|visit| visit_write_targets(writes, visit), conflict)?.map_or(Ok(()), Err)
}

type ConflictCheck<'a> = &'a mut dyn FnMut(FamilyId, KeyOrRangeRef<'_>) -> Result<Option<Error>>;

/// Finds versions that were committed since a sequence number. The view of a column family is taken
/// at its first target, after the caller has read the sequence number that the check covers.
struct CommittedConflicts<'a> {
    catalog: &'a Catalog,
    since: SeqNo,
    contents_epoch: u64,
    families: SmallVec<[CheckedFamily; 1]>,
}

/// A column family whose view has the contents that the transaction depends on.
struct CheckedFamily {
    family: Arc<FamilyState>,
    view: StripedGuard<View>,
}

impl CommittedConflicts<'_> {
    /// Returns the conflict if `target` has a newer version.
    fn find(&mut self, id: FamilyId, target: KeyOrRangeRef<'_>) -> Result<Option<Error>> {
        let known = self.families.iter().position(|checked| checked.family.id == id);
        let index = match known {
            Some(index) => index,
            None => {
                let Some(family) = self.catalog.families().by_id(id) else {
                    let text =
                        format!("the transaction uses column family {id}, which was dropped");
                    return Err(Error::new(ErrorKind::NotFound, text));
                };
                let view = family.tree.pin();
                if family.check_contents_epoch(self.contents_epoch).is_err() {
                    let text = "the column family was cleared or replaced in the meantime";
                    return Ok(Some(Error::conflict(&family.name(), target.start_key(), text)));
                }
                self.families.push(CheckedFamily { family, view });
                self.families.len() - 1
            }
        };
        let CheckedFamily { family, view } = &self.families[index];
        check_slow!(family.id == id, "a target is checked in its column family", id, family.id);
        let changed = match target {
            KeyOrRangeRef::Key(key) => {
                read::newest_version_since(view, key, self.since)?.map(|_| key.to_vec())
            }
            KeyOrRangeRef::Range(begin, end) => {
                read::find_conflict_in_range(view, (begin, end), self.since)?
            }
        };
        Ok(changed.map(|key| conflict_error(family, &key)))
    }
}

/// The writes of those batches of a group that were admitted so far.
#[derive(Debug, Default)]
pub struct AdmittedWrites {
    keys: Vec<(FamilyId, Vec<u8>)>,
    /// Indexes in `keys` by hash (0 for all keys of a comparator that treats different bytes as
    /// equal).
    by_hash: HashMap<(FamilyId, u64), Vec<usize>>,
    ranges: Vec<(FamilyId, KeyBoundary, KeyBoundary)>,
}

impl AdmittedWrites {
    /// Adds the writes of a batch.
    pub fn add_writes(&mut self, catalog: &Catalog, writes: &dyn BatchOperations) {
        writes.for_each_operation(&mut |id, buf, op| {
            let Some(family) = catalog.families().by_id(id) else { return };
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
    /// Returns a key that is in `target` and was written by one of the batches.
    fn find_overlap(
        &self,
        comparator: KeyComparator,
        id: FamilyId,
        target: KeyOrRangeRef<'_>,
    ) -> Option<Vec<u8>> {
        let ranges = self.ranges.iter().filter(|(f, ..)| *f == id);
        let mut ranges = ranges.map(|(_, b, e)| KeyOrRangeRef::Range(b.as_ref(), e.as_ref()));
        let in_range = ranges.find(|r| target.overlaps(comparator, *r));
        if let Some(range) = in_range {
            let key = if let KeyOrRangeRef::Key(key) = target { key } else { range.start_key() };
            return Some(key.to_vec());
        }
        match target {
            KeyOrRangeRef::Key(key) => {
                let same = self.by_hash.get(&(id, comparator.equality_hash(key)))?;
                same.iter()
                    .map(|at| &self.keys[*at].1)
                    .find(|k| comparator.keys_equal(k, key))
                    .cloned()
            }
            KeyOrRangeRef::Range(..) => {
                let family_keys = self.keys.iter().filter(|(f, _)| *f == id).map(|(_, k)| k);
                family_keys
                    .into_iter()
                    .find(|k| target.overlaps(comparator, KeyOrRangeRef::Key(k)))
                    .cloned()
            }
        }
    }
}

/// Returns the conflict if a batch of the group writes something in `target`.
fn find_group_conflict(
    catalog: &Catalog,
    id: FamilyId,
    target: KeyOrRangeRef<'_>,
    earlier: &AdmittedWrites,
) -> Option<Error> {
    let family = catalog.families().by_id(id)?;
    earlier
        .find_overlap(family.tree.comparator(), id, target)
        .map(|key| conflict_error(&family, &key))
}

fn conflict_error(family: &FamilyState, key: &[u8]) -> Error {
    Error::conflict(
        &family.name(),
        key,
        "another commit changed the key; begin the transaction again",
    )
}

/// Converts a serialization failure to an error.
pub fn serialization_error(catalog: &Catalog, why: SerializationFailure) -> Error {
    const TEXT: &str =
        "the transaction cannot be serialized with concurrent transactions; begin it again";
    let target = why.0.and_then(|(id, target)| Some((catalog.families().by_id(id)?, target)));
    match target {
        Some((family, target)) => {
            Error::conflict(&family.name(), target.borrowed().start_key(), TEXT)
        }
        None => Error::new(ErrorKind::Conflict, TEXT),
    }
}
