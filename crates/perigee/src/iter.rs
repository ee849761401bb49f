//! Scans of a column family in key order: [`Cursor`] for seeks and moves in both directions,
//! [`Iter`] for `for` loops. Both see the database as of their creation, whatever writers, flushes
//! and compactions do afterwards.

use crate::{Result, Slice};
use perigee_base::key_boundary::{KeyBoundary, KeyBoundaryRef};
use perigee_base::latency::Operation;
use perigee_base::pinned_slice::BytesPreview;
use perigee_base::{PinnedSlice, SeqNo};
use perigee_engine::Engine;
use perigee_engine::txn::ScanTracker;
use perigee_tree::View;
use perigee_tree::scan::{ScanBounds, VisibleCursor};
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// A cursor over a column family or a key range of it. A new cursor is not positioned: call one of
/// the `seek` methods first. It sees the entries that were visible when it was created, and until
/// it is dropped keeps the files and memtables that contain them.
///
/// After an error the cursor is invalid until the next seek.
///
/// ```
/// # use perigee::{Db, Options};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// for key in ["a", "c", "e"] {
///     db.put(key, "")?;
/// }
/// let mut cursor = db.cursor()?;
/// cursor.seek("b")?; // the first entry at or after
/// assert_eq!(cursor.key(), b"c");
/// cursor.next()?;
/// cursor.prev()?; // the direction can change at any time
/// assert_eq!(cursor.key(), b"c");
/// cursor.seek_for_prev("b")?; // the last entry at or before
/// assert_eq!(cursor.key(), b"a");
/// cursor.prev()?;
/// assert!(!cursor.valid());
/// # Ok(())
/// # }
/// ```
pub struct Cursor {
    inner: VisibleCursor,
    engine: Arc<Engine>,
    /// Steps not yet added to the engine's counters.
    uncounted_steps: u64,
    /// Records the key ranges read, if the cursor belongs to a serializable transaction.
    tracked: Option<Box<TrackedRange>>,
}

/// Prints the current key.
impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({:?}, at {:?})", self.engine, self.inner.key().map(BytesPreview))
    }
}

/// Reports to a serializable transaction which key ranges its cursor reads, cut off at the cursor's
/// bounds.
struct TrackedRange {
    reads: ScanTracker,
    begin: KeyBoundary,
    end: KeyBoundary,
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.engine.counters().nexts.add(self.uncounted_steps);
        self.report_skipped_tombstones();
    }
}

pub(crate) fn range_to_bounds<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> ScanBounds {
    let to_owned = |b: Bound<&K>| b.map(|k| k.as_ref().to_vec());
    ScanBounds { lower: to_owned(range.start_bound()), upper: to_owned(range.end_bound()) }
}

