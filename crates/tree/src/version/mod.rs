//! Versions: the immutable set of tables of a column family. Only a [`VersionEdit`] creates a new
//! one.

mod edit;
mod table_bounds;
mod run;
mod check;
mod garbage;
mod apply;
mod table_opener;

pub use apply::FileOpener;
pub use edit::{
    AddedTable, TableMeta, VersionEdit, VlogMeta, expired_entries_min, is_tombstone_dense,
};
pub use garbage::{EntriesByLevel, SPACE_SHARE, is_worth_estimating};
pub use run::{Run, Table, Vlog};

use perigee_base::{Error, FileId, KeyComparator, LevelNo, Result, SeqNo, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The tables of a column family at one point in time.
///
/// Invariants (see `check.rs`): 1. level 0 holds runs, newest first; every deeper level holds at
/// most one run; 2. tables of a run are in key order and do not overlap; 3. for any key, every
/// version in a newer run or upper level is newer than every version in an older run or deeper
/// level; 4. every value log that a table references is in `vlogs`.
#[derive(Clone, Debug)]
pub struct Version {
    /// Comparator of the keys.
    pub comparator: KeyComparator,
    /// Runs of each level, newest first.
    pub levels: Vec<Vec<Arc<Run>>>,
    /// Value logs by id.
    pub vlogs: BTreeMap<FileId, Arc<Vlog>>,
    /// True if any table has range tombstones.
    pub has_range_tombstones: bool,
    /// True if any table consists mostly of tombstones.
    pub has_dense_tombstones: bool,
    /// Time at which the first table is due for a compaction of expired entries, in milliseconds
    /// (`u64::MAX`: never).
    pub expiry_compaction_ms: u64,
    /// Set if operations with unknown keys were lost: the absence of a key is then uncertain
    /// (salvage only).
    pub gap: Option<SalvageGap>,
    cache: garbage::VersionCache,
}

/// Lost operations with unknown keys. Each of them may have put any key.
#[derive(Clone, Debug)]
pub struct SalvageGap {
    /// Error that describes the damage.
    pub error: Error,
    /// Every lost operation has a smaller sequence number: they cannot have replaced a version with
    /// this sequence number or a larger one.
    pub end_seq: SeqNo,
}

impl Version {
    /// Creates a version without tables.
    pub fn empty(comparator: KeyComparator) -> Version {
        let levels = vec![Vec::new(); limits::LEVELS];
        let (vlogs, cache, expires_ms) =
            (BTreeMap::new(), garbage::VersionCache::default(), u64::MAX);
        Version {
            comparator,
            levels,
            vlogs,
            has_range_tombstones: false,
            has_dense_tombstones: false,
            expiry_compaction_ms: expires_ms,
            gap: None,
            cache,
        }
    }

    /// Returns `None`, or the error of the salvage gap if absence is uncertain.
    pub fn check_absent<T>(&self) -> Result<Option<T>> {
        self.gap.as_ref().map_or(Ok(None), |gap| Err(gap.error.clone()))
    }
    /// Fails if a tombstone (or an expired version) with this sequence number may have been
    /// replaced by a lost put.
    #[inline]
    pub fn check_tombstone(&self, seq: SeqNo) -> Result<()> {
        match &self.gap {
            Some(gap) if seq < gap.end_seq => Err(gap.error.clone()),
            _ => Ok(()),
        }
    }
    /// Returns all runs from newest to oldest: the order in which a read searches them.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.levels.iter().flatten()
    }
    /// Returns all tables with their level and run.
    pub fn tables(&self) -> impl Iterator<Item = (LevelNo, &Arc<Run>, &Arc<Table>)> {
        self.levels.iter().enumerate().flat_map(|(level, runs)| {
            runs.iter()
                .flat_map(move |r| r.tables.iter().map(move |t| (LevelNo(level as u8), r, t)))
        })
    }
    /// Returns the newest sequence number in all tables, range tombstones included.
    pub fn newest_seq(&self) -> SeqNo {
        let newest = || self.tables().map(|(_, _, t)| t.meta.seq_range().1).max();
        *self.cache.newest_seq.get_or_init(|| newest().unwrap_or_default())
    }
    /// Returns the number of entries in all tables.
    pub fn entries(&self) -> u64 {
        self.tables().map(|(_, _, t)| t.meta.summary.entries).sum()
    }
    /// Returns the deepest level with tables.
    pub fn deepest_level(&self) -> Option<LevelNo> {
        self.levels.iter().rposition(|runs| !runs.is_empty()).map(|l| LevelNo(l as u8))
    }
    /// Returns the stored bytes that tables reference, per value log.
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
    /// Removes the value logs that no table references any more; returns their ids.
    pub fn drop_unreferenced_vlogs(&mut self) -> Vec<FileId> {
        let references = self.vlog_referenced_bytes();
        let unreferenced = |id: &FileId| references.get(id).is_none_or(|bytes| *bytes == 0);
        let removed: Vec<FileId> = self.vlogs.keys().copied().filter(unreferenced).collect();
        self.vlogs.retain(|id, _| !removed.contains(id));
        removed
    }
    /// Returns the ids of all files.
    pub fn file_ids(&self) -> BTreeSet<FileId> {
        self.tables().map(|(_, _, t)| t.meta.id).chain(self.vlogs.keys().copied()).collect()
    }
    /// Returns the version after `edit`.
    ///
    /// # Errors
    /// `Corruption` if the edit does not fit the version, or a file that it adds cannot be opened.
    pub fn apply(&self, edit: &VersionEdit, open: &dyn FileOpener) -> Result<Version> {
        apply::apply_edit(self, edit, open)
    }
}
