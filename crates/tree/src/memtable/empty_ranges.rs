//! Key ranges that are known to be empty: a scan that has skipped many tombstones notes the range,
//! and the next one seeks past it. Without this, every read at the head of a queue skips all entries
//! that were deleted since the last compaction.
//!
//! A noted range holds no live entry at sequence number `as_of` or later, because the writer removes
//! the range when it writes an entry there, before that entry becomes visible. A reader at `as_of`
//! or later that finds the range can therefore skip it, in all sources.
//!
//! The active memtable holds the ranges of its views. Its successor takes them over; it does not if
//! tables with new entries may be added below it ([`EmptyRanges::refusing`]).
//!
//! ```text
//!  scan at R: skips the tombstones in [a, b)          writer: inserts an entry with seq > R in [a, b)
//!  lock, add [a, b), fence,                           publish the entry, fence,
//!  look for entries newer than R in [a, b): remove    are there ranges? lock, remove those hit
//! ```
//! One of the two fences comes first: so either the scan finds the entry, or the writer the range.

use crate::limits::{EMPTY_RANGE_KEY_BYTES_MAX, EMPTY_RANGE_TOMBSTONES_MIN, EMPTY_RANGES_MAX};
use perigee_base::{KeyComparator, SeqNo};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A key range without live entries.
#[derive(Clone, Debug)]
struct EmptyRange {
    keys: Range<Vec<u8>>,
    /// It is empty for readers at this sequence number or later.
    as_of: SeqNo,
    /// Number of the last use, for eviction.
    last_use: u64,
}

/// The ranges, in key order; they neither overlap nor touch.
#[derive(Clone, Debug, Default)]
struct RangeList {
    ranges: Vec<EmptyRange>,
    uses: u64,
}

/// A range that a scan found to be empty, and the number of tombstones it skipped there.
#[derive(Clone, Copy, Debug)]
pub struct SkippedRange<'a> {
    /// First key.
    pub begin: &'a [u8],
    /// The key after the range.
    pub end: &'a [u8],
    /// Sequence number of the reader.
    pub at: SeqNo,
    /// Tombstones skipped.
    pub tombstones: u64,
}

/// The empty ranges of a memtable and what is below it. The mutex guards the list; no I/O while it
/// is held.
#[derive(Debug, Default)]
pub struct EmptyRanges {
    non_empty: AtomicBool,
    /// True if nothing may be added.
    refuses: bool,
    list: Mutex<RangeList>,
}

impl RangeList {
    /// Index of the first range that ends after `key`.
    fn index_of(&self, order: KeyComparator, key: &[u8]) -> usize {
        self.ranges.partition_point(|r| order.cmp(&r.keys.end, key).is_le())
    }
    /// Returns the range that holds `key`.
    fn find(&mut self, order: KeyComparator, key: &[u8]) -> Option<&mut EmptyRange> {
        let i = self.index_of(order, key);
        self.ranges.get_mut(i).filter(|r| order.cmp(&r.keys.start, key).is_le())
    }
    /// Joins `added` with the ranges that it touches, or inserts it if it is worth a place.
    fn add(&mut self, order: KeyComparator, added: &SkippedRange<'_>) -> bool {
        let touching = self.ranges.partition_point(|r| order.cmp(&r.keys.end, added.begin).is_lt())
            ..self.ranges.partition_point(|r| order.cmp(&r.keys.start, added.end).is_le());
        if touching.is_empty() && added.tombstones < EMPTY_RANGE_TOMBSTONES_MIN {
            return false;
        }
        self.uses += 1;
        let mut joined = EmptyRange {
            keys: added.begin.to_vec()..added.end.to_vec(),
            as_of: added.at,
            last_use: self.uses,
        };
        for range in self.ranges.drain(touching.clone()) {
            joined.as_of = joined.as_of.max(range.as_of);
            if order.cmp(&range.keys.start, &joined.keys.start).is_lt() {
                joined.keys.start = range.keys.start;
            }
            if order.cmp(&range.keys.end, &joined.keys.end).is_gt() {
                joined.keys.end = range.keys.end;
            }
        }
        self.ranges.insert(touching.start, joined);
        if self.ranges.len() > EMPTY_RANGES_MAX {
            let oldest = (0..self.ranges.len()).min_by_key(|i| self.ranges[*i].last_use);
            oldest.map(|i| self.ranges.remove(i));
        }
        check_slow!(
            self.ranges.is_sorted_by(|a, b| order.cmp(&a.keys.end, &b.keys.start).is_lt()),
            "empty ranges are in key order and do not touch",
            self.ranges.len()
        );
        true
    }
    /// Removes the range that holds `key`.
    fn remove(&mut self, order: KeyComparator, key: &[u8]) {
        let i = self.index_of(order, key);
        if self.ranges.get(i).is_some_and(|r| order.cmp(&r.keys.start, key).is_le()) {
            self.ranges.remove(i);
        }
    }
}

