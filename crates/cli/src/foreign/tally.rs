//! Counts and checksums of entries, whatever their order. Pure.
//!
//! Entries expire while an import runs, so that a second look at either side may miss some. They are therefore summed in windows
//! of their ends, each a 64th of the time until then: windows that had not begun when everything was over must be equal, in
//! those that had begun nothing may be too much.

use super::entry::Entry;
use perigee_base::checksum::checksum_placeless;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    sum: u64,
}

/// What was seen of one side.
#[derive(Clone, Debug)]
pub struct Tally {
    started_ms: u64,
    scratch: Vec<u8>,
    lasting: Sum,
    /// By window, see [`window`].
    timed: BTreeMap<u64, Sum>,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// The window of an end so long after the start: 64 of them until each doubling.
fn window(after_ms: u64) -> u64 {
    let scale = (63 - u64::from((after_ms | 1).leading_zeros())).saturating_sub(6);
    (scale << 32) + (after_ms >> scale)
}

/// The first moment of a window.
fn begin(window: u64) -> u64 {
    (window & u64::from(u32::MAX)) << (window >> 32)
}

impl Tally {
    /// Nothing yet; all that are compared have the same start.
    pub fn new(started_ms: u64) -> Tally {
        Tally { started_ms, scratch: Vec::new(), lasting: Sum::default(), timed: BTreeMap::new(), bytes: 0 }
    }
    /// Nothing yet, to be compared with this one.
    pub fn empty(&self) -> Tally {
        Tally::new(self.started_ms)
    }
    /// Adds an entry.
    pub fn add(&mut self, entry: Entry<'_>) {
        self.scratch.clear();
        self.scratch.extend_from_slice(&(entry.key.len() as u64).to_le_bytes());
        self.scratch.extend_from_slice(&entry.expires_at_ms.unwrap_or(0).to_le_bytes());
        self.scratch.extend_from_slice(entry.key);
        self.scratch.extend_from_slice(entry.value);
        let hash = checksum_placeless(&self.scratch);
        self.bytes += (entry.key.len() + entry.value.len()) as u64;
        let sum = match entry.expires_at_ms {
            None => &mut self.lasting,
            Some(ms) => self.timed.entry(window(ms.saturating_sub(self.started_ms))).or_default(),
        };
        sum.count += 1;
        sum.sum = sum.sum.wrapping_add(hash);
    }
    /// Entries seen.
    pub fn count(&self) -> u64 {
        self.lasting.count + self.timed_count()
    }
    /// Those of them that expire.
    pub fn timed_count(&self) -> u64 {
        self.timed.values().map(|s| s.count).sum()
    }
    /// All sums in one.
    pub fn checksum(&self) -> u64 {
        self.timed.values().fold(self.lasting.sum, |all, s| all.wrapping_add(s.sum))
    }
    /// Whether `later`, seen of the same entries, lacks nothing but what may have expired by then, and has nothing else. The
    /// number of entries that it lacks.
    pub fn compare(&self, later: &Tally, ended_ms: u64) -> Option<u64> {
        if self.lasting != later.lasting || later.timed.keys().any(|w| !self.timed.contains_key(w)) {
            return None;
        }
        let passed = ended_ms.saturating_sub(self.started_ms);
        let mut expired = 0;
        for (w, mine) in &self.timed {
            let theirs = later.timed.get(w).copied().unwrap_or_default();
            let may_have_begun = begin(*w) <= passed;
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

    fn tally(entries: &[(&str, &str, Option<u64>)]) -> Tally {
        let mut t = Tally::new(1000);
        for (k, v, expires_at_ms) in entries {
            t.add(Entry { key: k.as_bytes(), value: v.as_bytes(), expires_at_ms: *expires_at_ms });
        }
        t
    }

    #[test]
    fn windows_are_in_order_and_hold_their_moments() {
        let mut moments: Vec<u64> =
            (0..5000).chain((13..63).flat_map(|n| [(1u64 << n) - 1, 1 << n, (1 << n) + 12345])).collect();
        moments.sort_unstable();
        let mut last = 0;
        for ms in moments {
            let w = window(ms);
            assert!(w >= last && begin(w) <= ms, "{ms}");
            assert!(ms - begin(w) <= ms / 64, "{ms}: {}", begin(w));
            last = w;
        }
        assert_eq!(begin(window(u64::MAX)), u64::MAX << 57);
    }

    #[test]
    fn order_does_not_count_everything_else_does() {
        let a = tally(&[("a", "1", None), ("b", "2", None), ("c", "3", Some(90_000))]);
        let same = tally(&[("c", "3", Some(90_000)), ("b", "2", None), ("a", "1", None)]);
        assert_eq!(a.compare(&same, 2000), Some(0));
        assert_eq!((a.count(), a.timed_count(), a.bytes), (3, 1, 6));
        for other in [
            tally(&[("a", "1", None), ("b", "2", None)]),
            tally(&[("a", "1", None), ("b", "2", None), ("c", "3", None)]),
            tally(&[("a", "1", None), ("b", "2", None), ("c", "3", Some(99_000))]),
            tally(&[("a", "1", None), ("b", "2", None), ("c", "4", Some(90_000))]),
            tally(&[("a1", "", None), ("b", "2", None), ("c", "3", Some(90_000))]),
            tally(&[("a", "1", None), ("b", "2", None), ("c", "3", Some(90_000)), ("d", "", Some(1500))]),
        ] {
            assert_eq!(a.compare(&other, 2000), None, "{other:?}");
        }
    }

    #[test]
    fn what_expired_meanwhile_may_be_gone() {
        let a = tally(&[("a", "1", None), ("b", "2", Some(5_000)), ("c", "3", Some(90_000))]);
        let later = tally(&[("a", "1", None), ("c", "3", Some(90_000))]);
        assert_eq!(a.compare(&later, 6_000), Some(1));
        assert_eq!(a.compare(&later, 4_000), None);
    }
}
