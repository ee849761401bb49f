//! Picks tables that range tombstones hide entirely, from every reader: they are dropped without
//! being read.

use super::super::plan::{CompactionPlan, CompactionReason, TableShape, TreeShape};
use crate::mvcc::SnapshotStripes;
use perigee_base::bug::{self, Bug};
use perigee_base::{KeyComparator, LevelNo, SeqNo};
use perigee_file::RangeTombstones;
use std::cmp::Ordering::{Greater, Less};

/// Returns a plan that drops all such tables of the first level that has any. Range tombstones in
/// memtables do not count: they are not yet as durable as the tables that they would remove.
pub fn pick_range_deleted(shape: &TreeShape, stripes: &SnapshotStripes) -> Option<CompactionPlan> {
    let mut newer: Vec<&RangeTombstones> = Vec::new();
    for (level_no, runs) in shape.levels.iter().enumerate() {
        let level = LevelNo(level_no as u8);
        let mut inputs = Vec::new();
        for run in runs {
            let covered = |t: &&TableShape| {
                !newer.is_empty() && is_covered(shape.comparator, t, &newer, stripes)
            };
            inputs.extend(run.iter().filter(covered).map(|t| (level, t.id)));
            newer.extend(run.iter().filter_map(|t| t.range_tombstones.as_deref()));
        }
        if !inputs.is_empty() {
            return Some(CompactionPlan::merge(CompactionReason::RangeDeleted, inputs, level));
        }
    }
    None
}

/// Returns true if a plan of [`pick`] is still valid with `stripes`, a later list of snapshots.
pub fn is_still_range_deleted(
    plan: &CompactionPlan,
    shape: &TreeShape,
    stripes: &SnapshotStripes,
) -> bool {
    let now = pick_range_deleted(shape, stripes);
    now.is_some_and(|now| plan.inputs.iter().all(|input| now.inputs.contains(input)))
}

/// Returns true if range tombstones of newer tables cover the table without a gap, each newer than
/// all of the table's entries, and no snapshot lies between.
fn is_covered(
    comparator: KeyComparator,
    t: &TableShape,
    newer: &[&RangeTombstones],
    stripes: &SnapshotStripes,
) -> bool {
    let hides = |seq: SeqNo| {
        seq > t.largest_seq
            && (stripes.stripe_of(seq) == stripes.stripe_of(t.smallest_seq)
                || bug::is_active(Bug::DropTableIgnoresSnapshot))
    };
    let mut covered_to = t.first.as_ref();
    loop {
        let next = newer.iter().find_map(|list| {
            let i = list
                .fragments()
                .partition_point(|f| f.end.as_ref().cmp(comparator, covered_to) != Greater);
            let f = list.fragments().get(i)?;
            let over = f.begin.as_ref().cmp(comparator, covered_to) != Greater;
            (over && f.seqs.iter().any(|s| hides(*s))).then_some(f)
        });
        match next {
            Some(f) if f.end.as_ref().cmp(comparator, t.last.as_ref()) == Less => {
                covered_to = f.end.as_ref()
            }
            found => return found.is_some(),
        }
    }
}
