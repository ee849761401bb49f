//! Picks tables that consist mostly of tombstones visible to every reader: they are merged early
//! with what they hide, so that they do not slow scans and take disk space until their level is
//! full.

use super::super::plan::{CompactionPlan, CompactionReason, TableShape, TreeShape};
use super::overlap_group::overlap_groups;
use super::spooky::LAST_LEVEL;
use crate::limits::TOMBSTONE_COST_MAX;
use crate::mvcc::SnapshotStripes;
use crate::version::is_tombstone_dense;
use perigee_base::{LevelNo, RunId, Tombstones};

/// Returns a merge of the uppermost such table, with all tables that overlap it, into the last
/// level. Its tombstones must be visible to every reader: then the merge drops them all, and the
/// same table is not picked again.
pub fn pick_dense_tombstones(
    shape: &TreeShape,
    stripes: &SnapshotStripes,
) -> Option<CompactionPlan> {
    let is_dense = |t: &TableShape| {
        is_tombstone_dense(t.entries, Tombstones(t.tombstones))
            && stripes.stripe_of(t.largest_seq) == 0
    };
    for level in (0..=LAST_LEVEL).filter(|level| shape.tables(*level).any(is_dense)) {
        for g in overlap_groups(shape, level..=LAST_LEVEL, RunId(u64::MAX)) {
            let dense: u64 =
                g.tables.iter().filter(|(_, t)| is_dense(t)).map(|(_, t)| t.bytes).sum();
            if dense > 0 && dense.saturating_mul(TOMBSTONE_COST_MAX) >= g.bytes {
                return Some(CompactionPlan::merge(
                    CompactionReason::Tombstones,
                    g.inputs().collect(),
                    LevelNo(LAST_LEVEL as u8),
                ));
            }
        }
    }
    None
}
