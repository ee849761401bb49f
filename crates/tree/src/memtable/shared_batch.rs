//! Batches that memtables of several column families share. Each memtable is charged its share; the
//! whole buffer is counted once, as long as any of them exists. Independent of column families.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// A buffer that several memtables hold.
#[derive(Debug)]
pub struct SharedBatch {
    bytes: u64,
    /// Bytes of all shared batches that still exist.
    live_bytes: Arc<AtomicU64>,
}

impl SharedBatch {
    /// Registers a buffer of `bytes` bytes, counted in `live_bytes` until the last memtable drops
    /// it.
    pub fn new(bytes: u64, live_bytes: &Arc<AtomicU64>) -> Arc<SharedBatch> {
        live_bytes.fetch_add(bytes, Relaxed);
        Arc::new(SharedBatch { bytes, live_bytes: Arc::clone(live_bytes) })
    }
    /// Bytes of the buffer.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for SharedBatch {
    fn drop(&mut self) {
        let live = self.live_bytes.fetch_sub(self.bytes, Relaxed);
        check!(live >= self.bytes, "live batches include this one", live, self.bytes);
    }
}

/// One memtable's share of a shared batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchShare<'a> {
    /// The shared batch.
    pub batch: &'a Arc<SharedBatch>,
    /// Bytes of the buffer charged to this memtable; the shares of all memtables add up to the
    /// whole.
    pub bytes: u64,
}

/// The shared batches of a memtable.
#[derive(Debug, Default)]
pub(super) struct BatchShares {
    /// The mutex guards the list, which only the writer accesses.
    batches: Mutex<Vec<Arc<SharedBatch>>>,
    bytes: AtomicU64,
}

impl BatchShares {
    /// Adds a share; returns the bytes of memory newly allocated for it, the share itself excluded.
    pub fn add(&self, share: BatchShare<'_>) -> u64 {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let before = batches.capacity();
        batches.push(Arc::clone(share.batch));
        self.bytes.fetch_add(share.bytes, Relaxed);
        ((batches.capacity() - before) * size_of::<Arc<SharedBatch>>()) as u64
    }
    /// Bytes of all shares.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}
