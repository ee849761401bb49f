//! Ghost entries of the block cache: remembers which blocks were requested recently but not cached.
//! A block requested a second time while its ghost exists is worth caching; one requested once is
//! not. Independent of block contents.
//!
//! A table of fingerprints in which newer ones overwrite older ones, so it ages by itself. Two
//! blocks are confused once in about four billion cases, which costs some cache space and nothing
//! else.

use perigee_base::FileId;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Cache bytes for each ghost: about half a block, so that twice as many blocks are remembered as
/// are cached.
const CACHE_BYTES_PER_GHOST: u64 = 2048;
/// Minimum and maximum number of ghosts, as powers of two.
const GHOST_BITS_RANGE: (u32, u32) = (8, 20);

/// Fingerprints of recently requested blocks.
#[derive(Debug)]
pub struct GhostCache {
    slots: Box<[AtomicU32]>,
}

impl GhostCache {
    /// Creates a table sized for a cache of `cache_bytes`.
    pub fn new(cache_bytes: u64) -> GhostCache {
        let bits = (cache_bytes / CACHE_BYTES_PER_GHOST)
            .max(1)
            .ilog2()
            .clamp(GHOST_BITS_RANGE.0, GHOST_BITS_RANGE.1);
        GhostCache { slots: (0..1u64 << bits).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Records a request for a block; returns true if it was requested recently.
    pub fn record_access(&self, file: FileId, offset: u64) -> bool {
        let h = (file.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ offset)
            .wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let h = h ^ h >> 32;
        let slot = &self.slots[h as usize & (self.slots.len() - 1)];
        // Below 2^44 the fingerprint uses other bits than the slot index; 0 is an empty slot.
        let fingerprint = (h >> 20) as u32 | 1;
        // Load and store are not atomic together: two threads may both see a first access, which
        // costs one extra read.
        let seen = slot.load(Relaxed) == fingerprint;
        slot.store(if seen { 0 } else { fingerprint }, Relaxed);
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_access_is_recognized_until_overwritten() {
        let ghosts = GhostCache::new(64 << 20);
        let access = |i: u64| ghosts.record_access(FileId(i % 7), i * 3000);
        let first = (0..1000).filter(|i| access(*i)).count();
        let second = (0..1000).filter(|i| access(*i)).count();
        let third = (0..1000).filter(|i| access(*i)).count();
        assert!(first <= 1 && second > 950 && third < 50, "{first} {second} {third}");
        (1000..1_000_000).for_each(|i| {
            access(i);
        });
        let late = (0..1000).filter(|i| access(*i)).count();
        assert!(late < 10, "{late}");
        assert_eq!(
            (GhostCache::new(0).slots.len(), GhostCache::new(u64::MAX).slots.len()),
            (256, 1 << 20)
        );
    }
}
