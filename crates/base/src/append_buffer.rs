//! A buffer that grows at its end while others read what is there: small batches lie side by side
//! in it, where each in an allocation of its own would cost the allocation, a place in memory for
//! each look, and the time to give it back.
//!
//! Invariants: 1. bytes before `written` never change; 2. `claimed` is `written`, or one call of
//! `append` is between the two and alone has the bytes from `written` to `claimed`; both only grow.
#![allow(unsafe_code)]

use super::raw_bytes::{AtomicUsize, RawBytes};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Bytes that are written once and read by many.
#[derive(Debug)]
pub struct AppendBuffer {
    memory: RawBytes,
    claimed: AtomicUsize,
    written: AtomicUsize,
}

impl AppendBuffer {
    /// Room for so many bytes.
    pub fn new(capacity: usize) -> AppendBuffer {
        AppendBuffer {
            memory: RawBytes::new(capacity),
            claimed: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
        }
    }
    /// Bytes that it has room for.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }
    /// Adds bytes and says where they begin; `None` if there is no room, or somebody else is
    /// adding.
    pub fn append(&self, bytes: &[u8]) -> Option<usize> {
        let start = self.written.load(Acquire);
        if bytes.is_empty() {
            // It would claim nothing, and could then take back what another has written.
            return Some(start);
        }
        let end = start.checked_add(bytes.len()).filter(|end| *end <= self.capacity())?;
        self.claimed.compare_exchange(start, end, Acquire, Relaxed).ok()?;
        // SAFETY: the end lies inside. `claimed` was still `start`, so nobody had taken bytes
        // behind it; now it is `end`, so nobody else can before `written` reaches `end` (invariant
        // 2). Readers look at no byte at or behind `written`.
        unsafe { self.memory.write(start, bytes) };
        self.written.store(end, Release);
        Some(start)
    }
    /// What is there.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let written = self.written.load(Acquire);
        // SAFETY: whoever stored this number had written all bytes before it, or had seen it
        // written (`append` loads with acquire), and none of them is written again (invariant 1).
        unsafe { self.memory.read(written) }
    }
}
