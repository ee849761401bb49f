//! Moving over a family in key order: [`Cursor`] to go where one likes, [`Iter`] for `for` loops. Both see the
//! database as it was when they were made, whatever writers, flushes and compactions do meanwhile.

use crate::{Result, Slice};
use perigee_base::cut::{Cut, CutRef};
use perigee_base::latency::Operation;
use perigee_base::shared::Brief;
use perigee_base::{SeqNo, Shared};
use perigee_engine::Engine;
use perigee_engine::txn::Walk;
use perigee_tree::View;
use perigee_tree::scan::{Bounds, VisibleCursor};
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// A position in a family, within bounds. New cursors are not positioned: call a `seek`.
///
/// After an error the cursor is invalid until the next `seek`.
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
/// cursor.prev()?; // turn round whenever you like
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
    /// Steps that the counters do not know yet.
    steps: u64,
    /// Told of what was passed, if a transaction depends on that.
    watch: Option<Box<Watch>>,
}

/// Short: where it stands.
impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({:?}, at {:?})", self.engine, self.inner.key().map(Brief))
    }
}

/// What a serializable transaction's cursor has passed, within its bounds.
struct Watch {
    walk: Walk,
    begin: Cut,
    end: Cut,
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.engine.counters().nexts.add(self.steps);
        self.report();
    }
}

pub(crate) fn bounds<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Bounds {
    let own = |b: Bound<&K>| b.map(|k| k.as_ref().to_vec());
    Bounds { lower: own(range.start_bound()), upper: own(range.end_bound()) }
}

impl Cursor {
    pub(crate) fn new(engine: &Arc<Engine>, view: Arc<View>, at: SeqNo, bounds: Bounds) -> Cursor {
        let inner = VisibleCursor::new(view, at, bounds, true);
        Cursor { inner, engine: Arc::clone(engine), steps: 0, watch: None }
    }
    /// The same, telling `walk` what it passes.
    pub(crate) fn watched(mut self, walk: Option<Walk>, bounds: &Bounds) -> Cursor {
        let ends = || (Cut::begin(bounds.lower.clone()), Cut::end(bounds.upper.clone()));
        self.watch = walk.map(|walk| {
            let (begin, end) = ends();
            Box::new(Watch { walk, begin, end })
        });
        self
    }
    /// Tells of the way to where it stands now, from a place (`None`: from where it stood).
    #[cold]
    fn passed(&mut self, from: Option<CutRef<'_>>, forward: bool) {
        let Some(Watch { walk, begin, end }) = self.watch.as_deref_mut() else { return };
        let here = match (self.inner.key(), forward) {
            (Some(key), true) => CutRef::After(key),
            (Some(key), false) => CutRef::Before(key),
            (None, true) => end.as_ref(),
            (None, false) => begin.as_ref(),
        };
        let from = from.unwrap_or(here);
        if forward {
            walk.passed(from, here);
        } else {
            walk.passed(here, from);
        }
    }
    #[inline]
    fn go(&mut self, go: impl FnOnce(&mut VisibleCursor) -> Result<()>) -> Result<()> {
        self.engine.check_open()?;
        go(&mut self.inner)
    }
    /// Tells what deleted entries have cost.
    fn report(&mut self) {
        let passed = self.inner.take_passed();
        if passed > 0 {
            self.engine.passed(passed);
        }
    }
    fn position(&mut self, go: impl FnOnce(&mut VisibleCursor) -> Result<()>) -> Result<()> {
        let seeks = &self.engine.counters().seeks;
        seeks.add(1);
        let started = self.engine.start(Operation::Seek, seeks.own());
        self.go(go)?;
        self.engine.stop(Operation::Seek, started);
        self.report();
        Ok(())
    }
    #[inline]
    fn step(&mut self, go: impl FnOnce(&mut VisibleCursor) -> Result<()>) -> Result<()> {
        self.steps += 1;
        if self.steps < Operation::Next.one_in() {
            return self.go(go);
        }
        self.engine.counters().nexts.add(std::mem::take(&mut self.steps));
        let started = self.engine.start(Operation::Next, 0);
        self.go(go)?;
        self.engine.stop(Operation::Next, started);
        Ok(())
    }
    /// To the first entry.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.position(VisibleCursor::seek_to_first)?;
        if let Some(watch) = &self.watch {
            let begin = watch.begin.clone();
            self.passed(Some(begin.as_ref()), true);
        }
        Ok(())
    }
    /// To the last entry.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.position(VisibleCursor::seek_to_last)?;
        if let Some(watch) = &self.watch {
            let end = watch.end.clone();
            self.passed(Some(end.as_ref()), false);
        }
        Ok(())
    }
    /// To the first entry at or after `key` (of those within the bounds).
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.position(|c| c.seek(key.as_ref()))?;
        if self.watch.is_some() {
            self.passed(Some(CutRef::Before(key.as_ref())), true);
        }
        Ok(())
    }
    /// To the last entry at or before `key` (of those within the bounds).
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.position(|c| c.seek_for_prev(key.as_ref()))?;
        if self.watch.is_some() {
            self.passed(Some(CutRef::After(key.as_ref())), false);
        }
        Ok(())
    }
    /// To the next entry; invalid after the last. On an invalid cursor: stays invalid.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        self.step(VisibleCursor::next)?;
        if self.watch.is_some() {
            self.passed(None, true);
        }
        Ok(())
    }
    /// To the previous entry; invalid before the first. On an invalid cursor: stays invalid.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        self.step(VisibleCursor::prev)?;
        if self.watch.is_some() {
            self.passed(None, false);
        }
        Ok(())
    }
    /// Whether the cursor is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.inner.valid()
    }
    /// The key.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.inner.key().expect("key() needs a valid cursor: check valid() first")
    }
    /// The value; fetched from the value log if it is separated.
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
    /// Key and value, borrowed: the cheapest way to look at them. A [`Cursor::value`] can be kept when the cursor moves on, and
    /// costs a reference count for that.
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
    /// As [`Cursor::value`].
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn entry(&mut self) -> Result<(&[u8], &[u8])> {
        self.engine.check_open()?;
        Ok(self.inner.entry()?.expect("entry() needs a valid cursor: check valid() first"))
    }
    /// The same if the value lies beside the key: nothing is fetched, nothing can fail. `None` if the cursor is not valid, or for
    /// a value that [`Cursor::entry`] would have to fetch.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// db.put("moon", "full")?;
    /// let mut cursor = db.cursor()?;
    /// cursor.seek_to_first()?;
    /// if let Some((key, value)) = cursor.entry_at_hand() {
    ///     assert_eq!((key, value), (&b"moon"[..], &b"full"[..]));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn entry_at_hand(&self) -> Option<(&[u8], &[u8])> {
        self.inner.entry_at_hand()
    }
    pub(crate) fn inner(&self) -> &VisibleCursor {
        &self.inner
    }
    fn pair(&self) -> Result<(Slice, Slice)> {
        Ok((Slice(Shared::from(self.key().to_vec())), self.value()?))
    }
}

