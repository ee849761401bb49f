//! Estimates how much of a version's tables and value logs compactions would free: entries hidden
//! by newer ones, by entry counts and key sketches, and values that no table references. Reads no
//! block. Computed at most once per version.

use super::Version;
use crate::limits::SPACE_ENTRIES_MIN;
use perigee_base::{SeqNo, limits};
use perigee_file::KeySketch;
use std::sync::OnceLock;

/// Overwritten entries may occupy one part in this many of the data before they are merged away.
pub const SPACE_SHARE: u64 = 8;

/// Bytes of tables and value logs that compactions would free, and of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GarbageEstimate {
    /// Estimated bytes that compactions would free.
    pub garbage_bytes: u64,
    /// Bytes of all tables and value logs.
    pub total_bytes: u64,
}

/// What is computed from a version at most once. A new version starts with the default.
#[derive(Clone, Debug, Default)]
pub(super) struct VersionCache {
    pub(super) newest_seq: OnceLock<SeqNo>,
    distinct_keys: OnceLock<u64>,
    distinct_share: OnceLock<f64>,
    garbage: OnceLock<GarbageEstimate>,
}

/// Numbers of entries; tombstones count twice.
#[derive(Clone, Copy, Debug, Default)]
pub struct EntriesByLevel {
    /// In all levels but the last.
    pub above: u64,
    /// In the last level.
    pub last: u64,
}

/// Returns true if a merge of the entries above the last level could free a notable part of the
/// data, so that counting distinct keys is worthwhile. (A snapshot may keep all of it alive: then
/// each further merge still needs this much new data.)
pub fn is_worth_estimating(entries: EntriesByLevel) -> bool {
    let EntriesByLevel { above, last } = entries;
    above > 0
        && above.saturating_add(last) >= SPACE_ENTRIES_MIN
        && above.saturating_mul(SPACE_SHARE) > last
}

/// Returns how many of `bytes` bytes a merge would free, from the entries above the last level
/// and in it (tombstones count twice: each removes another entry, and itself) and the number of
/// distinct keys. The result is limited to the entries above: the last level was merged before, and
/// only snapshots can keep hidden entries there.
fn estimate_hidden(bytes: u64, entries: EntriesByLevel, distinct: u64) -> u64 {
    let EntriesByLevel { above, last } = entries;
    let all = above.saturating_add(last).max(1);
    let hidden = all.saturating_sub(distinct).min(above);
    check!(hidden <= all, "hidden entries are among all entries", hidden, all);
    let share = u128::from(bytes) * u128::from(hidden) / u128::from(all);
    u64::try_from(share).unwrap_or(bytes)
}

impl Version {
    /// Estimates the number of distinct keys in all tables. (Tables with few keys have no sketch:
    /// all of their entries count.)
    pub fn distinct_keys(&self) -> u64 {
        *self.cache.distinct_keys.get_or_init(|| {
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

    /// Estimates the share of entries that are distinct keys, from 0 to 1.
    pub fn distinct_share(&self) -> f64 {
        *self
            .cache
            .distinct_share
            .get_or_init(|| (self.distinct_keys() as f64 / self.entries().max(1) as f64).min(1.0))
    }

    /// Estimates what compactions would free: entries and separated values that newer entries hide,
    /// if counting them is worthwhile, and what no table references in value logs.
    pub fn garbage(&self) -> GarbageEstimate {
        *self.cache.garbage.get_or_init(|| {
            let (mut bytes, mut entries) = (0, EntriesByLevel::default());
            let mut separated_bytes = 0u64;
            for (level, _, t) in self.tables() {
                let s = &t.meta.summary;
                bytes += s.bytes;
                separated_bytes = separated_bytes.saturating_add(s.separated_bytes());
                let is_last = level.index() + 1 == limits::LEVELS;
                *if is_last { &mut entries.last } else { &mut entries.above } +=
                    s.entries + s.tombstones;
            }
            let vlog_bytes: u64 = self.vlogs.values().map(|v| v.meta.bytes).sum();
            let referenced = separated_bytes.saturating_add(bytes);
            let hidden = match is_worth_estimating(entries) {
                true => estimate_hidden(referenced, entries, self.distinct_keys()),
                false => 0,
            };
            let unreferenced = vlog_bytes.saturating_sub(separated_bytes);
            GarbageEstimate {
                garbage_bytes: unreferenced.saturating_add(hidden),
                total_bytes: unreferenced.saturating_add(referenced),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(above: u64, last: u64) -> EntriesByLevel {
        EntriesByLevel { above, last }
    }

    #[test]
    fn overwritten_entries_count_as_garbage() {
        assert_eq!(estimate_hidden(15_000, of(5000, 10_000), 10_000), 5000, "overwritten");
        assert_eq!(estimate_hidden(15_000, of(5000, 10_000), 15_000), 0, "distinct keys");
        assert_eq!(
            estimate_hidden(15_000, of(5000, 10_000), 15_300),
            0,
            "the sketch overestimates slightly"
        );
        assert_eq!(
            estimate_hidden(30_000, of(5000, 25_000), 10_000),
            5000,
            "old versions in the last level do not count"
        );
        assert_eq!(estimate_hidden(u64::MAX, of(u64::MAX, 1), 0), u64::MAX);
        assert!(
            !is_worth_estimating(of(0, 9000))
                && !is_worth_estimating(of(1000, 9000))
                && !is_worth_estimating(of(900, 900))
        );
        assert!(is_worth_estimating(of(1200, 9000)) && is_worth_estimating(of(5000, 0)));
    }
}
