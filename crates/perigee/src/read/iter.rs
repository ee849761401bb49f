//! Scans of a column family in key order: [`Cursor`] for seeks and moves in both directions,
//! [`Iter`] for `for` loops. Both show the database as it was when they were created; later writes,
//! flushes and compactions do not affect them.

use crate::{Error, Result, Slice};
use perigee_engine::reader::{RangeIter, ReadCursor, ScanBounds};
use perigee_engine::{BytesPreview, PinnedSlice};
use std::fmt;
use std::ops::{Bound, RangeBounds};

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
/// let mut cursor = db.default_family().cursor()?;
/// cursor.seek("b")?; // the first entry at or after
/// assert_eq!(cursor.key(), b"c");
/// cursor.next()?;
/// cursor.prev()?; // the direction can change at any time
/// assert_eq!(cursor.key(), b"c");
/// cursor.seek_for_prev("b")?; // the last entry at or before
/// assert_eq!(cursor.key(), b"a");
/// cursor.prev()?;
/// assert!(!cursor.is_valid());
/// # Ok(())
/// # }
/// ```
pub struct Cursor(ReadCursor);

/// Prints the current key.
impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({:?}, at {:?})", self.0.engine(), self.0.key().map(BytesPreview))
    }
}

pub(crate) fn range_to_bounds<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> ScanBounds {
    let to_owned = |b: Bound<&K>| b.map(|k| k.as_ref().to_vec());
    ScanBounds { lower: to_owned(range.start_bound()), upper: to_owned(range.end_bound()) }
}

impl Cursor {
    pub(crate) fn new(inner: ReadCursor) -> Cursor {
        Cursor(inner)
    }
    /// Moves to the first entry.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # ["a", "c", "e"].iter().try_for_each(|k| db.put(k, format!("value of {k}")))?;
    /// # let mut cursor = db.default_family().cursor()?;
    /// cursor.seek_to_first()?;
    /// assert_eq!(cursor.key(), b"a");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As for every seek and move: `Corruption` or `Io` if a block cannot be read; `Closed`.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.0.seek_to_first()
    }
    /// Moves to the last entry.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # ["a", "c", "e"].iter().try_for_each(|k| db.put(k, format!("value of {k}")))?;
    /// # let mut cursor = db.default_family().cursor()?;
    /// cursor.seek_to_last()?;
    /// assert_eq!(cursor.key(), b"e");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.0.seek_to_last()
    }
    /// Moves to the first entry within the bounds whose key is at or after `key`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # ["a", "c", "e"].iter().try_for_each(|k| db.put(k, format!("value of {k}")))?;
    /// # let mut cursor = db.default_family().cursor()?;
    /// cursor.seek("b")?; // the keys are a, c and e
    /// assert_eq!(cursor.key(), b"c");
    /// cursor.seek("f")?;
    /// assert!(!cursor.is_valid());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.0.seek(key.as_ref())
    }
    /// Moves to the last entry within the bounds whose key is at or before `key`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # ["a", "c", "e"].iter().try_for_each(|k| db.put(k, format!("value of {k}")))?;
    /// # let mut cursor = db.default_family().cursor()?;
    /// cursor.seek_for_prev("d")?; // the keys are a, c and e
    /// assert_eq!(cursor.key(), b"c");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.0.seek_for_prev(key.as_ref())
    }
    /// Moves to the next entry; after the last one the cursor is invalid. An invalid cursor stays
    /// invalid.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # ["a", "c", "e"].iter().try_for_each(|k| db.put(k, format!("value of {k}")))?;
    /// # let mut cursor = db.default_family().cursor()?;
    /// cursor.seek_to_first()?;
    /// let mut keys = 0;
    /// while cursor.is_valid() {
    ///     keys += 1;
    ///     cursor.next()?;
    /// }
    /// assert_eq!(keys, 3);
    /// # Ok::<(), Error>(())
    /// ```
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        self.0.step_forward()
    }
    /// Moves to the previous entry; before the first one the cursor is invalid. An invalid cursor
    /// stays invalid.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # ["a", "c", "e"].iter().try_for_each(|k| db.put(k, format!("value of {k}")))?;
    /// # let mut cursor = db.default_family().cursor()?;
    /// cursor.seek_to_last()?;
    /// cursor.prev()?;
    /// assert_eq!(cursor.key(), b"c");
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        self.0.step_backward()
    }
    /// Returns true if the cursor is positioned on an entry.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # ["a", "c", "e"].iter().try_for_each(|k| db.put(k, format!("value of {k}")))?;
    /// # let mut cursor = db.default_family().cursor()?;
    /// assert!(!cursor.is_valid()); // not positioned yet
    /// cursor.seek_to_first()?;
    /// assert!(cursor.is_valid());
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }
    /// Returns the key of the current entry, borrowed until the next move.
    ///
    /// # Panics
    /// If the cursor is not valid.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # ["a", "c", "e"].iter().try_for_each(|k| db.put(k, format!("value of {k}")))?;
    /// # let mut cursor = db.default_family().cursor()?;
    /// cursor.seek_to_first()?;
    /// assert_eq!(cursor.key(), b"a");
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.0.key().expect("key() needs a valid cursor: check is_valid() first")
    }
    /// Returns the value of the current entry, and reads it from the value log if it is separated.
    /// The [`Slice`] stays valid after the cursor moves.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # ["a", "c", "e"].iter().try_for_each(|k| db.put(k, format!("value of {k}")))?;
    /// # let mut cursor = db.default_family().cursor()?;
    /// cursor.seek_to_first()?;
    /// assert_eq!(cursor.value()?, "value of a");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` or `Io` if a separated value cannot be read; `Closed`.
    ///
    /// # Panics
    /// If the cursor is not valid.
    #[inline]
    pub fn value(&self) -> Result<Slice> {
        Ok(Slice(self.0.value()?.expect("value() needs a valid cursor: check is_valid() first")))
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
    /// let (mut cursor, mut bytes) = (db.default_family().cursor()?, 0);
    /// cursor.seek_to_first()?;
    /// while cursor.is_valid() {
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
        Ok(self.0.entry()?.expect("entry() needs a valid cursor: check is_valid() first"))
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
    /// let mut cursor = db.default_family().cursor()?;
    /// cursor.seek_to_first()?;
    /// if let Some((key, value)) = cursor.entry_if_resident() {
    ///     assert_eq!((key, value), (&b"moon"[..], &b"full"[..]));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn entry_if_resident(&self) -> Option<(&[u8], &[u8])> {
        self.0.entry_if_resident()
    }
    pub(crate) fn inner(&self) -> &ReadCursor {
        &self.0
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
pub struct Iter(std::result::Result<RangeIter, Option<Error>>);

impl Iter {
    pub(crate) fn new(inner: RangeIter) -> Iter {
        Iter(Ok(inner))
    }
    /// Returns an iterator whose only item is an error.
    pub(crate) fn failed(e: Error) -> Iter {
        Iter(Err(Some(e)))
    }
    /// Returns an iterator over the remaining keys. Does not read values.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// for key in ["a1", "b1", "b2"] {
    ///     db.put(key, "")?;
    /// }
    /// let keys = db.prefix("b")?.keys().rev().collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!([&keys[0][..], &keys[1][..]], [b"b2", b"b1"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keys(self) -> Keys {
        Keys(self)
    }
    /// Returns an iterator over the remaining values, in the order of their keys.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// db.put("a1", "low")?;
    /// db.put("b1", "high")?;
    /// let high = db.range("b"..)?.values().next().expect("b1 is in the range")?;
    /// assert_eq!(&high[..], b"high");
    /// # Ok(())
    /// # }
    /// ```
    pub fn values(self) -> Values {
        Values(self)
    }

    /// Moves to the next entry from the front or the back; `read` returns the item.
    fn next_item<T>(
        &mut self,
        forward: bool,
        read: impl FnOnce(&ReadCursor) -> Result<T>,
    ) -> Option<Result<T>> {
        match &mut self.0 {
            Ok(inner) => inner.next_item(forward, read),
            Err(e) => e.take().map(Err),
        }
    }
}

