//! The database as it was at one moment.

use crate::iter::range_to_bounds;
use crate::{Cursor, Family, Iter, Result, Slice};
use perigee_engine::Engine;
use perigee_engine::snapshot::SnapshotHandle;
use perigee_tree::get;
use perigee_tree::scan::ScanBounds;
use std::ops::RangeBounds;
use std::sync::Arc;

/// All families as they were when the snapshot was taken. It is a number and a place in a list: it
/// costs nothing to keep but the old versions that compaction may not drop.
///
/// ```
/// # use perigee::{Db, Options};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// let family = db.default_family();
/// db.put("moon", "new")?;
/// let then = db.snapshot()?;
/// db.put("moon", "full")?;
/// assert_eq!(then.get(&family, "moon")?.as_deref(), Some(&b"new"[..]));
/// assert_eq!(db.get("moon")?.as_deref(), Some(&b"full"[..]));
/// # Ok(())
/// # }
/// ```
pub struct Snapshot {
    pub(crate) handle: SnapshotHandle,
    pub(crate) engine: Arc<Engine>,
}

/// Short: of which database, and which moment.
impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({:?}, sequence {})", self.engine, self.sequence())
    }
}

impl Snapshot {
    /// The sequence number of the last operation it sees.
    pub fn sequence(&self) -> u64 {
        self.handle.seq().0
    }
    /// The value of `key` then, copied.
    pub fn get(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Ok(self.get_pinned(family, key)?.map(Vec::from))
    }
    /// The value of `key` then, without a copy.
    pub fn get_pinned(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let started = self.engine.start_get_timer();
        let value = get::get(
            &*self.engine.pin_view_at(family.inner_for(&self.engine)?, &self.handle)?,
            key.as_ref(),
            self.handle.seq(),
        )?;
        self.engine.finish_get(started, value.is_some());
        Ok(value.map(Slice))
    }
    /// Whether `key` was there.
    pub fn contains(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<bool> {
        let started = self.engine.start_get_timer();
        let found = get::contains(
            &*self.engine.pin_view_at(family.inner_for(&self.engine)?, &self.handle)?,
            key.as_ref(),
            self.handle.seq(),
        )?;
        self.engine.finish_get(started, found);
        Ok(found)
    }
    /// All entries then.
    pub fn iter(&self, family: &Family) -> Result<Iter> {
        self.new_iter(family, ScanBounds::all())
    }
    /// The entries of a range then.
    pub fn range<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<Iter> {
        self.new_iter(family, range_to_bounds(&range))
    }
    /// The entries whose key starts with `prefix` then.
    pub fn prefix(&self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.new_iter(
            family,
            ScanBounds::prefix(family.inner_for(&self.engine)?.tree.comparator(), prefix.as_ref())?,
        )
    }
    /// A cursor over all entries then.
    pub fn cursor(&self, family: &Family) -> Result<Cursor> {
        self.new_cursor(family, ScanBounds::all())
    }
    /// A cursor that stays within a range, then.
    pub fn cursor_within<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<Cursor> {
        self.new_cursor(family, range_to_bounds(&range))
    }

    fn new_iter(&self, family: &Family, bounds: ScanBounds) -> Result<Iter> {
        let view = self.engine.view_at(family.inner_for(&self.engine)?, &self.handle)?;
        Ok(Iter::new(&self.engine, view, self.handle.seq(), bounds))
    }

    fn new_cursor(&self, family: &Family, bounds: ScanBounds) -> Result<Cursor> {
        let view = self.engine.view_at(family.inner_for(&self.engine)?, &self.handle)?;
        Ok(Cursor::new(&self.engine, view, self.handle.seq(), bounds))
    }
}
