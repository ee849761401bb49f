//! Control of background work: manual compactions, purge, pause, cancel, rate limit, waiting for
//! idle, and statistics of single column families.

use crate::iter::range_to_bounds;
use crate::{CacheStats, Db, Family, FamilyStats, FileStats, Result, translate};
use perigee_engine::jobs::CompactionRange;
use perigee_engine::{Engine, report};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

/// A guard that prevents flushes and compactions ([`Db::pause_background_work`]). Dropping it
/// resumes them.
///
/// **A pause does not make it safe to copy the files of the database.** Writes continue to append
/// to the log, and bulk loads and column-family changes continue to change the manifest, so the
/// copied files may be from different moments. Use [`Db::checkpoint`] or [`Db::backup`], which make
/// a consistent copy while writes continue.
///
/// Writes continue until the maximum number or size of memtables is reached. Then they fail with
/// `Busy` instead of waiting, because the writing thread may be the one that holds the guard.
/// `flush`, `compact` and `wait_idle` fail with `Busy` immediately if there is work to do.
#[derive(Debug)]
#[must_use = "dropping the guard resumes background work at once"]
pub struct Pause {
    engine: Arc<Engine>,
}

impl Pause {
    /// Resumes background work, like dropping the guard.
    pub fn resume(self) {}
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.engine.unpause_jobs();
    }
}

