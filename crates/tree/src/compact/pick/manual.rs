//! Plans a manual compaction: merges a key range into the last level.
//!
//! Invariant: the inputs include every table on the way down that holds older versions of the moved
//! keys, so that no older version ends up above a newer one.

use super::super::plan::{CompactionPlan, CompactionReason, TableShape, TreeShape};
use super::spooky::LAST_LEVEL;
use perigee_base::bug::Bug;
use perigee_base::{FileId, KeyBoundary, KeyComparator, LevelNo, bug};
use std::cmp::Ordering::Less;
use std::collections::BTreeSet;

/// A key range with inclusive ends; `None` is unbounded. Compacting a wider range than requested is
/// always correct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionRange {
    /// Smallest key.
    pub first: Option<Vec<u8>>,
    /// Largest key.
    pub last: Option<Vec<u8>>,
}

/// A key range between two boundaries.
#[derive(Clone)]
struct KeyRangeCuts(KeyBoundary, KeyBoundary);

impl KeyRangeCuts {
    fn from_range(range: &CompactionRange) -> KeyRangeCuts {
        KeyRangeCuts(
            range.first.clone().map_or(KeyBoundary::First, KeyBoundary::Before),
            range.last.clone().map_or(KeyBoundary::Last, KeyBoundary::After),
        )
    }
    fn overlaps(&self, comparator: KeyComparator, t: &TableShape) -> bool {
        let compare = |a: &KeyBoundary, b: &KeyBoundary| a.as_ref().cmp(comparator, b.as_ref());
        // An inverted range overlaps the tables that contain it.
        compare(&self.0, &t.last) == Less && compare(&t.first, &self.1) == Less
    }
    fn widen(&mut self, comparator: KeyComparator, t: &TableShape) {
        self.0 = self.0.as_ref().smaller(comparator, t.first.as_ref()).to_boundary();
        self.1 = self.1.as_ref().larger(comparator, t.last.as_ref()).to_boundary();
        check_slow!(
            self.0.as_ref().cmp(comparator, self.1.as_ref()) == Less,
            "a widened range contains its tables",
            self.0,
            self.1
        );
    }
}

/// Merges every table that overlaps `range` into the last level; returns `None` if there is none.
/// `relocate_vlogs`: value logs whose values the merge moves to new files.
pub fn pick_manual(
    shape: &TreeShape,
    range: &CompactionRange,
    relocate_vlogs: &BTreeSet<FileId>,
) -> Option<CompactionPlan> {
    let inputs = collect_inputs(shape, range);
    let relocate_vlogs = relocate_vlogs.clone();
    (!inputs.is_empty()).then(|| CompactionPlan {
        relocate_vlogs,
        ..CompactionPlan::merge(CompactionReason::Manual, inputs, LevelNo(LAST_LEVEL as u8))
    })
}

/// Collects the tables run by run, newest first; each one widens the range for the runs below it.
fn collect_inputs(shape: &TreeShape, range: &CompactionRange) -> Vec<(LevelNo, FileId)> {
    let mut widened = KeyRangeCuts::from_range(range);
    let mut inputs = Vec::new();
    for (number, level) in shape.levels.iter().enumerate() {
        for run in level {
            let in_run = widened.clone();
            for table in run.iter().filter(|t| in_run.overlaps(shape.comparator, t)) {
                if !bug::is_active(Bug::NarrowManualRange) {
                    widened.widen(shape.comparator, table);
                }
                inputs.push((LevelNo(number as u8), table.id));
            }
        }
    }
    inputs
}
