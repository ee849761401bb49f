//! Keys and ranges that a prepared transaction guards, [`GuardedKeys`]: sorted when the transaction
//! is prepared, so that a conflict is found by binary search.

use crate::txn::read_write_sets::KeyOrRangeRef;
use perigee_base::{KeyBoundary, KeyBoundaryRef, KeyComparator};
use std::ops::Range;

/// Keys and ranges of one column family that other transactions may not write, in comparator order.
#[derive(Debug, Default)]
pub struct GuardedKeys {
    /// The keys, ascending and without duplicates.
    pub keys: Vec<Vec<u8>>,
    /// Ascending and disjoint.
    ranges: Vec<(KeyBoundary, KeyBoundary)>,
}

impl GuardedKeys {
    /// Adds a key or a range; [`normalize`](GuardedKeys::normalize) must follow.
    pub fn add(&mut self, target: KeyOrRangeRef<'_>) {
        match target {
            KeyOrRangeRef::Key(key) => self.keys.push(key.to_vec()),
            KeyOrRangeRef::Range(begin, end) => {
                self.ranges.push((begin.to_boundary(), end.to_boundary()))
            }
        }
    }
    /// Sorts the keys and ranges; merges overlapping ranges.
    pub fn normalize(&mut self, comparator: KeyComparator) {
        self.keys.sort_unstable_by(|a, b| comparator.cmp(a, b));
        self.keys.dedup_by(|a, b| comparator.keys_equal(a, b));
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.retain(|(begin, end)| begin.as_ref().cmp(comparator, end.as_ref()).is_lt());
        ranges.sort_unstable_by(|a, b| a.0.as_ref().cmp(comparator, b.0.as_ref()));
        for (begin, end) in ranges {
            match self
                .ranges
                .last_mut()
                .filter(|r| begin.as_ref().cmp(comparator, r.1.as_ref()).is_le())
            {
                Some(last) if last.1.as_ref().cmp(comparator, end.as_ref()).is_lt() => last.1 = end,
                Some(_) => {}
                None => self.ranges.push((begin, end)),
            }
        }
        check_slow!(
            self.is_normalized(comparator),
            "guarded keys ascend, and guarded ranges ascend and are disjoint",
            self
        );
    }
    fn is_normalized(&self, comparator: KeyComparator) -> bool {
        let after =
            |a: &KeyBoundary, b: &KeyBoundary| a.as_ref().cmp(comparator, b.as_ref()).is_lt();
        self.keys.windows(2).all(|w| comparator.cmp(&w[0], &w[1]).is_lt())
            && self.ranges.iter().all(|(begin, end)| after(begin, end))
            && self.ranges.windows(2).all(|w| after(&w[0].1, &w[1].0))
    }
    /// Returns a range that overlaps `target`: only the first one that does not end before it can.
    pub fn find_overlapping_range(
        &self,
        comparator: KeyComparator,
        target: KeyOrRangeRef<'_>,
    ) -> Option<KeyOrRangeRef<'_>> {
        let before = |end: KeyBoundaryRef<'_>| match target {
            KeyOrRangeRef::Key(key) => end.is_before(comparator, key),
            KeyOrRangeRef::Range(begin, _) => end.cmp(comparator, begin).is_le(),
        };
        let at = self.ranges.partition_point(|(_, end)| before(end.as_ref()));
        let (begin, end) = self.ranges.get(at)?;
        let range = KeyOrRangeRef::Range(begin.as_ref(), end.as_ref());
        range.overlaps(comparator, target).then_some(range)
    }
    /// Returns a key in a range: only the first one after the beginning of the range can be.
    pub fn find_key_in_range(
        &self,
        comparator: KeyComparator,
        range: Range<KeyBoundaryRef<'_>>,
    ) -> Option<KeyOrRangeRef<'_>> {
        let at = self.keys.partition_point(|key| !range.start.is_before(comparator, key));
        let key = KeyOrRangeRef::Key(self.keys.get(at)?);
        key.overlaps(comparator, KeyOrRangeRef::Range(range.start, range.end)).then_some(key)
    }
    /// Returns the keys, then the ranges.
    pub fn targets(&self) -> impl Iterator<Item = KeyOrRangeRef<'_>> {
        let keys = self.keys.iter().map(|k| KeyOrRangeRef::Key(k));
        keys.chain(self.ranges.iter().map(|(b, e)| KeyOrRangeRef::Range(b.as_ref(), e.as_ref())))
    }
}

/// The guarded keys of a transaction in one column family.
#[derive(Debug)]
pub struct FamilyGuards {
    /// The comparator of the column family.
    pub comparator: KeyComparator,
    /// What it wrote.
    pub written: GuardedKeys,
    /// What it read, if its isolation level checks reads.
    pub read: GuardedKeys,
}

impl FamilyGuards {
    /// Creates the guards of a transaction that has neither read nor written.
    pub fn new(comparator: KeyComparator) -> FamilyGuards {
        FamilyGuards { comparator, written: GuardedKeys::default(), read: GuardedKeys::default() }
    }
    /// Returns what it wrote, and with `writes` also what it read: a write conflicts with both.
    pub fn guarded_sets(&self, writes: bool) -> impl Iterator<Item = &GuardedKeys> {
        std::iter::once(&self.written).chain(writes.then_some(&self.read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::read_write_sets::KeyOrRange;

    /// Compares with a linear search through all ranges and keys.
    #[test]
    fn guarded_keys_match_a_linear_search() {
        let comparator = KeyComparator::Bytes;
        let mut state = 7u64;
        let mut below = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for _ in 0..2000 {
            let cut = |n: u64| match n {
                0 => KeyBoundary::First,
                29 => KeyBoundary::Last,
                n if n % 2 == 0 => KeyBoundary::Before(vec![n as u8]),
                n => KeyBoundary::After(vec![n as u8]),
            };
            let mut list: Vec<KeyOrRange> =
                (0..below(6)).map(|_| KeyOrRange::Range(cut(below(30)), cut(below(30)))).collect();
            list.extend((0..below(4)).map(|_| KeyOrRange::Key(vec![below(30) as u8])));
            let mut side = GuardedKeys::default();
            list.iter().for_each(|p| side.add(p.borrowed()));
            side.normalize(comparator);
            let wanted = match below(2) {
                0 => KeyOrRange::Key(vec![below(30) as u8]),
                _ => KeyOrRange::Range(cut(below(30)), cut(below(30))),
            };
            let target = wanted.borrowed();
            let by_key = match target {
                KeyOrRangeRef::Key(key) => side.keys.iter().any(|k| k == key),
                KeyOrRangeRef::Range(begin, end) => {
                    side.find_key_in_range(comparator, begin..end).is_some()
                }
            };
            let found = by_key || side.find_overlapping_range(comparator, target).is_some();
            assert_eq!(
                found,
                list.iter().any(|p| p.borrowed().overlaps(comparator, target)),
                "{list:?} {wanted:?}"
            );
        }
    }
}
