//! The filter of a klog: answers "certainly absent" or "possibly present". A split-block Bloom
//! filter over XXH3-64 of the keys; only this module depends on the filter type. Format:
//! `docs/format/klog.md`.
//!
//! Invariant: no false negatives.

use perigee_base::codec::Decoder;
use perigee_base::limits::{FILTER_BITS_MAX, INDEX_RAW_BYTES_MAX};
use perigee_base::{Error, Result};

/// Odd multipliers, one for each word of a filter block: the first 32 bits of the fractional parts
/// of the square roots of the first eight primes, made odd.
const SALT: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f373,
    0xa54f_f53b,
    0x510e_527f,
    0x9b05_688d,
    0x1f83_d9ab,
    0x5be0_cd19,
];
/// Size of what precedes the filter blocks in the raw form.
const FILTER_HEADER_BYTES: usize = 8;
/// Size of a filter block.
const FILTER_BLOCK_BYTES: usize = 32;

type FilterBlock = [u32; 8];

/// Collects the hashes of distinct keys and builds the filter.
#[derive(Debug)]
pub struct FilterWriter {
    bits_per_key: u8,
    hashes: Vec<u64>,
}

impl FilterWriter {
    /// Creates a writer with this many bits per key; 0 builds no filter.
    pub fn new(bits_per_key: u8) -> Self {
        check!(bits_per_key <= FILTER_BITS_MAX, "filters have at most this size", bits_per_key);
        FilterWriter { bits_per_key, hashes: Vec::new() }
    }
    /// Returns true if a filter will be built.
    pub fn is_enabled(&self) -> bool {
        self.bits_per_key > 0
    }
    /// Adds the hash of a key.
    pub fn add(&mut self, hash: u64) {
        self.hashes.push(hash);
    }
    /// Returns the size of the raw form if it were built now, in bytes.
    pub fn raw_bytes(&self) -> usize {
        if self.is_enabled() {
            FILTER_HEADER_BYTES + self.block_count() * FILTER_BLOCK_BYTES
        } else {
            0
        }
    }

    /// Returns the memory needed until the filter is built and written, including the raw form.
    pub fn memory_bytes(&self) -> usize {
        self.hashes.capacity() * size_of::<u64>() + self.raw_bytes()
    }

    fn block_count(&self) -> usize {
        let bits = self.hashes.len().saturating_mul(usize::from(self.bits_per_key));
        bits.div_ceil(8 * FILTER_BLOCK_BYTES)
            .clamp(1, (INDEX_RAW_BYTES_MAX - FILTER_HEADER_BYTES) / FILTER_BLOCK_BYTES)
    }

    /// Builds the raw form.
    pub fn build(&self) -> Vec<u8> {
        check!(self.is_enabled(), "only an enabled filter is built");
        let blocks = self.block_count();
        let mut out = vec![0; self.raw_bytes()];
        out[..4].copy_from_slice(&(blocks as u32).to_le_bytes());
        for &hash in &self.hashes {
            let at = FILTER_HEADER_BYTES + block_index(hash, blocks) * FILTER_BLOCK_BYTES;
            for (word, bit) in
                out[at..at + FILTER_BLOCK_BYTES].chunks_exact_mut(4).zip(block_mask(hash))
            {
                let set = u32::from_le_bytes([word[0], word[1], word[2], word[3]]) | bit;
                word.copy_from_slice(&set.to_le_bytes());
            }
        }
        check_slow!(
            FilterReader::decode(&out).is_ok_and(|filter| filter.may_contain_all(&self.hashes)),
            "a filter contains every key that was added",
            self.hashes.len()
        );
        out
    }
}

/// A decoded filter.
#[derive(Debug)]
pub struct FilterReader {
    blocks: Vec<FilterBlock>,
}

impl FilterReader {
    /// Decodes the raw form.
    pub fn decode(raw: &[u8]) -> Result<FilterReader> {
        let mut d = Decoder::new(raw);
        let (count, zero) = (d.u32()? as usize, d.u32()?);
        if count == 0 || zero != 0 || d.remaining() != count.saturating_mul(FILTER_BLOCK_BYTES) {
            return Err(Error::corruption("malformed filter").expected(
                format_args!(
                    "{} bytes for at least one block",
                    count.saturating_mul(FILTER_BLOCK_BYTES)
                ),
                d.remaining(),
            ));
        }
        let word = |b: &[u8]| u32::from_le_bytes(b.try_into().expect("a chunk of four bytes"));
        let block = |b: &[u8]| {
            let mut words = [0; 8];
            words.iter_mut().zip(b.chunks_exact(4)).for_each(|(w, b)| *w = word(b));
            words
        };
        Ok(FilterReader {
            blocks: raw[FILTER_HEADER_BYTES..]
                .chunks_exact(FILTER_BLOCK_BYTES)
                .map(block)
                .collect(),
        })
    }

