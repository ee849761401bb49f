//! What a reader sees: of each user key the newest version at or before its sequence number, unless
//! that is a tombstone or has expired, within the bounds, in both directions.
//!
//! A seek first asks for the key itself, as a point read does: if that is there, nothing can come
//! before it, and no other source is positioned until the first step. An error of a source that was
//! not asked comes with that step, before any key behind the one shown.

use super::bounds::ScanBounds;
use super::merge::MergeCursor;
use super::range_del_aggregator::RangeDelAggregator;
use super::seek_probe::SeekProbe;
use crate::View;
use crate::get;
use perigee_base::bug::{self, Bug};
use perigee_base::io_stats::IoActivity;
use perigee_base::{EntryKind, Error, Expiry, KeyComparator, PinnedSlice, Result, SeqNo, ValueRef};
use perigee_file::EntryValue;
use std::ops::Bound;
use std::sync::Arc;

/// Where the entry is that is shown.
#[derive(Debug)]
enum CursorEntry {
    Invalid,
    /// The merge, going forward, is on it.
    AtMerge,
    /// The merge, going backward, left it with its last step.
    LeftByMerge,
    /// Its value is in hand.
    Pinned(EntryValue),
}

/// A position among the visible keys of a view.
///
/// Invariants while something is shown: 1. `key` is its key; 2. unless the merge is
/// `merge_unpositioned`: going forward, it is on an entry of `key`; going backward, on the last
/// entry before all versions of `key`.
#[derive(Debug)]
pub struct VisibleCursor {
    view: Arc<View>,
    comparator: KeyComparator,
    read_seq: SeqNo,
    bounds: ScanBounds,
    merge: MergeCursor,
    /// What range tombstones hide, if there are any.
    range_tombstones: Option<Box<RangeDelAggregator>>,
    key: Vec<u8>,
    current: CursorEntry,
    /// The merge was not positioned: the key was found without it; in that run, if it was one.
    merge_unpositioned: bool,
    found_in_run: Option<usize>,
    probe: SeekProbe,
    /// So many entries lie ahead on the way of the merge that are shown without another look.
    visible_ahead: usize,
    /// The key of the last of them, to compare with a bound.
    last_visible_key: Vec<u8>,
    /// The value that was lent last, if it does not lie where the merge is.
    lent_value: Option<PinnedSlice>,
    /// Tombstones passed that [`VisibleCursor::take_skipped_tombstones`] has not told yet.
    skipped_tombstones: u64,
}

impl VisibleCursor {
    /// Over `view` as a reader at `at` sees it, not positioned.
    pub fn new(view: Arc<View>, at: SeqNo, bounds: ScanBounds, fill_cache: bool) -> VisibleCursor {
        let merge = MergeCursor::for_view(&view, fill_cache);
        let order = view.version.comparator;
        let cover = RangeDelAggregator::for_view(&view, at);
        // Where equal keys may differ in their bytes, those of the entry are shown: a look-up does
        // not know them.
        let probe = SeekProbe::new(order.has_bytewise_equality() && view.version.gap.is_none());
        VisibleCursor {
            view,
            comparator: order,
            read_seq: at,
            bounds,
            merge,
            range_tombstones: cover,
            key: Vec::new(),
            current: CursorEntry::Invalid,
            merge_unpositioned: false,
            found_in_run: None,
            probe,
            visible_ahead: 0,
            last_visible_key: Vec::new(),
            lent_value: None,
            skipped_tombstones: 0,
        }
    }
    /// Tombstones that memtables and tables were told of since it was last asked.
    pub fn take_skipped_tombstones(&mut self) -> u64 {
        std::mem::take(&mut self.skipped_tombstones)
    }

