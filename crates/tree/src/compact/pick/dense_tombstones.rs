//! Tables that are mostly tombstones which nobody needs any more: they are merged with what they
//! hide, early, so that neither scans nor the disk carry them until their level is full.

use super::super::plan::{CompactionPlan, CompactionReason, TableShape, TreeShape};
use super::overlap_group::overlap_groups;
use super::spooky::LAST_LEVEL;
use crate::mvcc::SnapshotStripes;
use crate::version::is_tombstone_dense;
use perigee_base::{LevelNo, RunId};

/// What lies in the way of the tombstones may be so many times larger than their table.
const COST_MAX: u64 = 16;

/// A merge of the uppermost such table, with all that shares keys with it, into the last level.
/// Every reader must see its tombstones: then nothing of them is left by the merge, and the same
/// table is not found again.
pub fn pick(shape: &TreeShape, strata: &SnapshotStripes) -> Option<CompactionPlan> {
    let wanted = |t: &TableShape| {
        is_tombstone_dense(t.entries, t.tombstones) && strata.stripe_of(t.largest_seq) == 0
    };
    for level in (0..=LAST_LEVEL).filter(|level| shape.tables(*level).any(wanted)) {
        for g in overlap_groups(shape, level..=LAST_LEVEL, RunId(u64::MAX)) {
            let dense: u64 = g.tables.iter().filter(|(_, t)| wanted(t)).map(|(_, t)| t.bytes).sum();
            if dense > 0 && dense.saturating_mul(COST_MAX) >= g.bytes {
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
