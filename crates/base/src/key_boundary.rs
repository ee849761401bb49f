//! Key boundaries: positions immediately before or after a key, at which a range starts or ends.
//! Every kind of bound is converted to one, so that ranges are compared, cut and joined by the same
//! code under every comparator.
//!
//! ```text
//! u8 code (0 before all keys, 1 before the key, 2 after the key, 3 after all keys) | key
//! ```

use crate::limits::KEY_BYTES_MAX;
use crate::{Error, KeyComparator, Result};
use std::cmp::Ordering::{self, Greater, Less};
use std::ops::Bound;

/// An owned key boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyBoundary {
    /// Before every key.
    First,
    /// Immediately before the key.
    Before(Vec<u8>),
    /// Immediately after the key.
    After(Vec<u8>),
    /// After every key.
    Last,
}

/// A borrowed key boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyBoundaryRef<'a> {
    /// Before every key.
    First,
    /// Immediately before the key.
    Before(&'a [u8]),
    /// Immediately after the key.
    After(&'a [u8]),
    /// After every key.
    Last,
}

impl KeyBoundary {
    /// Returns the boundary at which a range with this start bound begins.
    pub fn range_start<K: AsRef<[u8]>>(bound: Bound<K>) -> KeyBoundary {
        match bound {
            Bound::Unbounded => KeyBoundary::First,
            Bound::Included(k) => KeyBoundary::Before(k.as_ref().to_vec()),
            Bound::Excluded(k) => KeyBoundary::After(k.as_ref().to_vec()),
        }
    }
    /// Returns the boundary at which a range with this end bound ends.
    pub fn range_end<K: AsRef<[u8]>>(bound: Bound<K>) -> KeyBoundary {
        match bound {
            Bound::Unbounded => KeyBoundary::Last,
            Bound::Included(k) => KeyBoundary::After(k.as_ref().to_vec()),
            Bound::Excluded(k) => KeyBoundary::Before(k.as_ref().to_vec()),
        }
    }
    /// Borrows the boundary.
    pub fn as_ref(&self) -> KeyBoundaryRef<'_> {
        match self {
            KeyBoundary::First => KeyBoundaryRef::First,
            KeyBoundary::Before(k) => KeyBoundaryRef::Before(k),
            KeyBoundary::After(k) => KeyBoundaryRef::After(k),
            KeyBoundary::Last => KeyBoundaryRef::Last,
        }
    }
}

