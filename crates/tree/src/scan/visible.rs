//! What a reader sees: of each user key the newest version at or before its sequence number, unless that is a
//! tombstone or has expired, within the bounds, in both directions.
//!
//! A seek first asks for the key itself, as a point read does: if that is there, nothing can come before it, and no
//! other source is positioned until the first step. An error of a source that was not asked comes with that step, before any
//! key behind the one shown.

use super::bounds::Bounds;
use super::cover::Cover;
use super::merge::MergeCursor;
use super::probe::Probe;
use crate::View;
use crate::get;
use perigee_base::bug::{self, Bug};
use perigee_base::io::Cause;
use perigee_base::{EntryKind, Error, Expiry, KeyOrder, Result, SeqNo, Shared, ValueRef};
use perigee_file::Found;
use std::ops::Bound;
use std::sync::Arc;

/// Where the entry is that is shown.
#[derive(Debug)]
enum Shown {
    Nothing,
    /// The merge, going forward, is on it.
    Here,
    /// The merge, going backward, left it with its last step.
    Left,
    /// Its value is in hand.
    Kept(Found),
}

/// A position among the visible keys of a view.
///
/// Invariants while something is shown: 1. `key` is its key; 2. unless the merge is `away`: going forward, it is on an entry
/// of `key`; going backward, on the last entry before all versions of `key`.
#[derive(Debug)]
pub struct VisibleCursor {
    view: Arc<View>,
    order: KeyOrder,
    at: SeqNo,
    bounds: Bounds,
    merge: MergeCursor,
    /// What range tombstones hide, if there are any.
    cover: Option<Box<Cover>>,
    key: Vec<u8>,
    shown: Shown,
    /// The merge was not positioned: the key was found without it; in that run, if it was one.
    away: bool,
    found_in: Option<usize>,
    probe: Probe,
    /// So many entries lie ahead on the way of the merge that are shown without another look.
    clear: usize,
    /// The key of the last of them, to compare with a bound.
    edge: Vec<u8>,
    /// The value that was lent last, if it does not lie where the merge is.
    hand: Option<Shared>,
    /// Tombstones passed that [`VisibleCursor::take_passed`] has not told yet.
    passed: u64,
}

impl VisibleCursor {
    /// Over `view` as a reader at `at` sees it, not positioned.
    pub fn new(view: Arc<View>, at: SeqNo, bounds: Bounds, fill_cache: bool) -> VisibleCursor {
        let merge = MergeCursor::over_view(&view, fill_cache);
        let order = view.version.order;
        let cover = Cover::over(&view, at);
        // Where equal keys may differ in their bytes, those of the entry are shown: a look-up does not know them.
        let probe = Probe::new(order.is_bytewise() && view.version.gap.is_none());
        VisibleCursor {
            view,
            order,
            at,
            bounds,
            merge,
            cover,
            key: Vec::new(),
            shown: Shown::Nothing,
            away: false,
            found_in: None,
            probe,
            clear: 0,
            edge: Vec::new(),
            hand: None,
            passed: 0,
        }
    }
    /// Tombstones that memtables and tables were told of since it was last asked.
    pub fn take_passed(&mut self) -> u64 {
        std::mem::take(&mut self.passed)
    }

