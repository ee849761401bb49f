//! Where an output table ends. Pure.

use perigee_base::key_boundary::{KeyBoundary, KeyBoundaryRef};
use perigee_base::{KeyComparator, limits};

/// Tables that end at a boundary hold at least this part of the target.
const CUT_FRACTION: u64 = 256;

/// When to cut.
#[derive(Clone, Debug)]
pub struct TableSplitter {
    /// Bytes at which a table is cut.
    pub target_bytes: u64,
    comparator: KeyComparator,
    /// Boundaries of a deeper level, ascending, and how many of them are behind.
    cuts: Vec<KeyBoundary>,
    cuts_passed: usize,
}

impl TableSplitter {
    /// Cuts at `target_bytes`, and, where a table is large enough, at the places `cuts`.
    pub fn new(order: KeyComparator, target_bytes: u64, cuts: Vec<KeyBoundary>) -> TableSplitter {
        TableSplitter { target_bytes, comparator: order, cuts, cuts_passed: 0 }
    }

    /// Whether a boundary lies behind the key `first` and before `last`.
    pub fn has_cut_between(&self, first: &[u8], last: &[u8]) -> bool {
        let ahead = self.cuts[self.cuts_passed..]
            .iter()
            .find(|c| !c.as_ref().is_before(self.comparator, first));
        ahead.is_some_and(|c| c.as_ref().is_before(self.comparator, last))
    }

    /// Where to cut before the next entry, if anywhere. Versions of one key stay together. Keys
    /// come in order.
    #[inline]
    pub fn cut_before<'a>(
        &'a mut self,
        key: &'a [u8],
        new_key: bool,
        table_bytes: u64,
        index_bytes: usize,
    ) -> Option<KeyBoundaryRef<'a>> {
        let before = self.cuts_passed;
        while self
            .cuts
            .get(self.cuts_passed)
            .is_some_and(|c| c.as_ref().is_before(self.comparator, key))
        {
            self.cuts_passed += 1;
        }
        if !new_key {
            // A boundary that was passed inside a key is gone: entries behind it are in the table.
            return None;
        }
        if self.cuts_passed > before && table_bytes >= self.target_bytes / CUT_FRACTION {
            return Some(self.cuts[self.cuts_passed - 1].as_ref());
        }
        (table_bytes >= self.target_bytes || index_bytes >= limits::INDEX_BYTES_CUT)
            .then_some(KeyBoundaryRef::Before(key))
    }
}

/// Of `boundaries` places every how many-th to cut at, so that pieces of `bytes` bytes in all are
/// not smaller than `piece`. A power of two: what was cut by one step and by another still has
/// common ends.
pub fn boundary_stride(boundaries: usize, bytes: u64, piece: u64) -> usize {
    let pieces = (bytes / piece.max(1)).max(1);
    (boundaries as u64 + 1).div_ceil(pieces).next_power_of_two() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_end_at_boundaries_when_large_enough() {
        let cuts = ["d", "f", "m"].map(|k| KeyBoundary::Before(k.into())).to_vec();
        let mut s = TableSplitter::new(KeyComparator::Bytes, 2560, cuts);
        assert_eq!(s.cut_before(b"a", true, 5, 0), None);
        assert_eq!(s.cut_before(b"d", true, 9, 0), None, "too small");
        assert_eq!(s.cut_before(b"e", true, 100, 0), None, "between boundaries");
        assert_eq!(s.cut_before(b"g", true, 100, 0), Some(KeyBoundaryRef::Before(b"f")));
        assert_eq!(s.cut_before(b"h", true, 2560, 0), Some(KeyBoundaryRef::Before(b"h")), "full");
        assert_eq!(s.cut_before(b"h", false, 2570, 0), None, "the same key");
        assert_eq!(
            s.cut_before(b"i", true, 0, limits::INDEX_BYTES_CUT),
            Some(KeyBoundaryRef::Before(b"i"))
        );
        assert!(s.has_cut_between(b"j", b"m") && s.has_cut_between(b"j", b"z"));
        assert!(!s.has_cut_between(b"j", b"l") && !s.has_cut_between(b"m", b"z"));
        assert_eq!(s.cut_before(b"n", true, 10, 0), Some(KeyBoundaryRef::Before(b"m")));
    }

    /// The first version of a key was dropped, the second went into the table: the boundary before
    /// the key was then taken for the end of that table, and range tombstones behind it came into
    /// two.
    #[test]
    fn boundary_inside_a_key_is_not_a_cut() {
        let mut s =
            TableSplitter::new(KeyComparator::Bytes, 256, vec![KeyBoundary::Before(b"m".into())]);
        assert_eq!(s.cut_before(b"a", true, 0, 0), None);
        assert_eq!(s.cut_before(b"n", false, 100, 0), None);
        assert_eq!(s.cut_before(b"o", true, 100, 0), None);
    }

    #[test]
    fn strides_are_powers_of_two() {
        assert_eq!(
            (boundary_stride(31, 320, 10), boundary_stride(31, 319, 10), boundary_stride(0, 5, 10)),
            (1, 2, 1)
        );
        assert_eq!((boundary_stride(31, 100, 10), boundary_stride(31, 5, 10)), (4, 32));
    }
}