/// Control of background work.
///
/// ```
/// # use perigee::{Db, ErrorKind, Options};
/// # use std::time::Duration;
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// db.put("2026/11/20", "neap")?;
/// db.put("2026/11/21", "spring")?;
/// db.delete("2026/11/20")?;
/// db.compact_range("2026/11/20".."2026/11/21")?; // drops the tombstone and the put
/// assert_eq!(db.files()[0].entries, 1);
///
/// let pause = db.pause_background_work()?; // for example during a benchmark
/// db.put("2026/11/22", "spring")?;
/// assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Busy);
/// drop(pause);
/// db.flush()?;
///
/// db.set_background_rate(Some(20 << 20)); // at most 20 MiB per second
/// db.purge()?;
/// assert!(db.wait_idle_for(Duration::from_secs(60))?);
/// # Ok(())
/// # }
/// ```
impl Db {
    /// Calls [`Family::compact_range`] on `default`.
    pub fn compact_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.default_family().compact_range(range)
    }
    /// Reclaims all reclaimable space: flushes, merges every column family into its deepest level
    /// like [`Db::compact`], and rewrites every value log that contains garbage. Data that
    /// snapshots and iterators still see is kept.
    ///
    /// # Errors
    /// `Busy` if background work is paused or cancelled; as [`Db::write`].
    pub fn purge(&self) -> Result<()> {
        self.engine.purge(&self.engine.all_families())
    }
    /// Waits for running flushes and compactions to finish, and starts no others until the guard is
    /// dropped. Pauses may overlap; background work resumes when the last guard is dropped.
    ///
    /// The log and the manifest continue to change, so copying files during a pause is not a
    /// backup: use [`Db::checkpoint`] or [`Db::backup`] (see [`Pause`]).
    ///
    /// # Errors
    /// `Closed`.
    pub fn pause_background_work(&self) -> Result<Pause> {
        self.engine.pause_jobs()?;
        Ok(Pause { engine: Arc::clone(&self.engine) })
    }
    /// Cancels compactions. Running compactions stop soon and their outputs are discarded (the call
    /// of a manual one fails with `Busy`); none starts until [`Db::resume_background_work`]. No
    /// data is lost, because the inputs are kept. Flushes and writes continue, so level 0 grows and
    /// reads get slower. Not needed before [`Db::close`], which cancels compactions itself.
    ///
    /// # Errors
    /// `Closed`.
    pub fn cancel_background_work(&self) -> Result<()> {
        self.engine.cancel_compactions()
    }
    /// Allows compactions again after [`Db::cancel_background_work`]. Does not end a [`Pause`].
    ///
    /// # Errors
    /// `Closed`.
    pub fn resume_background_work(&self) -> Result<()> {
        self.engine.allow_compactions()
    }
    /// Limits flushes and compactions to `bytes_per_second` of I/O from now on (`None`: no limit).
    /// See [`crate::Options::background_rate`].
    pub fn set_background_rate(&self, bytes_per_second: Option<u64>) {
        self.engine.set_background_rate(bytes_per_second.map_or(0, |rate| rate.max(1)));
    }
    /// Sets the free space in bytes below which writes are rejected, from now on. See
    /// [`crate::Options::min_free_space`].
    ///
    /// ```
    /// # use perigee::{Db, ErrorKind, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let disk = SimDisk::new(1);
    /// # disk.set_capacity(64 << 20);
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: disk, ..Env::real() }))?;
    /// db.put("moon", "full")?;
    /// db.set_min_free_space(1 << 40); // more than the disk has
    /// assert_eq!(db.put("moon", "new").unwrap_err().kind(), ErrorKind::NoSpace);
    /// db.set_min_free_space(1 << 20);
    /// db.put("moon", "new")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_min_free_space(&self, bytes: u64) {
        self.engine.set_min_free_space(bytes);
    }
    /// Allows column families with a user-defined comparator that was not in
    /// [`crate::Options::comparators`] at open. If a column family uses it, it must be listed there
    /// at the next open.
    ///
    /// ```
    /// # use perigee::{Db, FamilyOptions, KeyComparator, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let compare = |a: &[u8], b: &[u8]| a.len().cmp(&b.len()).then(a.cmp(b));
    /// let by_length = KeyComparator::register("length, then bytes", compare)?;
    /// let options = FamilyOptions::new().comparator(by_length);
    /// assert!(db.create_family("words", options.clone()).is_err());
    /// db.register_comparator(by_length);
    /// db.create_family("words", options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn register_comparator(&self, comparator: crate::KeyComparator) {
        self.engine.add_comparator(comparator);
    }
    /// Returns the current I/O limit of background work in bytes per second; `None`: no limit.
    pub fn background_rate(&self) -> Option<u64> {
        Some(self.engine.background_rate()).filter(|rate| *rate > 0)
    }
    /// Returns the counters since open, by name. Much cheaper than [`Db::stats`], which contains
    /// them.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.engine.counters().all()
    }
    /// Returns size and hit counts of the block cache. Much cheaper than [`Db::stats`], which
    /// contains them.
    pub fn cache_stats(&self) -> CacheStats {
        translate::cache_stats(&self.engine.cache_status())
    }
    /// Waits until no flush or compaction is running or due.
    ///
    /// # Errors
    /// `Busy` if work is due but paused or cancelled; the error of the background work if it fails.
    pub fn wait_idle(&self) -> Result<()> {
        self.engine.wait_idle(None).map(|_| ())
    }
    /// Waits like [`Db::wait_idle`] for at most `timeout`. Returns true if background work is idle,
    /// false after the timeout.
    ///
    /// # Errors
    /// Same as [`Db::wait_idle`].
    pub fn wait_idle_for(&self, timeout: Duration) -> Result<bool> {
        self.engine.wait_idle(Some(u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Family {
    /// Returns statistics of this column family: contents, and work done since open. [`Db::stats`]
    /// contains those of all column families.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// db.put("moon", "full")?;
    /// db.delete("tide")?;
    /// db.flush()?;
    /// let stats = db.default_family().stats()?;
    /// assert_eq!((stats.user_bytes_written, stats.flush_tables), (12, 1));
    /// assert_eq!((stats.entries(), stats.raw_bytes()), (2, (8, 4)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` if the column family was dropped; `Closed`.
    pub fn stats(&self) -> Result<FamilyStats> {
        self.engine.check_open()?;
        self.inner.check_not_dropped()?;
        Ok(translate::family_stats(&self.engine.family_status(&self.inner)))
    }
    /// Returns every table file of this column family with its level, sorted run, size and key
    /// range.
    ///
    /// # Errors
    /// Same as [`Family::stats`].
    pub fn files(&self) -> Result<Vec<FileStats>> {
        self.engine.check_open()?;
        self.inner.check_not_dropped()?;
        Ok(report::family_tables(&self.inner).into_iter().map(translate::file_stats).collect())
    }
    /// Returns [`FamilyStats::user_bytes_written`] without gathering the other statistics.
    pub fn user_bytes_written(&self) -> u64 {
        self.inner.user_bytes()
    }
    /// Returns true if a memtable of this column family is being flushed or waits to be flushed.
    pub fn is_flushing(&self) -> bool {
        self.engine.is_flushing(&self.inner)
    }
    /// Returns true if a compaction of this column family is running, or is due and neither paused
    /// nor cancelled. Cheap; after a change of the levels the first call checks whether a
    /// compaction is due.
    pub fn is_compacting(&self) -> bool {
        self.engine.is_compacting(&self.inner)
    }
    /// Flushes, then merges all tables that overlap the key range, and those that have to be merged
    /// with them, into the deepest level at which any of them is. Overwritten and deleted entries
    /// of the range are removed from the files unless a snapshot needs them.
    ///
    /// # Errors
    /// `Busy` if background work is paused or cancelled, or is cancelled during the call: the
    /// tables are unchanged. As [`Db::write`] otherwise.
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
    /// Reclaims all reclaimable space of this column family; see [`Db::purge`].
    ///
    /// # Errors
    /// Same as [`Db::purge`].
    pub fn purge(&self) -> Result<()> {
        self.inner.check_not_dropped()?;
        self.engine.purge(&[Arc::clone(&self.inner)])
    }
}