impl EmptyRanges {
    /// Creates a list that stays empty: for a memtable above tables that are added with new
    /// sequence numbers, which the memtable does not see.
    pub fn refusing() -> EmptyRanges {
        EmptyRanges { refuses: true, ..EmptyRanges::default() }
    }
    /// Returns a copy for the next memtable. No writer may be active.
    pub fn for_successor(&self) -> EmptyRanges {
        let list = self.lock().clone();
        EmptyRanges {
            non_empty: AtomicBool::new(!list.ranges.is_empty()),
            refuses: false,
            list: Mutex::new(list),
        }
    }

    fn lock(&self) -> MutexGuard<'_, RangeList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn note_size(&self, list: &RangeList) {
        self.non_empty.store(!list.ranges.is_empty(), Ordering::Relaxed);
    }

    /// Returns the end of the empty range that holds `key`, if a reader at `at` may skip it.
    pub fn end_of(&self, order: KeyComparator, key: &[u8], at: SeqNo) -> Option<Vec<u8>> {
        if !self.non_empty.load(Ordering::Acquire) {
            return None;
        }
        let mut list = self.lock();
        list.uses += 1;
        let now = list.uses;
        let range = list.find(order, key).filter(|range| range.as_of <= at)?;
        range.last_use = now;
        Some(range.keys.end.clone())
    }

    /// Adds a range, of which the scan has seen all entries up to its sequence number.
    /// `is_written` returns true if an entry that is newer may lie in the range; it is called after
    /// writers have begun to see the range.
    pub fn add(
        &self,
        order: KeyComparator,
        skipped: &SkippedRange<'_>,
        is_written: impl FnOnce() -> bool,
    ) {
        let key_bytes = skipped.begin.len().max(skipped.end.len());
        if self.refuses
            || key_bytes > EMPTY_RANGE_KEY_BYTES_MAX
            || order.cmp(skipped.begin, skipped.end).is_ge()
        {
            return;
        }
        let mut list = self.lock();
        if !list.add(order, skipped) {
            return;
        }
        self.note_size(&list);
        fence(Ordering::SeqCst);
        if is_written() {
            list.remove(order, skipped.begin);
            self.note_size(&list);
        }
    }

    /// Removes the ranges that hold one of `keys`, which the writer has published in the memtable
    /// but not yet made visible.
    #[inline]
    pub fn remove_written<'a>(&self, order: KeyComparator, keys: impl Iterator<Item = &'a [u8]>) {
        fence(Ordering::SeqCst);
        if self.non_empty.load(Ordering::Relaxed) {
            self.remove_all(order, keys);
        }
    }
    #[cold]
    fn remove_all<'a>(&self, order: KeyComparator, keys: impl Iterator<Item = &'a [u8]>) {
        let mut list = self.lock();
        for key in keys {
            list.remove(order, key);
        }
        self.note_size(&list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const ORDER: KeyComparator = KeyComparator::Bytes;

    fn end_of(ranges: &EmptyRanges, key: &str, at: u64) -> Option<String> {
        let end = ranges.end_of(ORDER, key.as_bytes(), SeqNo(at))?;
        Some(String::from_utf8_lossy(&end).into_owned())
    }
    fn add(ranges: &EmptyRanges, keys: Range<&str>, at: u64, tombstones: u64) {
        let skipped = SkippedRange {
            begin: keys.start.as_bytes(),
            end: keys.end.as_bytes(),
            at: SeqNo(at),
            tombstones,
        };
        ranges.add(ORDER, &skipped, || false);
    }
    fn write(ranges: &EmptyRanges, key: &str) {
        ranges.remove_written(ORDER, [key.as_bytes()].into_iter());
    }

    #[test]
    fn range_is_skipped_by_readers_at_its_sequence_number_or_later() {
        let ranges = EmptyRanges::default();
        add(&ranges, "b".."f", 10, EMPTY_RANGE_TOMBSTONES_MIN);
        assert_eq!(end_of(&ranges, "b", 10).as_deref(), Some("f"));
        assert_eq!(end_of(&ranges, "e", 11).as_deref(), Some("f"));
        for (key, at) in [("a", 10), ("f", 10), ("b", 9)] {
            assert_eq!(end_of(&ranges, key, at), None, "{key} at {at}");
        }
    }

    #[test]
    fn a_write_removes_only_the_range_it_hits() {
        let ranges = EmptyRanges::default();
        add(&ranges, "b".."d", 1, EMPTY_RANGE_TOMBSTONES_MIN);
        add(&ranges, "m".."p", 1, EMPTY_RANGE_TOMBSTONES_MIN);
        for outside in ["a", "d", "l", "p"] {
            write(&ranges, outside);
        }
        assert!(end_of(&ranges, "b", 1).is_some() && end_of(&ranges, "m", 1).is_some());
        write(&ranges, "c");
        assert_eq!(
            (end_of(&ranges, "b", 9), end_of(&ranges, "n", 1).as_deref()),
            (None, Some("p"))
        );
        write(&ranges, "m");
        assert!(!ranges.non_empty.load(Ordering::Relaxed));
    }

    #[test]
    fn touching_ranges_are_joined_at_the_later_sequence_number() {
        let ranges = EmptyRanges::default();
        add(&ranges, "b".."d", 5, EMPTY_RANGE_TOMBSTONES_MIN);
        add(&ranges, "d".."f", 7, 1); // too few for a range of its own
        add(&ranges, "x".."z", 7, 1);
        assert_eq!(end_of(&ranges, "b", 7).as_deref(), Some("f"));
        assert_eq!((end_of(&ranges, "b", 6), end_of(&ranges, "x", 7)), (None, None));
        add(&ranges, "a".."q", 6, EMPTY_RANGE_TOMBSTONES_MIN);
        assert_eq!(end_of(&ranges, "a", 7).as_deref(), Some("q"));
        assert_eq!(ranges.lock().ranges.len(), 1);
    }

    #[test]
    fn an_entry_written_meanwhile_prevents_the_range() {
        let ranges = EmptyRanges::default();
        let (asked, keys) = (Cell::new(false), (b"a", b"z"));
        let tombstones = EMPTY_RANGE_TOMBSTONES_MIN;
        let skipped = SkippedRange { begin: keys.0, end: keys.1, at: SeqNo(1), tombstones };
        ranges.add(ORDER, &skipped, || {
            asked.set(true);
            true
        });
        assert_eq!((asked.get(), end_of(&ranges, "b", 1)), (true, None));
        let refusing = EmptyRanges::refusing();
        add(&refusing, "b".."d", 1, 1000);
        assert_eq!(end_of(&refusing, "b", 1), None);
        assert_eq!(end_of(&refusing.for_successor(), "b", 1), None);
    }

    #[test]
    fn the_longest_unused_range_makes_room() {
        let ranges = EmptyRanges::default();
        let key = |i: usize| format!("{i:04}");
        for i in 0..=EMPTY_RANGES_MAX {
            add(&ranges, &key(2 * i)..&key(2 * i + 1), 1, EMPTY_RANGE_TOMBSTONES_MIN);
            assert!(end_of(&ranges, &key(0), 1).is_some());
        }
        assert_eq!(end_of(&ranges, &key(2), 1), None);
        let copy = ranges.for_successor();
        assert_eq!(end_of(&copy, &key(4), 1), Some(key(5)));
        write(&ranges, &key(4));
        assert_eq!(end_of(&copy, &key(4), 1), Some(key(5)), "a copy is independent");
        add(&ranges, &"k".repeat(EMPTY_RANGE_KEY_BYTES_MAX + 1).."z", 1, 1000);
        assert_eq!(end_of(&ranges, "l", 1), None);
        add(&ranges, "y".."x", 1, 1000);
        assert_eq!(end_of(&ranges, "xx", 1), None);
    }
}
