//! A borrowed key in two parts: the prefix shared by the keys of its block, and the suffix. A scan
//! compares keys and moves without assembling them; only keys that are returned are copied.
//! Independent of the block format.
//!
//! Invariant: under every comparator but `Bytes` the prefix is empty (block writers guarantee it),
//! so the suffix is the whole key.

use crate::KeyComparator;
use std::cmp::Ordering::{self, Equal, Greater, Less};

/// A borrowed key in two parts.
#[derive(Clone, Copy, Debug)]
pub struct KeyRef<'a> {
    /// First part of the key.
    pub prefix: &'a [u8],
    /// Rest of the key.
    pub suffix: &'a [u8],
}

impl<'a> KeyRef<'a> {
    /// Creates a reference to a contiguous key.
    #[inline]
    pub fn from_key(key: &'a [u8]) -> KeyRef<'a> {
        KeyRef { prefix: &[], suffix: key }
    }

    /// Replaces the contents of `out` with the whole key.
    #[inline]
    pub fn copy_to(self, out: &mut Vec<u8>) {
        let (a, b) = (self.prefix.len(), self.suffix.len());
        if out.len() == a + b {
            // Fast path of scans: most keys have the same length, and short ones are copied without
            // a call.
            let (prefix_part, rest) = out.split_at_mut(a);
            copy_short(self.prefix, prefix_part);
            copy_short(self.suffix, rest);
            return;
        }
        out.clear();
        out.reserve(a + b);
        out.extend_from_slice(self.prefix);
        out.extend_from_slice(self.suffix);
    }

    /// Returns true if it is the same key as `other` under `comparator`.
    #[inline]
    pub fn equals(self, comparator: KeyComparator, other: &[u8]) -> bool {
        if !comparator.has_bytewise_equality() {
            check_slow!(
                self.prefix.is_empty(),
                "only bytewise order splits keys",
                self,
                comparator
            );
            return comparator.keys_equal(self.suffix, other);
        }
        // Neighbouring keys differ at their ends, so the suffix is compared first.
        self.prefix.len() + self.suffix.len() == other.len()
            && other.ends_with(self.suffix)
            && other.starts_with(self.prefix)
    }

    /// Compares two keys.
    #[inline]
    pub fn cmp(self, comparator: KeyComparator, other: KeyRef<'_>) -> Ordering {
        match comparator {
            KeyComparator::Bytes if self.prefix.len() <= other.prefix.len() => {
                self.cmp_with_longer_prefix(other)
            }
            KeyComparator::Bytes => other.cmp_with_longer_prefix(self).reverse(),
            _ => {
                check_slow!(
                    self.prefix.is_empty() && other.prefix.is_empty(),
                    "only bytewise order splits keys",
                    self,
                    other
                );
                comparator.cmp(self.suffix, other.suffix)
            }
        }
    }

    /// Compares in byte order with a key whose prefix is not shorter.
    fn cmp_with_longer_prefix(self, other: KeyRef<'_>) -> Ordering {
        check_slow!(
            self.prefix.len() <= other.prefix.len(),
            "the other prefix is not shorter",
            self,
            other
        );
        let (prefix_part, rest) = other.prefix.split_at(self.prefix.len());
        let n = rest.len().min(self.suffix.len());
        let first = self.prefix.cmp(prefix_part).then_with(|| self.suffix[..n].cmp(&rest[..n]));
        first.then_with(|| if n < rest.len() { Less } else { self.suffix[n..].cmp(other.suffix) })
    }

    /// Returns the length of the common prefix with `other`, in bytes.
    pub fn common_prefix_len(self, other: &[u8]) -> usize {
        let bytes = self.prefix.iter().chain(self.suffix);
        bytes.zip(other).take_while(|(a, b)| a == b).count()
    }

    /// Returns true if the key begins with `start`.
    pub fn starts_with(self, start: &[u8]) -> bool {
        self.common_prefix_len(start) == start.len()
    }

    /// Returns the key prefix as a number that never decreases as keys grow: keys with different
    /// numbers need no comparison of bytes. In byte order it holds the eight bytes after `skip`, a
    /// prefix that all compared keys should share (a key without it gets 0 or `u64::MAX`). Under
    /// comparators without a usable prefix it is 0.
    #[inline]
    pub fn key_prefix(self, comparator: KeyComparator, skip: &[u8]) -> u64 {
        match comparator {
            KeyComparator::Bytes if skip.is_empty() => first_eight_of_two(self.prefix, self.suffix),
            KeyComparator::Bytes => self.key_prefix_after(skip),
            KeyComparator::Reverse => !first_eight_bytes(self.suffix),
            KeyComparator::U64 => integer_key_prefix(self.suffix, 0),
            KeyComparator::I64 => integer_key_prefix(self.suffix, 1 << 63),
            // The bytes do not determine the order.
            _ => 0,
        }
    }

    fn key_prefix_after(self, skip: &[u8]) -> u64 {
        let n = skip.len().min(self.prefix.len());
        let (before, after) = self.prefix.split_at(n);
        let rest = &skip[n..];
        let m = rest.len().min(self.suffix.len());
        match before.cmp(&skip[..n]).then_with(|| self.suffix[..m].cmp(&rest[..m])) {
            Less => 0,
            Greater => u64::MAX,
            Equal if m < rest.len() => 0,
            Equal => first_eight_of_two(after, &self.suffix[m..]),
        }
    }
}

/// Copies short slices without a call, by two overlapping copies of eight bytes.
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

/// Returns the first eight bytes as a big-endian number, padded with zeros.
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

/// Returns the value of an eight-byte key as a number; 0 for a shorter key, `u64::MAX` for a longer
/// one.
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

    /// Keys over a small alphabet, so that many share prefixes; split at a random offset.
    fn random_key(x: &mut u64) -> (Vec<u8>, usize) {
        let n = next_random(x) % 14;
        let key: Vec<u8> =
            (0..n).map(|_| [0, 1, b'A', b'a', 255][(next_random(x) % 5) as usize]).collect();
        let key = if next_random(x) % 2 == 0 { key } else { [&[1u8, 1, 1][..], &key].concat() };
        let cut = next_random(x) as usize % (key.len() + 1);
        (key, cut)
    }

    fn split_key(key: &[u8], at: usize, comparator: KeyComparator) -> KeyRef<'_> {
        let (prefix, suffix) =
            key.split_at(if comparator == KeyComparator::Bytes { at } else { 0 });
        KeyRef { prefix, suffix }
    }

    #[test]
    fn split_keys_compare_like_whole_keys() {
        let x = &mut 77;
        for _ in 0..200_000 {
            let ((a, cut_a), (b, cut_b)) = (random_key(x), random_key(x));
            for (comparator, _) in BUILT_IN_COMPARATORS {
                let (p, q) = (split_key(&a, cut_a, comparator), split_key(&b, cut_b, comparator));
                assert_eq!(
                    p.cmp(comparator, q),
                    comparator.cmp(&a, &b),
                    "{comparator:?} {a:?} {b:?}"
                );
                assert_eq!(p.equals(comparator, &b), comparator.keys_equal(&a, &b));
                let skip = &[1, 1, 1, 1][..next_random(x) as usize % 5];
                let (number, other) =
                    (p.key_prefix(comparator, skip), q.key_prefix(comparator, skip));
                match comparator.cmp(&a, &b) {
                    Less => assert!(number <= other, "{comparator:?} {a:?} {b:?} {skip:?}"),
                    Equal => assert_eq!(number, other),
                    Greater => assert!(number >= other, "{comparator:?} {a:?} {b:?} {skip:?}"),
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
