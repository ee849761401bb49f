//! Counts the tombstones that scans have skipped, over all column families, and decides when to
//! check which column family contains them. Independent of column families.

use perigee_tree::compact::SKIPPED_MIN;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Tombstones skipped by scans, and the last check of memtables.
#[derive(Debug, Default)]
pub struct SkippedTombstones(AtomicU64, AtomicU64);

impl SkippedTombstones {
    /// Adds skipped tombstones; returns true if a check is due.
    pub fn add(&self, tombstones: u64) -> bool {
        let before = self.0.fetch_add(tombstones, Relaxed);
        before / SKIPPED_MIN < (before + tombstones) / SKIPPED_MIN
    }
    /// Returns true once per threshold crossing: the caller should check memtables.
    pub fn take_memtable_check(&self) -> bool {
        let crossings = self.threshold_crossings();
        self.1.swap(crossings, Relaxed) != crossings
    }
    /// Returns how often a check was due so far.
    pub fn threshold_crossings(&self) -> u64 {
        self.0.load(Relaxed) / SKIPPED_MIN
    }
}
