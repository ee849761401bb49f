//! Value-log garbage collection: a value log that is mostly unreferenced is emptied by rewriting
//! the tables that reference it, one at a time, each within its level.

use super::super::plan::{CompactionPlan, CompactionReason, TreeShape, VlogShape};
use crate::limits::COLLECTED_VLOG_BYTES_MIN;
use perigee_base::LevelNo;
use std::collections::BTreeSet;

/// Returns a plan for the value log with the most garbage, among those that are more than half
/// garbage and that a table below level 0 references. Level 0 runs are ordered by age: they are
/// left to the merge into a deeper level, which is soon due.
pub fn pick(shape: &TreeShape) -> Option<CompactionPlan> {
    let mostly_garbage = |v: &VlogShape| {
        let live = v.referenced_bytes;
        v.bytes >= COLLECTED_VLOG_BYTES_MIN && live > 0 && live.saturating_mul(2) < v.bytes
    };
    let mut candidates: Vec<_> = shape.vlogs.iter().filter(|(_, v)| mostly_garbage(v)).collect();
    candidates.sort_by_key(|(_, v)| std::cmp::Reverse(v.bytes - v.referenced_bytes));
    candidates.into_iter().find_map(|(vlog, _)| {
        let (level, table) = (1..shape.levels.len()).rev().find_map(|level| {
            let table = shape.tables(level).find(|t| t.vlogs.contains(vlog))?;
            Some((LevelNo(level as u8), table.id))
        })?;
        let relocate_vlogs = BTreeSet::from([*vlog]);
        Some(CompactionPlan {
            relocate_vlogs,
            ..CompactionPlan::merge(CompactionReason::VlogGarbage, vec![(level, table)], level)
        })
    })
}
