//! Order-independent counts and checksums of entries. Performs no I/O.
//!
//! Entries may expire while an import runs, so a second pass over either side may miss some. Sums
//! are therefore kept per window of expiry times, whose width is a 64th of the time to live.
//! Windows that start after the end of the import must be equal; in earlier windows entries may be
//! missing, but there must be no additional ones.

use super::source::SourceEntry;
use perigee_base::checksum::payload_checksum;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CountAndSum {
    count: u64,
    sum: u64,
}

/// Digest of the entries of one side.
#[derive(Clone, Debug)]
pub struct EntryDigest {
    started_ms: u64,
    scratch: Vec<u8>,
    without_ttl: CountAndSum,
    /// Sums of expiring entries by window, see [`window_of`].
    ttl_windows: BTreeMap<u64, CountAndSum>,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// Returns the window of an expiry time, given in milliseconds after the start; there are 64
/// windows between a power of two and the next.
fn window_of(ttl_ms: u64) -> u64 {
    let scale = (63 - u64::from((ttl_ms | 1).leading_zeros())).saturating_sub(6);
    (scale << 32) + (ttl_ms >> scale)
}

/// Returns the start of a window, in milliseconds after the start of the import.
fn window_start(window: u64) -> u64 {
    (window & u64::from(u32::MAX)) << (window >> 32)
}

impl EntryDigest {
    /// Creates an empty digest. Digests that are compared must have the same start time.
    pub fn new(started_ms: u64) -> EntryDigest {
        EntryDigest {
            started_ms,
            scratch: Vec::new(),
            without_ttl: CountAndSum::default(),
            ttl_windows: BTreeMap::new(),
            bytes: 0,
        }
    }
    /// Creates an empty digest that can be compared with this one.
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
    /// Returns the number of entries.
    pub fn count(&self) -> u64 {
        self.without_ttl.count + self.ttl_count()
    }
    /// Returns the number of entries that expire.
    pub fn ttl_count(&self) -> u64 {
        self.ttl_windows.values().map(|s| s.count).sum()
    }
    /// Returns the checksum over all entries.
    pub fn checksum(&self) -> u64 {
        self.ttl_windows.values().fold(self.without_ttl.sum, |all, s| all.wrapping_add(s.sum))
    }
    /// Compares with a digest of the same entries taken later. If `later` lacks only entries that
    /// may have expired by `ended_ms` and has no others, returns the number of missing entries;
    /// otherwise `None`.
    pub fn compare(&self, later: &EntryDigest, ended_ms: u64) -> Option<u64> {
        if self.without_ttl != later.without_ttl
            || later.ttl_windows.keys().any(|w| !self.ttl_windows.contains_key(w))
        {
            return None;
        }
        let elapsed = ended_ms.saturating_sub(self.started_ms);
        let mut expired = 0;
        for (window, before) in &self.ttl_windows {
            let after = later.ttl_windows.get(window).copied().unwrap_or_default();
            let has_started = window_start(*window) <= elapsed;
            if *before != after && !(has_started && after.count < before.count) {
                return None;
            }
            expired += before.count - after.count;
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
        let mut times: Vec<u64> = (0..5000)
            .chain((13..63).flat_map(|n| [(1u64 << n) - 1, 1 << n, (1 << n) + 12345]))
            .collect();
        times.sort_unstable();
        let mut last = 0;
        for ms in times {
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
