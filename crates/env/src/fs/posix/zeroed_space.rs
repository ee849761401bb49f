//! Zeros that are written ahead of small appends, so that their syncs are faster.
//!
//! Allocated space has no data yet (an unwritten extent). The first write to each of its blocks
//! makes the file system record that the block has data, and the next `fdatasync` waits for that
//! record too: on ext4 a transaction of its journal, which takes half as long as the write of the
//! data. So an append that follows a sync writes zeros after its bytes, within the allocated space,
//! once for [`ZEROS_AHEAD_BYTES`]; later appends overwrite them, which records nothing. Readers see
//! no difference: allocated space contains zeros.
//!
//! ```text
//! | appended | appended now | zeros written with it | allocated, not written |
//! ```
//!
//! Files without allocated space, appends without syncs, and appends that are longer than the zeros
//! would be are not affected.

use crate::limits::ZEROS_AHEAD_BYTES;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static ZEROS: [u8; ZEROS_AHEAD_BYTES] = [0; ZEROS_AHEAD_BYTES];

/// Which part of a file's allocated space is known to be written. Appends and truncations are
/// serialized by the caller; syncs run concurrently with them and only set a flag.
#[derive(Debug, Default)]
pub(super) struct ZeroedSpace {
    /// The file is at least this long; 0: nothing was allocated.
    allocated_end: AtomicU64,
    /// The file has been written up to here, with data or zeros.
    written_end: AtomicU64,
    /// A sync began after the last append.
    synced: AtomicBool,
}

impl ZeroedSpace {
    /// Returns the zeros to write after an append of this range, in the same call.
    pub fn zeros_after(&self, appended: Range<u64>) -> &'static [u8] {
        let allocated_end = self.allocated_end.load(Relaxed);
        if allocated_end <= appended.end {
            return &[];
        }
        let synced = self.synced.swap(false, Relaxed);
        let bytes = appended.end - appended.start;
        if !synced
            || appended.end <= self.written_end.load(Relaxed)
            || bytes >= ZEROS_AHEAD_BYTES as u64
        {
            return &[];
        }
        let end = allocated_end.min(appended.end + ZEROS_AHEAD_BYTES as u64);
        self.written_end.store(end, Relaxed);
        &ZEROS[..(end - appended.end) as usize]
    }

    /// The file was extended to this length.
    pub fn note_allocated(&self, len: u64) {
        self.allocated_end.fetch_max(len, Relaxed);
    }
    /// The file is truncated to this length: what is allocated afterwards is not written.
    pub fn note_truncated(&self, len: u64) {
        self.allocated_end.fetch_min(len, Relaxed);
        self.written_end.fetch_min(len, Relaxed);
    }
    /// A sync begins.
    pub fn note_sync(&self) {
        self.synced.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AHEAD: u64 = ZEROS_AHEAD_BYTES as u64;

    #[test]
    fn zeros_only_after_a_sync_in_allocated_space() {
        let space = ZeroedSpace::default();
        space.note_sync();
        assert_eq!(space.zeros_after(0..100).len(), 0, "nothing is allocated");
        space.note_allocated(3 * AHEAD);
        assert_eq!(space.zeros_after(100..200).len() as u64, AHEAD, "after a sync");
        space.note_sync();
        assert_eq!(space.zeros_after(200..300).len(), 0, "written already");
        assert_eq!(space.zeros_after(300..200 + AHEAD + 1).len(), 0, "no sync since the last one");
        space.note_sync();
        assert_eq!(space.zeros_after(300 + AHEAD..300 + 2 * AHEAD).len(), 0, "a long append");
        space.note_sync();
        let at = 300 + 2 * AHEAD;
        assert_eq!(space.zeros_after(at..at + 8).len() as u64, AHEAD - 308, "up to the end");
        space.note_sync();
        assert_eq!(space.zeros_after(3 * AHEAD - 1..3 * AHEAD + 1).len(), 0, "beyond the end");
    }

    #[test]
    fn truncated_space_is_not_written() {
        let space = ZeroedSpace::default();
        space.note_allocated(2 * AHEAD);
        space.note_sync();
        assert!(!space.zeros_after(0..10).is_empty());
        space.note_truncated(10);
        space.note_sync();
        assert_eq!(space.zeros_after(10..20).len(), 0, "nothing is allocated");
        space.note_allocated(2 * AHEAD);
        space.note_sync();
        assert_eq!(space.zeros_after(20..30).len() as u64, AHEAD);
    }
}
