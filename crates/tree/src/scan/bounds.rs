//! The bounds of a scan.

use perigee_base::KeyOrder;
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
    /// Every key that starts with `prefix` (byte order).
    pub fn prefix(prefix: &[u8]) -> Bounds {
        let mut end = prefix.to_vec();
        while end.last() == Some(&0xff) {
            end.pop();
        }
        let upper = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(end)
            }
            None => Bound::Unbounded,
        };
        Bounds { lower: Bound::Included(prefix.to_vec()), upper }
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
        let b = Bounds::prefix(b"a\xff");
        assert_eq!(b.upper, Bound::Excluded(b"b".to_vec()));
        assert!(!b.behind(KeyOrder::Bytes, b"a\xff\xff\xff"));
        assert!(b.behind(KeyOrder::Bytes, b"b") && b.before(KeyOrder::Bytes, b"a\xfe"));
        assert_eq!(Bounds::prefix(b"\xff\xff").upper, Bound::Unbounded);
        assert_eq!(Bounds::prefix(b"").upper, Bound::Unbounded);
    }
}
