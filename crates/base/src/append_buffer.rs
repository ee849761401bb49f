//! An append-only buffer that can be read while it grows. Small batches share one buffer; an
//! allocation per batch would cost the allocation and its deallocation, and a cache miss for each
//! access.
//!
//! Invariants: 1. Bytes before `written` never change. 2. `claimed` equals `written`, or exactly
//! one call of `append` is in progress and has exclusive access to the bytes from `written` to
//! `claimed`. Both only grow.
#![allow(unsafe_code)]

use super::raw_bytes::{AtomicUsize, RawBytes};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Append-only bytes with concurrent readers.
#[derive(Debug)]
pub struct AppendBuffer {
    memory: RawBytes,
    claimed: AtomicUsize,
    written: AtomicUsize,
}

impl AppendBuffer {
    /// Creates a buffer of `capacity` bytes.
    pub fn new(capacity: usize) -> AppendBuffer {
        AppendBuffer {
            memory: RawBytes::new(capacity),
            claimed: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
        }
    }
    /// Returns the capacity, in bytes.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }
    /// Appends bytes and returns the offset at which they start; `None` if the capacity is exceeded
    /// or another thread is appending.
    pub fn append(&self, bytes: &[u8]) -> Option<usize> {
        let start = self.written.load(Acquire);
        if bytes.is_empty() {
            // An empty append would claim nothing, and its store of `written` could undo the store
            // of another thread.
            return Some(start);
        }
        let end = start.checked_add(bytes.len()).filter(|end| *end <= self.capacity())?;
        self.claimed.compare_exchange(start, end, Acquire, Relaxed).ok()?;
        // SAFETY: `end` is within the capacity. `claimed` was still `start`, so no thread had
        // claimed bytes after it; now it is `end`, so no other thread can until `written` reaches
        // `end` (invariant 2). Readers access no byte at or after `written`.
        unsafe { self.memory.write(start, bytes) };
        self.written.store(end, Release);
        Some(start)
    }
    /// Returns all bytes appended so far.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let written = self.written.load(Acquire);
        // SAFETY: the thread that stored this value had written all bytes before it, or had seen
        // them written (`append` loads with acquire), and none of them is written again (invariant
        // 1).
        unsafe { self.memory.read(written) }
    }
}
