//! Range tombstones of a memtable. Readers take the lock only if a flag says that there are any.

use perigee_base::{KeyBoundaryRef, KeyComparator, SeqNo};
use perigee_file::RangeTombstones;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Size of a fragment that a tombstone touches, in addition to its boundaries, approximately.
const FRAGMENT_BYTES: usize = 120;

/// The fragmented range tombstones of a memtable. The mutex guards the list; no I/O while it is
/// held. One writer at a time.
#[derive(Debug, Default)]
pub struct MemtableRangeTombstones {
    non_empty: AtomicBool,
    list: Mutex<RangeTombstones>,
}

impl MemtableRangeTombstones {
    fn lock_fragments(&self) -> MutexGuard<'_, RangeTombstones> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Adds a range tombstone; returns the bytes of memory newly allocated.
    pub fn add(
        &self,
        comparator: KeyComparator,
        keys: Range<KeyBoundaryRef<'_>>,
        seq: SeqNo,
    ) -> u64 {
        let Range { start: begin, end } = keys;
        let touched = self.lock_fragments().add(comparator, begin, end, seq);
        self.non_empty.store(true, Ordering::Release);
        (touched * (FRAGMENT_BYTES + begin.encoded_bytes() + end.encoded_bytes())) as u64
    }
    /// Returns true if there are range tombstones. A tombstone visible to the reader is never
    /// missed: it was added before it became visible.
    pub fn has_any(&self) -> bool {
        self.non_empty.load(Ordering::Acquire)
    }
    /// Calls `read` with the list, if it is not empty.
    pub fn with_fragments<T>(&self, read: impl FnOnce(&RangeTombstones) -> T) -> Option<T> {
        self.has_any().then(|| read(&self.lock_fragments()))
    }
}
