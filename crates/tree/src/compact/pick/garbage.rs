//! Value-log collection: a log that is mostly unreferenced is emptied by rewriting the tables that reference it, one at
//! a time, each in its place.

use super::super::plan::{Plan, Reason, Shape};
use perigee_base::LevelNo;
use std::collections::BTreeSet;

/// Logs smaller than this are left alone until nothing references them.
const SMALL: u64 = 64 << 10;

/// A plan for the log with the most garbage, if more than half of it is.
pub fn pick(shape: &Shape) -> Option<Plan> {
    let (vlog, _) = shape
        .vlogs
        .iter()
        .filter(|(_, (bytes, live))| *bytes >= SMALL && *live > 0 && live.saturating_mul(2) < *bytes)
        .max_by_key(|(_, (bytes, live))| bytes - live)?;
    let relocate = BTreeSet::from([*vlog]);
    (0..shape.levels.len()).rev().find_map(|level| {
        let table = shape.tables(level).find(|t| t.vlogs.contains(vlog))?;
        // Level 0 runs are ordered by age: they are left to the merge into level 1, which comes soon enough.
        (level > 0).then(|| Plan {
            reason: Reason::Garbage,
            inputs: vec![(LevelNo(level as u8), table.id)],
            to: LevelNo(level as u8),
            trivial: false,
            relocate: relocate.clone(),
        })
    })
}
