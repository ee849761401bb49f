//! Maps numbers to keys and back, so that every key that an engine returns can be checked.
//!
//! Invariant: `parse_key(write_key(i)) == Some(i)` for every `i` below 2^52; no two numbers share a
//! key.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Choices of `--keys`, for workloads in scattered order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyChoice {
    /// Keys of TidesDB's benchmark: a byte-swapped counter, scattered but regular; the rest of the
    /// key is constant.
    Counter,
    /// A bijection without structure; the rest of the key has no structure either.
    Random,
}

/// Order in which numbers map to keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySequence {
    Ascending,
    Swapped,
    Mixed,
    /// Ascending with irregular gaps, like measurement timestamps.
    Timestamp,
    Descending,
}

/// Format of all keys of a run.
#[derive(Clone, Copy, Debug)]
pub struct KeyFormat {
    pub order: KeySequence,
    pub bytes: usize,
}

/// First timestamp in microseconds since 1970, and the mean gap between two.
const TIMESTAMP_EPOCH_US: u64 = 1_700_000_000_000_000;
const TIMESTAMP_GAP_US: u64 = 1000;

const PADDING_BYTE: u8 = b'0';

/// Finaliser of MurmurHash3 (Appleby): a bijection on 64 bits.
pub fn mix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

/// Returns the inverse of an odd number modulo 2^64, by Newton's iteration.
const fn inverse(a: u64) -> u64 {
    let mut x = a;
    let mut i = 0;
    while i < 6 {
        x = x.wrapping_mul(2u64.wrapping_sub(a.wrapping_mul(x)));
        i += 1;
    }
    x
}

fn unmix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(const { inverse(0xc4ce_b9fe_1a85_ec53) });
    x ^= x >> 33;
    x = x.wrapping_mul(const { inverse(0xff51_afd7_ed55_8ccd) });
    x ^ x >> 33
}

impl KeyFormat {
    /// Returns eight bytes whose order is the order of the keys.
    pub fn key_id(&self, i: u64) -> u64 {
        match self.order {
            KeySequence::Ascending => i,
            KeySequence::Swapped => i.swap_bytes(),
            KeySequence::Mixed => mix(i),
            KeySequence::Timestamp => TIMESTAMP_EPOCH_US
                .wrapping_add(i.wrapping_mul(TIMESTAMP_GAP_US))
                .wrapping_add(mix(i) % TIMESTAMP_GAP_US),
            KeySequence::Descending => u64::MAX - i,
        }
    }
    fn number_of_id(&self, id: u64) -> u64 {
        match self.order {
            KeySequence::Ascending => id,
            KeySequence::Swapped => id.swap_bytes(),
            KeySequence::Mixed => unmix(id),
            KeySequence::Timestamp => id.wrapping_sub(TIMESTAMP_EPOCH_US) / TIMESTAMP_GAP_US,
            KeySequence::Descending => u64::MAX - id,
        }
    }
    /// Writes the key of `i` to `out`, which is resized to the key length.
    pub fn write_key<'a>(&self, i: u64, out: &'a mut Vec<u8>) -> &'a [u8] {
        let id = self.key_id(i);
        out.clear();
        out.extend_from_slice(&id.to_be_bytes());
        out.resize(self.bytes, PADDING_BYTE);
        if self.order == KeySequence::Mixed {
            let mut word = id;
            for chunk in out[8..].chunks_mut(8) {
                word = mix(word.wrapping_add(0x9e37_79b9_7f4a_7c15));
                chunk.copy_from_slice(&word.to_be_bytes()[..chunk.len()]);
            }
        }
        out
    }
    /// Returns the number of a key if every byte of it is as written by `write_key`.
    pub fn parse_key(&self, key: &[u8], scratch: &mut Vec<u8>) -> Option<u64> {
        let id = u64::from_be_bytes(*key.first_chunk()?);
        let i = self.number_of_id(id);
        (self.write_key(i, scratch) == key).then_some(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_and_other_bytes_are_rejected() {
        for order in [
            KeySequence::Ascending,
            KeySequence::Swapped,
            KeySequence::Mixed,
            KeySequence::Timestamp,
            KeySequence::Descending,
        ] {
            for bytes in [8, 16, 21, 256] {
                let keys = KeyFormat { order, bytes };
                let (mut a, mut b) = (Vec::new(), Vec::new());
                for i in (0..1000).chain([u64::MAX >> 12, 1 << 40]) {
                    keys.write_key(i, &mut a);
                    assert_eq!(a.len(), bytes);
                    assert_eq!(keys.parse_key(&a, &mut b), Some(i));
                    if bytes > 8 {
                        a[bytes - 1] ^= 1;
                        assert_eq!(keys.parse_key(&a, &mut b), None);
                    }
                }
            }
        }
    }
}
