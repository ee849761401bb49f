//! Maintenance and statistics of single column families.

use crate::read::iter::range_to_bounds;
use crate::stats::{FamilyStats, FileStats};
use crate::{Family, Result};
use perigee_engine::CompactionRange;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

impl Family {
    /// Returns statistics of this column family: contents, and work done since open.
    /// [`Admin::stats`](crate::Admin::stats) contains those of all column families.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// db.put("moon", "full")?;
    /// db.delete("tide")?;
    /// db.admin().flush()?;
    /// let stats = db.default_family().stats()?;
    /// assert_eq!((stats.user_bytes_written, stats.flush_tables), (12, 1));
    /// let raw = stats.raw_bytes();
    /// assert_eq!((stats.entries(), raw.keys, raw.values), (2, 8, 4));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` if the column family was dropped; `Closed`.
    pub fn stats(&self) -> Result<FamilyStats> {
        self.engine.check_open()?;
        self.inner.check_not_dropped()?;
        Ok(self.engine.family_stats(&self.inner))
    }
    /// Returns every table file of this column family with its level, sorted run, size and key
    /// range.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "full")?;
    /// family.flush()?;
    /// let files = family.files()?;
    /// assert_eq!((files.len(), files[0].entries), (1, 1));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Family::stats`].
    pub fn files(&self) -> Result<Vec<FileStats>> {
        self.engine.check_open()?;
        self.inner.check_not_dropped()?;
        Ok(self.engine.family_files(&self.inner))
    }
    /// Returns [`FamilyStats::user_bytes_written`] without gathering the other statistics.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "full")?;
    /// assert_eq!(family.user_bytes_written(), 8);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn user_bytes_written(&self) -> u64 {
        self.inner.user_bytes()
    }
    /// Returns true if a memtable of this column family is being flushed or waits to be flushed.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", "full")?;
    /// family.flush()?;
    /// assert!(!family.is_flushing()); // the call has waited for it
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_flushing(&self) -> bool {
        self.engine.is_flushing(&self.inner)
    }
    /// Returns true if a compaction of this column family is running, or is due and neither paused
    /// nor cancelled. Cheap; after a change of the levels the first call checks whether a
    /// compaction is due.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.compact()?;
    /// db.admin().wait_idle()?;
    /// assert!(!family.is_compacting());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_compacting(&self) -> bool {
        self.engine.is_compacting(&self.inner)
    }
    /// Flushes, then merges all tables that overlap the key range, and those that have to be merged
    /// with them, into the deepest level that contains any of them. Overwritten and deleted entries
    /// of the range are removed from the files unless a snapshot needs them.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("11/20", "neap")?;
    /// family.delete("11/20")?;
    /// family.compact_range("11/20".."11/21")?;
    /// assert!(family.files()?.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Busy` if background work is paused or cancelled, or is cancelled during the call: the
    /// tables are unchanged. As [`Db::write`](crate::Db::write) otherwise.
    pub fn compact_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.inner.check_not_dropped()?;
        let bounds = range_to_bounds(&range);
        let end = |b| match b {
            Bound::Included(k) | Bound::Excluded(k) => Some(k),
            Bound::Unbounded => None,
        };
        self.engine.compact_range(
            &self.inner,
            CompactionRange { first: end(bounds.lower), last: end(bounds.upper) },
        )
    }
    /// Reclaims the space of all deleted, overwritten and expired entries of this column family;
    /// see [`Admin::purge`](crate::Admin::purge).
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// family.put("moon", vec![1; 100_000])?; // separated into a value log
    /// family.flush()?;
    /// family.delete("moon")?;
    /// family.purge()?;
    /// assert!(family.files()?.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Admin::purge`](crate::Admin::purge).
    pub fn purge(&self) -> Result<()> {
        self.inner.check_not_dropped()?;
        self.engine.purge(&[Arc::clone(&self.inner)])
    }
}
