//! Tables of which many entries have expired: they are merged with what they hide, so that data that nobody overwrites is
//! reclaimed when its time is over. What time it is, the caller says.

use super::super::plan::{Plan, Reason, Shape, TableShape};
use super::group::groups;
use super::spooky::LAST;
use crate::mvcc::Strata;
use crate::version::expired_min;
use perigee_base::{LevelNo, RunId};

/// What is merged may be so many times larger than what has expired of it.
const COST_MAX: u64 = 16;

/// A merge of the uppermost such table, with all that shares keys with it, into the last level. Every reader must see its
/// entries: then nothing that has expired is left by the merge, and the same table is not found again.
pub fn pick(shape: &Shape, strata: &Strata, now_ms: u64) -> Option<Plan> {
    let expired = |t: &TableShape| t.expiries.as_ref().map_or(0, |e| e.passed(now_ms)).min(t.entries);
    let wanted =
        |t: &TableShape| t.entries > 0 && expired(t) >= expired_min(t.entries) && strata.of(t.largest) == 0;
    let garbage = |t: &TableShape| {
        let bytes = u128::from(t.bytes) * u128::from(expired(t)) / u128::from(t.entries.max(1));
        u64::try_from(bytes).unwrap_or(t.bytes)
    };
    for level in (0..=LAST).filter(|level| shape.tables(*level).any(wanted)) {
        for g in groups(shape, level..=LAST, RunId(u64::MAX)) {
            let gain: u64 = g.tables.iter().filter(|(_, t)| wanted(t)).map(|(_, t)| garbage(t)).sum();
            if gain > 0 && gain.saturating_mul(COST_MAX) >= g.bytes {
                return Some(Plan::merge(Reason::Expired, g.inputs().collect(), LevelNo(LAST as u8)));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::cut::Cut;
    use perigee_base::{Expiry, FileId, SeqNo};
    use perigee_file::Expiries;
    use std::sync::Arc;

    /// Hundred bytes and hundred entries over a range of keys, of which some expire at 1000, some at 2000.
    fn table(id: u64, keys: &str, (early, late): (u64, u64)) -> TableShape {
        let (first, last) = keys.split_once('-').unwrap();
        let (first, last) = (Cut::Before(first.into()), Cut::After(last.into()));
        let mut expiries = Expiries::default();
        (0..early).for_each(|_| expiries.add(Expiry(1000)));
        (0..late).for_each(|_| expiries.add(Expiry(2000)));
        let expiries = Some(Arc::new(expiries)).filter(|e| !e.is_empty());
        TableShape {
            entries: 100,
            largest: SeqNo(50),
            expiries,
            ..TableShape::new(FileId(id), first, last, 100)
        }
    }

    fn picked(levels: &[(usize, TableShape)], now_ms: u64, snapshots: &[u64]) -> String {
        let mut shape = Shape { levels: vec![Vec::new(); LAST + 1], ..Shape::default() };
        for (level, t) in levels {
            match shape.levels[*level].first_mut() {
                Some(run) if *level > 0 => run.push(t.clone()),
                _ => shape.levels[*level].push(vec![t.clone()]),
            }
        }
        let strata = Strata::new(snapshots.iter().map(|s| SeqNo(*s)).collect(), SeqNo(100));
        let Some(plan) = pick(&shape, &strata, now_ms) else { return "nothing".into() };
        let inputs: Vec<String> = plan.inputs.iter().map(|(l, id)| format!("L{l}/{id}")).collect();
        format!("{} -> L{} ({})", inputs.join(" "), plan.to, plan.reason.name())
    }

    #[test]
    fn a_table_of_which_a_quarter_has_expired_is_merged_with_what_it_hides() {
        let one = [(LAST, table(1, "a-f", (25, 75)))];
        assert_eq!(picked(&one, 999, &[]), "nothing");
        assert_eq!(picked(&one, 1000, &[]), "L6/1 -> L6 (expired entries)");
        assert_eq!(picked(&[(LAST, table(1, "a-f", (24, 0)))], u64::MAX, &[]), "nothing");
        assert_eq!(picked(&[(LAST, table(1, "a-f", (0, 0)))], u64::MAX, &[]), "nothing");
        let over =
            [(0, table(3, "c-d", (0, 100))), (4, table(2, "d-g", (0, 0))), (LAST, table(1, "a-f", (0, 0)))];
        assert_eq!(picked(&over, 2000, &[]), "L6/1 L0/3 L4/2 -> L6 (expired entries)");
    }

    #[test]
    fn a_reader_or_a_poor_gain_keeps_it() {
        let one = [(LAST, table(1, "a-f", (100, 0)))];
        assert_eq!(picked(&one, 1000, &[49]), "nothing", "older readers see what it hides");
        assert_eq!(picked(&one, 1000, &[50]), "L6/1 -> L6 (expired entries)");
        let mut large = table(2, "a-f", (0, 0));
        large.bytes = 2000;
        assert_eq!(picked(&[(0, table(1, "c-d", (100, 0))), (LAST, large.clone())], 1000, &[]), "nothing");
        large.bytes = 1400;
        assert_eq!(
            picked(&[(0, table(1, "c-d", (100, 0))), (LAST, large)], 1000, &[]),
            "L6/2 L0/1 -> L6 (expired entries)"
        );
    }
}
