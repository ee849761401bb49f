//! A static search tree over key prefixes: the first eight bytes of sorted keys as integers, eight
//! per node (a cache line), so that a search costs one cache line per level and no unpredictable
//! branches. Bytewise order only.
//!
//! Prefixes that differ decide the comparison; where prefixes are equal, the caller compares whole
//! keys. (Shorter keys are padded with zeros, so a smaller prefix belongs to a smaller key.)

use std::ops::Range;

/// Prefixes per node: a cache line.
const FANOUT: usize = 8;

type PrefixNode = [u64; FANOUT];

/// The prefixes of n sorted keys.
#[derive(Debug)]
pub struct KeyPrefixIndex {
    /// From the root to the leaves; an inner node holds the last prefix of each child. Unused
    /// entries are filled with the maximum.
    levels: Vec<Vec<PrefixNode>>,
    len: usize,
}

/// Returns the first eight bytes of a key as a big-endian integer, zero-padded.
#[inline]
pub fn key_prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(first)
        }
    }
}

/// Returns the same for the key at `range` of a buffer with at least eight bytes from its start on;
/// without a branch that depends on its length.
#[inline]
pub fn key_prefix_at(buf: &[u8], range: Range<usize>) -> u64 {
    let eight = buf[range.start..range.start + 8].try_into().expect("a slice of eight bytes");
    let bits = 8 * range.len().min(8) as u32;
    u64::from_be_bytes(eight) & !u64::MAX.checked_shr(bits).unwrap_or(0)
}

impl KeyPrefixIndex {
    /// Builds the tree; `prefixes` must be ascending.
    pub fn new(prefixes: &[u64]) -> KeyPrefixIndex {
        let nodes = |prefixes: &[u64]| -> Vec<PrefixNode> {
            prefixes
                .chunks(FANOUT)
                .map(|part| {
                    let mut node = [u64::MAX; FANOUT];
                    node[..part.len()].copy_from_slice(part);
                    node
                })
                .collect()
        };
        let mut levels = vec![nodes(prefixes)];
        while levels[0].len() > 1 {
            let lasts: Vec<u64> = levels[0].iter().map(|node| node[FANOUT - 1]).collect();
            levels.insert(0, nodes(&lasts));
        }
        KeyPrefixIndex { levels, len: prefixes.len() }
    }

    /// Returns the number of prefixes less than `prefix`.
    #[inline]
    pub fn rank(&self, prefix: u64) -> usize {
        let mut at = 0;
        for level in &self.levels {
            // Beyond the last node: all prefixes are less.
            let Some(node) = level.get(at) else { return self.len };
            let less: usize = node.iter().map(|h| usize::from(*h < prefix)).sum();
            at = at * FANOUT + less;
        }
        at.min(self.len)
    }

    /// Returns prefix `i`, or `None` beyond the last.
    #[inline]
    pub fn get(&self, i: usize) -> Option<u64> {
        (i < self.len).then(|| self.levels[self.levels.len() - 1][i / FANOUT][i % FANOUT])
    }

    /// Returns the memory of the tree, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.len() * size_of::<PrefixNode>()).sum::<usize>() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestRng;

    #[test]
    fn key_prefix_preserves_byte_order() {
        let mut rng = TestRng::new(9);
        let mut key =
            || (0..rng.below(12)).map(|_| [0, 1, 255][rng.below(3) as usize]).collect::<Vec<u8>>();
        for _ in 0..20_000 {
            let (a, b) = (key(), key());
            assert!(key_prefix(&a) >= key_prefix(&b) || a < b, "{a:?} {b:?}");
        }
    }

    #[test]
    fn key_prefix_at_matches_key_prefix() {
        let mut rng = TestRng::new(6);
        let buf = rng.bytes(40);
        for start in 0..=32 {
            for end in start..=40 {
                let prefix = key_prefix(&buf[start..end]);
                assert_eq!(key_prefix_at(&buf, start..end), prefix, "{start}..{end}");
            }
        }
    }

    #[test]
    fn rank_matches_binary_search() {
        let mut rng = TestRng::new(4);
        for n in (0..80).chain([511, 512, 513, 4095, 4096, 4097, 40_000]) {
            let shift = [0, 40, 60][n % 3];
            let mut plain: Vec<u64> = (0..n).map(|_| rng.next() >> shift).collect();
            if n > 2 {
                plain[0] = u64::MAX;
                plain[1] = 0;
            }
            plain.sort_unstable();
            let tree = KeyPrefixIndex::new(&plain);
            let mut queries: Vec<u64> =
                plain.iter().flat_map(|h| [*h, h.wrapping_sub(1), h.wrapping_add(1)]).collect();
            queries.extend([0, u64::MAX, rng.next()]);
            for h in queries {
                assert_eq!(tree.rank(h), plain.partition_point(|p| *p < h), "{h} among {n}");
            }
            assert!((0..n).all(|i| tree.get(i) == Some(plain[i])));
            assert_eq!(tree.get(n), None);
        }
    }
}