impl<'a> KeyBoundaryRef<'a> {
    /// Returns the key of the boundary; `None` for `First` and `Last`.
    pub fn key(self) -> Option<&'a [u8]> {
        match self {
            KeyBoundaryRef::Before(k) | KeyBoundaryRef::After(k) => Some(k),
            KeyBoundaryRef::First | KeyBoundaryRef::Last => None,
        }
    }
    fn code(self) -> u8 {
        match self {
            KeyBoundaryRef::First => 0,
            KeyBoundaryRef::Before(_) => 1,
            KeyBoundaryRef::After(_) => 2,
            KeyBoundaryRef::Last => 3,
        }
    }
    /// Compares two boundaries under `comparator`.
    pub fn cmp(self, comparator: KeyComparator, other: KeyBoundaryRef<'_>) -> Ordering {
        match (self.key(), other.key()) {
            (Some(a), Some(b)) => comparator.cmp(a, b).then(self.code().cmp(&other.code())),
            _ => self.code().cmp(&other.code()),
        }
    }
    /// Returns true if `key` lies after this boundary.
    #[inline]
    pub fn is_before(self, comparator: KeyComparator, key: &[u8]) -> bool {
        match self {
            KeyBoundaryRef::First => true,
            KeyBoundaryRef::Before(k) => comparator.cmp(k, key) != Greater,
            KeyBoundaryRef::After(k) => comparator.cmp(k, key) == Less,
            KeyBoundaryRef::Last => false,
        }
    }
    /// Returns the larger of the two boundaries.
    pub fn larger(
        self,
        comparator: KeyComparator,
        other: KeyBoundaryRef<'a>,
    ) -> KeyBoundaryRef<'a> {
        if self.cmp(comparator, other) == Less { other } else { self }
    }
    /// Returns the smaller of the two boundaries.
    pub fn smaller(
        self,
        comparator: KeyComparator,
        other: KeyBoundaryRef<'a>,
    ) -> KeyBoundaryRef<'a> {
        if self.cmp(comparator, other) == Greater { other } else { self }
    }
    /// Returns true if the ranges `a` and `b` overlap.
    pub fn ranges_overlap(
        comparator: KeyComparator,
        a: (KeyBoundaryRef<'_>, KeyBoundaryRef<'_>),
        b: (KeyBoundaryRef<'_>, KeyBoundaryRef<'_>),
    ) -> bool {
        a.0.cmp(comparator, b.1) == Less && b.0.cmp(comparator, a.1) == Less
    }
    /// Copies the boundary into an owned one.
    pub fn to_boundary(self) -> KeyBoundary {
        match self {
            KeyBoundaryRef::First => KeyBoundary::First,
            KeyBoundaryRef::Before(k) => KeyBoundary::Before(k.to_vec()),
            KeyBoundaryRef::After(k) => KeyBoundary::After(k.to_vec()),
            KeyBoundaryRef::Last => KeyBoundary::Last,
        }
    }
    /// Returns the length of the encoded form, in bytes.
    pub fn encoded_bytes(self) -> usize {
        1 + self.key().map_or(0, <[u8]>::len)
    }
    /// Appends the encoded form.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.push(self.code());
        out.extend_from_slice(self.key().unwrap_or_default());
    }
    /// Decodes a boundary of a write range from all of `bytes`. Fails with `Corruption` if the key
    /// is longer than a key may be.
    pub fn decode(bytes: &'a [u8]) -> Result<KeyBoundaryRef<'a>> {
        if bytes.len() > KEY_BYTES_MAX + 1 {
            return Err(Error::corruption("a range boundary is too long")
                .expected(format_args!("at most {KEY_BYTES_MAX}"), bytes.len() - 1));
        }
        KeyBoundaryRef::decode_read_range(bytes)
    }
    /// Decodes a boundary of a read range from all of `bytes`. Its key may be longer than any valid
    /// key.
    pub fn decode_read_range(bytes: &'a [u8]) -> Result<KeyBoundaryRef<'a>> {
        let Some((code, key)) = bytes.split_first() else {
            return Err(Error::corruption("a range boundary is empty"));
        };
        match code {
            1 => Ok(KeyBoundaryRef::Before(key)),
            2 => Ok(KeyBoundaryRef::After(key)),
            0 if key.is_empty() => Ok(KeyBoundaryRef::First),
            3 if key.is_empty() => Ok(KeyBoundaryRef::Last),
            _ => Err(Error::corruption("a range boundary is malformed").expected("0 to 3", code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_ordered_and_round_trip() {
        let comparator = KeyComparator::Bytes;
        let ascending = [
            KeyBoundaryRef::First,
            KeyBoundaryRef::Before(b""),
            KeyBoundaryRef::After(b""),
            KeyBoundaryRef::Before(b"a"),
            KeyBoundaryRef::After(b"a"),
            KeyBoundaryRef::Last,
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(a.cmp(comparator, *b), i.cmp(&j));
            }
            let mut bytes = Vec::new();
            a.encode(&mut bytes);
            assert_eq!(bytes.len(), a.encoded_bytes());
            assert_eq!(KeyBoundaryRef::decode(&bytes).unwrap(), *a);
            assert_eq!(a.to_boundary().as_ref(), *a);
        }
        assert!(
            KeyBoundaryRef::Before(b"a").is_before(comparator, b"a")
                && !KeyBoundaryRef::After(b"a").is_before(comparator, b"a")
        );
        assert!(
            KeyBoundaryRef::decode(b"").is_err()
                && KeyBoundaryRef::decode(b"\x00x").is_err()
                && KeyBoundaryRef::decode(b"\x07").is_err()
        );
    }
}
