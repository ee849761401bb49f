//! Places between keys: where a range begins and ends, whatever the order of keys. Every kind of bound becomes one,
//! so that ranges are compared, cut and joined in one way.
//!
//! ```text
//! u8  0 before everything, 1 before the key, 2 behind the key, 3 behind everything | key
//! ```

use crate::limits::KEY_BYTES_MAX;
use crate::{Error, KeyOrder, Result};
use std::cmp::Ordering::{self, Greater, Less};
use std::ops::Bound;

/// A place between keys, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
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
pub enum CutRef<'a> {
    /// Before every key.
    First,
    /// Right before that key.
    Before(&'a [u8]),
    /// Right behind that key.
    After(&'a [u8]),
    /// Behind every key.
    Last,
}

impl Cut {
    /// Where a range with this start begins.
    pub fn begin<K: AsRef<[u8]>>(bound: Bound<K>) -> Cut {
        match bound {
            Bound::Unbounded => Cut::First,
            Bound::Included(k) => Cut::Before(k.as_ref().to_vec()),
            Bound::Excluded(k) => Cut::After(k.as_ref().to_vec()),
        }
    }
    /// Where a range with this end ends.
    pub fn end<K: AsRef<[u8]>>(bound: Bound<K>) -> Cut {
        match bound {
            Bound::Unbounded => Cut::Last,
            Bound::Included(k) => Cut::After(k.as_ref().to_vec()),
            Bound::Excluded(k) => Cut::Before(k.as_ref().to_vec()),
        }
    }
    /// Borrowed.
    pub fn as_ref(&self) -> CutRef<'_> {
        match self {
            Cut::First => CutRef::First,
            Cut::Before(k) => CutRef::Before(k),
            Cut::After(k) => CutRef::After(k),
            Cut::Last => CutRef::Last,
        }
    }
}

impl<'a> CutRef<'a> {
    /// The key that it lies beside.
    pub fn key(self) -> Option<&'a [u8]> {
        match self {
            CutRef::Before(k) | CutRef::After(k) => Some(k),
            CutRef::First | CutRef::Last => None,
        }
    }
    fn code(self) -> u8 {
        match self {
            CutRef::First => 0,
            CutRef::Before(_) => 1,
            CutRef::After(_) => 2,
            CutRef::Last => 3,
        }
    }
    /// Compares two places under an order of keys.
    pub fn cmp(self, order: KeyOrder, other: CutRef<'_>) -> Ordering {
        match (self.key(), other.key()) {
            (Some(a), Some(b)) => order.cmp(a, b).then(self.code().cmp(&other.code())),
            _ => self.code().cmp(&other.code()),
        }
    }
    /// Whether `key` lies behind this place.
    #[inline]
    pub fn is_before(self, order: KeyOrder, key: &[u8]) -> bool {
        match self {
            CutRef::First => true,
            CutRef::Before(k) => order.cmp(k, key) != Greater,
            CutRef::After(k) => order.cmp(k, key) == Less,
            CutRef::Last => false,
        }
    }
    /// The larger of two.
    pub fn max(self, order: KeyOrder, other: CutRef<'a>) -> CutRef<'a> {
        if self.cmp(order, other) == Less { other } else { self }
    }
    /// The smaller of two.
    pub fn min(self, order: KeyOrder, other: CutRef<'a>) -> CutRef<'a> {
        if self.cmp(order, other) == Greater { other } else { self }
    }
    /// Whether the ranges `a` and `b` share any place for a key.
    pub fn overlap(order: KeyOrder, a: (CutRef<'_>, CutRef<'_>), b: (CutRef<'_>, CutRef<'_>)) -> bool {
        a.0.cmp(order, b.1) == Less && b.0.cmp(order, a.1) == Less
    }
    /// Owned.
    pub fn to_cut(self) -> Cut {
        match self {
            CutRef::First => Cut::First,
            CutRef::Before(k) => Cut::Before(k.to_vec()),
            CutRef::After(k) => Cut::After(k.to_vec()),
            CutRef::Last => Cut::Last,
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
    pub fn decode(bytes: &'a [u8]) -> Result<CutRef<'a>> {
        if bytes.len() > KEY_BYTES_MAX + 1 {
            return Err(Error::corruption("an end of a range is too long")
                .expected(format_args!("at most {KEY_BYTES_MAX}"), bytes.len() - 1));
        }
        CutRef::decode_read(bytes)
    }
    /// The same of a place that was only read up to, which may be beyond any key.
    pub fn decode_read(bytes: &'a [u8]) -> Result<CutRef<'a>> {
        let Some((code, key)) = bytes.split_first() else {
            return Err(Error::corruption("an end of a range is empty"));
        };
        match code {
            1 => Ok(CutRef::Before(key)),
            2 => Ok(CutRef::After(key)),
            0 if key.is_empty() => Ok(CutRef::First),
            3 if key.is_empty() => Ok(CutRef::Last),
            _ => Err(Error::corruption("an end of a range is malformed").expected("0 to 3", code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_ordered_and_survive_the_round_trip() {
        let o = KeyOrder::Bytes;
        let ascending = [
            CutRef::First,
            CutRef::Before(b""),
            CutRef::After(b""),
            CutRef::Before(b"a"),
            CutRef::After(b"a"),
            CutRef::Last,
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(a.cmp(o, *b), i.cmp(&j));
            }
            let mut bytes = Vec::new();
            a.encode(&mut bytes);
            assert_eq!(bytes.len(), a.encoded_bytes());
            assert_eq!(CutRef::decode(&bytes).unwrap(), *a);
            assert_eq!(a.to_cut().as_ref(), *a);
        }
        assert!(CutRef::Before(b"a").is_before(o, b"a") && !CutRef::After(b"a").is_before(o, b"a"));
        assert!(
            CutRef::decode(b"").is_err()
                && CutRef::decode(b"\x00x").is_err()
                && CutRef::decode(b"\x07").is_err()
        );
    }
}
