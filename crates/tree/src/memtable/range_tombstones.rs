//! Range tombstones beside the points of a memtable. Readers touch the lock only when a flag says
//! that there are any.

use perigee_base::key_boundary::KeyBoundaryRef;
use perigee_base::{KeyComparator, SeqNo};
use perigee_file::RangeTombstones;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes charged for each fragment that a tombstone touches, beside its ends.
const FRAGMENT_BYTES: usize = 120;

/// The fragmented tombstones of a memtable. The mutex guards the list; no I/O inside. One writer at
/// a time.
#[derive(Debug, Default)]
pub struct MemtableRangeTombstones {
    non_empty: AtomicBool,
    list: Mutex<RangeTombstones>,
}

impl MemtableRangeTombstones {
    fn lock_fragments(&self) -> MutexGuard<'_, RangeTombstones> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Adds a tombstone. Bytes of memory it takes.
    pub fn add(
        &self,
        order: KeyComparator,
        (begin, end): (KeyBoundaryRef<'_>, KeyBoundaryRef<'_>),
        seq: SeqNo,
    ) -> u64 {
        let touched = self.lock_fragments().add(order, begin, end, seq);
        self.non_empty.store(true, Ordering::Release);
        (touched * (FRAGMENT_BYTES + begin.encoded_bytes() + end.encoded_bytes())) as u64
    }
    /// Whether there are any. A tombstone that a reader can see is never missed: it was added
    /// before it became visible.
    pub fn has_any(&self) -> bool {
        self.non_empty.load(Ordering::Acquire)
    }
    /// Looks at the list, if there is anything in it.
    pub fn with_fragments<T>(&self, look: impl FnOnce(&RangeTombstones) -> T) -> Option<T> {
        self.has_any().then(|| look(&self.lock_fragments()))
    }
}
