//! Deleting more, or for less: whole ranges in one operation, and keys that were put exactly once.

use crate::{Db, Error, Family, Result, WriteBatch};
use perigee_base::key_boundary::KeyBoundary;
use perigee_file::log::Batch;
use perigee_tree::scan::ScanBounds;
use std::cmp::Ordering;
use std::ops::RangeBounds;

/// Adds the deletion of a range; nothing for an empty one.
pub(crate) fn add_range_delete(
    batch: &mut Batch,
    family: &Family,
    begin: &KeyBoundary,
    end: &KeyBoundary,
) -> Result<()> {
    let order = family.inner.tree.comparator();
    match begin.as_ref().cmp(order, end.as_ref()) {
        Ordering::Less => batch.delete_range(family.inner.id, begin.as_ref(), end.as_ref()),
        // Nothing to do, but not on a family that was dropped.
        Ordering::Equal => family.inner.check_not_dropped(),
        Ordering::Greater => {
            Err(Error::invalid("the range begins behind its end: give the smaller key first")
                .expected("a begin before the end", format_args!("{begin:?} to {end:?}")))
        }
    }
}

pub(crate) fn range_to_cuts<K: AsRef<[u8]>>(
    range: &impl RangeBounds<K>,
) -> (KeyBoundary, KeyBoundary) {
    let own = |b: std::ops::Bound<&K>| b.map(|k| k.as_ref().to_vec());
    (
        KeyBoundary::range_start(own(range.start_bound())),
        KeyBoundary::range_end(own(range.end_bound())),
    )
}

pub(crate) fn prefix_to_cuts(family: &Family, prefix: &[u8]) -> Result<(KeyBoundary, KeyBoundary)> {
    let bounds = ScanBounds::prefix(family.inner.tree.comparator(), prefix)?;
    Ok((KeyBoundary::range_start(bounds.lower), KeyBoundary::range_end(bounds.upper)))
}

impl Family {
    /// Removes every key of a range, in one operation whatever lies in it. Reads and scans do not
    /// pay for what was there: they step over the range, and compaction drops whole files inside it
    /// without reading them.
    ///
    /// An empty range deletes nothing.
    ///
    /// # Errors
    /// `InvalidArgument` if the range begins behind its end, or an end is longer than a key may be.
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
    /// Removes every key that starts with `prefix`, in one operation. See [`Family::delete_range`].
    ///
    /// # Errors
    /// `InvalidArgument` under a key order in which a prefix is no range.
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        let (begin, end) = prefix_to_cuts(self, prefix.as_ref())?;
        let mut batch = Batch::new();
        add_range_delete(&mut batch, self, &begin, &end)?;
        self.engine.write(batch, None)
    }
    /// Removes a key that was put at most once since it was last removed by `single_delete` (or
    /// since ever). When compaction brings the two together both go at once, where a
    /// [`Family::delete`] would stay down to the deepest level: for queues and other keys that live
    /// once.
    ///
    /// **The contract is the caller's.** If the key was put more than once, it is gone for now, but
    /// an older put may come back when compaction has cancelled the newest. Do not mix it with
    /// `delete` on keys that are put again. (In a family with a merge operator it is a `delete`:
    /// how often a key was merged into, nobody counts.)
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// db.put("job 17", "resize")?;
    /// db.single_delete("job 17")?;
    /// assert_eq!(db.get("job 17")?, None);
    /// db.flush()?;
    /// assert!(db.files().is_empty(), "they cancelled each other");
    /// # Ok(())
    /// # }
    /// ```
    pub fn single_delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = Batch::new();
        add_single_delete(&mut batch, self, key.as_ref())?;
        self.engine.write(batch, None)
    }
}

/// A single delete, or what it is in a family with a merge operator.
pub(crate) fn add_single_delete(batch: &mut Batch, family: &Family, key: &[u8]) -> Result<()> {
    let id = family.inner.id;
    if family.inner.tree.pin().merge_operator.get().is_some() {
        batch.delete(id, key)
    } else {
        batch.single_delete(id, key)
    }
}

impl Db {
    /// [`Family::delete_range`] on `default`.
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.default_family().delete_range(range)
    }
    /// [`Family::delete_prefix`] on `default`.
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.default_family().delete_prefix(prefix)
    }
    /// [`Family::single_delete`] on `default`.
    pub fn single_delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default_family().single_delete(key)
    }
}

impl WriteBatch {
    /// As [`Family::delete_range`]; it removes what earlier operations of the batch put, and
    /// nothing that later ones put.
    ///
    /// # Errors
    /// As [`Family::delete_range`]; the batch is unchanged.
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        let (begin, end) = range_to_cuts(&range);
        add_range_delete(self.operations_for(family)?, family, &begin, &end)
    }
    /// As [`Family::delete_prefix`].
    ///
    /// # Errors
    /// As [`Family::delete_prefix`]; the batch is unchanged.
    pub fn delete_prefix(&mut self, family: &Family, prefix: impl AsRef<[u8]>) -> Result<()> {
        let batch = self.operations_for(family)?;
        let (begin, end) = prefix_to_cuts(family, prefix.as_ref())?;
        add_range_delete(batch, family, &begin, &end)
    }
    /// As [`Family::single_delete`].
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn single_delete(&mut self, family: &Family, key: impl AsRef<[u8]>) -> Result<()> {
        add_single_delete(self.operations_for(family)?, family, key.as_ref())
    }
}
