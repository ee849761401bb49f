//! The open tables of a prepared transaction that was larger than memory, [`SpilledTables`]: what
//! it writes, and what its commit installs.
//!
//! Invariant: the tables belong to no version. The catalog lists their files until the decision.

use crate::catalog::family::{Families, FamilyState};
use crate::catalog::manifest::{PreparedFiles, PreparedTables};
use crate::txn::read_write_sets::{KeyOrRange, KeyOrRangeRef, WriteSet};
use perigee_base::{Error, FamilyId, Result, RunId};
use perigee_tree::{FileOpener, Run, Table, TableMeta, Vlog};
use std::sync::Arc;

/// The spilled writes of a transaction: the final tables of each column family, not yet installed.
pub type SpilledFamilyRuns = [(Arc<FamilyState>, Arc<Run>)];

/// The tables and value logs of a prepared transaction, open.
#[derive(Debug, Default)]
pub struct SpilledTables {
    /// The tables of each column family.
    pub runs: Vec<(Arc<FamilyState>, Arc<Run>)>,
    /// The value logs that the tables reference, with their column families.
    pub vlogs: Vec<(FamilyId, Arc<Vlog>)>,
}

/// Returns the key range of a table, range tombstones included.
fn table_range<'a>(family: &FamilyState, meta: &'a TableMeta) -> KeyOrRangeRef<'a> {
    let comparator = family.tree.comparator();
    KeyOrRangeRef::Range(meta.summary.begin(comparator), meta.summary.end(comparator))
}

impl SpilledTables {
    /// Opens all files of a prepared transaction.
    pub fn open(
        prepared: &PreparedTables,
        families: &Families,
        opener: &dyn FileOpener,
    ) -> Result<SpilledTables> {
        let mut all = SpilledTables::default();
        for files in &prepared.files {
            let family = families.by_id(files.family).ok_or_else(|| {
                Error::corruption(format!(
                    "a prepared transaction writes to column family {}, which does not exist",
                    files.family
                ))
            })?;
            all.open_family(&family, files, &[], opener)?;
        }
        check!(
            all.runs.len() == prepared.files.len(),
            "every column family of a prepared transaction is open",
            all.runs.len(),
            prepared.files.len()
        );
        Ok(all)
    }
    /// Opens the files of a column family; `open` are those of its value logs that are open
    /// already.
    pub fn open_family(
        &mut self,
        family: &Arc<FamilyState>,
        files: &PreparedFiles,
        open: &[Arc<Vlog>],
        opener: &dyn FileOpener,
    ) -> Result<()> {
        for meta in &files.vlogs {
            let vlog = match open.iter().find(|v| v.meta.id == meta.id) {
                Some(vlog) => Arc::clone(vlog),
                None => opener.open_vlog(meta)?,
            };
            self.vlogs.push((family.id, vlog));
        }
        let tables = files.tables.iter().map(|t| opener.open_table(t)).collect::<Result<_>>()?;
        let run = Run::new(RunId(0), tables, family.tree.comparator());
        self.runs.push((Arc::clone(family), Arc::new(run)));
        Ok(())
    }

    /// Returns all tables.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.runs.iter().flat_map(|(_, run)| &run.tables)
    }
    /// Returns the bytes of its keys and values.
    pub fn user_bytes(&self) -> u64 {
        let bytes = |t: &Arc<Table>| t.meta.summary.raw_key_bytes + t.meta.summary.raw_value_bytes;
        self.tables().map(bytes).sum()
    }
    /// Returns the key range of each table, with its column family.
    pub fn ranges(&self) -> impl Iterator<Item = (&Arc<FamilyState>, KeyOrRangeRef<'_>)> {
        self.runs.iter().flat_map(|(family, run)| {
            run.tables.iter().map(move |t| (family, table_range(family, &t.meta)))
        })
    }
    /// Returns the key of a write in `target`.
    ///
    /// # Errors
    /// Those of reading a table.
    pub fn find_write(
        &self,
        family: FamilyId,
        target: KeyOrRangeRef<'_>,
    ) -> Result<Option<Vec<u8>>> {
        match self.runs.iter().find(|(f, _)| f.id == family) {
            Some((family, run)) => find_in_run(family, run, target),
            None => Ok(None),
        }
    }
    /// Returns true if `target` lies within the key range of one of the tables.
    pub fn covers(&self, family: FamilyId, target: KeyOrRangeRef<'_>) -> bool {
        let contains = |(f, range): (&Arc<FamilyState>, KeyOrRangeRef<'_>)| {
            let KeyOrRangeRef::Range(begin, end) = range else { return false };
            let comparator = f.tree.comparator();
            f.id == family
                && match target {
                    KeyOrRangeRef::Key(key) => {
                        begin.is_before(comparator, key) && !end.is_before(comparator, key)
                    }
                    KeyOrRangeRef::Range(from, to) => {
                        begin.cmp(comparator, from).is_le() && to.cmp(comparator, end).is_le()
                    }
                }
        };
        self.ranges().any(contains)
    }
    /// Returns its writes as the key ranges of its tables.
    pub fn write_set(&self) -> WriteSet {
        write_set_of(&self.runs)
    }
}

/// Returns the key of a write of `run` in `target`.
///
/// # Errors
/// Those of reading a table.
pub fn find_in_run(
    family: &FamilyState,
    run: &Arc<Run>,
    target: KeyOrRangeRef<'_>,
) -> Result<Option<Vec<u8>>> {
    let comparator = family.tree.comparator();
    match target {
        KeyOrRangeRef::Key(key) => Ok(run.contains_key(comparator, key)?.then(|| key.to_vec())),
        KeyOrRangeRef::Range(begin, end) => run.find_key_in_range(comparator, (begin, end)),
    }
}

/// Returns the writes of spilled tables, approximated by the key range of each table: that may
/// cause more conflicts, never fewer.
pub fn write_set_of(spilled: &SpilledFamilyRuns) -> WriteSet {
    let mut all = Vec::new();
    for (family, run) in spilled {
        for t in &run.tables {
            let KeyOrRangeRef::Range(begin, end) = table_range(family, &t.meta) else { continue };
            let range = KeyOrRange::Range(begin.to_boundary(), end.to_boundary());
            all.push((family.id, family.tree.comparator(), 0, range));
        }
    }
    WriteSet(all)
}
