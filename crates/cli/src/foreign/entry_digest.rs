//! Counts and checksums of entries, whatever their order. Pure.
//!
//! Entries expire while an import runs, so that a second look at either side may miss some. They
//! are therefore summed in windows of their ends, each a 64th of the time until then: windows that
//! had not begun when everything was over must be equal, in those that had begun nothing may be too
//! much.

use super::source::SourceEntry;
use perigee_base::checksum::payload_checksum;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CountAndSum {
    count: u64,
    sum: u64,
}

/// What was seen of one side.
#[derive(Clone, Debug)]
pub struct EntryDigest {
    started_ms: u64,
    scratch: Vec<u8>,
    without_ttl: CountAndSum,
    /// By window, see [`window`].
    ttl_windows: BTreeMap<u64, CountAndSum>,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// The window of an end so long after the start: 64 of them until each doubling.
fn window_of(after_ms: u64) -> u64 {
    let scale = (63 - u64::from((after_ms | 1).leading_zeros())).saturating_sub(6);
    (scale << 32) + (after_ms >> scale)
}

/// The first moment of a window.
fn window_start(window: u64) -> u64 {
    (window & u64::from(u32::MAX)) << (window >> 32)
}

impl EntryDigest {
    /// Nothing yet; all that are compared have the same start.
    pub fn new(started_ms: u64) -> EntryDigest {
        EntryDigest {
            started_ms,
            scratch: Vec::new(),
            without_ttl: CountAndSum::default(),
            ttl_windows: BTreeMap::new(),
            bytes: 0,
        }
    }
    /// Nothing yet, to be compared with this one.
    pub fn new_like(&self) -> EntryDigest {
        EntryDigest::new(self.started_ms)
    }
    /// Adds an entry.
    pub fn add(&mut self, entry: SourceEntry<'_>) {
        self.scratch.clear();
        self.scratch.extend_from_slice(&(entry.key.len() as u64).to_le_bytes());
        self.scratch.extend_from_slice(&entry.expires_at_ms.unwrap_or(0).to_le_bytes());
        self.scratch.extend_from_slice(entry.key);
        self.scratch.extend_from_slice(entry.value);
        let hash = payload_checksum(&self.scratch);
        self.bytes += (entry.key.len() + entry.value.len()) as u64;
        let sum = match entry.expires_at_ms {
            None => &mut self.without_ttl,
            Some(ms) => {
                self.ttl_windows.entry(window_of(ms.saturating_sub(self.started_ms))).or_default()
            }
        };
        sum.count += 1;
        sum.sum = sum.sum.wrapping_add(hash);
    }
    /// Entries seen.
    pub fn count(&self) -> u64 {
        self.without_ttl.count + self.ttl_count()
    }
    /// Those of them that expire.
    pub fn ttl_count(&self) -> u64 {
        self.ttl_windows.values().map(|s| s.count).sum()
    }
    /// All sums in one.
    pub fn checksum(&self) -> u64 {
        self.ttl_windows.values().fold(self.without_ttl.sum, |all, s| all.wrapping_add(s.sum))
    }
    /// Whether `later`, seen of the same entries, lacks nothing but what may have expired by then,
    /// and has nothing else. The number of entries that it lacks.
    pub fn compare(&self, later: &EntryDigest, ended_ms: u64) -> Option<u64> {
        if self.without_ttl != later.without_ttl
            || later.ttl_windows.keys().any(|w| !self.ttl_windows.contains_key(w))
        {
            return None;
        }
        let passed = ended_ms.saturating_sub(self.started_ms);
        let mut expired = 0;
        for (w, mine) in &self.ttl_windows {
            let theirs = later.ttl_windows.get(w).copied().unwrap_or_default();
            let may_have_begun = window_start(*w) <= passed;
            if *mine != theirs && !(may_have_begun && theirs.count < mine.count) {
                return None;
            }
            expired += mine.count - theirs.count;
        }
        Some(expired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest_of(entries: &[(&str, &str, Option<u64>)]) -> EntryDigest {
        let mut t = EntryDigest::new(1000);
        for (k, v, expires_at_ms) in entries {
            t.add(SourceEntry {
                key: k.as_bytes(),
                value: v.as_bytes(),
                expires_at_ms: *expires_at_ms,
            });
        }
        t
    }

    #[test]
    fn windows_are_ordered_and_cover_their_times() {
        let mut moments: Vec<u64> = (0..5000)
            .chain((13..63).flat_map(|n| [(1u64 << n) - 1, 1 << n, (1 << n) + 12345]))
            .collect();
        moments.sort_unstable();
        let mut last = 0;
        for ms in moments {
            let w = window_of(ms);
            assert!(w >= last && window_start(w) <= ms, "{ms}");
            assert!(ms - window_start(w) <= ms / 64, "{ms}: {}", window_start(w));
            last = w;
        }
        assert_eq!(window_start(window_of(u64::MAX)), u64::MAX << 57);
    }

    #[test]
    fn digest_ignores_order_only() {
        let a = digest_of(&[("a", "1", None), ("b", "2", None), ("c", "3", Some(90_000))]);
        let same = digest_of(&[("c", "3", Some(90_000)), ("b", "2", None), ("a", "1", None)]);
        assert_eq!(a.compare(&same, 2000), Some(0));
        assert_eq!((a.count(), a.ttl_count(), a.bytes), (3, 1, 6));
        for other in [
            digest_of(&[("a", "1", None), ("b", "2", None)]),
            digest_of(&[("a", "1", None), ("b", "2", None), ("c", "3", None)]),
            digest_of(&[("a", "1", None), ("b", "2", None), ("c", "3", Some(99_000))]),
            digest_of(&[("a", "1", None), ("b", "2", None), ("c", "4", Some(90_000))]),
            digest_of(&[("a1", "", None), ("b", "2", None), ("c", "3", Some(90_000))]),
            digest_of(&[
                ("a", "1", None),
                ("b", "2", None),
                ("c", "3", Some(90_000)),
                ("d", "", Some(1500)),
            ]),
        ] {
            assert_eq!(a.compare(&other, 2000), None, "{other:?}");
        }
    }

    #[test]
    fn expired_entries_may_be_missing() {
        let a = digest_of(&[("a", "1", None), ("b", "2", Some(5_000)), ("c", "3", Some(90_000))]);
        let later = digest_of(&[("a", "1", None), ("c", "3", Some(90_000))]);
        assert_eq!(a.compare(&later, 6_000), Some(1));
        assert_eq!(a.compare(&later, 4_000), None);
    }
}
