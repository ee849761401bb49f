//! Batches that memtables of several families point into. Each memtable is charged its part; the whole buffer is counted once,
//! for as long as any of them lives. Must not know families.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// A buffer that several memtables hold.
#[derive(Debug)]
pub struct SharedBatch {
    bytes: u64,
    /// All that live.
    held: Arc<AtomicU64>,
}

impl SharedBatch {
    /// A buffer of so many bytes, which are counted in `held` until the last memtable lets go of it.
    pub fn new(bytes: u64, held: &Arc<AtomicU64>) -> Arc<SharedBatch> {
        held.fetch_add(bytes, Relaxed);
        Arc::new(SharedBatch { bytes, held: Arc::clone(held) })
    }
    /// Bytes of the buffer.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for SharedBatch {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Relaxed);
    }
}

/// What one memtable receives of a shared batch.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The batch.
    pub of: &'a Arc<SharedBatch>,
    /// Its part of the buffer: that of all memtables together is the whole.
    pub bytes: u64,
}

/// The shared batches of a memtable.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// The mutex guards the list, which only the writer touches.
    held: Mutex<Vec<Arc<SharedBatch>>>,
    bytes: AtomicU64,
}

impl Parts {
    /// Takes one; bytes of memory that holding it takes, beside its part of the buffer.
    pub fn add(&self, part: Part<'_>) -> u64 {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let before = held.capacity();
        held.push(Arc::clone(part.of));
        self.bytes.fetch_add(part.bytes, Relaxed);
        ((held.capacity() - before) * size_of::<Arc<SharedBatch>>()) as u64
    }
    /// Bytes of all its parts.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}
