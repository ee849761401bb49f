//! Tables that a range tombstone hides as a whole, from every reader: they go without being read.

use super::super::plan::{CompactionPlan, CompactionReason, TableShape, TreeShape};
use crate::mvcc::SnapshotStripes;
use perigee_base::bug::{self, Bug};
use perigee_base::{KeyComparator, LevelNo, SeqNo};
use perigee_file::RangeTombstones;
use std::cmp::Ordering::{Greater, Less};

/// All such tables of the first level that has any. Tombstones in memtables do not count: they are
/// not yet as durable as the tables they would remove.
pub fn pick(shape: &TreeShape, strata: &SnapshotStripes) -> Option<CompactionPlan> {
    let mut newer: Vec<&RangeTombstones> = Vec::new();
    for (number, runs) in shape.levels.iter().enumerate() {
        let level = LevelNo(number as u8);
        let mut inputs = Vec::new();
        for run in runs {
            let dead = |t: &&TableShape| {
                !newer.is_empty() && is_covered(shape.comparator, t, &newer, strata)
            };
            inputs.extend(run.iter().filter(dead).map(|t| (level, t.id)));
            newer.extend(run.iter().filter_map(|t| t.range_tombstones.as_deref()));
        }
        if !inputs.is_empty() {
            return Some(CompactionPlan::merge(CompactionReason::RangeDeleted, inputs, level));
        }
    }
    None
}

/// Whether a plan of [`pick`] is right under these readers, too, who were listed later.
pub fn is_still_valid(plan: &CompactionPlan, shape: &TreeShape, strata: &SnapshotStripes) -> bool {
    let now = pick(shape, strata);
    now.is_some_and(|now| plan.inputs.iter().all(|input| now.inputs.contains(input)))
}

/// Whether tombstones of newer tables cover the table without a gap, each newer than all of it,
/// with no reader between.
fn is_covered(
    order: KeyComparator,
    t: &TableShape,
    newer: &[&RangeTombstones],
    strata: &SnapshotStripes,
) -> bool {
    let hides = |seq: SeqNo| {
        seq > t.largest_seq
            && (strata.stripe_of(seq) == strata.stripe_of(t.smallest_seq)
                || bug::is_active(Bug::DropTableIgnoresSnapshot))
    };
    let mut reached = t.first.as_ref();
    loop {
        let next = newer.iter().find_map(|list| {
            let i =
                list.fragments().partition_point(|f| f.end.as_ref().cmp(order, reached) != Greater);
            let f = list.fragments().get(i)?;
            let over = f.begin.as_ref().cmp(order, reached) != Greater;
            (over && f.seqs.iter().any(|s| hides(*s))).then_some(f)
        });
        match next {
            Some(f) if f.end.as_ref().cmp(order, t.last.as_ref()) == Less => {
                reached = f.end.as_ref()
            }
            found => return found.is_some(),
        }
    }
}
