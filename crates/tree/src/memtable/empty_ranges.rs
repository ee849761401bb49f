//! Key ranges that are known to be empty: a scan that has skipped many tombstones notes the range,
//! and the next one seeks past it. Without this, every read at the head of a queue skips all
//! entries that were deleted since the last compaction.
//!
//! A noted range holds no live entry at sequence number `as_of` or later, because the writer
//! removes the range when it writes an entry there, before that entry becomes visible. A reader at
//! `as_of` or later that finds the range can therefore skip it, in all sources. Its view must not
//! be older than that of the scan: a rewrite may since have dropped what an earlier view holds.
//!
//! A queue extends its range all the time. A range that was extended would be of no use to readers
//! that began before; so adjacent ranges are kept, and a reader skips all of them that it may. Like
//! the runs of a log-structured tree, a range is joined with its neighbour when that is not more
//! than twice as large, which leaves a logarithmic number of them.
//!
//! The active memtable holds the ranges of its views. Its successor takes them over; it does not if
//! tables with new entries may be added below it ([`EmptyRanges::refusing`]).
//!
//! ```text
//!  scan at R: skips the tombstones in [a, b)         writer: inserts an entry above R in [a, b)
//!  lock, add [a, b), fence,                          publish the entry, fence,
//!  look for entries above R in [a, b): then remove   are there ranges? lock, remove those hit
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
    /// It is empty in views with at least this many installed versions.
    installs: u64,
    /// Number of tombstones that scans skipped in it.
    tombstones: u64,
    /// Number of the last use, for eviction.
    last_use: u64,
}

