//! The bounds of a scan.

use perigee_base::{KeyComparator, Result};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::ops::Bound;

/// Which user keys a scan may show.
#[derive(Clone, Debug)]
pub struct ScanBounds {
    /// From here.
    pub lower: Bound<Vec<u8>>,
    /// To here.
    pub upper: Bound<Vec<u8>>,
}

impl ScanBounds {
    /// Every key.
    pub fn all() -> ScanBounds {
        ScanBounds { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }
    /// Every key that starts with `prefix`, as the order sees it.
    ///
    /// # Errors
    /// As [`KeyComparator::prefix_range`]: in some orders such keys do not lie together.
    pub fn prefix(order: KeyComparator, prefix: &[u8]) -> Result<ScanBounds> {
        let (lower, upper) = order.prefix_range(prefix)?;
        Ok(ScanBounds { lower, upper })
    }
    /// Whether `key` lies before the lower bound.
    pub fn is_before_lower(&self, order: KeyComparator, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Unbounded => false,
            Bound::Included(k) => order.cmp(key, k) == Less,
            Bound::Excluded(k) => matches!(order.cmp(key, k), Less | Equal),
        }
    }
    /// Whether `key` lies behind the upper bound.
    pub fn is_after_upper(&self, order: KeyComparator, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Unbounded => false,
            Bound::Included(k) => order.cmp(key, k) == Greater,
            Bound::Excluded(k) => matches!(order.cmp(key, k), Greater | Equal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_bounds_end_before_next_prefix() {
        let b = ScanBounds::prefix(KeyComparator::Bytes, b"a\xff").unwrap();
        assert_eq!(b.upper, Bound::Excluded(b"b".to_vec()));
        assert!(!b.is_after_upper(KeyComparator::Bytes, b"a\xff\xff\xff"));
        assert!(
            b.is_after_upper(KeyComparator::Bytes, b"b")
                && b.is_before_lower(KeyComparator::Bytes, b"a\xfe")
        );
        assert_eq!(
            ScanBounds::prefix(KeyComparator::Bytes, b"\xff\xff").unwrap().upper,
            Bound::Unbounded
        );
        assert_eq!(ScanBounds::prefix(KeyComparator::Bytes, b"").unwrap().upper, Bound::Unbounded);
    }
}
