//! Picks tables whose tombstones scans skip repeatedly: once the skips have cost as much as a
//! merge, the tables are merged with what they hide. Otherwise every read at the head of a queue
//! would skip all entries that were ever deleted from it.

use super::super::plan::{CompactionPlan, CompactionReason, TableShape, TreeShape};
use super::overlap_group::overlap_groups;
use super::spooky::LAST_LEVEL;
use crate::limits::SKIPPED_MIN;
use crate::mvcc::SnapshotStripes;
use perigee_base::{LevelNo, RunId, Tombstones};

/// Merging or flushing one entry costs about as much as skipping this many tombstones.
const SKIPS_PER_ENTRY: u64 = 4;

/// Returns true if skipping the `skipped` tombstones has cost as much as rewriting `entries`
/// entries.
pub fn is_rewrite_worthwhile(skipped: Tombstones, entries: u64) -> bool {
    skipped.0 >= SKIPPED_MIN.max(entries.saturating_mul(SKIPS_PER_ENTRY))
}

/// Returns a merge, into the last level, of the uppermost group of tables whose skips have cost as
/// much as the merge. Its tombstones must be visible to every reader: then the merge drops them
/// all.
pub fn pick_skipped_tombstones(
    shape: &TreeShape,
    stripes: &SnapshotStripes,
) -> Option<CompactionPlan> {
    let is_skipped =
        |t: &TableShape| t.skipped_tombstones > 0 && stripes.stripe_of(t.largest_seq) == 0;
    for level in (0..=LAST_LEVEL).filter(|level| shape.tables(*level).any(is_skipped)) {
        for g in overlap_groups(shape, level..=LAST_LEVEL, RunId(u64::MAX)) {
            let skipped: u64 = g
                .tables
                .iter()
                .filter(|(_, t)| is_skipped(t))
                .map(|(_, t)| t.skipped_tombstones)
                .sum();
            if is_rewrite_worthwhile(
                Tombstones(skipped),
                g.tables.iter().map(|(_, t)| t.entries).sum(),
            ) {
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