fn owned_key(cursor: &ReadCursor) -> Result<Slice> {
    let key = cursor.key().ok_or_else(|| Error::internal("an iterator is on no entry"))?;
    Ok(Slice(PinnedSlice::from(key.to_vec())))
}

fn pinned_value(cursor: &ReadCursor) -> Result<Slice> {
    cursor.value()?.map(Slice).ok_or_else(|| Error::internal("an iterator is on no entry"))
}

fn owned_entry(cursor: &ReadCursor) -> Result<(Slice, Slice)> {
    Ok((owned_key(cursor)?, pinned_value(cursor)?))
}

/// Prints the database, the sequence number and the keys at both ends.
impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(inner) => inner.fmt(f),
            Err(e) => write!(f, "Iter({e:?})"),
        }
    }
}

/// An iterator over the keys of a column family or key range, from either end; see
/// [`Family::keys`](crate::Family::keys) and [`Iter::keys`]. After an `Err` the iteration ends.
#[derive(Debug)]
pub struct Keys(Iter);

/// An iterator over the values of a column family or key range, from either end; see
/// [`Family::values`](crate::Family::values) and [`Iter::values`]. After an `Err` the iteration
/// ends.
#[derive(Debug)]
pub struct Values(Iter);

/// Implements the iterator traits; `$read` returns the item from the cursor.
macro_rules! double_ended_iterator {
    ($type:ty, $item:ty, $inner:ident => $iter:expr, $read:expr) => {
        impl Iterator for $type {
            type Item = Result<$item>;
            fn next(&mut self) -> Option<Self::Item> {
                let $inner = self;
                $iter.next_item(true, $read)
            }
        }
        impl DoubleEndedIterator for $type {
            fn next_back(&mut self) -> Option<Self::Item> {
                let $inner = self;
                $iter.next_item(false, $read)
            }
        }
        impl std::iter::FusedIterator for $type {}
    };
}
double_ended_iterator!(Iter, (Slice, Slice), iter => iter, owned_entry);
double_ended_iterator!(Keys, Slice, keys => keys.0, owned_key);
double_ended_iterator!(Values, Slice, values => values.0, pinned_value);
