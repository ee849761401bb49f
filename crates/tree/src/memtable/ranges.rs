//! Range tombstones beside the points of a memtable. Readers touch the lock only when a flag says that there are any.

use perigee_base::cut::CutRef;
use perigee_base::{KeyOrder, SeqNo};
use perigee_file::Fragments;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes charged for each fragment that a tombstone touches, beside its ends.
const FRAGMENT_BYTES: usize = 120;

/// The fragmented tombstones of a memtable. The mutex guards the list; no I/O inside. One writer at a time.
#[derive(Debug, Default)]
pub struct MemRanges {
    any: AtomicBool,
    list: Mutex<Fragments>,
}

impl MemRanges {
    fn list(&self) -> MutexGuard<'_, Fragments> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Adds a tombstone. Bytes of memory it takes.
    pub fn add(&self, order: KeyOrder, (begin, end): (CutRef<'_>, CutRef<'_>), seq: SeqNo) -> u64 {
        let touched = self.list().add(order, begin, end, seq);
        self.any.store(true, Ordering::Release);
        (touched * (FRAGMENT_BYTES + begin.encoded_bytes() + end.encoded_bytes())) as u64
    }
    /// Whether there are any. A tombstone that a reader can see is never missed: it was added before it became visible.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }
    /// Looks at the list, if there is anything in it.
    pub fn with<T>(&self, look: impl FnOnce(&Fragments) -> T) -> Option<T> {
        self.any().then(|| look(&self.list()))
    }
}
