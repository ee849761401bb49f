//! Value-log collection: a log that is mostly unreferenced is emptied by rewriting the tables that
//! reference it, one at a time, each in its place.

use super::super::plan::{CompactionPlan, CompactionReason, TreeShape};
use perigee_base::LevelNo;
use std::collections::BTreeSet;

/// Logs smaller than this are left alone until nothing references them.
const VLOG_BYTES_MIN: u64 = 64 << 10;

/// A plan for the log with the most garbage of those that are more than half garbage and that a
/// table below level 0 references. (Level 0 runs are ordered by age: they are left to the merge
/// into level 1, which comes soon enough.)
pub fn pick(shape: &TreeShape) -> Option<CompactionPlan> {
    let mostly_garbage = |bytes: u64, live: u64| {
        bytes >= VLOG_BYTES_MIN && live > 0 && live.saturating_mul(2) < bytes
    };
    let mut wasteful: Vec<_> =
        shape.vlogs.iter().filter(|(_, (bytes, live))| mostly_garbage(*bytes, *live)).collect();
    wasteful.sort_by_key(|(_, (bytes, live))| std::cmp::Reverse(bytes - live));
    wasteful.into_iter().find_map(|(vlog, _)| {
        let (level, table) = (1..shape.levels.len()).rev().find_map(|level| {
            let table = shape.tables(level).find(|t| t.vlogs.contains(vlog))?;
            Some((LevelNo(level as u8), table.id))
        })?;
        let relocate = BTreeSet::from([*vlog]);
        Some(CompactionPlan {
            relocate_vlogs: relocate,
            ..CompactionPlan::merge(CompactionReason::VlogGarbage, vec![(level, table)], level)
        })
    })
}
