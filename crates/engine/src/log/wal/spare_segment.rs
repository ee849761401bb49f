//! The spare log segment, created before it is needed, so that a rotation is only a switch, without
//! a system call in the commit section.
//!
//! This module does not create segments. Its lock is acquired after the commit section's and before
//! the manifest's. A thread that creates a segment holds it, so that segments enter the manifest in
//! the order in which they are used.

use crate::limits::{SEGMENT_PREALLOCATED_BYTES_MAX, SPARE_REQUEST_BYTES_MIN};
use perigee_env::{Mutex, MutexGuard};
use perigee_file::log::LogWriter;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The spare segment and the request for one.
#[derive(Debug)]
pub struct SpareSegment {
    writer: Mutex<Option<LogWriter>>,
    /// Expected bytes of the next segment (0: none is requested).
    requested_bytes: AtomicU64,
}

impl SpareSegment {
    /// Creates an empty slot without a request.
    pub fn new() -> SpareSegment {
        SpareSegment { writer: Mutex::new(None), requested_bytes: AtomicU64::new(0) }
    }
    /// Requests a segment of `bytes` bytes.
    pub fn request_segment(&self, bytes: u64) {
        self.requested_bytes.store(bytes.clamp(1, SEGMENT_PREALLOCATED_BYTES_MAX), SeqCst);
    }
    /// Takes the request and returns its bytes.
    pub fn take_request(&self) -> Option<u64> {
        Some(self.requested_bytes.swap(0, SeqCst)).filter(|bytes| *bytes > 0)
    }
    /// Locks the slot; no other thread creates a segment meanwhile.
    pub fn lock_writer(&self) -> MutexGuard<'_, Option<LogWriter>> {
        self.writer.lock()
    }
}

/// Returns the segment size at which the next segment is requested, if `expected` bytes are
/// expected.
pub fn spare_request_offset(expected: u64) -> u64 {
    (expected / 2).max(SPARE_REQUEST_BYTES_MIN)
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
        assert_eq!(spare.take_request(), Some(SEGMENT_PREALLOCATED_BYTES_MAX));
        assert!(spare.lock_writer().is_none());
    }
}
