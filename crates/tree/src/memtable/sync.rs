//! The atomics of the lock-free modules, under one name: the loom test (`tests/memtable_loom.rs`)
//! compiles these modules with loom's atomics, which explore every interleaving and every allowed
//! reordering.

pub use std::sync::atomic::{AtomicU32, AtomicU64};

/// The words of one entry.
pub type EntryRecord = [AtomicU64; 4];

/// Returns `n` zeroed words, or `None` if memory is exhausted. Pages of large slices are not
/// touched.
pub fn zeroed_words(n: usize) -> Option<Box<[AtomicU64]>> {
    bytemuck::try_zeroed_slice_box(n).ok()
}

/// Returns `n` zeroed records, or `None` if memory is exhausted. Pages of large slices are not
/// touched.
pub fn zeroed_records(n: usize) -> Option<Box<[EntryRecord]>> {
    bytemuck::try_zeroed_slice_box(n).ok()
}
