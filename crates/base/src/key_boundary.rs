//! Places between keys: where a range begins and ends, whatever the order of keys. Every kind of
//! bound becomes one, so that ranges are compared, cut and joined in one way.
//!
//! ```text
//! u8  0 before everything, 1 before the key, 2 behind the key, 3 behind everything | key
//! ```

use crate::limits::KEY_BYTES_MAX;
use crate::{Error, KeyComparator, Result};
use std::cmp::Ordering::{self, Greater, Less};
use std::ops::Bound;

/// A place between keys, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyBoundary {
    /// Before every key.
    First,
    /// Right before that key.
    Before(Vec<u8>),
    /// Right behind that key.
    After(Vec<u8>),
    /// Behind every key.
    Last,
}

/// A place between keys, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyBoundaryRef<'a> {
    /// Before every key.
    First,
    /// Right before that key.
    Before(&'a [u8]),
    /// Right behind that key.
    After(&'a [u8]),
    /// Behind every key.
    Last,
}

impl KeyBoundary {
    /// Where a range with this start begins.
    pub fn range_start<K: AsRef<[u8]>>(bound: Bound<K>) -> KeyBoundary {
        match bound {
            Bound::Unbounded => KeyBoundary::First,
            Bound::Included(k) => KeyBoundary::Before(k.as_ref().to_vec()),
            Bound::Excluded(k) => KeyBoundary::After(k.as_ref().to_vec()),
        }
    }
    /// Where a range with this end ends.
    pub fn range_end<K: AsRef<[u8]>>(bound: Bound<K>) -> KeyBoundary {
        match bound {
            Bound::Unbounded => KeyBoundary::Last,
            Bound::Included(k) => KeyBoundary::After(k.as_ref().to_vec()),
            Bound::Excluded(k) => KeyBoundary::Before(k.as_ref().to_vec()),
        }
    }
    /// Borrowed.
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
    /// The key that it lies beside.
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
    /// Compares two places under an order of keys.
    pub fn cmp(self, order: KeyComparator, other: KeyBoundaryRef<'_>) -> Ordering {
        match (self.key(), other.key()) {
            (Some(a), Some(b)) => order.cmp(a, b).then(self.code().cmp(&other.code())),
            _ => self.code().cmp(&other.code()),
        }
    }
    /// Whether `key` lies behind this place.
    #[inline]
    pub fn is_before(self, order: KeyComparator, key: &[u8]) -> bool {
        match self {
            KeyBoundaryRef::First => true,
            KeyBoundaryRef::Before(k) => order.cmp(k, key) != Greater,
            KeyBoundaryRef::After(k) => order.cmp(k, key) == Less,
            KeyBoundaryRef::Last => false,
        }
    }
    /// The larger of two.
    pub fn larger(self, order: KeyComparator, other: KeyBoundaryRef<'a>) -> KeyBoundaryRef<'a> {
        if self.cmp(order, other) == Less { other } else { self }
    }
    /// The smaller of two.
    pub fn smaller(self, order: KeyComparator, other: KeyBoundaryRef<'a>) -> KeyBoundaryRef<'a> {
        if self.cmp(order, other) == Greater { other } else { self }
    }
    /// Whether the ranges `a` and `b` share any place for a key.
    pub fn ranges_overlap(
        order: KeyComparator,
        a: (KeyBoundaryRef<'_>, KeyBoundaryRef<'_>),
        b: (KeyBoundaryRef<'_>, KeyBoundaryRef<'_>),
    ) -> bool {
        a.0.cmp(order, b.1) == Less && b.0.cmp(order, a.1) == Less
    }
    /// Owned.
    pub fn to_boundary(self) -> KeyBoundary {
        match self {
            KeyBoundaryRef::First => KeyBoundary::First,
            KeyBoundaryRef::Before(k) => KeyBoundary::Before(k.to_vec()),
            KeyBoundaryRef::After(k) => KeyBoundary::After(k.to_vec()),
            KeyBoundaryRef::Last => KeyBoundary::Last,
        }
    }
    /// Bytes of the encoded form.
    pub fn encoded_bytes(self) -> usize {
        1 + self.key().map_or(0, <[u8]>::len)
    }
    /// Appends the encoded form.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.push(self.code());
        out.extend_from_slice(self.key().unwrap_or_default());
    }
    /// Decodes a place that fills `bytes`, where something may be written.
    pub fn decode(bytes: &'a [u8]) -> Result<KeyBoundaryRef<'a>> {
        if bytes.len() > KEY_BYTES_MAX + 1 {
            return Err(Error::corruption("an end of a range is too long")
                .expected(format_args!("at most {KEY_BYTES_MAX}"), bytes.len() - 1));
        }
        KeyBoundaryRef::decode_read_range(bytes)
    }
    /// The same of a place that was only read up to, which may be beyond any key.
    pub fn decode_read_range(bytes: &'a [u8]) -> Result<KeyBoundaryRef<'a>> {
        let Some((code, key)) = bytes.split_first() else {
            return Err(Error::corruption("an end of a range is empty"));
        };
        match code {
            1 => Ok(KeyBoundaryRef::Before(key)),
            2 => Ok(KeyBoundaryRef::After(key)),
            0 if key.is_empty() => Ok(KeyBoundaryRef::First),
            3 if key.is_empty() => Ok(KeyBoundaryRef::Last),
            _ => Err(Error::corruption("an end of a range is malformed").expected("0 to 3", code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_ordered_and_round_trip() {
        let o = KeyComparator::Bytes;
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
                assert_eq!(a.cmp(o, *b), i.cmp(&j));
            }
            let mut bytes = Vec::new();
            a.encode(&mut bytes);
            assert_eq!(bytes.len(), a.encoded_bytes());
            assert_eq!(KeyBoundaryRef::decode(&bytes).unwrap(), *a);
            assert_eq!(a.to_boundary().as_ref(), *a);
        }
        assert!(
            KeyBoundaryRef::Before(b"a").is_before(o, b"a")
                && !KeyBoundaryRef::After(b"a").is_before(o, b"a")
        );
        assert!(
            KeyBoundaryRef::decode(b"").is_err()
                && KeyBoundaryRef::decode(b"\x00x").is_err()
                && KeyBoundaryRef::decode(b"\x07").is_err()
        );
    }
}
