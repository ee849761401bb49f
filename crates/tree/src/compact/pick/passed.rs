//! Tombstones that scans pass again and again: once the scans have paid for it, they are merged with what they hide, so that a
//! queue, which is read where it was deleted, is not read through all that ever was in it.

use super::super::plan::{Plan, Reason, Shape, TableShape};
use super::group::groups;
use super::spooky::LAST;
use crate::mvcc::Strata;
use perigee_base::{LevelNo, RunId};

/// Fewer tombstones passed are not worth a merge, or a flush: about what its syncs cost.
pub const PASSED_MIN: u64 = 64 << 10;
/// An entry merged, or flushed, costs about as much as so many tombstones passed.
const COST: u64 = 4;

/// Whether so many tombstones passed have cost as much as a rewrite of so many entries.
pub fn is_paid(passed: u64, entries: u64) -> bool {
    passed >= PASSED_MIN.max(entries.saturating_mul(COST))
}

/// A merge of the uppermost group of tables that scans have paid for, into the last level. Every reader must see its tombstones:
/// then nothing of them is left by the merge.
pub fn pick(shape: &Shape, strata: &Strata) -> Option<Plan> {
    let wanted = |t: &TableShape| t.passed > 0 && strata.of(t.largest) == 0;
    for level in (0..=LAST).filter(|level| shape.tables(*level).any(wanted)) {
        for g in groups(shape, level..=LAST, RunId(u64::MAX)) {
            let passed: u64 = g.tables.iter().filter(|(_, t)| wanted(t)).map(|(_, t)| t.passed).sum();
            if is_paid(passed, g.tables.iter().map(|(_, t)| t.entries).sum()) {
                return Some(Plan::merge(Reason::Scans, g.inputs().collect(), LevelNo(LAST as u8)));
            }
        }
    }
    None
}