    /// Returns false if no key with this hash was added.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let words = &self.blocks[block_index(hash, self.blocks.len())];
        let missing =
            words.iter().zip(block_mask(hash)).fold(0, |m, (word, bit)| m | (bit & !word));
        missing == 0
    }

    /// Returns false if one of these keys was not added. Cache misses of different keys overlap,
    /// because nothing depends on the result for a single key.
    pub fn may_contain_all(&self, hashes: &[u64]) -> bool {
        hashes.iter().fold(true, |all, hash| all & self.may_contain(*hash))
    }

    /// Returns the memory of the filter, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.blocks.len() * FILTER_BLOCK_BYTES) as u64
    }
}

/// Returns the expected false positive rate of a filter with this many bits per key. The number of
/// keys in a block is Poisson distributed; in a block of i keys each of the eight words has the
/// tested bit set with probability 1 - (31/32)^i.
pub fn false_positive_rate(bits_per_key: u8) -> f64 {
    if bits_per_key == 0 {
        return 1.0;
    }
    let mean = (8 * FILTER_BLOCK_BYTES) as f64 / f64::from(bits_per_key);
    let mut chance = (-mean).exp();
    let mut rate = 0.0;
    for i in 1..2000 {
        chance *= mean / f64::from(i);
        rate += chance * (1.0 - (31.0f64 / 32.0).powi(i)).powi(8);
    }
    rate
}

/// Returns the fewest bits per key with a false positive rate of at most `rate`, limited to `most`;
/// 0 if no filter is needed for that rate.
pub fn bits_per_key_for_rate(rate: f64, most: u8) -> u8 {
    (0..most).find(|bits| false_positive_rate(*bits) <= rate).unwrap_or(most)
}

/// The high bits select the block, proportionally, so that any number of blocks is used evenly.
#[inline]
fn block_index(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

/// The low bits select one bit in each word.
#[inline]
fn block_mask(hash: u64) -> FilterBlock {
    SALT.map(|salt| 1 << ((hash as u32).wrapping_mul(salt) >> 27))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::checksum::key_hash;

    fn build(keys: std::ops::Range<u32>, bits: u8) -> FilterReader {
        let mut w = FilterWriter::new(bits);
        keys.for_each(|k| w.add(key_hash(&k.to_be_bytes())));
        let raw = w.build();
        assert_eq!(raw.len(), w.raw_bytes());
        FilterReader::decode(&raw).unwrap()
    }

    #[test]
    fn no_false_negatives_and_few_false_positives() {
        for (bits, most_per_mille) in [(1, 1000), (5, 180), (10, 16), (16, 4)] {
            let f = build(0..20_000, bits);
            let mut hashes: Vec<u64> = (0..20_000u32).map(|k| key_hash(&k.to_be_bytes())).collect();
            assert!(hashes.iter().all(|hash| f.may_contain(*hash)));
            assert!(f.may_contain_all(&hashes) && f.may_contain_all(&[]));
            let mut others = (1u32 << 20..1 << 30).map(|k| key_hash(&k.to_be_bytes()));
            hashes[7] = others.find(|hash| !f.may_contain(*hash)).expect("a key is excluded");
            assert!(!f.may_contain_all(&hashes));
            let wrong = (1 << 20..(1 << 20) + 100_000u32)
                .filter(|k| f.may_contain(key_hash(&k.to_be_bytes())))
                .count();
            assert!(wrong <= most_per_mille * 100, "{bits} bits: {wrong} of 100000");
        }
        assert!((0.012..0.014).contains(&false_positive_rate(10)), "{}", false_positive_rate(10));
        assert_eq!(
            [1.0, 0.02, 0.01, 0.001, 0.0].map(|rate| bits_per_key_for_rate(rate, 30)),
            [0, 10, 11, 17, 30]
        );
        let empty = build(0..0, 10);
        assert!(!empty.may_contain(7));
    }

    #[test]
    fn malformed_filters_are_errors() {
        let mut w = FilterWriter::new(10);
        (0..100).for_each(|i| w.add(key_hash(&[i])));
        let good = w.build();
        for len in 0..good.len() {
            assert!(FilterReader::decode(&good[..len]).is_err());
        }
        for (at, byte) in [(0, 0), (0, 9), (3, 1), (4, 1)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(FilterReader::decode(&bad).is_err(), "byte {at}");
        }
    }
}
