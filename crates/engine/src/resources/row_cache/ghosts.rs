//! Ghost entries of the row cache: remembers which rows were read recently but not cached. A row
//! that is read again while its ghost exists is worth caching; one that is read once is not.
//!
//! A table of fingerprints in which newer ones overwrite older ones, so it ages by itself. Two rows
//! are confused once in about four billion cases, which costs some cache space and nothing else.

use perigee_base::Bytes;

/// Cache bytes for each ghost: about one row, so that as many rows are remembered as are cached.
const CACHE_BYTES_PER_GHOST: u64 = 128;
/// Minimum and maximum number of ghosts, as powers of two.
const GHOST_BITS_RANGE: (u32, u32) = (6, 18);

/// Fingerprints of rows that were read recently.
#[derive(Debug, Default)]
pub struct RowGhosts {
    /// Empty until the first row is recorded.
    slots: Box<[u32]>,
}

impl RowGhosts {
    /// Returns the bytes that the ghosts of a shard of `shard_bytes` take once there is one.
    pub fn bytes_for(shard_bytes: u64) -> u64 {
        (size_of::<u32>() as u64) << RowGhosts::bits(shard_bytes)
    }
    /// Returns the bytes in use.
    pub fn used_bytes(&self) -> u64 {
        size_of_val(&*self.slots) as u64
    }
    fn bits(shard_bytes: u64) -> u32 {
        let ghosts = (shard_bytes / CACHE_BYTES_PER_GHOST).max(1);
        ghosts.ilog2().clamp(GHOST_BITS_RANGE.0, GHOST_BITS_RANGE.1)
    }
    /// Records a read; returns true if the row was read recently.
    pub fn record_access(&mut self, hash: u64, shard: Bytes) -> bool {
        if self.slots.is_empty() {
            self.slots = vec![0; 1 << RowGhosts::bits(shard.0)].into();
        }
        let at = hash as usize & (self.slots.len() - 1);
        // Other bits than the index and the number of the shard; 0 is an empty slot.
        let fingerprint = (hash >> 18) as u32 | 1;
        let seen = self.slots[at] == fingerprint;
        self.slots[at] = if seen { 0 } else { fingerprint };
        seen
    }
}
