//! Range tombstones of a memtable. They are allocated by the first one, because a database may have
//! thousands of column families; readers of a memtable without any do not take the lock.

mod tombstone_map;

use crate::limits::OVERLAPPING_TOMBSTONES_MAX;
use crate::mvcc::SnapshotStripes;
use perigee_base::{KeyBoundary, KeyBoundaryRef, KeyComparator, SeqNo};
use perigee_file::RangeTombstones;
use std::ops::Range;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard};
use tombstone_map::{TombstoneMap, TombstoneParts, VisibleSpan};

/// The range tombstones of a memtable. The lock guards the map; no I/O while it is held. One writer
/// at a time.
#[derive(Debug, Default)]
pub struct MemtableRangeTombstones(OnceLock<Box<RwLock<TombstoneMap>>>);

impl MemtableRangeTombstones {
    /// Locks the map for reading, if there is one.
    fn lock(&self) -> Option<RwLockReadGuard<'_, TombstoneMap>> {
        Some(self.0.get()?.read().unwrap_or_else(PoisonError::into_inner))
    }
    /// Adds a range tombstone, newer than all before; returns the bytes of memory newly allocated.
    pub fn add(
        &self,
        comparator: KeyComparator,
        keys: Range<KeyBoundaryRef<'_>>,
        seq: SeqNo,
    ) -> u64 {
        let map = self.0.get_or_init(|| Box::new(RwLock::new(TombstoneMap::new(comparator))));
        map.write().unwrap_or_else(PoisonError::into_inner).add(keys, seq) as u64
    }
    /// Returns true if there are range tombstones. A tombstone visible to the reader is never
    /// missed: it was added before it became visible.
    pub fn has_any(&self) -> bool {
        self.0.get().is_some()
    }
    /// Returns true if the memtable should be flushed because many tombstones overlap each other.
    pub fn has_many_overlapping(&self) -> bool {
        self.lock().is_some_and(|map| map.replaced_fragments() >= OVERLAPPING_TOMBSTONES_MAX)
    }
    /// Returns the newest visible range tombstone that covers `key`.
    pub fn newest_covering(&self, key: &[u8], is_visible: impl Fn(SeqNo) -> bool) -> Option<SeqNo> {
        self.lock()?.newest_covering(key, is_visible)
    }
    /// Calls `read` with the span around `key` for a reader, if there are range tombstones.
    pub fn with_span_around<T>(
        &self,
        key: &[u8],
        is_visible: impl Fn(SeqNo) -> bool,
        read: impl FnOnce(VisibleSpan<'_>) -> T,
    ) -> Option<T> {
        Some(read(self.lock()?.span_around(key, is_visible)))
    }
    /// Returns the ranges whose newest tombstone is newer than `since`.
    pub fn newer_ranges(&self, since: SeqNo) -> Vec<(KeyBoundary, KeyBoundary)> {
        self.lock().map_or_else(Vec::new, |map| map.newer_ranges(since))
    }
    /// Returns the start of the first range that overlaps `keys` and whose newest tombstone is
    /// newer than `since`.
    pub fn first_newer(
        &self,
        keys: Range<KeyBoundaryRef<'_>>,
        since: SeqNo,
    ) -> Option<KeyBoundary> {
        self.lock()?.first_newer(keys, since).map(KeyBoundaryRef::to_boundary)
    }
    /// Returns the tombstones as fragments, of each snapshot stripe the newest one.
    pub fn fragments(&self, stripes: &SnapshotStripes) -> RangeTombstones {
        self.parts().map_or_else(RangeTombstones::default, |parts| parts.fragments(stripes))
    }
    /// Returns the fragments that a reader at `at` sees.
    pub fn fragments_at(&self, at: SeqNo) -> RangeTombstones {
        self.parts().map_or_else(RangeTombstones::default, |parts| parts.fragments_at(at))
    }
    /// Returns the parts of the tombstones. They are sorted without the lock, which a writer may
    /// wait for.
    fn parts(&self) -> Option<TombstoneParts> {
        Some(self.lock()?.parts())
    }
}