/// An iterator over a range, from both ends. After an `Err` it ends.
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
    bounds: Bounds,
    done: bool,
    walk: Option<Walk>,
}

impl Iter {
    pub(crate) fn new(engine: &Arc<Engine>, view: Arc<View>, at: SeqNo, bounds: Bounds) -> Iter {
        Iter {
            front: None,
            back: None,
            engine: Arc::clone(engine),
            view,
            at,
            bounds,
            done: false,
            walk: None,
        }
    }
    /// The same, telling `walk` what it passes.
    pub(crate) fn watched(self, walk: Option<Walk>) -> Iter {
        Iter { walk, ..self }
    }

    /// Steps one end; `None` when it has met the other. Each end's cursor stands on what it gave last.
    fn step(&mut self, forward: bool) -> Result<Option<(Slice, Slice)>> {
        let order = self.view.version.order;
        let fresh = || {
            Cursor::new(&self.engine, Arc::clone(&self.view), self.at, self.bounds.clone())
                .watched(self.walk.clone(), &self.bounds)
        };
        let (end, other) =
            if forward { (&mut self.front, &self.back) } else { (&mut self.back, &self.front) };
        match (&mut *end, forward) {
            (Some(c), true) => c.next()?,
            (Some(c), false) => c.prev()?,
            (none, true) => none.insert(fresh()).seek_to_first()?,
            (none, false) => none.insert(fresh()).seek_to_last()?,
        }
        let Some(cursor) = end.as_ref().filter(|c| c.valid()) else { return Ok(None) };
        let met = other.as_ref().is_some_and(|other| {
            let (low, high) = if forward { (cursor, other) } else { (other, cursor) };
            order.cmp(low.key(), high.key()).is_ge()
        });
        if met { Ok(None) } else { cursor.pair().map(Some) }
    }

    fn advance(&mut self, forward: bool) -> Option<Result<(Slice, Slice)>> {
        if self.done {
            return None;
        }
        let item = self.step(forward).transpose();
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}

/// Short: what it reads, and where its ends stand.
impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |end: &Option<Cursor>| end.as_ref().and_then(|c| c.inner.key().map(|k| k.to_vec()));
        let (front, back) = (at(&self.front), at(&self.back));
        f.debug_struct("Iter")
            .field("engine", &self.engine)
            .field("sequence", &self.at.0)
            .field("front", &front.as_deref().map(Brief))
            .field("back", &back.as_deref().map(Brief))
            .field("done", &self.done)
            .finish()
    }
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;
    fn next(&mut self) -> Option<Self::Item> {
        self.advance(true)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.advance(false)
    }
}

impl std::iter::FusedIterator for Iter {}
