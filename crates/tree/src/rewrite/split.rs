//! Where an output table ends. Pure.

use perigee_base::cut::{Cut, CutRef};
use perigee_base::{KeyOrder, limits};

/// Tables that end at a boundary hold at least this part of the target.
const PIECES: u64 = 256;

/// When to cut.
#[derive(Clone, Debug)]
pub struct Split {
    /// Bytes at which a table is cut.
    pub target_bytes: u64,
    order: KeyOrder,
    /// Boundaries of a deeper level, ascending, and how many of them are behind.
    cuts: Vec<Cut>,
    passed: usize,
}

impl Split {
    /// Cuts at `target_bytes`, and, where a table is large enough, at the places `cuts`.
    pub fn new(order: KeyOrder, target_bytes: u64, cuts: Vec<Cut>) -> Split {
        Split { target_bytes, order, cuts, passed: 0 }
    }

    /// Whether a boundary lies behind the key `first` and before `last`.
    pub fn divides(&self, first: &[u8], last: &[u8]) -> bool {
        let ahead = self.cuts[self.passed..].iter().find(|c| !c.as_ref().is_before(self.order, first));
        ahead.is_some_and(|c| c.as_ref().is_before(self.order, last))
    }

    /// Where to cut before the next entry, if anywhere. Versions of one key stay together. Keys come in order.
    #[inline]
    pub fn cut<'a>(
        &'a mut self,
        key: &'a [u8],
        new_key: bool,
        table_bytes: u64,
        index_bytes: usize,
    ) -> Option<CutRef<'a>> {
        let before = self.passed;
        while self.cuts.get(self.passed).is_some_and(|c| c.as_ref().is_before(self.order, key)) {
            self.passed += 1;
        }
        if !new_key {
            // A boundary that was passed inside a key is gone: entries behind it are in the table.
            return None;
        }
        if self.passed > before && table_bytes >= self.target_bytes / PIECES {
            return Some(self.cuts[self.passed - 1].as_ref());
        }
        (table_bytes >= self.target_bytes || index_bytes >= limits::INDEX_BYTES_CUT)
            .then_some(CutRef::Before(key))
    }
}

/// Of `boundaries` places every how many-th to cut at, so that pieces of `bytes` bytes in all are not smaller than `piece`.
/// A power of two: what was cut by one step and by another still has common ends.
pub fn stride(boundaries: usize, bytes: u64, piece: u64) -> usize {
    let pieces = (bytes / piece.max(1)).max(1);
    (boundaries as u64 + 1).div_ceil(pieces).next_power_of_two() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_end_at_boundaries_where_they_are_large_enough() {
        let cuts = ["d", "f", "m"].map(|k| Cut::Before(k.into())).to_vec();
        let mut s = Split::new(KeyOrder::Bytes, 2560, cuts);
        assert_eq!(s.cut(b"a", true, 5, 0), None);
        assert_eq!(s.cut(b"d", true, 9, 0), None, "too small");
        assert_eq!(s.cut(b"e", true, 100, 0), None, "between boundaries");
        assert_eq!(s.cut(b"g", true, 100, 0), Some(CutRef::Before(b"f")));
        assert_eq!(s.cut(b"h", true, 2560, 0), Some(CutRef::Before(b"h")), "full");
        assert_eq!(s.cut(b"h", false, 2570, 0), None, "the same key");
        assert_eq!(s.cut(b"i", true, 0, limits::INDEX_BYTES_CUT), Some(CutRef::Before(b"i")));
        assert!(s.divides(b"j", b"m") && s.divides(b"j", b"z"));
        assert!(!s.divides(b"j", b"l") && !s.divides(b"m", b"z"));
        assert_eq!(s.cut(b"n", true, 10, 0), Some(CutRef::Before(b"m")));
    }

    /// The first version of a key was dropped, the second went into the table: the boundary before the key was then taken
    /// for the end of that table, and range tombstones behind it came into two.
    #[test]
    fn a_boundary_passed_inside_a_key_is_no_place_to_cut() {
        let mut s = Split::new(KeyOrder::Bytes, 256, vec![Cut::Before(b"m".into())]);
        assert_eq!(s.cut(b"a", true, 0, 0), None);
        assert_eq!(s.cut(b"n", false, 100, 0), None);
        assert_eq!(s.cut(b"o", true, 100, 0), None);
    }

    #[test]
    fn strides_are_powers_of_two() {
        assert_eq!((stride(31, 320, 10), stride(31, 319, 10), stride(0, 5, 10)), (1, 2, 1));
        assert_eq!((stride(31, 100, 10), stride(31, 5, 10)), (4, 32));
    }
}
