//! The bounds of a scan.

use perigee_base::{KeyOrder, Result};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::ops::Bound;

/// Which user keys a scan may show.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// From here.
    pub lower: Bound<Vec<u8>>,
    /// To here.
    pub upper: Bound<Vec<u8>>,
}

impl Bounds {
    /// Every key.
    pub fn all() -> Bounds {
        Bounds { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }
    /// Every key that starts with `prefix`, as the order sees it.
    ///
    /// # Errors
    /// As [`KeyOrder::prefix_range`]: in some orders such keys do not lie together.
    pub fn prefix(order: KeyOrder, prefix: &[u8]) -> Result<Bounds> {
        let (lower, upper) = order.prefix_range(prefix)?;
        Ok(Bounds { lower, upper })
    }
    /// Whether `key` lies before the lower bound.
    pub fn before(&self, order: KeyOrder, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Unbounded => false,
            Bound::Included(k) => order.cmp(key, k) == Less,
            Bound::Excluded(k) => matches!(order.cmp(key, k), Less | Equal),
        }
    }
    /// Whether `key` lies behind the upper bound.
    pub fn behind(&self, order: KeyOrder, key: &[u8]) -> bool {
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
    fn a_prefix_ends_before_the_next_one() {
        let b = Bounds::prefix(KeyOrder::Bytes, b"a\xff").unwrap();
        assert_eq!(b.upper, Bound::Excluded(b"b".to_vec()));
        assert!(!b.behind(KeyOrder::Bytes, b"a\xff\xff\xff"));
        assert!(b.behind(KeyOrder::Bytes, b"b") && b.before(KeyOrder::Bytes, b"a\xfe"));
        assert_eq!(Bounds::prefix(KeyOrder::Bytes, b"\xff\xff").unwrap().upper, Bound::Unbounded);
        assert_eq!(Bounds::prefix(KeyOrder::Bytes, b"").unwrap().upper, Bound::Unbounded);
    }
}
