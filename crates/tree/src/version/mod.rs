//! The version: which tables a family consists of, immutable. Only a [`VersionEdit`] makes another
//! one.

mod edit;
mod table_bounds;
mod run;
mod check;
mod garbage;
mod apply;

pub use apply::FileOpener;
pub use edit::{
    AddedTable, TableMeta, VersionEdit, VlogMeta, expired_entries_min, is_tombstone_dense,
};
pub use garbage::{GarbageEstimate, SPACE_SHARE, is_worth_estimating};
pub use run::{Run, Table, Vlog};

use perigee_base::bug::{self, Bug};
use perigee_base::{Error, FileId, KeyComparator, LevelNo, Result, SeqNo, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The tables of a family at one moment.
///
/// Invariants (see `check.rs`): 1. level 0 holds runs newest first; every deeper level at most one
/// run; 2. tables of a run are in key order and share no key; 3. of any key, every version in a
/// newer run or upper level is newer than every version in an older run or deeper level; 4. every
/// value log that a table references is in `vlogs`.
#[derive(Clone, Debug)]
pub struct Version {
    /// The order of keys.
    pub comparator: KeyComparator,
    /// Runs of each level, newest first.
    pub levels: Vec<Vec<Arc<Run>>>,
    /// Value logs by id.
    pub vlogs: BTreeMap<FileId, Arc<Vlog>>,
    /// Whether any table has range tombstones.
    pub has_range_tombstones: bool,
    /// Whether any table is mostly tombstones.
    pub has_dense_tombstones: bool,
    /// When the first of its tables will be worth a merge for what has expired in it, in
    /// milliseconds (`u64::MAX`: none ever).
    pub expiry_compaction_ms: u64,
    /// Operations are missing, and their keys are unknown: then "not here" cannot be said (salvage
    /// only).
    pub gap: Option<SalvageGap>,
    garbage_cache: garbage::GarbageCache,
}

/// Lost operations whose keys are unknown. Each of them may have put any key.
#[derive(Clone, Debug)]
pub struct SalvageGap {
    /// What is damaged.
    pub error: Error,
    /// Every lost operation has a smaller sequence number: a version with this number or a newer
    /// one was not replaced there.
    pub end_seq: SeqNo,
}

impl Version {
    /// No tables.
    pub fn empty(order: KeyComparator) -> Version {
        let levels = vec![Vec::new(); limits::LEVELS];
        let (vlogs, counted, expires_ms) =
            (BTreeMap::new(), garbage::GarbageCache::default(), u64::MAX);
        Version {
            comparator: order,
            levels,
            vlogs,
            has_range_tombstones: false,
            has_dense_tombstones: false,
            expiry_compaction_ms: expires_ms,
            gap: None,
            garbage_cache: counted,
        }
    }

    /// "Not here", if that can be said.
    pub fn check_absent<T>(&self) -> Result<Option<T>> {
        self.gap.as_ref().map_or(Ok(None), |gap| Err(gap.error.clone()))
    }
    /// Fails if a tombstone (or an expired version) of this number may have been replaced by a put
    /// that was lost.
    #[inline]
    pub fn check_tombstone(&self, seq: SeqNo) -> Result<()> {
        match &self.gap {
            Some(gap) if seq < gap.end_seq && !bug::is_active(Bug::SalvageBelievesTombstone) => {
                Err(gap.error.clone())
            }
            _ => Ok(()),
        }
    }
    /// Every run from the newest to the oldest: the order in which a read asks.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.levels.iter().flatten()
    }
    /// Every table with its level and run.
    pub fn tables(&self) -> impl Iterator<Item = (LevelNo, &Arc<Run>, &Arc<Table>)> {
        self.levels.iter().enumerate().flat_map(|(level, runs)| {
            runs.iter()
                .flat_map(move |r| r.tables.iter().map(move |t| (LevelNo(level as u8), r, t)))
        })
    }
    /// The deepest level that holds anything.
    pub fn deepest_level(&self) -> Option<LevelNo> {
        self.levels.iter().rposition(|runs| !runs.is_empty()).map(|l| LevelNo(l as u8))
    }
    /// Stored bytes that tables reference, for each value log.
    pub fn vlog_referenced_bytes(&self) -> BTreeMap<FileId, u64> {
        let mut refs: BTreeMap<FileId, u64> = self.vlogs.keys().map(|id| (*id, 0)).collect();
        for (_, _, t) in self.tables() {
            for (id, bytes) in &t.meta.summary.vlogs {
                let sum = refs.entry(*id).or_default();
                *sum = sum.saturating_add(*bytes);
            }
        }
        refs
    }
    /// Lets go of the value logs that no table references any more, and names them.
    pub fn drop_unreferenced_vlogs(&mut self) -> Vec<FileId> {
        let references = self.vlog_referenced_bytes();
        let unreferenced = |id: &FileId| references.get(id).is_none_or(|bytes| *bytes == 0);
        let gone: Vec<FileId> = self.vlogs.keys().copied().filter(unreferenced).collect();
        self.vlogs.retain(|id, _| !gone.contains(id));
        gone
    }
    /// Ids of all its files.
    pub fn file_ids(&self) -> BTreeSet<FileId> {
        self.tables().map(|(_, _, t)| t.meta.id).chain(self.vlogs.keys().copied()).collect()
    }
    /// The version after `edit`.
    ///
    /// # Errors
    /// `Corruption` if the edit does not fit, or a file that it adds cannot be opened.
    pub fn apply(&self, edit: &VersionEdit, open: &dyn FileOpener) -> Result<Version> {
        apply::apply_edit(self, edit, open)
    }
}
