//! [`Family`]: the handle to a column family, a separate sorted map that shares the log with the
//! others.

use crate::read::source::ReadSource;
use crate::write::batch::wrong_database_error;
use crate::{
    Cursor, FamilyOptions, Iter, Keys, Readable, Result, Slice, Values, WriteOptions, limits,
};
use perigee_engine::reader::Reader;
use perigee_engine::{Batch, Engine, FamilyState as Inner, Operation};
use std::ops::RangeBounds;
use std::sync::Arc;

/// A column family of an open database: a separate map of keys to values, sorted by its own
/// comparator, with its own options. Column families share one write-ahead log, so a
/// [`WriteBatch`](crate::WriteBatch) over several of them is atomic. Handles are cheap to clone.
///
/// Keys are at most 64 KiB, values at most 1 GiB ([`limits`](crate::limits)). Errors common to all
/// calls are listed at [`Db`](crate::Db).
///
/// ```
/// # use perigee::{Db, FamilyOptions, Options};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// let logs = db.create_family("logs", FamilyOptions::new().value_threshold(1024))?;
/// logs.put("2026/11/21", "first light")?;
/// assert!(logs.contains("2026/11/21")?);
/// assert!(!db.contains("2026/11/21")?, "column families are separate maps");
/// assert_eq!(logs.prefix("2026/")?.count(), 1);
/// db.drop_family("logs")?;
/// assert!(logs.get("2026/11/21").is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Family {
    pub(crate) inner: Arc<Inner>,
    pub(crate) engine: Arc<Engine>,
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Family({:?}, {:?})", self.engine, self.inner)
    }
}

