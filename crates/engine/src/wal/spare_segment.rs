//! The segment that comes next, made before it is needed: a rotation is then a switch, without a
//! system call in the commit section.
//!
//! Must not know how a segment is made, or by whom. Its lock is taken after the commit section's
//! and before the manifest's; whoever makes a segment holds it, so that segments come into the
//! manifest in the order in which they are used.

use perigee_env::sync::{Mutex, MutexGuard};
use perigee_file::log::LogWriter;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// No more is allocated for a segment when it is made; what it takes beyond that it allocates on
/// the way.
const PREALLOCATED_MAX: u64 = 64 << 20;

/// A segment in waiting.
#[derive(Debug)]
pub struct SpareSegment {
    writer: Mutex<Option<LogWriter>>,
    /// Bytes that the next one will hold, about (0: nobody has asked for one).
    requested_bytes: AtomicU64,
}

impl SpareSegment {
    /// None, and nobody asks.
    pub fn new() -> SpareSegment {
        SpareSegment { writer: Mutex::new(None), requested_bytes: AtomicU64::new(0) }
    }
    /// Asks for one of so many bytes.
    pub fn request_segment(&self, bytes: u64) {
        self.requested_bytes.store(bytes.clamp(1, PREALLOCATED_MAX), SeqCst);
    }
    /// The bytes that were asked for, once.
    pub fn take_request(&self) -> Option<u64> {
        Some(self.requested_bytes.swap(0, SeqCst)).filter(|bytes| *bytes > 0)
    }
    /// The segment, if there is one; nobody makes another meanwhile.
    pub fn lock_writer(&self) -> MutexGuard<'_, Option<LogWriter>> {
        self.writer.lock()
    }
}

/// Segments with less in them need no successor soon: whoever flushed them did not do so because
/// they were full.
const REQUEST_BYTES_MIN: u64 = 512;

/// A segment of `expected` bytes is so full when the next one is asked for.
pub fn spare_request_offset(expected: u64) -> u64 {
    (expected / 2).max(REQUEST_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_request_is_taken_once() {
        let spare = SpareSegment::new();
        assert_eq!(spare.take_request(), None);
        spare.request_segment(0);
        assert_eq!((spare.take_request(), spare.take_request()), (Some(1), None));
        spare.request_segment(u64::MAX);
        assert_eq!(spare.take_request(), Some(PREALLOCATED_MAX));
        assert!(spare.lock_writer().is_none());
    }
}