/// The ranges, in key order; they do not overlap.
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
    /// Number of versions installed before its view.
    pub installs: u64,
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
    /// Returns the end of the ranges around `key` that a reader at `at` may skip.
    fn end_of(
        &mut self,
        order: KeyComparator,
        key: &[u8],
        at: SeqNo,
        installs: u64,
    ) -> Option<&[u8]> {
        self.uses += 1;
        let first = self.index_of(order, key);
        let mut end = None;
        for range in &mut self.ranges[first..] {
            let start = end.unwrap_or(key);
            if range.as_of > at
                || range.installs > installs
                || order.cmp(&range.keys.start, start).is_gt()
            {
                break;
            }
            range.last_use = self.uses;
            end = Some(&range.keys.end[..]);
        }
        end
    }
    /// Adds a range; returns false if it has too few tombstones to be worth a place, or no keys that
    /// are not in other ranges.
    fn add(&mut self, order: KeyComparator, skipped: &SkippedRange<'_>) -> bool {
        self.uses += 1;
        let SkippedRange { mut begin, mut end, at, installs, tombstones } = *skipped;
        // Ranges that it covers are replaced; where it overlaps others, it is cut.
        let covered = self.ranges.partition_point(|r| order.cmp(&r.keys.start, begin).is_lt())
            ..self.ranges.partition_point(|r| order.cmp(&r.keys.end, end).is_le());
        let left = covered.start.checked_sub(1).and_then(|i| self.ranges.get(i));
        if let Some(left) = left
            && order.cmp(begin, &left.keys.end).is_lt()
        {
            begin = &left.keys.end;
        }
        if let Some(right) = self.ranges.get(covered.end.max(covered.start))
            && order.cmp(&right.keys.start, end).is_lt()
        {
            end = &right.keys.start;
        }
        let is_adjacent = |r: &EmptyRange| r.keys.end == begin || r.keys.start == end;
        let covers = !covered.is_empty();
        if order.cmp(begin, end).is_ge()
            || !covers
                && tombstones < EMPTY_RANGE_TOMBSTONES_MIN
                && !self.ranges.iter().any(is_adjacent)
        {
            return false;
        }
        let keys = begin.to_vec()..end.to_vec();
        let added = EmptyRange { keys, as_of: at, installs, tombstones, last_use: self.uses };
        let i = covered.start;
        if covers {
            self.ranges.drain(covered);
        }
        self.ranges.insert(i, added);
        self.join_neighbours(i);
        if self.ranges.len() > EMPTY_RANGES_MAX {
            let oldest = (0..self.ranges.len()).min_by_key(|i| self.ranges[*i].last_use);
            oldest.map(|i| self.ranges.remove(i));
        }
        check_slow!(
            self.ranges.is_sorted_by(|a, b| order.cmp(&a.keys.end, &b.keys.start).is_le())
                && self.ranges.iter().all(|r| order.cmp(&r.keys.start, &r.keys.end).is_lt()),
            "empty ranges are in key order and do not overlap",
            self.ranges.len()
        );
        true
    }
    /// Joins range `i` with adjacent ones that are at most twice as large.
    fn join_neighbours(&mut self, mut i: usize) {
        loop {
            let joins = |left: usize, other: usize| {
                let pair = self.ranges.get(left).zip(self.ranges.get(left + 1));
                pair.is_some_and(|(a, b)| a.keys.end == b.keys.start)
                    && self.ranges[other].tombstones / 2 <= self.ranges[i].tombstones
            };
            let left = match i.checked_sub(1) {
                Some(left) if joins(left, left) => left,
                _ if joins(i, i + 1) => i,
                _ => return,
            };
            let right = self.ranges.remove(left + 1);
            let joined = &mut self.ranges[left];
            joined.keys.end = right.keys.end;
            joined.as_of = joined.as_of.max(right.as_of);
            joined.installs = joined.installs.max(right.installs);
            joined.tombstones += right.tombstones;
            joined.last_use = joined.last_use.max(right.last_use);
            i = left;
        }
    }
    /// Removes all ranges that overlap `skipped`.
    fn remove_overlapping(&mut self, order: KeyComparator, skipped: &SkippedRange<'_>) {
        self.ranges.retain(|r| {
            order.cmp(&r.keys.end, skipped.begin).is_le()
                || order.cmp(skipped.end, &r.keys.start).is_le()
        });
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

    /// Returns the end of the empty ranges around `key` that a reader at `at` may skip.
    pub fn end_of(
        &self,
        order: KeyComparator,
        key: &[u8],
        at: SeqNo,
        installs: u64,
    ) -> Option<Vec<u8>> {
        if !self.non_empty.load(Ordering::Acquire) {
            return None;
        }
        self.lock().end_of(order, key, at, installs).map(<[u8]>::to_vec)
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
        if self.refuses || key_bytes > EMPTY_RANGE_KEY_BYTES_MAX {
            return;
        }
        let mut list = self.lock();
        if !list.add(order, skipped) {
            return;
        }
        self.note_size(&list);
        fence(Ordering::SeqCst);
        if is_written() {
            list.remove_overlapping(order, skipped);
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
        let end = ranges.end_of(ORDER, key.as_bytes(), SeqNo(at), 0)?;
        Some(String::from_utf8_lossy(&end).into_owned())
    }
    fn add(ranges: &EmptyRanges, keys: Range<&str>, at: u64, tombstones: u64) {
        let skipped = SkippedRange {
            begin: keys.start.as_bytes(),
            end: keys.end.as_bytes(),
            at: SeqNo(at),
            installs: 0,
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

    fn list(ranges: &EmptyRanges) -> Vec<String> {
        let text = |r: &EmptyRange| {
            let [begin, end] = [&r.keys.start, &r.keys.end].map(|k| String::from_utf8_lossy(k));
            format!("{begin}..{end}@{}", r.as_of)
        };
        ranges.lock().ranges.iter().map(text).collect()
    }

    #[test]
    fn earlier_readers_skip_what_was_empty_before_a_range_was_extended() {
        let ranges = EmptyRanges::default();
        add(&ranges, "b".."d", 5, 1000);
        add(&ranges, "d".."f", 7, 20); // too few for a range of its own
        add(&ranges, "x".."z", 7, 20);
        assert_eq!(list(&ranges), ["b..d@5", "d..f@7"]);
        assert_eq!(end_of(&ranges, "b", 7).as_deref(), Some("f"));
        assert_eq!(end_of(&ranges, "b", 6).as_deref(), Some("d"));
        assert_eq!((end_of(&ranges, "d", 6), end_of(&ranges, "x", 7)), (None, None));
        write(&ranges, "e");
        assert_eq!(list(&ranges), ["b..d@5"]);
    }

    #[test]
    fn neighbours_of_similar_size_are_joined() {
        let ranges = EmptyRanges::default();
        add(&ranges, "a".."c", 1, 100);
        add(&ranges, "c".."e", 2, 49);
        assert_eq!(list(&ranges), ["a..c@1", "c..e@2"]);
        add(&ranges, "e".."f", 3, 25);
        assert_eq!(list(&ranges), ["a..f@3"]); // 49 and 25, then 100 and 74
        add(&ranges, "A".."a", 9, 87);
        assert_eq!(list(&ranges), ["A..f@9"]);
        let many = EmptyRanges::default();
        let key = |i: u64| format!("{i:05}");
        (0..2_000).for_each(|i| add(&many, &key(i)..&key(i + 1), i, EMPTY_RANGE_TOMBSTONES_MIN));
        let count = list(&many).len();
        assert!(count <= 12, "{count} ranges");
        assert_eq!(end_of(&many, &key(0), 1_999), Some(key(2_000)));
        assert!(end_of(&many, &key(0), 1_900).unwrap() > key(1_500));
    }

    #[test]
    fn overlapping_ranges_are_cut_or_replaced() {
        let ranges = EmptyRanges::default();
        add(&ranges, "c".."e", 5, 100_000);
        add(&ranges, "g".."i", 6, 100_000);
        add(&ranges, "d".."h", 3, 70);
        assert_eq!(list(&ranges), ["c..e@5", "e..g@3", "g..i@6"]);
        add(&ranges, "d".."f", 2, 70);
        assert_eq!(list(&ranges), ["c..e@5", "e..g@3", "g..i@6"], "nothing new");
        add(&ranges, "b".."z", 1, 70);
        assert_eq!(list(&ranges), ["b..z@1"]);
        add(&ranges, "d".."f", 4, 70);
        assert_eq!(list(&ranges), ["b..z@1"], "inside");
    }

    #[test]
    fn an_entry_written_meanwhile_prevents_the_range() {
        let ranges = EmptyRanges::default();
        let (asked, keys) = (Cell::new(false), (b"a", b"z"));
        let tombstones = EMPTY_RANGE_TOMBSTONES_MIN;
        let skipped =
            SkippedRange { begin: keys.0, end: keys.1, at: SeqNo(1), installs: 0, tombstones };
        ranges.add(ORDER, &skipped, || {
            asked.set(true);
            true
        });
        assert_eq!((asked.get(), end_of(&ranges, "b", 1)), (true, None));
        add(&ranges, "a".."m", 1, tombstones);
        add(&ranges, "zz".."zzz", 1, tombstones);
        let overlapping = SkippedRange { begin: b"b", ..skipped };
        ranges.add(ORDER, &overlapping, || true);
        assert_eq!(list(&ranges), ["zz..zzz@1"]);
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
