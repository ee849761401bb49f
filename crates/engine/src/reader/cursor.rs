//! The cursor of a read: seeks and steps of a scan with measurement and counters, and with the
//! record of the key ranges that a serializable transaction reads.

use crate::engine::Engine;
use crate::txn::ScanTracker;
use perigee_base::{
    Expiry, KeyBoundary, KeyBoundaryRef, KeyComparator, Operation, PinnedSlice, Result, SeqNo,
};
use perigee_tree::View;
use perigee_tree::read::{ScanBounds, VisibleCursor};
use std::sync::Arc;

/// What a scan reads: a view as of a sequence number.
#[derive(Debug)]
pub(super) struct ScanSource {
    pub(super) engine: Arc<Engine>,
    pub(super) view: Arc<View>,
    pub(super) sequence: SeqNo,
    /// Records the key ranges read, if a serializable transaction reads.
    pub(super) tracker: Option<ScanTracker>,
}

impl ScanSource {
    /// Returns the comparator of the column family.
    pub(super) fn comparator(&self) -> KeyComparator {
        self.view.version.comparator
    }
    /// Returns an unpositioned cursor over a key range.
    pub(super) fn cursor(&self, bounds: ScanBounds) -> ReadCursor {
        let tracked = self.tracker.clone().map(|reads| {
            let begin = KeyBoundary::range_start(bounds.lower.clone());
            let end = KeyBoundary::range_end(bounds.upper.clone());
            Box::new(TrackedRange { reads, begin, end })
        });
        let inner = VisibleCursor::new(Arc::clone(&self.view), self.sequence, bounds, true);
        ReadCursor { inner, engine: Arc::clone(&self.engine), uncounted_steps: 0, tracked }
    }
}

/// A cursor over the entries of a key range that a reader sees.
#[derive(Debug)]
pub struct ReadCursor {
    inner: VisibleCursor,
    engine: Arc<Engine>,
    /// Steps not yet added to the engine's counters.
    uncounted_steps: u64,
    /// Records the key ranges read, if the cursor belongs to a serializable transaction.
    tracked: Option<Box<TrackedRange>>,
}

/// Reports to a serializable transaction which key ranges its cursor reads, cut off at the cursor's
/// bounds.
#[derive(Debug)]
struct TrackedRange {
    reads: ScanTracker,
    begin: KeyBoundary,
    end: KeyBoundary,
}

impl Drop for ReadCursor {
    fn drop(&mut self) {
        self.engine.runtime.counters.nexts.add(self.uncounted_steps);
        self.report_costs();
    }
}

impl ReadCursor {
    /// Returns the engine that it reads.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
    /// Records the key range between `from` (`None`: the current position) and the current
    /// position.
    #[cold]
    fn record_read(&mut self, from: Option<KeyBoundaryRef<'_>>, forward: bool) {
        let Some(TrackedRange { reads: tracker, begin, end }) = self.tracked.as_deref_mut() else {
            return;
        };
        let here = match (self.inner.key(), forward) {
            (Some(key), true) => KeyBoundaryRef::After(key),
            (Some(key), false) => KeyBoundaryRef::Before(key),
            (None, true) => end.as_ref(),
            (None, false) => begin.as_ref(),
        };
        let from = from.unwrap_or(here);
        if forward {
            tracker.record_range(from, here);
        } else {
            tracker.record_range(here, from);
        }
    }
    #[inline]
    fn move_checked(&mut self, go: impl FnOnce(&mut VisibleCursor) -> Result<()>) -> Result<()> {
        self.engine.check_open()?;
        go(&mut self.inner)
    }
    /// Reports the number of tombstones skipped and the steps taken in memtables, which can trigger
    /// a flush and a compaction.
    fn report_costs(&mut self) {
        let skipped = self.inner.take_skipped_tombstones();
        if skipped > 0 {
            self.engine.record_skipped_tombstones(skipped);
        }
        if self.inner.report_memtable_steps() {
            self.engine.request_scanned_check();
        }
    }
    fn seek_measured(&mut self, go: impl FnOnce(&mut VisibleCursor) -> Result<()>) -> Result<()> {
        let seeks = &self.engine.runtime.counters.seeks;
        seeks.add(1);
        let started = self.engine.runtime.start_timer(Operation::Seek, seeks.stripe_value());
        self.move_checked(go)?;
        self.engine.runtime.stop_timer(Operation::Seek, started);
        self.report_costs();
        Ok(())
    }
    #[inline]
    fn step_measured(&mut self, go: impl FnOnce(&mut VisibleCursor) -> Result<()>) -> Result<()> {
        self.uncounted_steps += 1;
        if self.uncounted_steps < Operation::Next.one_in() {
            return self.move_checked(go);
        }
        self.engine.runtime.counters.nexts.add(std::mem::take(&mut self.uncounted_steps));
        let started = self.engine.runtime.start_timer(Operation::Next, 0);
        self.move_checked(go)?;
        self.engine.runtime.stop_timer(Operation::Next, started);
        Ok(())
    }
    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.seek_measured(VisibleCursor::seek_to_first)?;
        if let Some(tracked) = &self.tracked {
            let begin = tracked.begin.clone();
            self.record_read(Some(begin.as_ref()), true);
        }
        Ok(())
    }
    /// Moves to the last entry.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.seek_measured(VisibleCursor::seek_to_last)?;
        if let Some(tracked) = &self.tracked {
            let end = tracked.end.clone();
            self.record_read(Some(end.as_ref()), false);
        }
        Ok(())
    }
    /// Moves to the first entry within the bounds whose key is at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.seek_measured(|c| c.seek(key))?;
        if self.tracked.is_some() {
            self.record_read(Some(KeyBoundaryRef::Before(key)), true);
        }
        Ok(())
    }
    /// Moves to the last entry within the bounds whose key is at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.seek_measured(|c| c.seek_for_prev(key))?;
        if self.tracked.is_some() {
            self.record_read(Some(KeyBoundaryRef::After(key)), false);
        }
        Ok(())
    }
    /// Moves to the next entry; after the last one the cursor is invalid and stays so.
    #[inline]
    pub fn step_forward(&mut self) -> Result<()> {
        self.step_measured(VisibleCursor::next)?;
        if self.tracked.is_some() {
            self.record_read(None, true);
        }
        Ok(())
    }
    /// Moves to the previous entry; before the first one the cursor is invalid and stays so.
    #[inline]
    pub fn step_backward(&mut self) -> Result<()> {
        self.step_measured(VisibleCursor::prev)?;
        if self.tracked.is_some() {
            self.record_read(None, false);
        }
        Ok(())
    }
    /// Returns true if the cursor is positioned on an entry.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.inner.valid()
    }
    /// Returns the key of the current entry; `None` if the cursor is not valid.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.inner.key()
    }
    /// Returns the value of the current entry, read from the value log if it is separated; `None`
    /// if the cursor is not valid.
    #[inline]
    pub fn value(&self) -> Result<Option<PinnedSlice>> {
        self.engine.check_open()?;
        self.inner.value()
    }
    /// Returns key and value of the current entry, borrowed until the next move; `None` if the
    /// cursor is not valid.
    #[inline]
    pub fn entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.engine.check_open()?;
        self.inner.entry()
    }
    /// Returns key and value of the current entry if that needs no I/O.
    #[inline]
    pub fn entry_if_resident(&self) -> Option<(&[u8], &[u8])> {
        self.inner.entry_if_resident()
    }
    /// Returns the expiry of the current entry, if it has one.
    pub fn expiry(&self) -> Option<Expiry> {
        self.inner.expiry()
    }
}
