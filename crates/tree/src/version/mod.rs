//! The version: which tables a family consists of, immutable. Only a [`VersionEdit`] makes another one.

mod edit;
mod run;
mod check;
mod waste;
mod apply;

pub use apply::Opener;
pub use edit::{AddedTable, TableMeta, VersionEdit, VlogMeta, is_dense};
pub use run::{Run, Table, Vlog};
pub use waste::{SPACE_SHARE, Waste, is_worth_counting};

use perigee_base::{Error, FileId, KeyOrder, LevelNo, Result, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The tables of a family at one moment.
///
/// Invariants (see `check.rs`): 1. level 0 holds runs newest first; every deeper level at most one run; 2. tables of a run
/// are in key order and share no key; 3. of any key, every version in a newer run or upper level is newer than every version
/// in an older run or deeper level; 4. every value log that a table references is in `vlogs`.
#[derive(Clone, Debug)]
pub struct Version {
    /// The order of keys.
    pub order: KeyOrder,
    /// Runs of each level, newest first.
    pub levels: Vec<Vec<Arc<Run>>>,
    /// Value logs by id.
    pub vlogs: BTreeMap<FileId, Arc<Vlog>>,
    /// Whether any table has range tombstones.
    pub has_ranges: bool,
    /// Whether any table is mostly tombstones.
    pub is_dense: bool,
    /// Operations are missing, and nobody knows of which keys: then "not here" cannot be said (salvage only).
    pub gap: Option<Error>,
    counted: waste::Counted,
}

impl Version {
    /// No tables.
    pub fn empty(order: KeyOrder) -> Version {
        let levels = vec![Vec::new(); limits::LEVELS];
        let (vlogs, counted) = (BTreeMap::new(), waste::Counted::default());
        Version { order, levels, vlogs, has_ranges: false, is_dense: false, gap: None, counted }
    }

    /// "Not here", if that can be said.
    pub fn absent<T>(&self) -> Result<Option<T>> {
        self.gap.clone().map_or(Ok(None), Err)
    }
    /// Every run from the newest to the oldest: the order in which a read asks.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.levels.iter().flatten()
    }
    /// Every table with its level and run.
    pub fn tables(&self) -> impl Iterator<Item = (LevelNo, &Arc<Run>, &Arc<Table>)> {
        self.levels.iter().enumerate().flat_map(|(level, runs)| {
            runs.iter().flat_map(move |r| r.tables.iter().map(move |t| (LevelNo(level as u8), r, t)))
        })
    }
    /// The deepest level that holds anything.
    pub fn deepest(&self) -> Option<LevelNo> {
        self.levels.iter().rposition(|runs| !runs.is_empty()).map(|l| LevelNo(l as u8))
    }
    /// Stored bytes that tables reference, for each value log.
    pub fn vlog_references(&self) -> BTreeMap<FileId, u64> {
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
        let references = self.vlog_references();
        let unreferenced = |id: &FileId| references.get(id).is_none_or(|bytes| *bytes == 0);
        let gone: Vec<FileId> = self.vlogs.keys().copied().filter(unreferenced).collect();
        self.vlogs.retain(|id, _| !gone.contains(id));
        gone
    }
    /// Ids of all its files.
    pub fn files(&self) -> BTreeSet<FileId> {
        self.tables().map(|(_, _, t)| t.meta.id).chain(self.vlogs.keys().copied()).collect()
    }
    /// The version after `edit`.
    ///
    /// # Errors
    /// `Corruption` if the edit does not fit, or a file that it adds cannot be opened.
    pub fn apply(&self, edit: &VersionEdit, open: &dyn Opener) -> Result<Version> {
        apply::apply(self, edit, open)
    }
}
