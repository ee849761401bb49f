//! [`Readable`]: the reads that a database, a column family, a snapshot and a transaction have in
//! common. Each source only selects a reader of the engine; the methods are defined once, here.

pub mod slice;
pub mod iter;
pub mod snapshot;
pub mod multi_get;
pub mod value_reader;
pub mod estimate;
pub mod explain;

use crate::read::iter::range_to_bounds;
use crate::stats::RangeEstimate;
use crate::values::ValueReader;
use crate::{Cursor, Iter, Keys, Result, Slice, ValueWithTtl, Values};
use perigee_engine::PinnedSlice;
use perigee_engine::reader::ScanBounds;
use source::ReadSource;
use std::ops::RangeBounds;

/// The source of a read; private, so that no other crate implements [`Readable`].
pub(crate) mod source {
    use perigee_engine::reader::Reader;
    use perigee_engine::{FamilyState, Result};

    /// Selects what to read: the current state of a column family, a snapshot or a transaction.
    pub trait ReadSource {
        /// Returns the column family, even if it was dropped.
        fn family_state(&self) -> Result<&FamilyState>;
        /// Calls `read` with a reader of the source.
        fn with_reader<R>(&self, read: impl FnOnce(Reader<'_>) -> Result<R>) -> Result<R>;
    }
}

/// Reads of one column family: the current state of a [`Family`](crate::Family), a
/// [`Db`](crate::Db) (its column family `default`), or a column family in a snapshot or transaction
/// ([`Snapshot::family`](crate::Snapshot::family), [`Txn::family`](crate::Txn::family)). Use it for
/// functions that accept any of them; it need not be imported to call these methods on one of
/// the types.
///
/// ```
/// # use perigee::{Db, Options, Readable, Result, TxnOptions};
/// /// Returns the number of bytes in all values.
/// fn total_bytes(source: &impl Readable) -> Result<usize> {
///     source.values()?.map(|value| value.map(|v| v.len())).sum()
/// }
///
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// let family = db.default_family();
/// family.put("moon", "full")?;
/// let snapshot = db.snapshot()?;
/// let txn = db.begin(TxnOptions::new())?;
/// txn.put(&family, "tide", "high")?;
/// assert_eq!(total_bytes(&db)?, 4);
/// assert_eq!(total_bytes(&family)?, 4);
/// assert_eq!(total_bytes(&snapshot.family(&family))?, 4);
/// assert_eq!(total_bytes(&txn.family(&family))?, 8); // with its own writes
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of [`Family::get`](crate::Family::get) and [`Cursor::seek`].
pub trait Readable: ReadSource {
    /// Returns a copy of the value of `key`, or `None` if the key does not exist; see
    /// [`Family::get`](crate::Family::get).
    #[inline]
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Ok(self.get_pinned(key)?.map(Vec::from))
    }
    /// Returns the value of `key` without copying it; see
    /// [`Family::get_pinned`](crate::Family::get_pinned).
    #[inline]
    fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let value = self.with_reader(|mut reader| reader.get(key.as_ref()))?;
        Ok(value.map(Slice))
    }
    /// Returns true if `key` exists; see [`Family::contains`](crate::Family::contains).
    #[inline]
    fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.with_reader(|mut reader| reader.contains(key.as_ref()))
    }
    /// Copies the value of `key` to the start of `buf`; see
    /// [`Family::get_into`](crate::Family::get_into).
    #[inline]
    fn get_into(&self, key: impl AsRef<[u8]>, buf: &mut [u8]) -> Result<Option<usize>> {
        let value = self.with_reader(|mut reader| reader.get(key.as_ref()))?;
        Ok(copy_into_slice(value, buf))
    }
    /// Replaces the contents of `buf` with the value of `key`; see
    /// [`Family::get_into_vec`](crate::Family::get_into_vec).
    #[inline]
    fn get_into_vec(&self, key: impl AsRef<[u8]>, buf: &mut Vec<u8>) -> Result<bool> {
        buf.clear();
        let value = self.with_reader(|mut reader| reader.get(key.as_ref()))?;
        Ok(copy_into_vec(value, buf))
    }
    /// Returns the value of `key` with its expiry time; see
    /// [`Family::get_with_ttl`](crate::Family::get_with_ttl).
    fn get_with_ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueWithTtl>> {
        let found = self.with_reader(|mut reader| reader.get_with_expiry(key.as_ref()))?;
        Ok(found.map(ValueWithTtl::from_engine))
    }
    /// Opens the value of `key`, to read it in parts, or returns `None` if the key does not exist;
    /// see [`Family::reader`](crate::Family::reader).
    fn reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        let value = self.with_reader(|mut reader| reader.open_value(key.as_ref()))?;
        Ok(value.map(ValueReader::new))
    }
    /// Returns the values of many keys, in the order of `keys`, each with its own result; see
    /// [`Family::multi_get`](crate::Family::multi_get).
    fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Slice>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let borrowed: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        match self.with_reader(|mut reader| Ok(reader.multi_get(&borrowed))) {
            Ok(values) => values.into_iter().map(|value| value.map(|v| v.map(Slice))).collect(),
            // The source cannot be read at all: every key has this error.
            Err(e) => keys.iter().map(|_| Err(e.clone())).collect(),
        }
    }
    /// Returns a double-ended iterator over all entries in key order; see
    /// [`Family::iter`](crate::Family::iter).
    fn iter(&self) -> Result<Iter> {
        self.with_reader(|reader| reader.iter(ScanBounds::all())).map(Iter::new)
    }
    /// Returns a double-ended iterator over the entries of a key range; see
    /// [`Family::range`](crate::Family::range).
    fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        self.with_reader(|reader| reader.iter(range_to_bounds(&range))).map(Iter::new)
    }
    /// Returns a double-ended iterator over the entries whose key starts with `prefix`; see
    /// [`Family::prefix`](crate::Family::prefix).
    ///
    /// # Errors
    /// `InvalidArgument` if the comparator does not keep such keys together.
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        // Before the source is read: the comparator may not support prefixes at all.
        let comparator = self.family_state()?.comparator();
        let bounds = ScanBounds::prefix(comparator, prefix.as_ref())?;
        self.with_reader(|reader| reader.iter(bounds)).map(Iter::new)
    }
    /// Returns an unpositioned cursor over all entries; see
    /// [`Family::cursor`](crate::Family::cursor).
    fn cursor(&self) -> Result<Cursor> {
        self.with_reader(|reader| reader.cursor(ScanBounds::all())).map(Cursor::new)
    }
    /// Returns an unpositioned cursor over a key range; see
    /// [`Family::cursor_within`](crate::Family::cursor_within).
    fn cursor_within<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Cursor> {
        self.with_reader(|reader| reader.cursor(range_to_bounds(&range))).map(Cursor::new)
    }
    /// Returns the entry with the smallest key, or `None` if there are no entries; see
    /// [`Family::first`](crate::Family::first).
    fn first(&self) -> Result<Option<(Slice, Slice)>> {
        self.iter()?.next().transpose()
    }
    /// Returns the entry with the largest key, or `None` if there are no entries; see
    /// [`Family::last`](crate::Family::last).
    fn last(&self) -> Result<Option<(Slice, Slice)>> {
        self.iter()?.next_back().transpose()
    }
    /// Returns a double-ended iterator over all keys in order; see
    /// [`Family::keys`](crate::Family::keys).
    fn keys(&self) -> Result<Keys> {
        Ok(self.iter()?.keys())
    }
    /// Returns a double-ended iterator over all values in key order; see
    /// [`Family::values`](crate::Family::values).
    fn values(&self) -> Result<Values> {
        Ok(self.iter()?.values())
    }
    /// Returns true if there are no entries; see [`Family::is_empty`](crate::Family::is_empty).
    fn is_empty(&self) -> Result<bool> {
        let mut cursor = self.cursor()?;
        cursor.seek_to_first()?;
        Ok(!cursor.is_valid())
    }
    /// Estimates the size of a key range from metadata in memory, without a transaction's own
    /// writes; see [`Family::estimate_range`](crate::Family::estimate_range).
    fn estimate_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<RangeEstimate> {
        self.with_reader(|reader| Ok(reader.estimate_range(&range_to_bounds(&range))))
    }
}

