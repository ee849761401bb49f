//! [`Snapshot`]: a consistent view of all column families.

use crate::iter::range_to_bounds;
use crate::{Cursor, Family, Iter, Result, Slice};
use perigee_engine::Engine;
use perigee_engine::snapshot::SnapshotHandle;
use perigee_tree::get;
use perigee_tree::scan::ScanBounds;
use std::ops::RangeBounds;
use std::sync::Arc;

/// A read-only view of all column families at the moment when it was taken
/// ([`Db::snapshot`](crate::Db::snapshot)). A snapshot pins a sequence number: taking it copies
/// nothing, and its only cost is that compactions keep the versions it can see until it is dropped.
///
/// Reads take a [`Family`] and fail with `NotFound` if the column family was created by a clone,
/// cleared or dropped after the snapshot. Entries that expire disappear from snapshots too.
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

/// Prints the database and the sequence number.
impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({:?}, sequence {})", self.engine, self.sequence())
    }
}

impl Snapshot {
    /// Returns the sequence number of the last operation that the snapshot sees.
    pub fn sequence(&self) -> u64 {
        self.handle.seq().0
    }
    /// Returns a copy of the value of `key` as of the snapshot; see [`Family::get`].
    pub fn get(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Ok(self.get_pinned(family, key)?.map(Vec::from))
    }
    /// Returns the value of `key` as of the snapshot without copying it; see
    /// [`Family::get_pinned`].
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
    /// Returns true if `key` exists as of the snapshot; see [`Family::contains`].
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
    /// Returns an iterator over all entries as of the snapshot.
    pub fn iter(&self, family: &Family) -> Result<Iter> {
        self.new_iter(family, ScanBounds::all())
    }
    /// Returns an iterator over the entries of a key range as of the snapshot.
    pub fn range<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<Iter> {
        self.new_iter(family, range_to_bounds(&range))
    }
    /// Returns an iterator over the entries whose key starts with `prefix` as of the snapshot; see
    /// [`Family::prefix`].
    pub fn prefix(&self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.new_iter(
            family,
            ScanBounds::prefix(family.inner_for(&self.engine)?.tree.comparator(), prefix.as_ref())?,
        )
    }
    /// Returns an unpositioned cursor over all entries as of the snapshot.
    pub fn cursor(&self, family: &Family) -> Result<Cursor> {
        self.new_cursor(family, ScanBounds::all())
    }
    /// Returns an unpositioned cursor over a key range as of the snapshot.
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
