//! How many tombstones scans have passed, in all, and when it is worth to look which family they lie in. Must not know families.

use perigee_tree::compact::pick::passed::PASSED_MIN;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Tombstones that scans have passed, and the last look at memtables.
#[derive(Debug, Default)]
pub struct Passed(AtomicU64, AtomicU64);

impl Passed {
    /// So many more; whether a look is due.
    pub fn add(&self, tombstones: u64) -> bool {
        let before = self.0.fetch_add(tombstones, Relaxed);
        before / PASSED_MIN < (before + tombstones) / PASSED_MIN
    }
    /// Whether a look at memtables is due; then it is had.
    pub fn look_at_memtables(&self) -> bool {
        let looks = self.looks();
        self.1.swap(looks, Relaxed) != looks
    }
    /// How often a look was due so far.
    pub fn looks(&self) -> u64 {
        self.0.load(Relaxed) / PASSED_MIN
    }
}