/// Defines the methods of [`Readable`] on a type, so that callers need not import the trait, and
/// its `IntoIterator`.
macro_rules! inherent_reads {
    ($type:ty) => {
        /// Iterates over all entries; see [`Family::iter`]. If that fails, the only item is its
        /// error.
        impl IntoIterator for &$type {
            type Item = Result<(Slice, Slice)>;
            type IntoIter = Iter;
            fn into_iter(self) -> Iter {
                self.iter().unwrap_or_else(Iter::failed)
            }
        }

        impl $type {
            /// Returns a copy of the value of `key`; see [`Readable::get`].
            pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
                Readable::get(self, key)
            }
            /// Returns the value of `key` without copying it; see [`Readable::get_pinned`].
            pub fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
                Readable::get_pinned(self, key)
            }
            /// Returns true if `key` exists; see [`Readable::contains`].
            pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
                Readable::contains(self, key)
            }
            /// Copies the value of `key` to the start of `buf`; see [`Readable::get_into`].
            pub fn get_into(&self, key: impl AsRef<[u8]>, buf: &mut [u8]) -> Result<Option<usize>> {
                Readable::get_into(self, key, buf)
            }
            /// Replaces the contents of `buf` with the value of `key`; see
            /// [`Readable::get_into_vec`].
            pub fn get_into_vec(&self, key: impl AsRef<[u8]>, buf: &mut Vec<u8>) -> Result<bool> {
                Readable::get_into_vec(self, key, buf)
            }
            /// Returns the value of `key` with its expiry time; see [`Readable::get_with_ttl`].
            pub fn get_with_ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueWithTtl>> {
                Readable::get_with_ttl(self, key)
            }
            /// Opens the value of `key`, to read it in parts; see [`Readable::reader`].
            pub fn reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
                Readable::reader(self, key)
            }
            /// Returns the values of many keys; see [`Readable::multi_get`].
            pub fn multi_get<K: AsRef<[u8]>>(
                &self,
                keys: impl IntoIterator<Item = K>,
            ) -> Vec<Result<Option<Slice>>> {
                Readable::multi_get(self, keys)
            }
            /// Returns an iterator over all entries; see [`Readable::iter`].
            pub fn iter(&self) -> Result<Iter> {
                Readable::iter(self)
            }
            /// Returns an iterator over a key range; see [`Readable::range`].
            pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
                Readable::range(self, range)
            }
            /// Returns an iterator over the keys with a prefix; see [`Readable::prefix`].
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
                Readable::prefix(self, prefix)
            }
            /// Returns an unpositioned cursor; see [`Readable::cursor`].
            pub fn cursor(&self) -> Result<Cursor> {
                Readable::cursor(self)
            }
            /// Returns an unpositioned cursor over a key range; see [`Readable::cursor_within`].
            pub fn cursor_within<K: AsRef<[u8]>>(
                &self,
                range: impl RangeBounds<K>,
            ) -> Result<Cursor> {
                Readable::cursor_within(self, range)
            }
            /// Returns the entry with the smallest key; see [`Readable::first`].
            pub fn first(&self) -> Result<Option<(Slice, Slice)>> {
                Readable::first(self)
            }
            /// Returns the entry with the largest key; see [`Readable::last`].
            pub fn last(&self) -> Result<Option<(Slice, Slice)>> {
                Readable::last(self)
            }
            /// Returns an iterator over all keys; see [`Readable::keys`].
            pub fn keys(&self) -> Result<Keys> {
                Readable::keys(self)
            }
            /// Returns an iterator over all values; see [`Readable::values`].
            pub fn values(&self) -> Result<Values> {
                Readable::values(self)
            }
            /// Returns true if there are no entries; see [`Readable::is_empty`].
            pub fn is_empty(&self) -> Result<bool> {
                Readable::is_empty(self)
            }
            /// Estimates the size of a key range; see [`Readable::estimate_range`].
            pub fn estimate_range<K: AsRef<[u8]>>(
                &self,
                range: impl RangeBounds<K>,
            ) -> Result<RangeEstimate> {
                Readable::estimate_range(self, range)
            }
        }
    };
}
pub(crate) use inherent_reads;

/// Copies a value to the start of `buf` if it fits; returns its length in any case.
fn copy_into_slice(value: Option<PinnedSlice>, buf: &mut [u8]) -> Option<usize> {
    let value = value?;
    if let Some(target) = buf.get_mut(..value.len()) {
        target.copy_from_slice(&value);
    }
    Some(value.len())
}

/// Appends the value to `buf`; returns false if there is none.
fn copy_into_vec(value: Option<PinnedSlice>, buf: &mut Vec<u8>) -> bool {
    let found = value.is_some();
    if let Some(value) = value {
        buf.extend_from_slice(&value);
    }
    found
}
