//! The entries visible to a reader: of each user key the newest version at or before its sequence
//! number, unless that is a tombstone or has expired, within the bounds, in both directions.
//!
//! A seek first probes for the key itself, as a point read does: if the key exists, nothing can
//! come before it, and the other sources are positioned only by the first step. An error in a
//! source that was not read is returned by that step, before any key after the current one.

use super::bounds::ScanBounds;
use super::merge::MergeCursor;
use super::range_del_aggregator::RangeDelAggregator;
use super::seek_probe::SeekProbe;
use super::tombstone_run::TombstoneRun;
use crate::View;
use crate::get;
use crate::limits::EMPTY_RANGE_EXTENSION_MIN;
use crate::memtable::SkippedRange;
use perigee_base::bug::Bug;
use perigee_base::{
    EntryKind, Error, Expiry, IoActivity, KeyComparator, KeyRef, PinnedSlice, Result, SeqNo,
    ValueRef, bug,
};
use perigee_file::EntryValue;
use std::ops::Bound;
use std::sync::Arc;

/// Location of the current entry.
#[derive(Debug)]
enum CursorEntry {
    Invalid,
    /// The merge, going forward, is on the entry.
    AtMerge,
    /// The merge, going backward, left the entry with its last step.
    LeftByMerge,
    /// The value is held here.
    Pinned(EntryValue),
}

/// A position among the visible keys of a view.
///
/// Invariants while valid: 1. `key` is the current key; 2. unless `merge_unpositioned`: going
/// forward, the merge is on an entry of `key`; going backward, on the last entry before all
/// versions of `key`.
#[derive(Debug)]
pub struct VisibleCursor {
    view: Arc<View>,
    comparator: KeyComparator,
    read_seq: SeqNo,
    bounds: ScanBounds,
    merge: MergeCursor,
    /// Range tombstones, if there are any.
    range_tombstones: Option<Box<RangeDelAggregator>>,
    key: Vec<u8>,
    current: CursorEntry,
    /// True if the merge is not positioned, because a probe found the key; also the run in which it
    /// was found, if it was in a run.
    merge_unpositioned: bool,
    found_in_run: Option<usize>,
    probe: SeekProbe,
    /// Number of entries ahead in the merge that are visible without further checks.
    visible_ahead: usize,
    /// Key of the last of them, for comparison with a bound.
    last_visible_key: Vec<u8>,
    /// The value that was borrowed last, if it is not in the merge's current block.
    lent_value: Option<PinnedSlice>,
    /// The tombstones that are being skipped going forward.
    tombstone_run: TombstoneRun,
    /// Skipped tombstones not yet returned by [`VisibleCursor::take_skipped_tombstones`].
    skipped_tombstones: u64,
}

impl VisibleCursor {
    /// Creates a cursor over `view` for a reader at `at`, not positioned.
    pub fn new(view: Arc<View>, at: SeqNo, bounds: ScanBounds, fill_cache: bool) -> VisibleCursor {
        let merge = MergeCursor::for_view(&view, fill_cache);
        let comparator = view.version.comparator;
        let range_tombstones = RangeDelAggregator::for_view(&view, at);
        // If equal keys may differ in their bytes, the cursor must show the key of the entry, which
        // a probe does not return.
        let probe =
            SeekProbe::new(comparator.has_bytewise_equality() && view.version.gap.is_none());
        VisibleCursor {
            view,
            comparator,
            read_seq: at,
            bounds,
            merge,
            range_tombstones,
            key: Vec::new(),
            current: CursorEntry::Invalid,
            merge_unpositioned: false,
            found_in_run: None,
            probe,
            visible_ahead: 0,
            last_visible_key: Vec::new(),
            lent_value: None,
            tombstone_run: TombstoneRun::default(),
            skipped_tombstones: 0,
        }
    }
    /// Returns the number of skipped tombstones reported to memtables and tables since the last
    /// call.
    pub fn take_skipped_tombstones(&mut self) -> u64 {
        std::mem::take(&mut self.skipped_tombstones)
    }
    /// See [`MergeCursor::report_memtable_steps`].
    pub fn report_memtable_steps(&mut self) -> bool {
        self.merge.report_memtable_steps()
    }

