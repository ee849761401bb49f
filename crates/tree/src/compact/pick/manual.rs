//! The plan that somebody asked for: a range of keys, merged into the last level.
//!
//! Invariant: whatever moves takes along every table that holds older versions of its keys on the
//! way down, so that no older version ends up above a newer one.

use super::super::plan::{CompactionPlan, CompactionReason, TableShape, TreeShape};
use super::spooky::LAST_LEVEL;
use perigee_base::bug::{self, Bug};
use perigee_base::key_boundary::KeyBoundary;
use perigee_base::{FileId, KeyComparator, LevelNo};
use std::cmp::Ordering::Less;
use std::collections::BTreeSet;

/// Both ends of a range of keys, inclusive; `None` is open. A wider range than the one asked for is
/// always right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionRange {
    /// Smallest key.
    pub first: Option<Vec<u8>>,
    /// Largest key.
    pub last: Option<Vec<u8>>,
}

/// The range between two places.
#[derive(Clone)]
struct KeyRangeCuts(KeyBoundary, KeyBoundary);

impl KeyRangeCuts {
    fn from_range(span: &CompactionRange) -> KeyRangeCuts {
        KeyRangeCuts(
            span.first.clone().map_or(KeyBoundary::First, KeyBoundary::Before),
            span.last.clone().map_or(KeyBoundary::Last, KeyBoundary::After),
        )
    }
    fn overlaps(&self, order: KeyComparator, t: &TableShape) -> bool {
        let place = |a: &KeyBoundary, b: &KeyBoundary| a.as_ref().cmp(order, b.as_ref());
        // A span that lies the wrong way round still overlaps what it lies in.
        place(&self.0, &t.last) == Less && place(&t.first, &self.1) == Less
    }
    fn widen(&mut self, order: KeyComparator, t: &TableShape) {
        self.0 = self.0.as_ref().smaller(order, t.first.as_ref()).to_boundary();
        self.1 = self.1.as_ref().larger(order, t.last.as_ref()).to_boundary();
    }
}

/// Merges every table that shares keys with the span into the last level; `None` if no table does.
/// `relocate`: value logs to empty on the way.
pub fn pick(
    shape: &TreeShape,
    span: &CompactionRange,
    relocate: &BTreeSet<FileId>,
) -> Option<CompactionPlan> {
    let inputs = collect_inputs(shape, span);
    let relocate = relocate.clone();
    (!inputs.is_empty()).then(|| CompactionPlan {
        relocate_vlogs: relocate,
        ..CompactionPlan::merge(CompactionReason::Manual, inputs, LevelNo(LAST_LEVEL as u8))
    })
}

/// The tables, run by run from the newest, each widening the span for those below it.
fn collect_inputs(shape: &TreeShape, span: &CompactionRange) -> Vec<(LevelNo, FileId)> {
    let mut wide = KeyRangeCuts::from_range(span);
    let mut inputs = Vec::new();
    for (number, level) in shape.levels.iter().enumerate() {
        for run in level {
            let here = wide.clone();
            for table in run.iter().filter(|t| here.overlaps(shape.comparator, t)) {
                if !bug::is_active(Bug::NarrowManualRange) {
                    wide.widen(shape.comparator, table);
                }
                inputs.push((LevelNo(number as u8), table.id));
            }
        }
    }
    inputs
}