impl Cursor {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        view: Arc<View>,
        at: SeqNo,
        bounds: ScanBounds,
    ) -> Cursor {
        let inner = VisibleCursor::new(view, at, bounds, true);
        Cursor { inner, engine: Arc::clone(engine), uncounted_steps: 0, tracked: None }
    }
    /// Records the key ranges that the cursor reads in `tracker`, if there is one.
    pub(crate) fn with_read_tracking(
        mut self,
        tracker: Option<ScanTracker>,
        bounds: &ScanBounds,
    ) -> Cursor {
        let ends = || {
            (
                KeyBoundary::range_start(bounds.lower.clone()),
                KeyBoundary::range_end(bounds.upper.clone()),
            )
        };
        self.tracked = tracker.map(|tracker| {
            let (begin, end) = ends();
            Box::new(TrackedRange { reads: tracker, begin, end })
        });
        self
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
    /// Reports the number of tombstones skipped, which can trigger a compaction.
    fn report_skipped_tombstones(&mut self) {
        let skipped = self.inner.take_skipped_tombstones();
        if skipped > 0 {
            self.engine.record_skipped_tombstones(skipped);
        }
    }
    fn seek_measured(&mut self, go: impl FnOnce(&mut VisibleCursor) -> Result<()>) -> Result<()> {
        let seeks = &self.engine.counters().seeks;
        seeks.add(1);
        let started = self.engine.start_timer(Operation::Seek, seeks.stripe_value());
        self.move_checked(go)?;
        self.engine.stop_timer(Operation::Seek, started);
        self.report_skipped_tombstones();
        Ok(())
    }
    #[inline]
    fn step_measured(&mut self, go: impl FnOnce(&mut VisibleCursor) -> Result<()>) -> Result<()> {
        self.uncounted_steps += 1;
        if self.uncounted_steps < Operation::Next.one_in() {
            return self.move_checked(go);
        }
        self.engine.counters().nexts.add(std::mem::take(&mut self.uncounted_steps));
        let started = self.engine.start_timer(Operation::Next, 0);
        self.move_checked(go)?;
        self.engine.stop_timer(Operation::Next, started);
        Ok(())
    }
    /// Moves to the first entry.
    ///
    /// # Errors
    /// As for every seek and move: `Corruption` or `Io` if a block cannot be read; `Closed`.
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
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.seek_measured(|c| c.seek(key.as_ref()))?;
        if self.tracked.is_some() {
            self.record_read(Some(KeyBoundaryRef::Before(key.as_ref())), true);
        }
        Ok(())
    }
    /// Moves to the last entry within the bounds whose key is at or before `key`.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.seek_measured(|c| c.seek_for_prev(key.as_ref()))?;
        if self.tracked.is_some() {
            self.record_read(Some(KeyBoundaryRef::After(key.as_ref())), false);
        }
        Ok(())
    }
    /// Moves to the next entry; after the last one the cursor is invalid. An invalid cursor stays
    /// invalid.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        self.step_measured(VisibleCursor::next)?;
        if self.tracked.is_some() {
            self.record_read(None, true);
        }
        Ok(())
    }
    /// Moves to the previous entry; before the first one the cursor is invalid. An invalid cursor
    /// stays invalid.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        self.step_measured(VisibleCursor::prev)?;
        if self.tracked.is_some() {
            self.record_read(None, false);
        }
        Ok(())
    }
    /// Returns true if the cursor is positioned on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.inner.valid()
    }
    /// Returns the key of the current entry, borrowed until the next move.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.inner.key().expect("key() needs a valid cursor: check valid() first")
    }
    /// Returns the value of the current entry, and reads it from the value log if it is separated.
    /// The [`Slice`] stays valid after the cursor moves.
    ///
    /// # Errors
    /// `Corruption` or `Io` if a separated value cannot be read; `Closed`.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn value(&self) -> Result<Slice> {
        self.engine.check_open()?;
        Ok(Slice(self.inner.value()?.expect("value() needs a valid cursor: check valid() first")))
    }
    /// Returns key and value of the current entry, borrowed until the next move. This is the
    /// cheapest way to read an entry: [`Cursor::value`] increments a reference count, so that its
    /// result stays valid after the cursor moves.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// db.put("moon", "full")?;
    /// db.put("tide", "high")?;
    /// let (mut cursor, mut bytes) = (db.cursor()?, 0);
    /// cursor.seek_to_first()?;
    /// while cursor.valid() {
    ///     let (key, value) = cursor.entry()?;
    ///     bytes += key.len() + value.len();
    ///     cursor.next()?;
    /// }
    /// assert_eq!(bytes, 16);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Cursor::value`].
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn entry(&mut self) -> Result<(&[u8], &[u8])> {
        self.engine.check_open()?;
        Ok(self.inner.entry()?.expect("entry() needs a valid cursor: check valid() first"))
    }
    /// Returns key and value of the current entry without I/O, borrowed until the next move. `None`
    /// if the cursor is not valid, or if [`Cursor::entry`] would have to read the value from a
    /// value log.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// db.put("moon", "full")?;
    /// let mut cursor = db.cursor()?;
    /// cursor.seek_to_first()?;
    /// if let Some((key, value)) = cursor.entry_if_resident() {
    ///     assert_eq!((key, value), (&b"moon"[..], &b"full"[..]));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn entry_if_resident(&self) -> Option<(&[u8], &[u8])> {
        self.inner.entry_if_resident()
    }
    pub(crate) fn inner(&self) -> &VisibleCursor {
        &self.inner
    }
    fn owned_entry(&self) -> Result<(Slice, Slice)> {
        Ok((Slice(PinnedSlice::from(self.key().to_vec())), self.value()?))
    }
}

