//! The range tombstones of a rewrite, looked up for keys in ascending order.

use super::reduce;
use crate::mvcc::SnapshotStripes;
use perigee_base::{KeyBoundaryRef, KeyComparator, SeqNo};
use perigee_file::RangeTombstones;

/// Number of entries hidden by one fragment that are read before the rewrite seeks past the rest.
const HIDDEN_BEFORE_SEEK: u32 = 16;

/// Range tombstones, and the position in them. Keys must come in ascending order.
#[derive(Debug)]
pub struct RangeTombstoneCursor {
    comparator: KeyComparator,
    ranges: RangeTombstones,
    /// Index of the first fragment that does not end before the last key.
    fragment: usize,
    /// Number of entries hidden by the current fragment since it became current, or since the last
    /// seek.
    hidden_entries: u32,
}

impl RangeTombstoneCursor {
    /// Creates a cursor over `ranges`.
    pub fn new(comparator: KeyComparator, ranges: RangeTombstones) -> RangeTombstoneCursor {
        RangeTombstoneCursor { comparator, ranges, fragment: 0, hidden_entries: 0 }
    }

    /// Moves to the first fragment that does not end before `key`. Returns true if the fragment
    /// changed.
    fn advance(&mut self, key: &[u8]) -> bool {
        let before = self.fragment;
        let fragments = self.ranges.fragments();
        check_slow!(
            before == 0 || fragments[before - 1].end.as_ref().is_before(self.comparator, key),
            "keys are looked up in ascending order",
            before
        );
        while fragments
            .get(self.fragment)
            .is_some_and(|f| f.end.as_ref().is_before(self.comparator, key))
        {
            self.fragment += 1;
        }
        self.fragment != before
    }

    /// Returns the oldest range tombstone that covers `key` and is newer than `seq`.
    #[inline]
    pub fn oldest_newer_than(&mut self, key: &[u8], seq: SeqNo) -> Option<SeqNo> {
        if self.ranges.is_empty() {
            return None;
        }
        if self.advance(key) {
            self.hidden_entries = 0;
        }
        let fragment = self.ranges.fragments().get(self.fragment)?;
        if !fragment.begin.as_ref().is_before(self.comparator, key) {
            return None;
        }
        fragment.oldest_newer_than(seq)
    }

    /// Returns true if a range tombstone covers a key from `first` to `last`.
    pub fn overlaps(&mut self, first: &[u8], last: &[u8]) -> bool {
        self.advance(first);
        let fragment = self.ranges.fragments().get(self.fragment);
        fragment.is_some_and(|f| f.begin.as_ref().is_before(self.comparator, last))
    }

    /// Counts an entry that the current fragment hides. Returns the end of the fragment and one of
    /// its tombstones once seeking there is worthwhile: no reader sees an entry before that end
    /// that is older than the tombstone.
    pub fn count_hidden(
        &mut self,
        stripes: &SnapshotStripes,
    ) -> Option<(KeyBoundaryRef<'_>, SeqNo)> {
        self.hidden_entries += 1;
        if self.hidden_entries < HIDDEN_BEFORE_SEEK {
            return None;
        }
        self.hidden_entries = 0;
        let fragment = self.ranges.fragments().get(self.fragment)?;
        let seq = reduce::tombstone_hiding_all_older(fragment, stripes)?;
        Some((fragment.end.as_ref(), seq))
    }
}