    /// Moves to the first visible key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.reset();
        match &self.bounds.lower {
            Bound::Unbounded => self.merge.seek_first()?,
            Bound::Included(k) => self.merge.seek(k, SeqNo::MAX)?,
            Bound::Excluded(k) => self.merge.seek(k, SeqNo::ZERO)?,
        }
        self.find_forward(false)
    }
    /// Moves to the last visible key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.reset();
        match &self.bounds.upper {
            Bound::Unbounded => self.merge.seek_last()?,
            Bound::Included(k) => self.merge.seek_before(k, SeqNo::ZERO)?,
            Bound::Excluded(k) => self.merge.seek_before(k, SeqNo::MAX)?,
        }
        self.find_backward()
    }
    /// Moves to the first visible key at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.bounds.is_before_lower(self.comparator, key) {
            return self.seek_to_first();
        }
        let is_ahead = self.valid() && self.comparator.cmp(key, &self.key).is_gt();
        let near = is_ahead
            && self.merge.block_reaches(self.found_in_run.filter(|_| self.merge_unpositioned), key);
        self.probe.record_seek(near);
        if is_ahead
            && !self.merge_unpositioned
            && self.merge.is_forward()
            && (near || self.probe.is_sequential())
        {
            self.reset();
            self.merge.seek_forward(key, SeqNo::MAX)?;
            return self.find_forward(false);
        }
        if self.probe.is_sequential() {
            self.reset();
        } else if self.probe_key(key)? {
            return Ok(());
        }
        self.merge.seek(key, SeqNo::MAX)?;
        self.find_forward(false)
    }
    /// Moves to the last visible key at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        if self.bounds.is_after_upper(self.comparator, key) {
            return self.seek_to_last();
        }
        if self.probe_key(key)? {
            return Ok(());
        }
        self.merge.seek_before(key, SeqNo::ZERO)?;
        self.find_backward()
    }
    /// Moves to the next visible key.
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        if self.visible_ahead > 0 && self.merge.is_forward() {
            self.visible_ahead -= 1;
            self.merge.step_visible(&mut self.key);
            check_slow!(
                !self.bounds.is_after_upper(self.comparator, &self.key),
                "entries that were counted ahead are inside the bounds",
                self.key
            );
            return Ok(());
        }
        if !self.invalidate() {
            return Ok(());
        }
        if self.merge_unpositioned || !self.merge.is_forward() {
            self.merge_unpositioned = false;
            self.merge.scan_from(&self.key, true)?;
            if bug::is_active(Bug::SkipOnDirectionChange) {
                self.merge.step()?;
            }
            return self.find_forward(true);
        }
        self.merge.step_past_versions()?;
        self.find_forward(!self.merge.key_changed())?;
        self.count_visible_ahead();
        Ok(())
    }
    /// Moves to the previous visible key.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        if self.visible_ahead > 0 && !self.merge.is_forward() {
            self.visible_ahead -= 1;
            self.merge.step_visible(&mut self.key);
            self.current = CursorEntry::LeftByMerge;
            check_slow!(
                !self.bounds.is_before_lower(self.comparator, &self.key),
                "entries that were counted ahead are inside the bounds",
                self.key
            );
            return Ok(());
        }
        if !self.invalidate() {
            return Ok(());
        }
        if self.merge_unpositioned || self.merge.is_forward() {
            self.merge_unpositioned = false;
            self.merge.scan_from(&self.key, false)?;
        }
        self.find_backward()?;
        self.count_visible_ahead();
        Ok(())
    }

    /// Counts the entries ahead that are visible without further checks. Checks the bounds, and the
    /// span that no range tombstone covers, for all of them at once.
    #[inline]
    fn count_visible_ahead(&mut self) {
        if self.valid() && self.range_tombstones.as_ref().is_none_or(|c| c.is_uncovered()) {
            self.visible_ahead = self.merge.count_visible_ahead(self.read_seq);
            let bound =
                if self.merge.is_forward() { &self.bounds.upper } else { &self.bounds.lower };
            if self.range_tombstones.is_some() || !matches!(bound, Bound::Unbounded) {
                self.visible_ahead = self.limit_to_bounds(self.visible_ahead);
            }
        }
    }
    /// Returns how many of the `visible` entries ahead are certainly within the bounds and the
    /// span.
    fn limit_to_bounds(&mut self, mut visible: usize) -> usize {
        let forward = self.merge.is_forward();
        let outside =
            if forward { ScanBounds::is_after_upper } else { ScanBounds::is_before_lower };
        while visible > 0 {
            self.merge.visible_key_ahead(visible).copy_to(&mut self.last_visible_key);
            let covered = self
                .range_tombstones
                .as_ref()
                .is_some_and(|c| c.ends_before_key(forward, &self.last_visible_key));
            if !covered && !outside(&self.bounds, self.comparator, &self.last_visible_key) {
                break;
            }
            visible /= 2;
        }
        visible
    }

    /// Returns true if the reader may see an entry with this sequence number: an operation up to
    /// its own, or a write of its transaction.
    #[inline]
    fn is_visible(&self, seq: SeqNo) -> bool {
        seq <= self.read_seq || self.view.overlay.as_ref().is_some_and(|own| own.is_visible(seq))
    }

    /// Invalidates the cursor; returns true if it was valid.
    #[inline]
    fn invalidate(&mut self) -> bool {
        self.visible_ahead = 0;
        !matches!(std::mem::replace(&mut self.current, CursorEntry::Invalid), CursorEntry::Invalid)
    }
    fn reset(&mut self) {
        self.visible_ahead = 0;
        self.current = CursorEntry::Invalid;
        self.merge_unpositioned = false;
    }

    /// Moves to `key` itself, if it exists and lies within the bounds; returns true on success.
    /// Otherwise the merge must be positioned.
    fn probe_key(&mut self, key: &[u8]) -> Result<bool> {
        self.probe.update_worth(self.merge_unpositioned);
        self.reset();
        let (comparator, at) = (self.comparator, self.read_seq);
        let inside = !self.bounds.is_before_lower(comparator, key)
            && !self.bounds.is_after_upper(comparator, key);
        if !inside || !self.probe.should_probe() {
            return Ok(false);
        }
        let (merge, found_in_run) = (&mut self.merge, &mut self.found_in_run);
        *found_in_run = None;
        let found = get::lookup_in_sources(&self.view, key, at, |number, _, hash| {
            match merge.run_cursor(number) {
                Some(run) => {
                    *found_in_run = Some(number);
                    run.find_version(key, hash, at)
                }
                None => Err(Error::internal("the merge cursor has fewer runs than its view")),
            }
        })?;
        match found {
            Some((_, found)) if get::is_live(&found, &*self.view.now) => {
                self.key.clear();
                self.key.extend_from_slice(key);
                self.current = CursorEntry::Pinned(found);
                self.merge_unpositioned = true;
            }
            _ => self.probe.record_miss(),
        }
        Ok(self.merge_unpositioned)
    }

    /// Searches forward from the merge's position; `skip`: the merge may be on an entry of
    /// `self.key`, which was already shown.
    #[inline]
    fn find_forward(&mut self, skip: bool) -> Result<()> {
        self.advance_forward(skip)?;
        self.check_end()
    }

    /// At the end of a scan, fails unless the absence of further keys is certain.
    #[inline]
    fn check_end(&self) -> Result<()> {
        if self.valid() { Ok(()) } else { self.view.version.check_absent::<()>().map(|_| ()) }
    }

    fn advance_forward(&mut self, mut skip: bool) -> Result<()> {
        self.merge.expect_direction(true)?;
        self.tombstone_run.reset();
        while self.merge.valid() {
            let seq = self.merge.seq();
            let visible = self.is_visible(seq);
            if !visible || (skip && self.merge.key().equals(self.comparator, &self.key)) {
                if visible {
                    self.merge.step_past_versions()?;
                } else {
                    self.tombstone_run.pass_newer();
                    self.merge.step()?;
                }
                skip &= !self.merge.key_changed();
                continue;
            }
            check_slow!(
                !skip || self.merge.key().cmp(self.comparator, KeyRef::from_key(&self.key)).is_gt(),
                "a forward scan returns ascending keys",
                self.key
            );
            self.merge.key().copy_to(&mut self.key);
            if self.bounds.is_after_upper(self.comparator, &self.key) {
                break;
            }
            // Whatever hides this version also hides the older ones.
            skip = true;
            if self.range_tombstones.as_mut().is_some_and(|c| c.is_covered(&self.key, seq)) {
                self.tombstone_run.end();
                self.skip_covered()?;
                continue;
            }
            if self.is_live() {
                self.current = CursorEntry::AtMerge;
                break;
            }
            self.tombstone_run.pass(&self.key, self.merge.kind().is_tombstone());
            self.skip_tombstone();
            if self.tombstone_run.should_look() && self.skip_empty_range()? {
                self.note_empty_range();
                self.tombstone_run.end();
            }
        }
        self.note_empty_range();
        Ok(())
    }

    /// Moves the merge, which is on a tombstone, to the end of a range around it that is known to
    /// be empty. Returns false if there is none.
    fn skip_empty_range(&mut self) -> Result<bool> {
        if self.view.version.gap.is_some() {
            return Ok(false);
        }
        match self.view.active.end_of_empty_range(&self.key, self.read_seq, self.view.installs) {
            Some(end) => self.merge.skip_below(&end).map(|()| true),
            None => Ok(false),
        }
    }

    /// Lets the next scan skip the tombstones that this one has skipped one by one, up to
    /// `self.key`.
    #[inline]
    fn note_empty_range(&self) {
        let run = &self.tombstone_run;
        if run.len() >= EMPTY_RANGE_EXTENSION_MIN
            && self.view.overlay.is_none()
            && self.view.version.gap.is_none()
        {
            self.view.active.add_empty_range(&SkippedRange {
                begin: run.begin(),
                end: &self.key,
                at: self.read_seq,
                installs: self.view.installs,
                tombstones: run.len(),
            });
        }
    }

    /// Counts a skipped tombstone. The merge is on an entry that is visible but not live.
    fn skip_tombstone(&mut self) {
        if self.merge.kind().is_tombstone() {
            self.skipped_tombstones += self.merge.skip_tombstone();
        }
    }

    /// Returns true if the merge is on an entry with a value that has not expired.
    #[inline]
    fn is_live(&self) -> bool {
        match self.merge.kind() {
            EntryKind::Put | EntryKind::PutPointer => true,
            // Merged onto whatever is below, an operand results in a value, which is computed when
            // it is read.
            EntryKind::Merge | EntryKind::MergePointer => true,
            EntryKind::PutExpiring | EntryKind::PointerExpiring => {
                self.merge.value().expiry().is_none_or(|x| !x.is_expired(self.view.now.now_ms()))
            }
            EntryKind::Delete | EntryKind::SingleDelete | EntryKind::RangeDelete => false,
        }
    }

    /// Searches backward from the merge's position. Versions of a key come oldest first: the last
    /// visible one counts.
    #[inline]
    fn find_backward(&mut self) -> Result<()> {
        self.advance_backward()?;
        self.check_end()
    }

    fn advance_backward(&mut self) -> Result<()> {
        self.merge.expect_direction(false)?;
        self.merge.refresh_positions();
        // The newest visible version of `self.key` so far, and whether it was live when it was
        // passed.
        let mut newest: Option<(CursorEntry, bool)> = None;
        while self.merge.valid() {
            let (key, seq) = (self.merge.key(), self.merge.seq());
            if newest.is_some()
                && (self.merge.key_changed() || !key.equals(self.comparator, &self.key))
                && let Some((entry, true)) = newest.take()
            {
                self.current = entry;
                return Ok(());
            }
            let first = newest.is_none();
            // If versions of a key may differ in their bytes, the key of the newest one is shown.
            if first || (self.is_visible(seq) && !self.comparator.has_bytewise_equality()) {
                key.copy_to(&mut self.key);
            }
            if first && self.bounds.is_before_lower(self.comparator, &self.key) {
                return Ok(());
            }
            let visible = self.is_visible(seq);
            let hidden = visible
                && self.range_tombstones.as_mut().is_some_and(|c| c.is_covered(&self.key, seq));
            if hidden && first {
                self.skip_covered()?;
                continue;
            }
            if visible && !hidden {
                let live = self.is_live();
                newest = Some((CursorEntry::LeftByMerge, live));
                if !live {
                    self.skip_tombstone();
                }
            } else if let Some((left @ CursorEntry::LeftByMerge, _)) = &mut newest {
                // The next step leaves a different entry.
                let found = self.merge.left_value().expect("the merge has just left this version");
                *left = CursorEntry::Pinned(found);
            }
            self.merge.step()?;
        }
        if let Some((entry, true)) = newest {
            self.current = entry;
        }
        Ok(())
    }

    /// Moves from an entry hidden by a range tombstone to the next one that may be visible.
    fn skip_covered(&mut self) -> Result<()> {
        let forward = self.merge.is_forward();
        let Some(range_tombstones) = &mut self.range_tombstones else { return self.merge.step() };
        match range_tombstones.seek_target(forward) {
            Some((cut, seq)) => {
                self.merge.seek_past(cut.as_ref(), seq)?;
                if bug::is_active(Bug::ReverseScanOvershoots) && !forward {
                    self.merge.step()?;
                }
                range_tombstones.reset_hidden();
                Ok(())
            }
            None => self.merge.step(),
        }
    }

    /// Returns true if the cursor is on a key.
    #[inline]
    pub fn valid(&self) -> bool {
        !matches!(self.current, CursorEntry::Invalid)
    }
    /// Returns the current key, or `None` if not valid.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.valid().then_some(&self.key[..])
    }
    #[inline]
    fn entry_value(&self) -> Option<EntryValue> {
        match &self.current {
            CursorEntry::Invalid => None,
            CursorEntry::AtMerge => Some(self.merge.entry_value()),
            CursorEntry::LeftByMerge => self.merge.left_value(),
            CursorEntry::Pinned(found) => Some(found.clone()),
        }
    }
    /// Returns the current value, or `None` if not valid; reads the value log if the value is
    /// separated.
    #[inline]
    pub fn value(&self) -> Result<Option<PinnedSlice>> {
        let (key, at, cause) = (&self.key[..], self.read_seq, IoActivity::Scan);
        self.entry_value()
            .map(|found| get::read_value_with_cause(&self.view, key, at, found, cause))
            .transpose()
    }
    /// Returns key and value if valid and the value is in memory: reads nothing.
    #[inline]
    pub fn entry_if_resident(&self) -> Option<(&[u8], &[u8])> {
        let value = match self.current {
            CursorEntry::AtMerge => self.merge.value(),
            CursorEntry::LeftByMerge => self.merge.left_value_ref()?,
            _ => return None,
        };
        if let ValueRef::Inline(value) = value { Some((&self.key, value)) } else { None }
    }
    /// Returns key and value if valid, borrowed until the cursor moves; reads the value log if the
    /// value is separated.
    #[inline]
    pub fn entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if matches!(self.current, CursorEntry::AtMerge)
            && let ValueRef::Inline(value) = self.merge.value()
        {
            return Ok(Some((&self.key, value)));
        }
        if matches!(self.current, CursorEntry::LeftByMerge)
            && let Some(ValueRef::Inline(value)) = self.merge.left_value_ref()
        {
            return Ok(Some((&self.key, value)));
        }
        self.lent_value = self.value()?;
        Ok(self.lent_value.as_deref().map(|value| (&self.key[..], value)))
    }
    /// Returns the expiry of the current entry, if it is valid and has one.
    pub fn expiry(&self) -> Option<Expiry> {
        self.entry_value().as_ref().and_then(EntryValue::expiry)
    }
    /// Returns the comparator.
    pub fn comparator(&self) -> KeyComparator {
        self.comparator
    }
}
