//! Fingerprints: one byte per key of a block, stored next to the block header, so that a lookup in
//! a cached block goes straight to one key, where a binary search touches a new cache line at every
//! step. Independent of blocks.
//!
//! A fingerprint is only a hint about which entries to compare first. Whole keys are compared, and
//! if no candidate matches, the regular search runs.

use crate::key_prefix::key_prefix;
use crate::limits::INLINE_FINGERPRINTS_MAX;

/// The fingerprints of a block, if it has any.
#[derive(Clone, Debug)]
pub struct Fingerprints {
    inline: [u8; INLINE_FINGERPRINTS_MAX],
    boxed: Box<[u8]>,
    count: u32,
}

impl Default for Fingerprints {
    fn default() -> Fingerprints {
        Fingerprints { inline: [0; INLINE_FINGERPRINTS_MAX], boxed: Box::default(), count: 0 }
    }
}

impl Fingerprints {
    /// Computes the fingerprints of keys without their shared prefix.
    pub fn new<'a>(keys: impl ExactSizeIterator<Item = &'a [u8]>) -> Fingerprints {
        let mut fingerprints = Fingerprints { count: keys.len() as u32, ..Fingerprints::default() };
        if keys.len() <= INLINE_FINGERPRINTS_MAX {
            fingerprints
                .inline
                .iter_mut()
                .zip(keys)
                .for_each(|(fingerprint_byte, key)| *fingerprint_byte = fingerprint(key));
        } else {
            fingerprints.boxed = keys.map(fingerprint).collect();
        }
        fingerprints
    }

    /// Returns true if the block has no fingerprints.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the entries that may have this key, ascending.
    #[inline]
    pub fn candidates(&self, key: &[u8]) -> impl Iterator<Item = usize> {
        let all =
            if self.boxed.is_empty() { &self.inline[..self.count as usize] } else { &self.boxed };
        memchr::memchr_iter(fingerprint(key), all)
    }

    /// Returns the heap memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.boxed.len() as u64
    }
}

/// Neighbouring keys differ in their first bytes, in their last bytes, or in length.
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
        for n in [1, 2, INLINE_FINGERPRINTS_MAX, INLINE_FINGERPRINTS_MAX + 1, 5000] {
            for wide in [0, 4, 12] {
                let keys: Vec<Vec<u8>> = (0..n as u32)
                    .map(|i| [&i.to_be_bytes()[..], &vec![7; wide]].concat())
                    .collect();
                let fingerprints = Fingerprints::new(keys.iter().map(|k| &k[..]));
                assert!(!fingerprints.is_empty());
                let mut sum = 0;
                for (i, key) in keys.iter().enumerate() {
                    let found: Vec<usize> = fingerprints.candidates(key).collect();
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