    /// To the first visible key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.reset();
        match &self.bounds.lower {
            Bound::Unbounded => self.merge.seek_first()?,
            Bound::Included(k) => self.merge.seek(k, SeqNo::MAX)?,
            Bound::Excluded(k) => self.merge.seek(k, SeqNo::ZERO)?,
        }
        self.find_forward(false)
    }
    /// To the last visible key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.reset();
        match &self.bounds.upper {
            Bound::Unbounded => self.merge.seek_last()?,
            Bound::Included(k) => self.merge.seek_before(k, SeqNo::ZERO)?,
            Bound::Excluded(k) => self.merge.seek_before(k, SeqNo::MAX)?,
        }
        self.find_backward()
    }
    /// To the first visible key at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.bounds.is_before_lower(self.comparator, key) {
            return self.seek_to_first();
        }
        let onward = self.valid() && self.comparator.cmp(key, &self.key).is_gt();
        let near = onward
            && self.merge.block_reaches(self.found_in_run.filter(|_| self.merge_unpositioned), key);
        self.probe.record_seek(near);
        if onward
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
    /// To the last visible key at or before `key`.
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
    /// To the next visible key.
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        if self.visible_ahead > 0 && self.merge.is_forward() {
            self.visible_ahead -= 1;
            self.merge.step_visible(&mut self.key);
            return Ok(());
        }
        if !self.invalidate() {
            return Ok(());
        }
        if self.merge_unpositioned || !self.merge.is_forward() {
            self.merge_unpositioned = false;
            self.merge.scan_from(&self.key, true)?;
            if bug::is_active(Bug::SkipOnTurn) {
                self.merge.step()?;
            }
            return self.find_forward(true);
        }
        self.merge.step()?;
        self.find_forward(!self.merge.key_changed())?;
        self.count_visible_ahead();
        Ok(())
    }
    /// To the previous visible key.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        if self.visible_ahead > 0 && !self.merge.is_forward() {
            self.visible_ahead -= 1;
            self.merge.step_visible(&mut self.key);
            self.current = CursorEntry::LeftByMerge;
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

    /// Counts the entries ahead that need no other look than at the bounds and at the end of the
    /// stretch that no range tombstone covers, which is had here for all of them.
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
    /// So many of the clear entries ahead as certainly lie within the bounds and the stretch.
    fn limit_to_bounds(&mut self, mut clear: usize) -> usize {
        let forward = self.merge.is_forward();
        let outside =
            if forward { ScanBounds::is_after_upper } else { ScanBounds::is_before_lower };
        while clear > 0 {
            self.merge.visible_key_ahead(clear).copy_to(&mut self.last_visible_key);
            let covered = self
                .range_tombstones
                .as_ref()
                .is_some_and(|c| c.ends_before_key(forward, &self.last_visible_key));
            if !covered && !outside(&self.bounds, self.comparator, &self.last_visible_key) {
                break;
            }
            clear /= 2;
        }
        clear
    }

    /// Whether the reader may see an entry of this number: an operation up to its own, or a write
    /// of its transaction.
    #[inline]
    fn is_visible(&self, seq: SeqNo) -> bool {
        seq <= self.read_seq || self.view.overlay.as_ref().is_some_and(|own| own.is_visible(seq))
    }

    /// Shows nothing any more; whether it showed something.
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

    /// Shows `key` itself, if it is there and lies within the bounds. Else the merge has to be
    /// positioned.
    fn probe_key(&mut self, key: &[u8]) -> Result<bool> {
        self.probe.update_worth(self.merge_unpositioned);
        self.reset();
        let (order, at) = (self.comparator, self.read_seq);
        let inside =
            !self.bounds.is_before_lower(order, key) && !self.bounds.is_after_upper(order, key);
        if !inside || !self.probe.should_probe() {
            return Ok(false);
        }
        let (merge, asked) = (&mut self.merge, &mut self.found_in_run);
        *asked = None;
        let found = get::lookup_in_sources(&self.view, key, at, |number, _, hash| {
            match merge.run_cursor(number) {
                Some(run) => {
                    *asked = Some(number);
                    run.find_version(key, hash, at)
                }
                None => Err(Error::internal("a cursor has fewer runs than its view")),
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

    /// From the merge's position forward; `skip`: it may be among the entries of `self.key`, which
    /// are behind us.
    #[inline]
    fn find_forward(&mut self, skip: bool) -> Result<()> {
        self.advance_forward(skip)?;
        self.check_end()
    }

    /// The end of a scan says that nothing more is there.
    #[inline]
    fn check_end(&self) -> Result<()> {
        if self.valid() { Ok(()) } else { self.view.version.check_absent::<()>().map(|_| ()) }
    }

    fn advance_forward(&mut self, mut skip: bool) -> Result<()> {
        self.merge.expect_direction(true)?;
        while self.merge.valid() {
            let seq = self.merge.seq();
            if !self.is_visible(seq)
                || (skip && self.merge.key().equals(self.comparator, &self.key))
            {
                self.merge.step()?;
                skip &= !self.merge.key_changed();
                continue;
            }
            self.merge.key().copy_to(&mut self.key);
            if self.bounds.is_after_upper(self.comparator, &self.key) {
                return Ok(());
            }
            // Whatever hides this version hides the older ones too.
            skip = true;
            if self.range_tombstones.as_mut().is_some_and(|c| c.is_covered(&self.key, seq)) {
                self.skip_covered()?;
                continue;
            }
            if self.is_live() {
                self.current = CursorEntry::AtMerge;
                return Ok(());
            }
            self.skip_tombstone();
        }
        Ok(())
    }

    /// The merge is on an entry that is visible and dead.
    fn skip_tombstone(&mut self) {
        if self.merge.kind().is_tombstone() {
            self.skipped_tombstones += self.merge.skip_tombstone();
        }
    }

    /// Whether the merge is on an entry with a value, whose time has not passed.
    #[inline]
    fn is_live(&self) -> bool {
        match self.merge.kind() {
            EntryKind::Put | EntryKind::PutPointer => true,
            // Merged onto whatever is below, it is a value: that is found out when somebody asks
            // for it.
            EntryKind::Merge | EntryKind::MergePointer => true,
            EntryKind::PutExpiring | EntryKind::PointerExpiring => {
                self.merge.value().expiry().is_none_or(|x| !x.is_expired(self.view.now.now_ms()))
            }
            EntryKind::Delete | EntryKind::SingleDelete | EntryKind::RangeDelete => false,
        }
    }

    /// From the merge's position backward. Versions of a key come oldest first: the last one that
    /// is visible counts.
    #[inline]
    fn find_backward(&mut self) -> Result<()> {
        self.advance_backward()?;
        self.check_end()
    }

    fn advance_backward(&mut self) -> Result<()> {
        self.merge.expect_direction(false)?;
        self.merge.refresh_positions();
        // The newest visible version of `self.key` so far: live or not, as of when it was passed.
        let mut newest: Option<(CursorEntry, bool)> = None;
        while self.merge.valid() {
            let (key, seq) = (self.merge.key(), self.merge.seq());
            if newest.is_some()
                && (self.merge.key_changed() || !key.equals(self.comparator, &self.key))
                && let Some((shown, true)) = newest.take()
            {
                self.current = shown;
                return Ok(());
            }
            let first = newest.is_none();
            // Where versions of a key may differ in their bytes, the newest one's are shown.
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
                // The next step leaves another entry.
                let found = self.merge.left_value().expect("the merge has just left that version");
                *left = CursorEntry::Pinned(found);
            }
            self.merge.step()?;
        }
        if let Some((shown, true)) = newest {
            self.current = shown;
        }
        Ok(())
    }

    /// From an entry that a range tombstone hides to the next that it may not hide.
    fn skip_covered(&mut self) -> Result<()> {
        let forward = self.merge.is_forward();
        let Some(cover) = &mut self.range_tombstones else { return self.merge.step() };
        match cover.seek_target(forward) {
            Some((cut, seq)) => {
                self.merge.seek_past(cut.as_ref(), seq)?;
                if bug::is_active(Bug::LeaveTooFar) && !forward {
                    self.merge.step()?;
                }
                cover.reset_hidden();
                Ok(())
            }
            None => self.merge.step(),
        }
    }

    /// Whether it is on a key.
    #[inline]
    pub fn valid(&self) -> bool {
        !matches!(self.current, CursorEntry::Invalid)
    }
    /// The key, if valid.
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
    /// The value, if valid; fetched now if it is separated.
    #[inline]
    pub fn value(&self) -> Result<Option<PinnedSlice>> {
        let place = (&self.key[..], self.read_seq);
        self.entry_value()
            .map(|found| get::read_value_with_cause(&self.view, place, found, IoActivity::Scan))
            .transpose()
    }
    /// Key and value, if valid and the value lies there already: nothing is fetched.
    #[inline]
    pub fn entry_if_resident(&self) -> Option<(&[u8], &[u8])> {
        let value = match self.current {
            CursorEntry::AtMerge => self.merge.value(),
            CursorEntry::LeftByMerge => self.merge.left_value_ref()?,
            _ => return None,
        };
        if let ValueRef::Inline(value) = value { Some((&self.key, value)) } else { None }
    }
    /// Key and value, if valid, borrowed until the cursor moves; the value is fetched now if it is
    /// separated.
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
    /// When the entry ends, if it is valid and does.
    pub fn expiry(&self) -> Option<Expiry> {
        self.entry_value().as_ref().and_then(EntryValue::expiry)
    }
    /// The order of keys.
    pub fn comparator(&self) -> KeyComparator {
        self.comparator
    }
}
