//! Bounds of a scan.

use perigee_base::{KeyComparator, Result};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::ops::Bound;

/// Range of user keys that a scan returns.
#[derive(Clone, Debug)]
pub struct ScanBounds {
    /// Lower bound.
    pub lower: Bound<Vec<u8>>,
    /// Upper bound.
    pub upper: Bound<Vec<u8>>,
}

impl ScanBounds {
    /// Returns bounds that contain every key.
    pub fn all() -> ScanBounds {
        ScanBounds { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }
    /// Returns bounds that contain every key with this prefix, as defined by the comparator.
    ///
    /// # Errors
    /// As [`KeyComparator::prefix_range`]: under some comparators such keys are not contiguous.
    pub fn prefix(comparator: KeyComparator, prefix: &[u8]) -> Result<ScanBounds> {
        let (lower, upper) = comparator.prefix_range(prefix)?;
        Ok(ScanBounds { lower, upper })
    }
    /// Returns true if `key` is before the lower bound.
    pub fn is_before_lower(&self, comparator: KeyComparator, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Unbounded => false,
            Bound::Included(k) => comparator.cmp(key, k) == Less,
            Bound::Excluded(k) => matches!(comparator.cmp(key, k), Less | Equal),
        }
    }
    /// Returns true if `key` is after the upper bound.
    pub fn is_after_upper(&self, comparator: KeyComparator, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Unbounded => false,
            Bound::Included(k) => comparator.cmp(key, k) == Greater,
            Bound::Excluded(k) => matches!(comparator.cmp(key, k), Greater | Equal),
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
