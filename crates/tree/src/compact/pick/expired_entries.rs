//! Picks tables of which many entries have expired: they are merged with what they hide, so that
//! expired data that is never overwritten is reclaimed. The caller supplies the current time.

use super::super::plan::{CompactionPlan, CompactionReason, TableShape, TreeShape};
use super::overlap_group::overlap_groups;
use super::spooky::LAST_LEVEL;
use crate::limits::EXPIRED_COST_MAX;
use crate::mvcc::SnapshotStripes;
use crate::version::expired_entries_min;
use perigee_base::{LevelNo, RunId};

/// Returns a merge of the uppermost such table, with all tables that overlap it, into the last
/// level. Its entries must be visible to every reader: then the merge drops all that has expired,
/// and the same table is not picked again. `now_ms`: current time in milliseconds.
pub fn pick_expired_entries(
    shape: &TreeShape,
    stripes: &SnapshotStripes,
    now_ms: u64,
) -> Option<CompactionPlan> {
    let expired =
        |t: &TableShape| t.expiries.as_ref().map_or(0, |e| e.expired_count(now_ms)).min(t.entries);
    let is_due = |t: &TableShape| {
        t.entries > 0
            && expired(t) >= expired_entries_min(t.entries)
            && stripes.stripe_of(t.largest_seq) == 0
    };
    let garbage = |t: &TableShape| {
        let bytes = u128::from(t.bytes) * u128::from(expired(t)) / u128::from(t.entries.max(1));
        u64::try_from(bytes).unwrap_or(t.bytes)
    };
    for level in (0..=LAST_LEVEL).filter(|level| shape.tables(*level).any(is_due)) {
        for g in overlap_groups(shape, level..=LAST_LEVEL, RunId(u64::MAX)) {
            let gain: u64 =
                g.tables.iter().filter(|(_, t)| is_due(t)).map(|(_, t)| garbage(t)).sum();
            if gain > 0 && gain.saturating_mul(EXPIRED_COST_MAX) >= g.bytes {
                return Some(CompactionPlan::merge(
                    CompactionReason::ExpiredEntries,
                    g.inputs().collect(),
                    LevelNo(LAST_LEVEL as u8),
                ));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::{Expiry, FileId, KeyBoundary, SeqNo};
    use perigee_file::ExpiryHistogram;
    use std::sync::Arc;

    /// Returns a table of 100 bytes and 100 entries over a key range; `early` entries expire at
    /// 1000, `late` ones at 2000.
    fn table(id: u64, keys: &str, (early, late): (u64, u64)) -> TableShape {
        let (first, last) = keys.split_once('-').unwrap();
        let (first, last) = (KeyBoundary::Before(first.into()), KeyBoundary::After(last.into()));
        let mut expiries = ExpiryHistogram::default();
        (0..early).for_each(|_| expiries.add(Expiry(1000)));
        (0..late).for_each(|_| expiries.add(Expiry(2000)));
        let expiries = Some(Arc::new(expiries)).filter(|e| !e.is_empty());
        TableShape {
            entries: 100,
            largest_seq: SeqNo(50),
            expiries,
            ..TableShape::new(FileId(id), first, last, 100)
        }
    }

    fn format_picked(levels: &[(usize, TableShape)], now_ms: u64, snapshots: &[u64]) -> String {
        let mut shape =
            TreeShape { levels: vec![Vec::new(); LAST_LEVEL + 1], ..TreeShape::default() };
        for (level, t) in levels {
            match shape.levels[*level].first_mut() {
                Some(run) if *level > 0 => run.push(t.clone()),
                _ => shape.levels[*level].push(vec![t.clone()]),
            }
        }
        let stripes =
            SnapshotStripes::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
        let Some(plan) = pick_expired_entries(&shape, &stripes, now_ms) else {
            return "nothing".into();
        };
        let inputs: Vec<String> = plan.inputs.iter().map(|(l, id)| format!("L{l}/{id}")).collect();
        format!("{} -> L{} ({})", inputs.join(" "), plan.target_level, plan.reason.name())
    }

    #[test]
    fn table_with_a_quarter_expired_is_compacted() {
        let one = [(LAST_LEVEL, table(1, "a-f", (25, 75)))];
        assert_eq!(format_picked(&one, 999, &[]), "nothing");
        assert_eq!(format_picked(&one, 1000, &[]), "L6/1 -> L6 (expired entries)");
        assert_eq!(
            format_picked(&[(LAST_LEVEL, table(1, "a-f", (24, 0)))], u64::MAX, &[]),
            "nothing"
        );
        assert_eq!(
            format_picked(&[(LAST_LEVEL, table(1, "a-f", (0, 0)))], u64::MAX, &[]),
            "nothing"
        );
        let over = [
            (0, table(3, "c-d", (0, 100))),
            (4, table(2, "d-g", (0, 0))),
            (LAST_LEVEL, table(1, "a-f", (0, 0))),
        ];
        assert_eq!(format_picked(&over, 2000, &[]), "L6/1 L0/3 L4/2 -> L6 (expired entries)");
    }

    #[test]
    fn snapshot_or_low_gain_prevents_expiry_compaction() {
        let one = [(LAST_LEVEL, table(1, "a-f", (100, 0)))];
        assert_eq!(
            format_picked(&one, 1000, &[49]),
            "nothing",
            "an older snapshot sees what the table hides"
        );
        assert_eq!(format_picked(&one, 1000, &[50]), "L6/1 -> L6 (expired entries)");
        let mut large = table(2, "a-f", (0, 0));
        large.bytes = 2000;
        assert_eq!(
            format_picked(
                &[(0, table(1, "c-d", (100, 0))), (LAST_LEVEL, large.clone())],
                1000,
                &[]
            ),
            "nothing"
        );
        large.bytes = 1400;
        assert_eq!(
            format_picked(&[(0, table(1, "c-d", (100, 0))), (LAST_LEVEL, large)], 1000, &[]),
            "L6/2 L0/1 -> L6 (expired entries)"
        );
    }
}
