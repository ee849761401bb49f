//! Where an output table ends. Pure.

use perigee_base::cut::{Cut, CutRef};
use perigee_base::{KeyOrder, limits};

/// Tables that end at a boundary are at least this part of the target: smaller ones cost more than they save.
const PIECES: u64 = 16;

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

    /// Where to cut before the next entry, if anywhere. Versions of one key stay together. Keys come in order.
    #[inline]
    pub fn cut<'a>(
        &'a mut self,
        key: &'a [u8],
        new_key: bool,
        table_bytes: u64,
        index_bytes: usize,
    ) -> Option<CutRef<'a>> {
        if !new_key {
            return None;
        }
        let before = self.passed;
        while self.cuts.get(self.passed).is_some_and(|c| c.as_ref().is_before(self.order, key)) {
            self.passed += 1;
        }
        let at_boundary = self.passed > before && table_bytes >= self.target_bytes / PIECES;
        if at_boundary {
            return Some(self.cuts[self.passed - 1].as_ref());
        }
        (table_bytes >= self.target_bytes || index_bytes >= limits::INDEX_BYTES_CUT)
            .then_some(CutRef::Before(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_end_at_boundaries_where_they_are_large_enough() {
        let cuts = ["d", "f", "m"].map(|k| Cut::Before(k.into())).to_vec();
        let mut s = Split::new(KeyOrder::Bytes, 160, cuts);
        assert_eq!(s.cut(b"a", true, 5, 0), None);
        assert_eq!(s.cut(b"d", true, 9, 0), None, "too small");
        assert_eq!(s.cut(b"e", true, 100, 0), None, "between boundaries");
        assert_eq!(s.cut(b"g", true, 100, 0), Some(CutRef::Before(b"f")));
        assert_eq!(s.cut(b"h", true, 160, 0), Some(CutRef::Before(b"h")), "full");
        assert_eq!(s.cut(b"h", false, 170, 0), None, "the same key");
        assert_eq!(s.cut(b"i", true, 0, limits::INDEX_BYTES_CUT), Some(CutRef::Before(b"i")));
        assert_eq!(s.cut(b"z", true, 10, 0), Some(CutRef::Before(b"m")));
    }
}
