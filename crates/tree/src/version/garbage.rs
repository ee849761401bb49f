//! How much of a version's tables a merge would free: entries that newer ones hide, by their counts
//! and the sketches of keys. No block is read. Counted at most once for each version.

use super::Version;
use perigee_base::limits;
use perigee_file::KeySketch;
use std::sync::OnceLock;

/// Overwritten entries may take up one part in so many of the data before they are merged away.
pub const SPACE_SHARE: u64 = 8;
/// Fewer entries than this are not worth a merge for their space: a sketch of keys would not count
/// them, either.
pub const SPACE_ENTRIES_MIN: u64 = 4096;

/// Bytes of tables that a merge would free, and of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GarbageEstimate {
    /// Those that would go, about.
    pub garbage_bytes: u64,
    /// All.
    pub total_bytes: u64,
}

/// What was counted of a version. A version that is to change begins with the default.
#[derive(Clone, Debug, Default)]
pub(super) struct GarbageCache {
    distinct_keys: OnceLock<u64>,
    garbage: OnceLock<GarbageEstimate>,
}

/// Whether a merge of so many entries above the last level could free a notable part of the data:
/// if so, it is worth counting different keys. (A reader's snapshot may keep it all alive: then
/// each merge still finds this much new.)
pub fn is_worth_estimating(above: u64, last: u64) -> bool {
    above > 0
        && above.saturating_add(last) >= SPACE_ENTRIES_MIN
        && above.saturating_mul(SPACE_SHARE) > last
}

/// Of `bytes` with so many entries (tombstones twice: each hides another one, and goes itself)
/// above the last level and in it, and so many different keys, those that a merge would free. No
/// more than what lies above: the rest was merged, and is there because a snapshot wants it.
fn estimate_garbage(bytes: u64, above: u64, last: u64, distinct: u64) -> GarbageEstimate {
    let all = above.saturating_add(last).max(1);
    let hidden = all.saturating_sub(distinct).min(above);
    let share = u128::from(bytes) * u128::from(hidden) / u128::from(all);
    GarbageEstimate { garbage_bytes: u64::try_from(share).unwrap_or(bytes), total_bytes: bytes }
}

impl Version {
    /// About how many different keys the tables hold together. (Tables of few keys have no sketch:
    /// all of theirs count.)
    pub fn distinct_keys(&self) -> u64 {
        *self.garbage_cache.distinct_keys.get_or_init(|| {
            let (mut union, mut others) = (KeySketch::new(), 0);
            for (_, _, t) in self.tables() {
                match t.reader.sketch() {
                    Some(s) => union.merge(s),
                    None => others += t.meta.summary.entries,
                }
            }
            union.estimate() + others
        })
    }

    /// What a merge would free; nothing, where it is not worth counting.
    pub fn garbage(&self) -> GarbageEstimate {
        *self.garbage_cache.garbage.get_or_init(|| {
            let (mut bytes, mut above, mut last) = (0, 0, 0);
            for (level, _, t) in self.tables() {
                let s = &t.meta.summary;
                bytes += s.bytes;
                *if level.index() + 1 < limits::LEVELS { &mut above } else { &mut last } +=
                    s.entries + s.tombstones;
            }
            if is_worth_estimating(above, last) {
                estimate_garbage(bytes, above, last, self.distinct_keys())
            } else {
                GarbageEstimate { garbage_bytes: 0, total_bytes: bytes }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overwritten_entries_count_as_garbage() {
        assert_eq!(
            estimate_garbage(15_000, 5000, 10_000, 10_000).garbage_bytes,
            5000,
            "overwritten"
        );
        assert_eq!(
            estimate_garbage(15_000, 5000, 10_000, 15_000).garbage_bytes,
            0,
            "different keys"
        );
        assert_eq!(
            estimate_garbage(15_000, 5000, 10_000, 15_300).garbage_bytes,
            0,
            "a sketch counts a little wrong"
        );
        assert_eq!(
            estimate_garbage(30_000, 5000, 25_000, 10_000).garbage_bytes,
            5000,
            "the last level keeps old versions"
        );
        assert_eq!(estimate_garbage(u64::MAX, u64::MAX, 1, 0).garbage_bytes, u64::MAX);
        assert!(
            !is_worth_estimating(0, 9000)
                && !is_worth_estimating(1000, 9000)
                && !is_worth_estimating(900, 900)
        );
        assert!(is_worth_estimating(1200, 9000) && is_worth_estimating(5000, 0));
    }
}