    /// To the first visible key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.leave();
        match &self.bounds.lower {
            Bound::Unbounded => self.merge.seek_first()?,
            Bound::Included(k) => self.merge.seek(k, SeqNo::MAX)?,
            Bound::Excluded(k) => self.merge.seek(k, SeqNo::ZERO)?,
        }
        self.find_forward(false)
    }
    /// To the last visible key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.leave();
        match &self.bounds.upper {
            Bound::Unbounded => self.merge.seek_last()?,
            Bound::Included(k) => self.merge.seek_before(k, SeqNo::ZERO)?,
            Bound::Excluded(k) => self.merge.seek_before(k, SeqNo::MAX)?,
        }
        self.find_backward()
    }
    /// To the first visible key at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.bounds.before(self.order, key) {
            return self.seek_to_first();
        }
        let onward = self.valid() && self.order.cmp(key, &self.key).is_gt();
        let near = onward && self.merge.reaches(self.found_in.filter(|_| self.away), key);
        self.probe.came(near);
        if onward && !self.away && self.merge.forward() && (near || self.probe.goes_on()) {
            self.leave();
            self.merge.seek_onward(key, SeqNo::MAX)?;
            return self.find_forward(false);
        }
        if self.probe.goes_on() {
            self.leave();
        } else if self.find_itself(key)? {
            return Ok(());
        }
        self.merge.seek(key, SeqNo::MAX)?;
        self.find_forward(false)
    }
    /// To the last visible key at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        if self.bounds.behind(self.order, key) {
            return self.seek_to_last();
        }
        if self.find_itself(key)? {
            return Ok(());
        }
        self.merge.seek_before(key, SeqNo::ZERO)?;
        self.find_backward()
    }
    /// To the next visible key.
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        if self.clear > 0 && self.merge.forward() {
            self.clear -= 1;
            self.merge.glide(&mut self.key);
            return Ok(());
        }
        if !self.take_shown() {
            return Ok(());
        }
        if self.away || !self.merge.forward() {
            self.away = false;
            self.merge.walk_from(&self.key, true)?;
            if bug::on(Bug::SkipOnTurn) {
                self.merge.step()?;
            }
            return self.find_forward(true);
        }
        self.merge.step()?;
        self.find_forward(!self.merge.on_another_key())?;
        self.look_ahead();
        Ok(())
    }
    /// To the previous visible key.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        if self.clear > 0 && !self.merge.forward() {
            self.clear -= 1;
            self.merge.glide(&mut self.key);
            self.shown = Shown::Left;
            return Ok(());
        }
        if !self.take_shown() {
            return Ok(());
        }
        if self.away || self.merge.forward() {
            self.away = false;
            self.merge.walk_from(&self.key, false)?;
        }
        self.find_backward()?;
        self.look_ahead();
        Ok(())
    }

    /// Counts the entries ahead that need no other look than at the bounds and at the end of the stretch that no range
    /// tombstone covers, which is had here for all of them.
    #[inline]
    fn look_ahead(&mut self) {
        if self.valid() && self.cover.as_ref().is_none_or(|c| c.is_clear()) {
            self.clear = self.merge.clear_ahead(self.at);
            let bound = if self.merge.forward() { &self.bounds.upper } else { &self.bounds.lower };
            if self.cover.is_some() || !matches!(bound, Bound::Unbounded) {
                self.clear = self.within_bounds(self.clear);
            }
        }
    }
    /// So many of the clear entries ahead as certainly lie within the bounds and the stretch.
    fn within_bounds(&mut self, mut clear: usize) -> usize {
        let forward = self.merge.forward();
        let outside = if forward { Bounds::behind } else { Bounds::before };
        while clear > 0 {
            self.merge.last_clear(clear).copy_to(&mut self.edge);
            let covered = self.cover.as_ref().is_some_and(|c| c.ends_before(forward, &self.edge));
            if !covered && !outside(&self.bounds, self.order, &self.edge) {
                break;
            }
            clear /= 2;
        }
        clear
    }

    /// Whether the reader may see an entry of this number: an operation up to its own, or a write of its transaction.
    #[inline]
    fn sees(&self, seq: SeqNo) -> bool {
        seq <= self.at || self.view.own.as_ref().is_some_and(|own| own.sees(seq))
    }

    /// Shows nothing any more; whether it showed something.
    #[inline]
    fn take_shown(&mut self) -> bool {
        self.clear = 0;
        !matches!(std::mem::replace(&mut self.shown, Shown::Nothing), Shown::Nothing)
    }
    fn leave(&mut self) {
        self.clear = 0;
        self.shown = Shown::Nothing;
        self.away = false;
    }

    /// Shows `key` itself, if it is there and lies within the bounds. Else the merge has to be positioned.
    fn find_itself(&mut self, key: &[u8]) -> Result<bool> {
        self.probe.rate(self.away);
        self.leave();
        let (order, at) = (self.order, self.at);
        let inside = !self.bounds.before(order, key) && !self.bounds.behind(order, key);
        if !inside || !self.probe.is_worth_it() {
            return Ok(false);
        }
        let (merge, asked) = (&mut self.merge, &mut self.found_in);
        *asked = None;
        let found = get::look(&self.view, key, at, |number, _, hash| match merge.run(number) {
            Some(run) => {
                *asked = Some(number);
                run.find(key, hash, at)
            }
            None => Err(Error::internal("a cursor has fewer runs than its view")),
        })?;
        match found {
            Some((_, found)) if get::is_live(&found, &*self.view.now) => {
                self.key.clear();
                self.key.extend_from_slice(key);
                self.shown = Shown::Kept(found);
                self.away = true;
            }
            _ => self.probe.was_in_vain(),
        }
        Ok(self.away)
    }

    /// From the merge's position forward; `skip`: it may be among the entries of `self.key`, which are behind us.
    #[inline]
    fn find_forward(&mut self, skip: bool) -> Result<()> {
        self.walk_forward(skip)?;
        self.check_end()
    }

    /// The end of a scan says that nothing more is there.
    #[inline]
    fn check_end(&self) -> Result<()> {
        if self.valid() { Ok(()) } else { self.view.version.absent::<()>().map(|_| ()) }
    }

    fn walk_forward(&mut self, mut skip: bool) -> Result<()> {
        self.merge.expect_way(true)?;
        while self.merge.valid() {
            let seq = self.merge.seq();
            if !self.sees(seq) || (skip && self.merge.key().is(self.order, &self.key)) {
                self.merge.step()?;
                skip &= !self.merge.on_another_key();
                continue;
            }
            self.merge.key().copy_to(&mut self.key);
            if self.bounds.behind(self.order, &self.key) {
                return Ok(());
            }
            // Whatever hides this version hides the older ones too.
            skip = true;
            if self.cover.as_mut().is_some_and(|c| c.hides(&self.key, seq)) {
                self.step_over()?;
                continue;
            }
            if self.is_live() {
                self.shown = Shown::Here;
                return Ok(());
            }
            self.pass();
        }
        Ok(())
    }

    /// The merge is on an entry that is visible and dead.
    fn pass(&mut self) {
        if self.merge.kind().is_tombstone() {
            self.passed += self.merge.pass();
        }
    }

    /// Whether the merge is on an entry with a value, whose time has not passed.
    #[inline]
    fn is_live(&self) -> bool {
        match self.merge.kind() {
            EntryKind::Put | EntryKind::PutPointer => true,
            // Merged onto whatever is below, it is a value: that is found out when somebody asks for it.
            EntryKind::Merge | EntryKind::MergePointer => true,
            EntryKind::PutExpiring | EntryKind::PointerExpiring => {
                self.merge.value().expiry().is_none_or(|x| !x.passed(self.view.now.now_ms()))
            }
            EntryKind::Delete | EntryKind::SingleDelete | EntryKind::RangeDelete => false,
        }
    }

    /// From the merge's position backward. Versions of a key come oldest first: the last one that is visible counts.
    #[inline]
    fn find_backward(&mut self) -> Result<()> {
        self.walk_backward()?;
        self.check_end()
    }

    fn walk_backward(&mut self) -> Result<()> {
        self.merge.expect_way(false)?;
        self.merge.settle();
        // The newest visible version of `self.key` so far: live or not, as of when it was passed.
        let mut newest: Option<(Shown, bool)> = None;
        while self.merge.valid() {
            let (key, seq) = (self.merge.key(), self.merge.seq());
            if newest.is_some()
                && (self.merge.on_another_key() || !key.is(self.order, &self.key))
                && let Some((shown, true)) = newest.take()
            {
                self.shown = shown;
                return Ok(());
            }
            let first = newest.is_none();
            // Where versions of a key may differ in their bytes, the newest one's are shown.
            if first || (self.sees(seq) && !self.order.is_bytewise()) {
                key.copy_to(&mut self.key);
            }
            if first && self.bounds.before(self.order, &self.key) {
                return Ok(());
            }
            let visible = self.sees(seq);
            let hidden = visible && self.cover.as_mut().is_some_and(|c| c.hides(&self.key, seq));
            if hidden && first {
                self.step_over()?;
                continue;
            }
            if visible && !hidden {
                let live = self.is_live();
                newest = Some((Shown::Left, live));
                if !live {
                    self.pass();
                }
            } else if let Some((left @ Shown::Left, _)) = &mut newest {
                // The next step leaves another entry.
                let found = self.merge.left().expect("the merge has just left that version");
                *left = Shown::Kept(found);
            }
            self.merge.step()?;
        }
        if let Some((shown, true)) = newest {
            self.shown = shown;
        }
        Ok(())
    }

    /// From an entry that a range tombstone hides to the next that it may not hide.
    fn step_over(&mut self) -> Result<()> {
        let forward = self.merge.forward();
        let Some(cover) = &mut self.cover else { return self.merge.step() };
        match cover.way_out(forward) {
            Some((cut, seq)) => {
                self.merge.leave(cut.as_ref(), seq)?;
                if bug::on(Bug::LeaveTooFar) && !forward {
                    self.merge.step()?;
                }
                cover.left();
                Ok(())
            }
            None => self.merge.step(),
        }
    }

    /// Whether it is on a key.
    #[inline]
    pub fn valid(&self) -> bool {
        !matches!(self.shown, Shown::Nothing)
    }
    /// The key, if valid.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.valid().then_some(&self.key[..])
    }
    #[inline]
    fn found(&self) -> Option<Found> {
        match &self.shown {
            Shown::Nothing => None,
            Shown::Here => Some(self.merge.found()),
            Shown::Left => self.merge.left(),
            Shown::Kept(found) => Some(found.clone()),
        }
    }
    /// The value, if valid; fetched now if it is separated.
    #[inline]
    pub fn value(&self) -> Result<Option<Shared>> {
        let place = (&self.key[..], self.at);
        self.found().map(|found| get::value_for(&self.view, place, found, Cause::Scan)).transpose()
    }
    /// Key and value, if valid and the value lies there already: nothing is fetched.
    #[inline]
    pub fn entry_at_hand(&self) -> Option<(&[u8], &[u8])> {
        let value = match self.shown {
            Shown::Here => self.merge.value(),
            Shown::Left => self.merge.left_here()?,
            _ => return None,
        };
        if let ValueRef::Inline(value) = value { Some((&self.key, value)) } else { None }
    }
    /// Key and value, if valid, borrowed until the cursor moves; the value is fetched now if it is separated.
    #[inline]
    pub fn entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if matches!(self.shown, Shown::Here)
            && let ValueRef::Inline(value) = self.merge.value()
        {
            return Ok(Some((&self.key, value)));
        }
        if matches!(self.shown, Shown::Left)
            && let Some(ValueRef::Inline(value)) = self.merge.left_here()
        {
            return Ok(Some((&self.key, value)));
        }
        self.hand = self.value()?;
        Ok(self.hand.as_deref().map(|value| (&self.key[..], value)))
    }
    /// When the entry ends, if it is valid and does.
    pub fn expiry(&self) -> Option<Expiry> {
        self.found().as_ref().and_then(Found::expiry)
    }
    /// The order of keys.
    pub fn order(&self) -> KeyOrder {
        self.order
    }
}