/// An iterator over a key range, from either end ([`DoubleEndedIterator`]). It returns owned pairs
/// of key and value; [`Cursor`] avoids that cost. After an `Err` the iteration ends.
///
/// ```
/// # use perigee::{Db, Options};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// for i in 0..100u8 {
///     db.put([i], [i * 2])?;
/// }
/// let mut some = db.range([10u8]..[13u8])?;
/// let (key, value) = some.next().expect("10 is in the range")?;
/// assert_eq!((&key[..], &value[..]), (&[10u8][..], &[20u8][..]));
/// let (key, _) = some.next_back().expect("12 is in the range")?;
/// assert_eq!(&key[..], [12]);
/// assert_eq!(some.count(), 1); // the ends meet at 11
/// # Ok(())
/// # }
/// ```
pub struct Iter {
    front: Option<Cursor>,
    back: Option<Cursor>,
    engine: Arc<Engine>,
    view: Arc<View>,
    at: SeqNo,
    bounds: ScanBounds,
    done: bool,
    reads: Option<ScanTracker>,
}

impl Iter {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        view: Arc<View>,
        at: SeqNo,
        bounds: ScanBounds,
    ) -> Iter {
        Iter {
            front: None,
            back: None,
            engine: Arc::clone(engine),
            view,
            at,
            bounds,
            done: false,
            reads: None,
        }
    }
    /// Records the key ranges that the iterator reads in `tracker`, if there is one.
    pub(crate) fn with_read_tracking(self, tracker: Option<ScanTracker>) -> Iter {
        Iter { reads: tracker, ..self }
    }

    /// Moves one end; returns `None` when it meets the other end. The cursor of each end is on the
    /// entry that it returned last.
    fn next_from(&mut self, forward: bool) -> Result<Option<(Slice, Slice)>> {
        let comparator = self.view.version.comparator;
        let new_cursor = || {
            Cursor::new(&self.engine, Arc::clone(&self.view), self.at, self.bounds.clone())
                .with_read_tracking(self.reads.clone(), &self.bounds)
        };
        let (end, other) =
            if forward { (&mut self.front, &self.back) } else { (&mut self.back, &self.front) };
        match (&mut *end, forward) {
            (Some(c), true) => c.next()?,
            (Some(c), false) => c.prev()?,
            (none, true) => none.insert(new_cursor()).seek_to_first()?,
            (none, false) => none.insert(new_cursor()).seek_to_last()?,
        }
        let Some(cursor) = end.as_ref().filter(|c| c.valid()) else { return Ok(None) };
        let met = other.as_ref().is_some_and(|other| {
            let (low, high) = if forward { (cursor, other) } else { (other, cursor) };
            comparator.cmp(low.key(), high.key()).is_ge()
        });
        if met { Ok(None) } else { cursor.owned_entry().map(Some) }
    }

    fn next_item(&mut self, forward: bool) -> Option<Result<(Slice, Slice)>> {
        if self.done {
            return None;
        }
        let item = self.next_from(forward).transpose();
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}

/// Prints the database, the sequence number and the keys at both ends.
impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at =
            |end: &Option<Cursor>| end.as_ref().and_then(|c| c.inner.key().map(|k| k.to_vec()));
        let (front, back) = (at(&self.front), at(&self.back));
        f.debug_struct("Iter")
            .field("engine", &self.engine)
            .field("sequence", &self.at.0)
            .field("front", &front.as_deref().map(BytesPreview))
            .field("back", &back.as_deref().map(BytesPreview))
            .field("done", &self.done)
            .finish()
    }
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;
    fn next(&mut self) -> Option<Self::Item> {
        self.next_item(true)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_item(false)
    }
}

impl std::iter::FusedIterator for Iter {}
