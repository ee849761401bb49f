//! The atomics of the lock-free rooms, by one name: the model test (`tests/memtable_loom.rs`)
//! compiles those rooms with atomics of its own, which try every interleaving and every allowed
//! reordering.

pub use std::sync::atomic::{AtomicU32, AtomicU64};

/// The words of one entry.
pub type EntryRecord = [AtomicU64; 4];

/// `n` zeroed words; `None`: there is no memory. Pages of large ones are not touched.
pub fn zeroed_words(n: usize) -> Option<Box<[AtomicU64]>> {
    bytemuck::try_zeroed_slice_box(n).ok()
}

/// `n` zeroed records; `None`: there is no memory. Pages of large ones are not touched.
pub fn zeroed_records(n: usize) -> Option<Box<[EntryRecord]>> {
    bytemuck::try_zeroed_slice_box(n).ok()
}
