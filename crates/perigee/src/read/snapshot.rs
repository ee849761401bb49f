//! [`Snapshot`]: a consistent view of all column families.

use crate::read::inherent_reads;
use crate::read::source::ReadSource;
use crate::stats::RangeEstimate;
use crate::values::ValueReader;
use crate::{Cursor, Family, Iter, Keys, Readable, Result, Slice, ValueWithTtl, Values};
use perigee_engine::reader::Reader;
use perigee_engine::{Engine, FamilyState, SnapshotHandle};
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
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// assert_eq!(db.snapshot()?.sequence(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn sequence(&self) -> u64 {
        self.handle.seq().0
    }
    /// Returns a column family as of the snapshot, for reads without the parameter `family` and for
    /// functions that take a [`Readable`]. Reads fail with `InvalidArgument` if the column family
    /// belongs to another database.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let family = db.default_family();
    /// db.put("moon", "new")?;
    /// let snapshot = db.snapshot()?;
    /// db.put("tide", "high")?;
    /// let then = snapshot.family(&family);
    /// assert_eq!(then.get("moon")?.as_deref(), Some(&b"new"[..]));
    /// let (last, _) = then.last()?.expect("moon existed");
    /// assert_eq!(&last[..], b"moon");
    /// # Ok(())
    /// # }
    /// ```
    pub fn family<'a>(&'a self, family: &'a Family) -> SnapshotFamily<'a> {
        SnapshotFamily { snapshot: self, family }
    }
    /// Returns a copy of the value of `key` as of the snapshot; see [`Family::get`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let then = db.snapshot()?;
    /// # family.put("moon", "full")?;
    /// # family.put("tide", "high")?;
    /// assert_eq!(then.get(&family, "moon")?.as_deref(), Some(&b"new"[..])); // now "full"
    /// assert_eq!(then.get(&family, "tide")?, None); // was put later
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.family(family).get(key)
    }
    /// Returns the value of `key` as of the snapshot without copying it; see
    /// [`Family::get_pinned`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let then = db.snapshot()?;
    /// # family.put("moon", "full")?;
    /// # family.put("tide", "high")?;
    /// let value = then.get_pinned(&family, "moon")?.expect("it existed");
    /// assert_eq!(value, "new"); // now "full"
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get_pinned(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.family(family).get_pinned(key)
    }
    /// Returns true if `key` exists as of the snapshot; see [`Family::contains`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let then = db.snapshot()?;
    /// # family.put("moon", "full")?;
    /// # family.put("tide", "high")?;
    /// assert!(then.contains(&family, "moon")?);
    /// assert!(!then.contains(&family, "tide")?); // was put later
    /// # Ok::<(), Error>(())
    /// ```
    pub fn contains(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<bool> {
        self.family(family).contains(key)
    }
    /// Returns an iterator over all entries as of the snapshot.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let then = db.snapshot()?;
    /// # family.put("moon", "full")?;
    /// # family.put("tide", "high")?;
    /// assert_eq!(then.iter(&family)?.count(), 1);
    /// assert_eq!(family.iter()?.count(), 2); // with a later entry
    /// # Ok::<(), Error>(())
    /// ```
    pub fn iter(&self, family: &Family) -> Result<Iter> {
        self.family(family).iter()
    }
    /// Returns an iterator over the entries of a key range as of the snapshot.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let then = db.snapshot()?;
    /// # family.put("moon", "full")?;
    /// # family.put("tide", "high")?;
    /// let (key, value) = then.range(&family, "m"..)?.next().expect("an entry")?;
    /// assert!(key == "moon" && value == "new");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<Iter> {
        self.family(family).range(range)
    }
    /// Returns an iterator over the entries whose key starts with `prefix` as of the snapshot; see
    /// [`Family::prefix`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let then = db.snapshot()?;
    /// # family.put("moon", "full")?;
    /// # family.put("tide", "high")?;
    /// assert_eq!(then.prefix(&family, "mo")?.count(), 1);
    /// assert_eq!(then.prefix(&family, "ti")?.count(), 0); // "tide" was put later
    /// # Ok::<(), Error>(())
    /// ```
    pub fn prefix(&self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.family(family).prefix(prefix)
    }
    /// Returns an unpositioned cursor over all entries as of the snapshot.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let then = db.snapshot()?;
    /// # family.put("moon", "full")?;
    /// # family.put("tide", "high")?;
    /// let mut cursor = then.cursor(&family)?;
    /// cursor.seek_to_last()?;
    /// assert_eq!(cursor.key(), b"moon"); // "tide" was put later
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cursor(&self, family: &Family) -> Result<Cursor> {
        self.family(family).cursor()
    }
    /// Returns an unpositioned cursor over a key range as of the snapshot.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let then = db.snapshot()?;
    /// # family.put("moon", "full")?;
    /// # family.put("tide", "high")?;
    /// let mut cursor = then.cursor_within(&family, "a".."n")?;
    /// cursor.seek_to_first()?;
    /// assert_eq!(cursor.value()?, "new");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cursor_within<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<Cursor> {
        self.family(family).cursor_within(range)
    }
    /// Returns the values of many keys as of the snapshot; see [`Family::multi_get`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let then = db.snapshot()?;
    /// # family.put("moon", "full")?;
    /// # family.put("tide", "high")?;
    /// let values = then.multi_get(&family, ["moon", "tide"]);
    /// assert!(matches!(&values[0], Ok(Some(value)) if *value == "new"));
    /// assert!(matches!(&values[1], Ok(None))); // was put later
    /// # Ok::<(), Error>(())
    /// ```
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        family: &Family,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Slice>>> {
        self.family(family).multi_get(keys)
    }
    /// Copies a value as of the snapshot to `buf`; see [`Family::get_into`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let then = db.snapshot()?;
    /// # family.put("moon", "full")?;
    /// # family.put("tide", "high")?;
    /// let mut buf = [0; 8];
    /// assert_eq!(then.get_into(&family, "moon", &mut buf)?, Some(3));
    /// assert_eq!(&buf[..3], b"new");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get_into(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        buf: &mut [u8],
    ) -> Result<Option<usize>> {
        self.family(family).get_into(key, buf)
    }
    /// Replaces the contents of `buf` with a value as of the snapshot; see
    /// [`Family::get_into_vec`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let then = db.snapshot()?;
    /// # family.put("moon", "full")?;
    /// # family.put("tide", "high")?;
    /// let mut buf = Vec::new();
    /// assert!(then.get_into_vec(&family, "moon", &mut buf)?);
    /// assert_eq!(buf, b"new");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get_into_vec(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        buf: &mut Vec<u8>,
    ) -> Result<bool> {
        self.family(family).get_into_vec(key, buf)
    }
    /// Returns the value of `key` as of the snapshot, with its expiry time. An entry that has
    /// expired since the snapshot was taken is not returned.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # family.put("moon", "new")?;
    /// # let then = db.snapshot()?;
    /// # family.put("moon", "full")?;
    /// # family.put("tide", "high")?;
    /// let found = then.get_with_ttl(&family, "moon")?.expect("it existed");
    /// assert!(found.value == "new" && found.expires_at_ms.is_none());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get_with_ttl(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<ValueWithTtl>> {
        self.family(family).get_with_ttl(key)
    }
}

/// A column family as of a snapshot; see [`Snapshot::family`]. Has the methods of [`Readable`].
#[derive(Clone, Copy, Debug)]
pub struct SnapshotFamily<'a> {
    snapshot: &'a Snapshot,
    family: &'a Family,
}

impl ReadSource for SnapshotFamily<'_> {
    fn family_state(&self) -> Result<&FamilyState> {
        Ok(self.family.inner_for(&self.snapshot.engine)?)
    }
    #[inline]
    fn with_reader<R>(&self, read: impl FnOnce(Reader<'_>) -> Result<R>) -> Result<R> {
        let Snapshot { handle, engine } = self.snapshot;
        read(engine.snapshot_reader(self.family.inner_for(engine)?, handle)?)
    }
}

impl Readable for SnapshotFamily<'_> {}

inherent_reads!(SnapshotFamily<'_>);
