//! What an operator does to background work: manual compactions, purge, pause, cancel, a rate,
//! waiting until all is done.

use crate::iter::range_to_bounds;
use crate::{CacheStats, Db, Family, FamilyStats, FileStats, Result, translate};
use perigee_engine::jobs::CompactionRange;
use perigee_engine::{Engine, report};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

/// While it lives, no flush and no compaction runs ([`Db::pause_background_work`]). Dropping it
/// lets them run again.
///
/// **It is no way to copy the files of the database.** Writes go on, and with them the log; the
/// manifest changes too, by bulk loads and changes of families for example. A copy of the directory
/// made meanwhile may hold a log and a manifest of different moments. [`Db::checkpoint`] and
/// [`Db::backup`] make copies of one moment, while everything goes on.
///
/// Writes go on until the memtables that wait for their flush are as many as may wait; then they
/// fail with `Busy` instead of waiting, because whoever holds the pause may be the one who writes.
/// `flush`, `compact` and `wait_idle` fail with `Busy` at once if there is work to do.
#[derive(Debug)]
#[must_use = "background work goes on at once if the pause is dropped"]
pub struct Pause {
    engine: Arc<Engine>,
}

impl Pause {
    /// Lets background work run again; the same as dropping it.
    pub fn resume(self) {}
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.engine.unpause_jobs();
    }
}

