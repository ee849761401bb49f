//! A handle of a column family: a sorted map of its own, sharing the log with its siblings.

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

/// A column family of an open database. Cheap to clone. Calls on a dropped family fail with
/// `NotFound`.
///
/// ```
/// # use perigee::{Db, FamilyOptions, Options};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// let logs = db.create_family("logs", FamilyOptions::new().value_threshold(1024))?;
/// logs.put("2026/11/21", "first light")?;
/// assert!(logs.contains("2026/11/21")?);
/// assert!(!db.contains("2026/11/21")?, "families are separate maps");
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
    /// Its inner self, for something that belongs to `engine`.
    pub(crate) fn inner_for(&self, engine: &Arc<Engine>) -> Result<&Arc<Inner>> {
        if Arc::ptr_eq(&self.engine, engine) {
            Ok(&self.inner)
        } else {
            Err(wrong_database_error())
        }
    }
    /// Its name now.
    pub fn name(&self) -> String {
        self.inner.name().to_string()
    }
    /// Its number, never reused.
    pub fn id(&self) -> u32 {
        self.inner.id.0
    }
    /// Its effective options.
    pub fn options(&self) -> FamilyOptions {
        translate::family_options(&self.inner.settings())
    }
    /// Gives it other options, durably; they hold from now on, for new files where they concern
    /// files. Start from [`Family::options`] and change what is to change.
    ///
    /// # Errors
    /// `InvalidArgument` for another key order, or an option out of range: then nothing has
    /// changed.
    pub fn set_options(&self, options: FamilyOptions) -> Result<()> {
        self.engine.set_family_settings(&self.inner, translate::family_settings(&options))
    }
    /// Sets `key` to `value`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, WriteOptions::new())
    }
    /// Sets `key` to `value`, with options.
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
    /// Removes `key`; no error if it is not there.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, WriteOptions::new())
    }
    /// Removes `key`, with options.
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: WriteOptions) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete(self.inner.id, key.as_ref())?;
        let durability = options.durability.map(translate::durability);
        self.engine.write_measured(Operation::Delete, batch, durability).map(drop)
    }
    /// The value of `key`, copied. `None` is an assertion: every place that could hold the key was
    /// read.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Ok(self.get_pinned(key)?.map(Vec::from))
    }
    /// The value of `key` without a copy.
    pub fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let started = self.engine.start_get_timer();
        let (view, at) = self.engine.pin_view(&self.inner)?;
        let value = get::get(&view, key.as_ref(), at)?;
        self.engine.finish_get(started, value.is_some());
        Ok(value.map(Slice))
    }
    /// Whether `key` is there. Does not fetch a separated value.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let started = self.engine.start_get_timer();
        let (view, at) = self.engine.pin_view(&self.inner)?;
        let found = get::contains(&view, key.as_ref(), at)?;
        self.engine.finish_get(started, found);
        Ok(found)
    }
    /// All entries in key order, from both ends.
    pub fn iter(&self) -> Result<Iter> {
        self.new_iter(ScanBounds::all())
    }
    /// The entries of a range in key order, from both ends.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        self.new_iter(range_to_bounds(&range))
    }
    /// The entries whose key starts with `prefix`: in any case under `CaseInsensitive`, up to its
    /// first NUL under `Lexicographic`.
    ///
    /// # Errors
    /// `InvalidArgument` under `U64`, `I64` and a user's own order, where keys with one prefix do
    /// not lie together.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.new_iter(ScanBounds::prefix(self.inner.tree.comparator(), prefix.as_ref())?)
    }
    /// A cursor over all entries.
    pub fn cursor(&self) -> Result<Cursor> {
        self.new_cursor(ScanBounds::all())
    }
    /// A cursor that stays within a range.
    pub fn cursor_within<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Cursor> {
        self.new_cursor(range_to_bounds(&range))
    }
    /// Writes the memtable to table files; returns when they are installed.
    pub fn flush(&self) -> Result<()> {
        self.inner.check_not_dropped()?;
        self.engine.flush(&[Arc::clone(&self.inner)])
    }
    /// Merges everything into the deepest level, dropping what nothing can see.
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
