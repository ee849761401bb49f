//! What a reader sees: of each user key the newest version at or before its sequence number, unless that is a
//! tombstone or has expired, within the bounds, in both directions.

use super::bounds::Bounds;
use super::cover::Cover;
use super::merge::MergeCursor;
use crate::View;
use crate::get;
use perigee_base::bug::{self, Bug};
use perigee_base::io::Cause;
use perigee_base::{Expiry, KeyOrder, Result, SeqNo, Shared};
use perigee_file::Found;
use std::ops::Bound;
use std::sync::Arc;

/// A position among the visible keys of a view.
///
/// Invariants while valid: 1. `key` and `value` are the current entry; 2. going forward, the merge is on an entry of
/// `key`; going backward, it is on the last entry before all versions of `key`.
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
    value: Option<Found>,
}

impl VisibleCursor {
    /// Over `view` as a reader at `at` sees it, not positioned.
    pub fn new(view: Arc<View>, at: SeqNo, bounds: Bounds, fill_cache: bool) -> VisibleCursor {
        let merge = MergeCursor::over_view(&view, fill_cache);
        let order = view.version.order;
        let cover = Cover::over(&view, at);
        VisibleCursor { view, order, at, bounds, merge, cover, key: Vec::new(), value: None }
    }

    /// To the first visible key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.value = None;
        match &self.bounds.lower {
            Bound::Unbounded => self.merge.seek_first()?,
            Bound::Included(k) => self.merge.seek(k, SeqNo::MAX)?,
            Bound::Excluded(k) => self.merge.seek(k, SeqNo::ZERO)?,
        }
        self.find_forward(false)
    }
    /// To the last visible key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.value = None;
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
        self.value = None;
        self.merge.seek(key, SeqNo::MAX)?;
        self.find_forward(false)
    }
    /// To the last visible key at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        if self.bounds.behind(self.order, key) {
            return self.seek_to_last();
        }
        self.value = None;
        self.merge.seek_before(key, SeqNo::ZERO)?;
        self.find_backward()
    }
    /// To the next visible key.
    pub fn next(&mut self) -> Result<()> {
        if self.value.take().is_none() {
            return Ok(());
        }
        if !self.merge.forward() {
            self.merge.seek(&self.key, SeqNo::ZERO)?;
            if bug::on(Bug::SkipOnTurn) {
                self.merge.step()?;
            }
        }
        self.find_forward(true)
    }
    /// To the previous visible key.
    pub fn prev(&mut self) -> Result<()> {
        if self.value.take().is_none() {
            return Ok(());
        }
        if self.merge.forward() {
            self.merge.seek_before(&self.key, SeqNo::MAX)?;
        }
        self.find_backward()
    }

    /// From the merge's position forward; `skip`: entries of `self.key` are behind us.
    fn find_forward(&mut self, skip: bool) -> Result<()> {
        self.walk_forward(skip)?;
        self.check_end()
    }

    /// The end of a scan says that nothing more is there.
    fn check_end(&self) -> Result<()> {
        if self.value.is_none() { self.view.version.absent::<()>().map(|_| ()) } else { Ok(()) }
    }

    fn walk_forward(&mut self, mut skip: bool) -> Result<()> {
        self.merge.expect_way(true)?;
        while self.merge.valid() {
            let e = self.merge.entry();
            if e.seq > self.at || (skip && self.order.equal(e.key, &self.key)) {
                self.merge.step()?;
                continue;
            }
            if self.bounds.behind(self.order, e.key) {
                return Ok(());
            }
            if self.cover.as_mut().is_some_and(|c| c.hides(e.key, e.seq)) {
                self.step_over()?;
                continue;
            }
            self.key.clear();
            self.key.extend_from_slice(e.key);
            let found = self.merge.found();
            if get::is_live(&found, &*self.view.now) {
                self.value = Some(found);
                return Ok(());
            }
            skip = true;
        }
        Ok(())
    }

    /// From the merge's position backward. Versions of a key come oldest first: the last one that is visible counts.
    fn find_backward(&mut self) -> Result<()> {
        self.walk_backward()?;
        self.check_end()
    }

    fn walk_backward(&mut self) -> Result<()> {
        self.merge.expect_way(false)?;
        let mut newest: Option<Found> = None;
        while self.merge.valid() {
            let e = self.merge.entry();
            if newest.is_some() && !self.order.equal(e.key, &self.key) {
                // Asked once: what is live now may be so no more when it is asked again.
                self.value = newest.take().filter(|f| get::is_live(f, &*self.view.now));
                if self.value.is_some() {
                    return Ok(());
                }
            }
            if newest.is_none() && self.bounds.before(self.order, e.key) {
                return Ok(());
            }
            let hidden = e.seq <= self.at && self.cover.as_mut().is_some_and(|c| c.hides(e.key, e.seq));
            if hidden && newest.is_none() {
                self.step_over()?;
                continue;
            }
            if e.seq <= self.at && !hidden {
                // Where versions of a key may differ in their bytes, the newest one's are shown.
                if newest.is_none() || !self.order.is_bytewise() {
                    self.key.clear();
                    self.key.extend_from_slice(e.key);
                }
                newest = Some(self.merge.found());
            }
            self.merge.step()?;
        }
        self.value = newest.filter(|f| get::is_live(f, &*self.view.now));
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
    pub fn valid(&self) -> bool {
        self.value.is_some()
    }
    /// The key, if valid.
    pub fn key(&self) -> Option<&[u8]> {
        self.value.is_some().then_some(&self.key[..])
    }
    /// The value, if valid; fetched now if it is separated.
    pub fn value(&self) -> Result<Option<Shared>> {
        self.value.clone().map(|found| get::value_for(&self.view.version, found, Cause::Scan)).transpose()
    }
    /// When the entry ends, if it is valid and does.
    pub fn expiry(&self) -> Option<Expiry> {
        self.value.as_ref().and_then(Found::expiry)
    }
    /// The order of keys.
    pub fn order(&self) -> KeyOrder {
        self.order
    }
}
