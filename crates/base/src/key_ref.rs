//! A key where it lies, in two pieces: what the keys of its block begin with, and the rest. So a
//! scan compares and steps without putting keys together; only what is shown is copied. Must not
//! know blocks.
//!
//! Invariant: under every order but bytes the prefix is empty (blocks keep that), so the suffix is
//! the key.

use crate::KeyComparator;
use std::cmp::Ordering::{self, Equal, Greater, Less};

/// A key, borrowed in two pieces.
#[derive(Clone, Copy, Debug)]
pub struct KeyRef<'a> {
    /// The first piece.
    pub prefix: &'a [u8],
    /// The rest.
    pub suffix: &'a [u8],
}

impl<'a> KeyRef<'a> {
    /// A key that lies in one piece.
    #[inline]
    pub fn from_key(key: &'a [u8]) -> KeyRef<'a> {
        KeyRef { prefix: &[], suffix: key }
    }

    /// The key in one piece, in place of what `out` held.
    #[inline]
    pub fn copy_to(self, out: &mut Vec<u8>) {
        let (a, b) = (self.prefix.len(), self.suffix.len());
        if out.len() == a + b {
            // Walks come here: keys are mostly of one length, and short ones are copied without a
            // call.
            let (head, rest) = out.split_at_mut(a);
            copy_short(self.prefix, head);
            copy_short(self.suffix, rest);
            return;
        }
        out.clear();
        out.extend_from_slice(self.prefix);
        out.extend_from_slice(self.suffix);
    }

    /// Whether it is the key `other`.
    #[inline]
    pub fn equals(self, order: KeyComparator, other: &[u8]) -> bool {
        if !order.has_bytewise_equality() {
            return order.keys_equal(self.suffix, other);
        }
        // Neighbours differ in their ends.
        self.prefix.len() + self.suffix.len() == other.len()
            && other.ends_with(self.suffix)
            && other.starts_with(self.prefix)
    }

    /// Compares two keys.
    #[inline]
    pub fn cmp(self, order: KeyComparator, other: KeyRef<'_>) -> Ordering {
        match order {
            KeyComparator::Bytes if self.prefix.len() <= other.prefix.len() => {
                self.cmp_with_longer_prefix(other)
            }
            KeyComparator::Bytes => other.cmp_with_longer_prefix(self).reverse(),
            _ => order.cmp(self.suffix, other.suffix),
        }
    }

    /// In byte order, with one whose prefix is not shorter.
    fn cmp_with_longer_prefix(self, other: KeyRef<'_>) -> Ordering {
        let (head, rest) = other.prefix.split_at(self.prefix.len());
        let n = rest.len().min(self.suffix.len());
        let first = self.prefix.cmp(head).then_with(|| self.suffix[..n].cmp(&rest[..n]));
        first.then_with(|| if n < rest.len() { Less } else { self.suffix[n..].cmp(other.suffix) })
    }

    /// How many bytes it has in common with the beginning of `other`.
    pub fn common_prefix_len(self, other: &[u8]) -> usize {
        let bytes = self.prefix.iter().chain(self.suffix);
        bytes.zip(other).take_while(|(a, b)| a == b).count()
    }

    /// Whether it begins with `start`.
    pub fn starts_with(self, start: &[u8]) -> bool {
        self.common_prefix_len(start) == start.len()
    }

    /// A number that grows with the key, never the other way: keys with different heads need no
    /// comparison of bytes. In byte order it is made of the eight bytes behind `skip`, which all
    /// keys at hand should begin with (other keys get the smallest or the largest number).
    #[inline]
    pub fn key_prefix(self, order: KeyComparator, skip: &[u8]) -> u64 {
        match order {
            KeyComparator::Bytes if skip.is_empty() => first_eight_of_two(self.prefix, self.suffix),
            KeyComparator::Bytes => self.key_prefix_after(skip),
            KeyComparator::Reverse => !first_eight_bytes(self.suffix),
            KeyComparator::U64 => integer_key_prefix(self.suffix, 0),
            KeyComparator::I64 => integer_key_prefix(self.suffix, 1 << 63),
            // Case, text and users' orders: bytes do not tell.
            _ => 0,
        }
    }

    fn key_prefix_after(self, skip: &[u8]) -> u64 {
        let n = skip.len().min(self.prefix.len());
        let (before, behind) = self.prefix.split_at(n);
        let rest = &skip[n..];
        let m = rest.len().min(self.suffix.len());
        match before.cmp(&skip[..n]).then_with(|| self.suffix[..m].cmp(&rest[..m])) {
            Less => 0,
            Greater => u64::MAX,
            Equal if m < rest.len() => 0,
            Equal => first_eight_of_two(behind, &self.suffix[m..]),
        }
    }
}

/// Copies a few bytes without a call, if they are few: eight and eight that may overlap.
#[inline]
fn copy_short(from: &[u8], to: &mut [u8]) {
    let n = from.len();
    match n {
        0..4 => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
        8..=16 => {
            to[..8].copy_from_slice(&from[..8]);
            to[n - 8..n].copy_from_slice(&from[n - 8..]);
        }
        _ => to.copy_from_slice(from),
    }
}

/// The first eight bytes as a number; what is missing counts as zeros.
#[inline]
fn first_eight_bytes(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(eight) => u64::from_be_bytes(*eight),
        None => bytes.iter().rev().fold(0, |n, b| n >> 8 | u64::from(*b) << 56),
    }
}

