//! The handle of a column family: a separate sorted map that shares the log with the others.

use crate::batch::wrong_database_error;
use crate::iter::range_to_bounds;
use crate::{Cursor, FamilyOptions, Iter, Result, Slice, WriteOptions, translate};
use perigee_base::latency::Operation;
use perigee_engine::{Engine, FamilyState as Inner};
use perigee_file::log::Batch;
use perigee_tree::get;
use perigee_tree::scan::ScanBounds;
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
    pub fn name(&self) -> String {
        self.inner.name().to_string()
    }
    /// Returns its id, which is never reused within a database.
    pub fn id(&self) -> u32 {
        self.inner.id.0
    }
    /// Returns its current options.
    pub fn options(&self) -> FamilyOptions {
        translate::family_options(&self.inner.settings())
    }
    /// Replaces all options of the column family, durably. To change some of them, start from
    /// [`Family::options`]. They take effect at once; those that concern files apply to files
    /// written from now on.
    ///
    /// # Errors
    /// `InvalidArgument` for another comparator, another merge operator than the existing one, or
    /// an option out of range: nothing has changed then. As [`Db::write`](crate::Db::write)
    /// otherwise.
    pub fn set_options(&self, options: FamilyOptions) -> Result<()> {
        self.engine.set_family_settings(&self.inner, translate::family_settings(&options))
    }
    /// Sets `key` to `value` with the durability in
    /// [`Options::durability`](crate::Options::durability).
    ///
    /// # Errors
    /// `InvalidArgument` if the key or value exceeds a limit; as [`Db::write`](crate::Db::write)
    /// otherwise.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, WriteOptions::new())
    }
    /// Sets `key` to `value` like [`Family::put`], with `options`, for example another durability.
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let mut batch = Batch::with_capacity(Batch::encoded_put_bytes(self.inner.id, key, value));
        batch.put(self.inner.id, key, value)?;
        self.engine.write(batch, options.durability.map(translate::durability))
    }
    /// Deletes `key`. Deleting a key that does not exist is not an error. Writes a tombstone
    /// without reading the key.
    ///
    /// # Errors
    /// Same as [`Family::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, WriteOptions::new())
    }
    /// Deletes `key` like [`Family::delete`], with `options`.
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: WriteOptions) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete(self.inner.id, key.as_ref())?;
        let durability = options.durability.map(translate::durability);
        self.engine.write_measured(Operation::Delete, batch, durability).map(drop)
    }
    /// Returns a copy of the value of `key`, or `None` if the key does not exist. `None` is
    /// certain: if a source that could contain the key cannot be read, the result is an error.
    ///
    /// # Errors
    /// `Corruption` or `Io` if a block or value cannot be read; `Closed`; `NotFound` if the column
    /// family was dropped.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Ok(self.get_pinned(key)?.map(Vec::from))
    }
    /// Returns the value of `key` without copying it. The [`Slice`] pins the block or memtable that
    /// contains the value until it is dropped.
    ///
    /// # Errors
    /// Same as [`Family::get`].
    pub fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let started = self.engine.start_get_timer();
        let (view, at) = self.engine.pin_view(&self.inner)?;
        let value = get::get(&view, key.as_ref(), at)?;
        self.engine.finish_get(started, value.is_some());
        Ok(value.map(Slice))
    }
    /// Returns true if `key` exists. Does not read a separated value, and does not call the merge
    /// operator.
    ///
    /// # Errors
    /// Same as [`Family::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let started = self.engine.start_get_timer();
        let (view, at) = self.engine.pin_view(&self.inner)?;
        let found = get::contains(&view, key.as_ref(), at)?;
        self.engine.finish_get(started, found);
        Ok(found)
    }
    /// Returns a double-ended iterator over all entries in key order. It sees the column family as
    /// of this call.
    pub fn iter(&self) -> Result<Iter> {
        self.new_iter(ScanBounds::all())
    }
    /// Returns a double-ended iterator over the entries of a key range, in key order.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        self.new_iter(range_to_bounds(&range))
    }
    /// Returns an iterator over the entries whose key starts with `prefix`. Under the comparator
    /// `CaseInsensitive` the case of the prefix does not matter; under `Lexicographic` only the
    /// part of the prefix before its first NUL counts.
    ///
    /// # Errors
    /// `InvalidArgument` under `U64`, `I64` and user-defined comparators, where keys with a
    /// common prefix are not adjacent.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.new_iter(ScanBounds::prefix(self.inner.tree.comparator(), prefix.as_ref())?)
    }
    /// Returns an unpositioned cursor over all entries, as of this call.
    pub fn cursor(&self) -> Result<Cursor> {
        self.new_cursor(ScanBounds::all())
    }
    /// Returns an unpositioned cursor that is limited to a key range.
    pub fn cursor_within<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Cursor> {
        self.new_cursor(range_to_bounds(&range))
    }
    /// Writes the memtables to table files, and returns when these are installed and durable.
    ///
    /// # Errors
    /// Same as [`Db::flush`](crate::Db::flush).
    pub fn flush(&self) -> Result<()> {
        self.inner.check_not_dropped()?;
        self.engine.flush(&[Arc::clone(&self.inner)])
    }
    /// Flushes, then merges all tables into the deepest level, dropping the versions and tombstones
    /// that no snapshot needs. Cost: can read and rewrite the whole column family.
    ///
    /// # Errors
    /// Same as [`Db::compact`](crate::Db::compact).
    pub fn compact(&self) -> Result<()> {
        self.inner.check_not_dropped()?;
        self.engine.compact(&[Arc::clone(&self.inner)])
    }

    fn new_iter(&self, bounds: ScanBounds) -> Result<Iter> {
        let (view, at) = self.engine.read_view(&self.inner)?;
        Ok(Iter::new(&self.engine, view, at, bounds))
    }

    fn new_cursor(&self, bounds: ScanBounds) -> Result<Cursor> {
        let (view, at) = self.engine.read_view(&self.inner)?;
        Ok(Cursor::new(&self.engine, view, at, bounds))
    }
}