impl Family {
    /// Returns the engine's handle, or an error if the column family belongs to another database.
    pub(crate) fn inner_for(&self, engine: &Arc<Engine>) -> Result<&Arc<Inner>> {
        if Arc::ptr_eq(&self.engine, engine) {
            Ok(&self.inner)
        } else {
            Err(wrong_database_error())
        }
    }
    /// Returns its current name.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let tides = db.create_family("tides", FamilyOptions::new())?;
    /// assert_eq!(tides.name(), "tides");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn name(&self) -> String {
        self.inner.name().to_string()
    }
    /// Returns its id, which is never reused within a database.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let old = db.create_family("cache", FamilyOptions::new())?.id();
    /// db.drop_family("cache")?;
    /// assert_ne!(db.create_family("cache", FamilyOptions::new())?.id(), old);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn id(&self) -> u32 {
        self.inner.id.0
    }
    /// Returns its current options.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let tides = db.create_family("tides", FamilyOptions::new().filter_bits(17))?;
    /// assert_eq!(tides.options().filter_bits, 17);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn options(&self) -> FamilyOptions {
        FamilyOptions::from_settings(&self.inner.settings())
    }
    /// Replaces all options of the column family, durably. To change some of them, start from
    /// [`Family::options`]. They take effect at once; those that concern files apply to files
    /// written from now on.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.set_options(family.options().compression(Compression::Zstd(3)))?;
    /// assert_eq!(family.options().compression, Compression::Zstd(3));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for another comparator, a merge operator other than the existing one, or
    /// an option out of range: nothing has changed then. As [`Db::write`](crate::Db::write)
    /// otherwise.
    pub fn set_options(&self, options: FamilyOptions) -> Result<()> {
        self.engine.set_family_settings(&self.inner, options.to_settings())
    }
    /// Sets `key` to `value` with the durability in
    /// [`Options::durability`](crate::Options::durability). A value of more than 1 GiB, up to 4
    /// GiB, is written as by a [`ValueWriter`](crate::values::ValueWriter).
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "new")?;
    /// family.put("moon", "full")?; // replaces the value
    /// assert_eq!(family.get("moon")?.as_deref(), Some(&b"full"[..]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the key or value exceeds a limit; as [`Db::write`](crate::Db::write)
    /// otherwise.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, WriteOptions::new())
    }
    /// Sets `key` to `value` like [`Family::put`], with `options`, for example another durability.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put_with("moon", "full", WriteOptions::new().durability(Durability::None))?;
    /// assert!(family.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        if value.len() > limits::VALUE_BYTES_MAX {
            return self.put_long(key, value, None);
        }
        let mut batch = Batch::with_capacity(Batch::encoded_put_bytes(self.inner.id, key, value));
        batch.put(self.inner.id, key, value)?;
        self.engine.write(batch, options.durability)
    }
    /// Deletes `key`. Deleting a key that does not exist is not an error. Writes a tombstone
    /// without reading the key.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "full")?;
    /// family.delete("moon")?;
    /// family.delete("sun")?; // a key that does not exist is no error
    /// assert!(family.is_empty()?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, WriteOptions::new())
    }
    /// Deletes `key` like [`Family::delete`], with `options`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "full")?;
    /// family.delete_with("moon", WriteOptions::new().durability(Durability::None))?;
    /// assert!(family.is_empty()?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: WriteOptions) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete(self.inner.id, key.as_ref())?;
        self.engine.write_measured(Operation::Delete, batch, options.durability).map(drop)
    }
    /// Returns a copy of the value of `key`, or `None` if the key does not exist. `None` is
    /// certain: if a source that could contain the key cannot be read, the result is an error.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "full")?;
    /// assert_eq!(family.get("moon")?, Some(b"full".to_vec()));
    /// assert_eq!(family.get("sun")?, None);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` or `Io` if a block or value cannot be read; `Closed`; `NotFound` if the column
    /// family was dropped.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Readable::get(self, key)
    }
    /// Returns the value of `key` without copying it. The [`Slice`] pins the block or memtable that
    /// contains the value until it is dropped.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "full")?;
    /// let value = family.get_pinned("moon")?.expect("the key was put");
    /// family.delete("moon")?;
    /// assert_eq!(value, "full"); // stays valid
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::get`].
    pub fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        Readable::get_pinned(self, key)
    }
    /// Returns true if `key` exists. Does not read a separated value, and does not call the merge
    /// operator.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "full")?;
    /// assert!(family.contains("moon")? && !family.contains("sun")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Readable::contains(self, key)
    }
    /// Returns a double-ended iterator over all entries in key order. It shows the column family as
    /// it is at the time of this call.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("tide", "high")?;
    /// family.put("moon", "full")?;
    /// let keys: Result<Vec<_>> = family.iter()?.map(|entry| Ok(entry?.0)).collect();
    /// assert_eq!(keys?, ["moon", "tide"]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn iter(&self) -> Result<Iter> {
        Readable::iter(self)
    }
    /// Returns a double-ended iterator over the entries of a key range, in key order.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// for day in ["11/20", "11/21", "11/22"] {
    ///     family.put(day, "")?;
    /// }
    /// assert_eq!(family.range("11/21"..)?.count(), 2);
    /// assert_eq!(family.range("11/20"..="11/21")?.count(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        Readable::range(self, range)
    }
    /// Returns a double-ended iterator over the entries whose key starts with `prefix`. Under the
    /// comparator `CaseInsensitive` the case of the prefix does not matter; under `Lexicographic`
    /// only the part of the prefix before its first NUL counts.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// for day in ["11/20", "11/21", "12/01"] {
    ///     family.put(day, "")?;
    /// }
    /// let (newest, _) = family.prefix("11/")?.next_back().expect("two entries")?;
    /// assert_eq!(newest, "11/21");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` under `U64`, `I64` and user-defined comparators, where keys with a
    /// common prefix are not adjacent.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        Readable::prefix(self, prefix)
    }
    /// Returns an unpositioned cursor over all entries that exist at the time of this call.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "full")?;
    /// let mut cursor = family.cursor()?;
    /// cursor.seek("m")?;
    /// assert!(cursor.is_valid() && cursor.key() == b"moon");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cursor(&self) -> Result<Cursor> {
        Readable::cursor(self)
    }
    /// Returns an unpositioned cursor that is limited to a key range.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// for day in ["11/20", "11/21", "11/22"] {
    ///     family.put(day, "")?;
    /// }
    /// let mut cursor = family.cursor_within("11/20".."11/22")?;
    /// cursor.seek_to_last()?;
    /// assert_eq!(cursor.key(), b"11/21");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cursor_within<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Cursor> {
        Readable::cursor_within(self, range)
    }
    /// Returns the entry with the smallest key under the comparator of the column family, or `None`
    /// if it has no entries. Costs as much as a seek.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let tides = db.default_family();
    /// assert!(tides.first()?.is_none());
    /// tides.put("12:31", "low")?;
    /// tides.put("06:12", "high")?;
    /// let (time, tide) = tides.first()?.expect("two entries were put");
    /// assert_eq!((&time[..], &tide[..]), (&b"06:12"[..], &b"high"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::get`].
    pub fn first(&self) -> Result<Option<(Slice, Slice)>> {
        Readable::first(self)
    }
    /// Returns the entry with the largest key under the comparator of the column family, or `None`
    /// if it has no entries. Costs as much as a seek.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let events = db.default_family();
    /// events.put(7u64.to_be_bytes(), "seen")?;
    /// let (last, _) = events.last()?.expect("one entry was put");
    /// assert_eq!(&last[..], 7u64.to_be_bytes());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::get`].
    pub fn last(&self) -> Result<Option<(Slice, Slice)>> {
        Readable::last(self)
    }
    /// Returns a double-ended iterator over all keys, in order. Does not read values.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let family = db.default_family();
    /// family.put("moon", "full")?;
    /// family.put("tide", "high")?;
    /// for key in family.keys()? {
    ///     println!("{}", key?.escape_ascii());
    /// }
    /// assert_eq!(family.keys()?.count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keys(&self) -> Result<Keys> {
        Readable::keys(self)
    }
    /// Returns a double-ended iterator over all values, in the order of their keys.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let family = db.default_family();
    /// family.put("moon", "full")?;
    /// family.put("tide", "high")?;
    /// let bytes: usize = family.values()?.map(|v| v.map(|v| v.len())).sum::<Result<_, _>>()?;
    /// assert_eq!(bytes, 8);
    /// # Ok(())
    /// # }
    /// ```
    pub fn values(&self) -> Result<Values> {
        Readable::values(self)
    }
    /// Returns true if the column family has no entries that a reader sees. Costs as much as a
    /// seek.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let family = db.default_family();
    /// family.put("moon", "full")?;
    /// assert!(!family.is_empty()?);
    /// family.delete("moon")?;
    /// assert!(family.is_empty()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::get`].
    pub fn is_empty(&self) -> Result<bool> {
        Readable::is_empty(self)
    }
    /// Writes the memtables to table files, and returns when these are installed and durable.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "full")?;
    /// family.flush()?;
    /// assert_eq!(family.files()?[0].entries, 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Admin::flush`](crate::Admin::flush).
    pub fn flush(&self) -> Result<()> {
        self.inner.check_not_dropped()?;
        self.engine.flush(&[Arc::clone(&self.inner)])
    }
    /// Flushes, then merges all tables into the deepest level, dropping the versions and tombstones
    /// that no snapshot needs. Cost: can read and rewrite the whole column family.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// for moon in ["new", "full"] {
    ///     family.put("moon", moon)?;
    ///     family.flush()?;
    /// }
    /// family.compact()?;
    /// assert_eq!(family.files()?[0].entries, 1); // the older version is gone
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Admin::compact`](crate::Admin::compact).
    pub fn compact(&self) -> Result<()> {
        self.inner.check_not_dropped()?;
        self.engine.compact(&[Arc::clone(&self.inner)])
    }
}

impl ReadSource for Family {
    fn family_state(&self) -> Result<&Inner> {
        Ok(&self.inner)
    }
    #[inline]
    fn with_reader<R>(&self, read: impl FnOnce(Reader<'_>) -> Result<R>) -> Result<R> {
        read(self.engine.reader(&self.inner)?)
    }
}

impl Readable for Family {}

/// Iterates over all entries like [`Family::iter`]. If that fails, the only item is its error.
///
/// ```
/// # use perigee::{Db, Options};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// let family = db.default_family();
/// family.put("moon", "full")?;
/// for entry in &family {
///     let (key, value) = entry?;
///     assert_eq!((&key[..], &value[..]), (&b"moon"[..], &b"full"[..]));
/// }
/// # Ok(())
/// # }
/// ```
impl IntoIterator for &Family {
    type Item = Result<(Slice, Slice)>;
    type IntoIter = Iter;
    fn into_iter(self) -> Iter {
        self.iter().unwrap_or_else(Iter::failed)
    }
}
