//! Chooses the boundaries between output tables. Pure.

use perigee_base::{Bytes, KeyBoundary, KeyBoundaryRef, KeyComparator, limits};

/// Tables that end at a boundary have at least this fraction (1/256) of the target size.
const CUT_FRACTION: u64 = 256;

/// Decides where output tables are cut.
#[derive(Clone, Debug)]
pub struct TableSplitter {
    /// Target size of a table in bytes.
    pub target_bytes: u64,
    comparator: KeyComparator,
    /// Boundaries of a deeper level, ascending, and the number of them already passed.
    cuts: Vec<KeyBoundary>,
    cuts_passed: usize,
}

impl TableSplitter {
    /// Cuts at `target_bytes`, and at each boundary in `cuts` if the table is large enough.
    pub fn new(
        comparator: KeyComparator,
        target_bytes: u64,
        cuts: Vec<KeyBoundary>,
    ) -> TableSplitter {
        check_slow!(
            cuts.windows(2).all(|w| w[0].as_ref().cmp(comparator, w[1].as_ref()).is_lt()),
            "the boundaries between tables ascend",
            cuts
        );
        TableSplitter { target_bytes, comparator, cuts, cuts_passed: 0 }
    }

    /// Returns true if a boundary lies after the key `first` and before `last`.
    pub fn has_cut_between(&self, first: &[u8], last: &[u8]) -> bool {
        let ahead = self.cuts[self.cuts_passed..]
            .iter()
            .find(|c| !c.as_ref().is_before(self.comparator, first));
        ahead.is_some_and(|c| c.as_ref().is_before(self.comparator, last))
    }

    /// Returns the boundary at which to cut before the next entry, if any. Versions of one key stay
    /// together. Keys must come in order.
    #[inline]
    pub fn cut_before<'a>(
        &'a mut self,
        key: &'a [u8],
        new_key: bool,
        table_bytes: u64,
        index_bytes: usize,
    ) -> Option<KeyBoundaryRef<'a>> {
        let passed_before = self.cuts_passed;
        while self
            .cuts
            .get(self.cuts_passed)
            .is_some_and(|c| c.as_ref().is_before(self.comparator, key))
        {
            self.cuts_passed += 1;
        }
        if !new_key {
            // A boundary passed inside a key is void: entries after it are in the table.
            return None;
        }
        if self.cuts_passed > passed_before && table_bytes >= self.target_bytes / CUT_FRACTION {
            return Some(self.cuts[self.cuts_passed - 1].as_ref());
        }
        (table_bytes >= self.target_bytes || index_bytes >= limits::INDEX_BYTES_CUT)
            .then_some(KeyBoundaryRef::Before(key))
    }
}

/// Returns the stride at which to select from `boundaries` boundaries, so that tables of `bytes`
/// in total are not smaller than `min_bytes`. A power of two, so that cuts with different
/// strides still have common boundaries.
pub fn boundary_stride(boundaries: usize, bytes: Bytes, min_bytes: u64) -> usize {
    let tables_max = (bytes.0 / min_bytes.max(1)).max(1);
    (boundaries as u64 + 1).div_ceil(tables_max).next_power_of_two() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_end_at_boundaries_when_large_enough() {
        let cuts = ["d", "f", "m"].map(|k| KeyBoundary::Before(k.into())).to_vec();
        let mut s = TableSplitter::new(KeyComparator::Bytes, 2560, cuts);
        assert_eq!(s.cut_before(b"a", true, 5, 0), None);
        assert_eq!(s.cut_before(b"d", true, 9, 0), None, "table too small");
        assert_eq!(s.cut_before(b"e", true, 100, 0), None, "no boundary passed");
        assert_eq!(s.cut_before(b"g", true, 100, 0), Some(KeyBoundaryRef::Before(b"f")));
        assert_eq!(
            s.cut_before(b"h", true, 2560, 0),
            Some(KeyBoundaryRef::Before(b"h")),
            "table full"
        );
        assert_eq!(s.cut_before(b"h", false, 2570, 0), None, "same key");
        assert_eq!(
            s.cut_before(b"i", true, 0, limits::INDEX_BYTES_CUT),
            Some(KeyBoundaryRef::Before(b"i"))
        );
        assert!(s.has_cut_between(b"j", b"m") && s.has_cut_between(b"j", b"z"));
        assert!(!s.has_cut_between(b"j", b"l") && !s.has_cut_between(b"m", b"z"));
        assert_eq!(s.cut_before(b"n", true, 10, 0), Some(KeyBoundaryRef::Before(b"m")));
    }

    /// Regression test: the first version of a key was dropped, and the second was written to the
    /// table. The boundary before the key was then used as the end of that table, and range
    /// tombstones after it were written to two tables.
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
            (
                boundary_stride(31, Bytes(320), 10),
                boundary_stride(31, Bytes(319), 10),
                boundary_stride(0, Bytes(5), 10)
            ),
            (1, 2, 1)
        );
        assert_eq!(
            (boundary_stride(31, Bytes(100), 10), boundary_stride(31, Bytes(5), 10)),
            (4, 32)
        );
    }
}
