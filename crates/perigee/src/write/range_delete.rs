//! Range deletes, prefix deletes and single deletes.

use crate::{Error, Family, Result, WriteBatch};
use perigee_engine::reader::ScanBounds;
use perigee_engine::{Batch, KeyBoundary};
use std::cmp::Ordering;
use std::ops::RangeBounds;

/// Adds a range delete to the batch; adds nothing for an empty range.
pub(crate) fn add_range_delete(
    batch: &mut Batch,
    family: &Family,
    begin: &KeyBoundary,
    end: &KeyBoundary,
) -> Result<()> {
    let comparator = family.inner.comparator();
    match begin.as_ref().cmp(comparator, end.as_ref()) {
        Ordering::Less => batch.delete_range(family.inner.id, begin.as_ref(), end.as_ref()),
        // Nothing to delete; a dropped column family is still an error.
        Ordering::Equal => family.inner.check_not_dropped(),
        Ordering::Greater => Err(Error::invalid(
            "the start of the range is after its end: pass the smaller key first",
        )
        .expected("a start before the end", format_args!("{begin:?} to {end:?}"))),
    }
}

pub(crate) fn range_to_cuts<K: AsRef<[u8]>>(
    range: &impl RangeBounds<K>,
) -> (KeyBoundary, KeyBoundary) {
    let to_owned = |b: std::ops::Bound<&K>| b.map(|k| k.as_ref().to_vec());
    (
        KeyBoundary::range_start(to_owned(range.start_bound())),
        KeyBoundary::range_end(to_owned(range.end_bound())),
    )
}

pub(crate) fn prefix_to_cuts(family: &Family, prefix: &[u8]) -> Result<(KeyBoundary, KeyBoundary)> {
    let bounds = ScanBounds::prefix(family.inner.comparator(), prefix)?;
    let (begin, end) =
        (KeyBoundary::range_start(bounds.lower), KeyBoundary::range_end(bounds.upper));
    check!(
        begin.as_ref().cmp(family.inner.comparator(), end.as_ref()).is_le(),
        "the keys with a prefix are a range",
        begin,
        end
    );
    Ok((begin, end))
}

impl Family {
    /// Deletes all keys in a range by writing one range tombstone, at a cost that does not depend
    /// on the contents of the range. Reads and scans skip the range, and compactions drop files
    /// that it covers completely without reading them. An empty range deletes nothing.
    ///
    /// # Errors
    /// `InvalidArgument` if the start of the range is after its end, or a bound is longer than a
    /// key may be; as [`Db::write`](crate::Db::write) otherwise.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let logs = db.default_family();
    /// for day in ["2026-01-01", "2026-01-02", "2026-02-01", "2027-01-01"] {
    ///     logs.put(day, "...")?;
    /// }
    /// logs.delete_range("2026-01-02".."2026-03")?;
    /// assert_eq!(logs.iter()?.count(), 2);
    /// logs.put("2026-02-01", "written later")?;
    /// assert!(logs.contains("2026-02-01")?);
    /// logs.delete_prefix("2026-")?;
    /// assert_eq!(logs.iter()?.count(), 1);
    /// logs.delete_range::<&str>(..)?;
    /// assert_eq!(logs.iter()?.count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        let mut batch = Batch::new();
        let (begin, end) = range_to_cuts(&range);
        add_range_delete(&mut batch, self, &begin, &end)?;
        self.engine.write(batch, None)
    }
    /// Deletes all keys that start with `prefix` with one range tombstone; see
    /// [`Family::delete_range`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// for day in ["11/20", "11/21", "12/01"] {
    ///     family.put(day, "")?;
    /// }
    /// family.delete_prefix("11/")?;
    /// assert_eq!(family.iter()?.count(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` under comparators for which keys with a common prefix are not adjacent
    /// (see [`Family::prefix`]); as [`Db::write`](crate::Db::write) otherwise.
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        let (begin, end) = prefix_to_cuts(self, prefix.as_ref())?;
        let mut batch = Batch::new();
        add_range_delete(&mut batch, self, &begin, &end)?;
        self.engine.write(batch, None)
    }
    /// Deletes a key that was put at most once since its last single delete (or ever). The
    /// tombstone of [`Family::delete`] is kept down to the deepest level; a single delete and its
    /// put are both dropped as soon as a flush or compaction processes them together. Use it for
    /// keys that are written once and deleted once, for example in queues.
    ///
    /// **The caller is responsible for this contract.** If the key was put more than once, an older
    /// put can reappear after a compaction has dropped the newest one together with the single
    /// delete. Do not mix `single_delete` with `delete` on keys that are put again. In a column
    /// family with a merge operator this method writes a normal delete, because the number of
    /// merges of a key is not known.
    ///
    /// # Errors
    /// Same as [`Db::write`](crate::Db::write).
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// db.put("job 17", "resize")?;
    /// db.default_family().single_delete("job 17")?;
    /// assert_eq!(db.get("job 17")?, None);
    /// db.admin().flush()?;
    /// assert!(db.admin().files().is_empty(), "the put and the single delete were dropped");
    /// # Ok(())
    /// # }
    /// ```
    pub fn single_delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = Batch::new();
        add_single_delete(&mut batch, self, key.as_ref())?;
        self.engine.write(batch, None)
    }
}

/// Adds a single delete, or a normal delete if the column family has a merge operator.
pub(crate) fn add_single_delete(batch: &mut Batch, family: &Family, key: &[u8]) -> Result<()> {
    let id = family.inner.id;
    if family.inner.has_merge_operator() {
        batch.delete(id, key)
    } else {
        batch.single_delete(id, key)
    }
}

impl WriteBatch {
    /// Deletes all keys in a range; see [`Family::delete_range`]. Affects keys put by earlier
    /// operations of the batch, but not by later ones.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # ["11/20", "11/21", "12/01"].iter().try_for_each(|day| db.put(day, ""))?;
    /// # let mut batch = WriteBatch::new();
    /// batch.delete_range(&family, "11/21"..)?;
    /// db.write(batch)?;
    /// assert_eq!(family.iter()?.count(), 1); // 11/20
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` as for [`Family::delete_range`] and [`WriteBatch::put`]; the batch is
    /// unchanged.
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        let (begin, end) = range_to_cuts(&range);
        add_range_delete(self.operations_for(family)?, family, &begin, &end)
    }
    /// Deletes all keys that start with `prefix`; see [`Family::delete_prefix`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # ["11/20", "11/21", "12/01"].iter().try_for_each(|day| db.put(day, ""))?;
    /// # let mut batch = WriteBatch::new();
    /// batch.delete_prefix(&family, "11/")?;
    /// db.write(batch)?;
    /// assert_eq!(family.iter()?.count(), 1); // 12/01
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` as for [`Family::delete_prefix`] and [`WriteBatch::put`]; the batch is
    /// unchanged.
    pub fn delete_prefix(&mut self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<()> {
        let batch = self.operations_for(family)?;
        let (begin, end) = prefix_to_cuts(family, prefix.as_ref())?;
        add_range_delete(batch, family, &begin, &end)
    }
    /// Deletes a key that was put at most once; see [`Family::single_delete`] for the contract.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # ["11/20", "11/21", "12/01"].iter().try_for_each(|day| db.put(day, ""))?;
    /// # let mut batch = WriteBatch::new();
    /// batch.single_delete(&family, "11/20")?; // was put only once
    /// db.write(batch)?;
    /// assert!(!family.contains("11/20")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`WriteBatch::put`].
    pub fn single_delete(&mut self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        add_single_delete(self.operations_for(family)?, family, key.as_ref())
    }
}
