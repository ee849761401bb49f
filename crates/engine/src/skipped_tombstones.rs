//! How many tombstones scans have passed, in all, and when it is worth to look which family they
//! lie in. Must not know families.

use perigee_tree::compact::pick::skipped_tombstones::SKIPPED_MIN;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Tombstones that scans have passed, and the last look at memtables.
#[derive(Debug, Default)]
pub struct SkippedTombstones(AtomicU64, AtomicU64);

impl SkippedTombstones {
    /// So many more; whether a look is due.
    pub fn add(&self, tombstones: u64) -> bool {
        let before = self.0.fetch_add(tombstones, Relaxed);
        before / SKIPPED_MIN < (before + tombstones) / SKIPPED_MIN
    }
    /// Whether a look at memtables is due; then it is had.
    pub fn take_memtable_check(&self) -> bool {
        let looks = self.threshold_crossings();
        self.1.swap(looks, Relaxed) != looks
    }
    /// How often a look was due so far.
    pub fn threshold_crossings(&self) -> u64 {
        self.0.load(Relaxed) / SKIPPED_MIN
    }
}
