//! Tombstones that scans pass again and again: once the scans have paid for it, they are merged
//! with what they hide, so that a queue, which is read where it was deleted, is not read through
//! all that ever was in it.

use super::super::plan::{CompactionPlan, CompactionReason, TableShape, TreeShape};
use super::overlap_group::overlap_groups;
use super::spooky::LAST_LEVEL;
use crate::mvcc::SnapshotStripes;
use perigee_base::{LevelNo, RunId};

/// Fewer tombstones passed are not worth a merge, or a flush: about what its syncs cost.
pub const SKIPPED_MIN: u64 = 64 << 10;
/// An entry merged, or flushed, costs about as much as so many tombstones passed.
const SKIPS_PER_ENTRY: u64 = 4;

/// Whether so many tombstones passed have cost as much as a rewrite of so many entries.
pub fn is_rewrite_worthwhile(passed: u64, entries: u64) -> bool {
    passed >= SKIPPED_MIN.max(entries.saturating_mul(SKIPS_PER_ENTRY))
}

/// A merge of the uppermost group of tables that scans have paid for, into the last level. Every
/// reader must see its tombstones: then nothing of them is left by the merge.
pub fn pick(shape: &TreeShape, strata: &SnapshotStripes) -> Option<CompactionPlan> {
    let wanted = |t: &TableShape| t.skipped_tombstones > 0 && strata.stripe_of(t.largest_seq) == 0;
    for level in (0..=LAST_LEVEL).filter(|level| shape.tables(*level).any(wanted)) {
        for g in overlap_groups(shape, level..=LAST_LEVEL, RunId(u64::MAX)) {
            let passed: u64 =
                g.tables.iter().filter(|(_, t)| wanted(t)).map(|(_, t)| t.skipped_tombstones).sum();
            if is_rewrite_worthwhile(passed, g.tables.iter().map(|(_, t)| t.entries).sum()) {
                return Some(CompactionPlan::merge(
                    CompactionReason::SkippedTombstones,
                    g.inputs().collect(),
                    LevelNo(LAST_LEVEL as u8),
                ));
            }
        }
    }
    None
}