/// Operations on background work.
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
/// db.compact_range("2026/11/20".."2026/11/21")?; // the tombstone and what it hid are gone
/// assert_eq!(db.files()[0].entries, 1);
///
/// let quiet = db.pause_background_work()?; // for example while a measurement runs; for copies there is checkpoint
/// db.put("2026/11/22", "spring")?;
/// assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Busy);
/// drop(quiet);
/// db.flush()?;
///
/// db.set_background_rate(Some(20 << 20)); // at most 20 MiB per second
/// db.purge()?;
/// assert!(db.wait_idle_for(Duration::from_secs(60))?);
/// # Ok(())
/// # }
/// ```
impl Db {
    /// [`Family::compact_range`] on `default`.
    pub fn compact_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.default_family().compact_range(range)
    }
    /// Reclaims everything that can be reclaimed now: flushes and merges every family into its
    /// deepest level, and empties every value log that holds any garbage. What snapshots and
    /// iterators still see stays.
    ///
    /// # Errors
    /// `Busy` if background work is paused or cancelled.
    pub fn purge(&self) -> Result<()> {
        self.engine.purge(&self.engine.all_families())
    }
    /// Lets running flushes and compactions end, and starts no other until the guard is dropped.
    /// Pauses may overlap.
    ///
    /// This quiets the disk; it does not stop changes of the log and the manifest, so files copied
    /// under it are no backup: use [`Db::checkpoint`] or [`Db::backup`] (see [`Pause`]).
    ///
    /// # Errors
    /// `Closed`.
    pub fn pause_background_work(&self) -> Result<Pause> {
        self.engine.pause_jobs()?;
        Ok(Pause { engine: Arc::clone(&self.engine) })
    }
    /// Running compactions (also manual ones, which fail with `Busy`) give up within a moment, what
    /// they made is discarded, and none starts until [`Db::resume_background_work`]. Nothing is
    /// lost: the inputs stay. Flushes go on, and so do writers: level 0 grows as long as they
    /// write, which reads pay for. `close` does not need this: it does the same.
    ///
    /// # Errors
    /// `Closed`.
    pub fn cancel_background_work(&self) -> Result<()> {
        self.engine.cancel_compactions()
    }
    /// Takes [`Db::cancel_background_work`] back. Pauses end with their guards only.
    ///
    /// # Errors
    /// `Closed`.
    pub fn resume_background_work(&self) -> Result<()> {
        self.engine.allow_compactions()
    }
    /// How many bytes per second background work may move, from now on; `None`: as many as it can
    /// ([`crate::Options::background_rate`]).
    pub fn set_background_rate(&self, bytes_per_second: Option<u64>) {
        self.engine.set_background_rate(bytes_per_second.map_or(0, |rate| rate.max(1)));
    }
    /// How much of the disk is kept free, from now on ([`crate::Options::min_free_space`]).
    ///
    /// ```
    /// # use perigee::{Db, ErrorKind, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let disk = SimDisk::new(1);
    /// # disk.set_capacity(64 << 20);
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: disk, ..Env::real() }))?;
    /// db.put("moon", "full")?;
    /// db.set_min_free_space(1 << 40); // more than there is
    /// assert_eq!(db.put("moon", "new").unwrap_err().kind(), ErrorKind::NoSpace);
    /// db.set_min_free_space(1 << 20);
    /// db.put("moon", "new")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_min_free_space(&self, bytes: u64) {
        self.engine.set_min_free_space(bytes);
    }
    /// From now on families of this database may have a user's order that
    /// [`crate::Options::orders`] did not name. At the next open it must be named there, if a
    /// family has it by then.
    ///
    /// ```
    /// # use perigee::{Db, FamilyOptions, KeyComparator, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let by_length = KeyComparator::register("length, then bytes", |a, b| a.len().cmp(&b.len()).then(a.cmp(b)))?;
    /// let options = FamilyOptions::new().order(by_length);
    /// assert!(db.create_family("words", options.clone()).is_err());
    /// db.register_comparator(by_length);
    /// db.create_family("words", options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn register_comparator(&self, order: crate::KeyComparator) {
        self.engine.add_comparator(order);
    }
    /// The rate now.
    pub fn background_rate(&self) -> Option<u64> {
        Some(self.engine.background_rate()).filter(|rate| *rate > 0)
    }
    /// Counters since open, by name: a part of [`Db::stats`] that costs next to nothing.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.engine.counters().all()
    }
    /// What the block cache holds and how often it helped: a part of [`Db::stats`] that costs next
    /// to nothing.
    pub fn cache_stats(&self) -> CacheStats {
        translate::cache_stats(&self.engine.cache_status())
    }
    /// Waits until no flush or compaction is running or due.
    ///
    /// # Errors
    /// `Busy` if work is due that is paused or cancelled; the error of the work, if it fails.
    pub fn wait_idle(&self) -> Result<()> {
        self.engine.wait_idle(None).map(|_| ())
    }
    /// The same, at most so long; whether it is idle.
    ///
    /// # Errors
    /// As [`Db::wait_idle`].
    pub fn wait_idle_for(&self, timeout: Duration) -> Result<bool> {
        self.engine.wait_idle(Some(u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Family {
    /// What it holds and what was done to it ([`Db::stats`] gathers that of all families, and much
    /// more).
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
    /// `NotFound` if it was dropped; `Closed`.
    pub fn stats(&self) -> Result<FamilyStats> {
        self.engine.check_open()?;
        self.inner.check_not_dropped()?;
        Ok(translate::family_stats(&self.engine.family_status(&self.inner)))
    }
    /// Every table file of it, with its place in the tree ([`Db::files`]: of all families).
    ///
    /// # Errors
    /// As [`Family::stats`].
    pub fn files(&self) -> Result<Vec<FileStats>> {
        self.engine.check_open()?;
        self.inner.check_not_dropped()?;
        Ok(report::family_tables(&self.inner).into_iter().map(translate::file_stats).collect())
    }
    /// [`FamilyStats::user_bytes_written`] alone.
    pub fn user_bytes_written(&self) -> u64 {
        self.inner.user_bytes()
    }
    /// Whether one of its memtables waits for its flush, or is being flushed.
    pub fn is_flushing(&self) -> bool {
        self.engine.is_flushing(&self.inner)
    }
    /// Whether a compaction of it runs, or is due and neither paused nor cancelled. Cheap, but for
    /// a look at the shape of its levels while they change.
    pub fn is_compacting(&self) -> bool {
        self.engine.is_compacting(&self.inner)
    }
    /// Flushes, then merges every table that shares keys with the range (and what must move with
    /// them), as deep as any of them lies: deleted and overwritten entries of the range are gone
    /// from the files, but for what snapshots see.
    ///
    /// # Errors
    /// `Busy` if background work is paused or cancelled, or is cancelled meanwhile: nothing was
    /// changed.
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
    /// [`Db::purge`] for this family alone.
    ///
    /// # Errors
    /// As [`Db::purge`].
    pub fn purge(&self) -> Result<()> {
        self.inner.check_not_dropped()?;
        self.engine.purge(&[Arc::clone(&self.inner)])
    }
}
