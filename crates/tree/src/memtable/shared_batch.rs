//! Batches that memtables of several families point into. Each memtable is charged its part; the
//! whole buffer is counted once, for as long as any of them lives. Must not know families.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// A buffer that several memtables hold.
#[derive(Debug)]
pub struct SharedBatch {
    bytes: u64,
    /// All that live.
    live_bytes: Arc<AtomicU64>,
}

impl SharedBatch {
    /// A buffer of so many bytes, which are counted in `held` until the last memtable lets go of
    /// it.
    pub fn new(bytes: u64, held: &Arc<AtomicU64>) -> Arc<SharedBatch> {
        held.fetch_add(bytes, Relaxed);
        Arc::new(SharedBatch { bytes, live_bytes: Arc::clone(held) })
    }
    /// Bytes of the buffer.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for SharedBatch {
    fn drop(&mut self) {
        self.live_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

/// What one memtable receives of a shared batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchShare<'a> {
    /// The batch.
    pub batch: &'a Arc<SharedBatch>,
    /// Its part of the buffer: that of all memtables together is the whole.
    pub bytes: u64,
}

/// The shared batches of a memtable.
#[derive(Debug, Default)]
pub(super) struct BatchShares {
    /// The mutex guards the list, which only the writer touches.
    batches: Mutex<Vec<Arc<SharedBatch>>>,
    bytes: AtomicU64,
}

impl BatchShares {
    /// Takes one; bytes of memory that holding it takes, beside its part of the buffer.
    pub fn add(&self, part: BatchShare<'_>) -> u64 {
        let mut held = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let before = held.capacity();
        held.push(Arc::clone(part.batch));
        self.bytes.fetch_add(part.bytes, Relaxed);
        ((held.capacity() - before) * size_of::<Arc<SharedBatch>>()) as u64
    }
    /// Bytes of all its parts.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}