#[inline]
fn first_eight_of_two(a: &[u8], b: &[u8]) -> u64 {
    match a.len() {
        0 => first_eight_bytes(b),
        1..8 => first_eight_bytes(a) | first_eight_bytes(b) >> (8 * a.len()),
        _ => first_eight_bytes(a),
    }
}

/// Keys of eight bytes by their value, the shorter before them, the longer behind.
fn integer_key_prefix(key: &[u8], sign: u64) -> u64 {
    match <[u8; 8]>::try_from(key) {
        Ok(eight) => u64::from_le_bytes(eight) ^ sign,
        Err(_) if key.len() < 8 => 0,
        Err(_) => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparator::BUILT_IN_COMPARATORS;

    fn next_random(x: &mut u64) -> u64 {
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        *x
    }

    /// Keys of few letters, so that many share their beginnings; cut in two at any place.
    fn random_key(x: &mut u64) -> (Vec<u8>, usize) {
        let n = next_random(x) % 14;
        let key: Vec<u8> =
            (0..n).map(|_| [0, 1, b'A', b'a', 255][(next_random(x) % 5) as usize]).collect();
        let key = if next_random(x) % 2 == 0 { key } else { [&[1u8, 1, 1][..], &key].concat() };
        let cut = next_random(x) as usize % (key.len() + 1);
        (key, cut)
    }

    fn split_key(key: &[u8], at: usize, order: KeyComparator) -> KeyRef<'_> {
        let (prefix, suffix) = key.split_at(if order == KeyComparator::Bytes { at } else { 0 });
        KeyRef { prefix, suffix }
    }

    #[test]
    fn split_keys_compare_like_whole_keys() {
        let x = &mut 77;
        for _ in 0..200_000 {
            let ((a, cut_a), (b, cut_b)) = (random_key(x), random_key(x));
            for (order, _) in BUILT_IN_COMPARATORS {
                let (p, q) = (split_key(&a, cut_a, order), split_key(&b, cut_b, order));
                assert_eq!(p.cmp(order, q), order.cmp(&a, &b), "{order:?} {a:?} {b:?}");
                assert_eq!(p.equals(order, &b), order.keys_equal(&a, &b));
                let skip = &[1, 1, 1, 1][..next_random(x) as usize % 5];
                let (head, other) = (p.key_prefix(order, skip), q.key_prefix(order, skip));
                match order.cmp(&a, &b) {
                    Less => assert!(head <= other, "{order:?} {a:?} {b:?} {skip:?}"),
                    Equal => assert_eq!(head, other),
                    Greater => assert!(head >= other, "{order:?} {a:?} {b:?} {skip:?}"),
                }
            }
            let mut whole = vec![9];
            let p = KeyRef { prefix: &a[..cut_a], suffix: &a[cut_a..] };
            p.copy_to(&mut whole);
            assert_eq!(whole, a);
            assert_eq!(
                p.common_prefix_len(&b),
                a.iter().zip(&b).take_while(|(a, b)| a == b).count()
            );
            assert_eq!(p.starts_with(&b), a.starts_with(&b));
        }
    }

    #[test]
    fn copy_replaces_previous_contents() {
        let bytes: Vec<u8> = (0..40).collect();
        let mut out = Vec::new();
        for len in 0..40 {
            for cut in 0..=len {
                let key = KeyRef { prefix: &bytes[..cut], suffix: &bytes[cut..len] };
                key.copy_to(&mut out);
                assert_eq!(out, bytes[..len]);
                out.fill(99);
            }
        }
    }
}
