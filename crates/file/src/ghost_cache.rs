//! The ghosts of the block cache: which blocks were asked for lately and not kept. A block that is
//! asked for a second time while its ghost is there is worth its place in the cache; one that is
//! asked for once is not. Must not know blocks.
//!
//! A table of fingerprints that newer ones write over: it forgets by itself, and may mistake one
//! block for another once in four thousand million times, which costs a place in the cache and
//! nothing else.

use perigee_base::FileId;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Bytes of cache for each ghost: about half a block, so that twice as many blocks are remembered
/// as are held.
const CACHE_BYTES_PER_GHOST: u64 = 2048;
/// Fewest and most ghosts, as powers of two.
const GHOST_BITS_RANGE: (u32, u32) = (8, 20);

/// Fingerprints of blocks that were asked for lately.
#[derive(Debug)]
pub struct GhostCache {
    slots: Box<[AtomicU32]>,
}

impl GhostCache {
    /// As many as suit a cache of that size.
    pub fn new(cache_bytes: u64) -> GhostCache {
        let bits = (cache_bytes / CACHE_BYTES_PER_GHOST)
            .max(1)
            .ilog2()
            .clamp(GHOST_BITS_RANGE.0, GHOST_BITS_RANGE.1);
        GhostCache { slots: (0..1u64 << bits).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Whether that block was asked for lately; from now on it was.
    pub fn record_access(&self, file: FileId, offset: u64) -> bool {
        let h = (file.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ offset)
            .wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let h = h ^ h >> 32;
        let slot = &self.slots[h as usize & (self.slots.len() - 1)];
        // Below 2^44 the fingerprint has other bits than the place; 0 is an empty slot.
        let print = (h >> 20) as u32 | 1;
        // Not one step: two threads that ask at once may both be the first, which costs one more
        // read.
        let seen = slot.load(Relaxed) == print;
        slot.store(if seen { 0 } else { print }, Relaxed);
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_access_is_recognized_until_overwritten() {
        let ghosts = GhostCache::new(64 << 20);
        let ask = |i: u64| ghosts.record_access(FileId(i % 7), i * 3000);
        let first = (0..1000).filter(|i| ask(*i)).count();
        let second = (0..1000).filter(|i| ask(*i)).count();
        let third = (0..1000).filter(|i| ask(*i)).count();
        assert!(first <= 1 && second > 950 && third < 50, "{first} {second} {third}");
        (1000..1_000_000).for_each(|i| {
            ask(i);
        });
        let late = (0..1000).filter(|i| ask(*i)).count();
        assert!(late < 10, "{late}");
        assert_eq!(
            (GhostCache::new(0).slots.len(), GhostCache::new(u64::MAX).slots.len()),
            (256, 1 << 20)
        );
    }
}
