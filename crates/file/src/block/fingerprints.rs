//! Fingerprints: one byte for each key of a block, beside the block's head, so that a look-up in a
//! block that is kept goes straight to one key, where a binary search meets a new line of memory at
//! every step. Must not know blocks.
//!
//! A fingerprint never answers: it says where to look first. Whole keys are compared, and where
//! nothing is found the search goes the long way.

use crate::key_prefix::key_prefix;

/// As many lie in place; those of more keys lie elsewhere.
const INLINE_MAX: usize = 64;

/// The fingerprints of a block, when there are any.
#[derive(Clone, Debug)]
pub struct Fingerprints {
    inline: [u8; INLINE_MAX],
    boxed: Box<[u8]>,
    count: u32,
}

impl Default for Fingerprints {
    fn default() -> Fingerprints {
        Fingerprints { inline: [0; INLINE_MAX], boxed: Box::default(), count: 0 }
    }
}

impl Fingerprints {
    /// Of keys without what they have in common.
    pub fn new<'a>(keys: impl ExactSizeIterator<Item = &'a [u8]>) -> Fingerprints {
        let mut prints = Fingerprints { count: keys.len() as u32, ..Fingerprints::default() };
        if keys.len() <= INLINE_MAX {
            prints.inline.iter_mut().zip(keys).for_each(|(print, key)| *print = fingerprint(key));
        } else {
            prints.boxed = keys.map(fingerprint).collect();
        }
        prints
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The entries that may have that key, in order.
    #[inline]
    pub fn candidates(&self, key: &[u8]) -> impl Iterator<Item = usize> {
        let all =
            if self.boxed.is_empty() { &self.inline[..self.count as usize] } else { &self.boxed };
        memchr::memchr_iter(fingerprint(key), all)
    }

    /// Memory beside the struct.
    pub fn memory_bytes(&self) -> u64 {
        self.boxed.len() as u64
    }
}

/// Neighbours differ in their first bytes, in their last, or in length.
#[inline]
fn fingerprint(key: &[u8]) -> u8 {
    let last = key.last_chunk::<8>().map_or(0, |last| u64::from_le_bytes(*last));
    let mixed = (key_prefix(key) ^ last.rotate_left(29) ^ key.len() as u64)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_find_every_key_with_few_candidates() {
        for n in [1, 2, INLINE_MAX, INLINE_MAX + 1, 5000] {
            for wide in [0, 4, 12] {
                let keys: Vec<Vec<u8>> = (0..n as u32)
                    .map(|i| [&i.to_be_bytes()[..], &vec![7; wide]].concat())
                    .collect();
                let prints = Fingerprints::new(keys.iter().map(|k| &k[..]));
                assert!(!prints.is_empty());
                let mut sum = 0;
                for (i, key) in keys.iter().enumerate() {
                    let found: Vec<usize> = prints.candidates(key).collect();
                    assert!(found.contains(&i) && found.is_sorted());
                    sum += found.len();
                }
                assert!(sum < n * (2 + n / 100), "{sum} candidates for {n} keys");
            }
        }
        assert!(Fingerprints::default().is_empty());
        assert_eq!(Fingerprints::default().candidates(b"").count(), 0);
    }
}
