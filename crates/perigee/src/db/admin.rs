//! [`Admin`]: maintenance, run-time options and statistics of an open database.

use crate::db::metrics;
use crate::load::LoadReport;
use crate::stats::{
    CacheStats, ClockStatus, CounterValue, FileStats, FinishedJobStats, Stats, VerifyReport,
};
use crate::{Family, FamilyOptions, Options, Result};
use perigee_engine::{Engine, LogicalClockStatus};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A guard that prevents flushes and compactions ([`Admin::pause_background_work`]). Dropping it
/// resumes them.
///
/// **A pause does not make it safe to copy the files of the database.** Writes continue to append
/// to the log, and bulk loads and column-family changes continue to change the manifest, so the
/// copied files may be from different moments. Use
/// [`Backups::checkpoint`](crate::Backups::checkpoint) or
/// [`Backups::create`](crate::Backups::create), which make a consistent copy while writes continue.
///
/// Writes continue until the maximum number or size of memtables is reached. Then they fail with
/// `Busy` instead of waiting, because the writing thread may be the one that holds the guard.
/// `flush`, `compact` and `wait_idle` fail with `Busy` immediately if there is work to do.
#[derive(Debug)]
#[must_use = "dropping the guard resumes background work at once"]
pub struct PauseGuard {
    engine: Arc<Engine>,
}

impl PauseGuard {
    /// Resumes background work, like dropping the guard.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let pause = db.admin().pause_background_work()?;
    /// db.put("moon", "full")?;
    /// assert_eq!(db.admin().flush().unwrap_err().kind(), ErrorKind::Busy);
    /// pause.resume();
    /// db.admin().flush()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn resume(self) {}
}

impl Drop for PauseGuard {
    fn drop(&mut self) {
        self.engine.unpause_jobs();
    }
}

/// Maintenance, run-time options and statistics of an open database
/// ([`Db::admin`](crate::Db::admin)). Most methods that concern a single column family are on
/// [`Family`].
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
/// db.default_family().compact_range("2026/11/20".."2026/11/21")?; // drops tombstone and put
/// let admin = db.admin();
/// assert_eq!(admin.files()[0].entries, 1);
///
/// let pause = admin.pause_background_work()?; // for example during a benchmark
/// db.put("2026/11/22", "spring")?;
/// assert_eq!(admin.flush().unwrap_err().kind(), ErrorKind::Busy);
/// drop(pause);
/// admin.flush()?;
///
/// admin.set_background_rate(Some(20 << 20)); // at most 20 MiB per second
/// admin.purge()?;
/// assert!(admin.wait_idle_for(Duration::from_secs(60))?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Admin<'a> {
    pub(crate) engine: &'a Arc<Engine>,
}

impl Admin<'_> {
    /// Writes the memtables of all column families to table files, and returns when these are
    /// installed and durable.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// assert!(db.admin().files().is_empty()); // only in the log and the memtable
    /// db.admin().flush()?;
    /// assert_eq!(db.admin().files()[0].entries, 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Busy` if background work is paused; else as [`Db::write`](crate::Db::write).
    pub fn flush(&self) -> Result<()> {
        self.engine.flush(&self.engine.all_families())
    }
    /// Flushes, then compacts every column family into its deepest level, one after the other.
    /// Drops all versions and tombstones that no snapshot needs. Cost: can read and rewrite the
    /// whole database.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// db.admin().flush()?;
    /// db.delete("moon")?;
    /// db.admin().compact()?;
    /// assert!(db.admin().files().is_empty()); // nothing is left of the entry and its tombstone
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Busy` if background work is paused or cancelled; else as [`Db::write`](crate::Db::write).
    pub fn compact(&self) -> Result<()> {
        self.engine.compact(&self.engine.all_families())
    }
    /// Reclaims the space of all deleted, overwritten and expired entries: flushes, merges every
    /// column family into its deepest level like [`Admin::compact`], and rewrites every value log
    /// that contains garbage. Data that snapshots and iterators still see is kept.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", vec![1; 100_000])?; // separated into a value log
    /// db.admin().flush()?;
    /// db.delete("moon")?;
    /// db.admin().purge()?;
    /// assert!(db.admin().files().is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Admin::compact`].
    pub fn purge(&self) -> Result<()> {
        self.engine.purge(&self.engine.all_families())
    }
    /// Reads every byte of every file and checks it. Damage is not an `Err`: it is listed in
    /// [`VerifyReport::errors`], one error per damaged file.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// db.admin().flush()?;
    /// let report = db.admin().verify()?;
    /// assert!(report.errors.is_empty(), "{:?}", report.errors);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Only if the check cannot run at all, for example `Closed`.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(|_done, _total| {})
    }
    /// Verifies like [`Admin::verify`], and calls `progress(done, total)` with byte counts.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// db.admin().flush()?;
    /// let mut last = (0, 0);
    /// db.admin().verify_with(|done, total| last = (done, total))?;
    /// assert!(last.0 > 0 && last.0 <= last.1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn verify_with(&self, progress: impl FnMut(u64, u64)) -> Result<VerifyReport> {
        let mut progress = progress;
        self.engine.verify(&mut progress)
    }
    /// Waits until no flush or compaction is running or due.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// db.admin().flush()?;
    /// db.admin().wait_idle()?;
    /// assert_eq!(db.admin().stats().background.compactions_due, 0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Busy` if work is due but paused or cancelled; the error of the background work if it fails.
    pub fn wait_idle(&self) -> Result<()> {
        self.engine.wait_idle(None).map(|_| ())
    }
    /// Waits like [`Admin::wait_idle`] for at most `timeout`. Returns true if background work is
    /// idle, false after the timeout.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let timeout = std::time::Duration::from_secs(60);
    /// assert!(db.admin().wait_idle_for(timeout)?); // there is no work
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Admin::wait_idle`].
    pub fn wait_idle_for(&self, timeout: Duration) -> Result<bool> {
        self.engine.wait_idle(Some(u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX)))
    }
    /// Waits for running flushes and compactions to finish, and starts no others until the guard is
    /// dropped. Pauses may overlap; background work resumes when the last guard is dropped.
    ///
    /// The log and the manifest continue to change, so copying files during a pause is not a
    /// backup: use [`Backups::checkpoint`](crate::Backups::checkpoint) or
    /// [`Backups::create`](crate::Backups::create) (see [`PauseGuard`]).
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let pause = db.admin().pause_background_work()?;
    /// db.put("moon", "full")?; // writes go on
    /// assert_eq!(db.admin().compact().unwrap_err().kind(), ErrorKind::Busy);
    /// drop(pause);
    /// db.admin().compact()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`.
    pub fn pause_background_work(&self) -> Result<PauseGuard> {
        self.engine.pause_jobs()?;
        Ok(PauseGuard { engine: Arc::clone(self.engine) })
    }
    /// Cancels compactions. Running compactions stop soon and their outputs are discarded (a manual
    /// compaction fails with `Busy`); none starts until [`Admin::resume_background_work`]. No data
    /// is lost, because the inputs are kept. Flushes and writes continue, so level 0 grows and
    /// reads get slower. Not needed before [`Db::close`](crate::Db::close), which cancels
    /// compactions itself.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// db.admin().cancel_background_work()?;
    /// assert_eq!(db.admin().compact().unwrap_err().kind(), ErrorKind::Busy);
    /// db.admin().resume_background_work()?;
    /// db.admin().compact()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`.
    pub fn cancel_background_work(&self) -> Result<()> {
        self.engine.cancel_compactions()
    }
    /// Allows compactions again after [`Admin::cancel_background_work`]. Does not end a
    /// [`PauseGuard`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.admin().cancel_background_work()?;
    /// db.put("moon", "full")?;
    /// db.admin().resume_background_work()?;
    /// db.admin().compact()?;
    /// assert_eq!(db.admin().files().len(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`.
    pub fn resume_background_work(&self) -> Result<()> {
        self.engine.allow_compactions()
    }
    /// Returns the options in effect: those given at open, with the current options of every column
    /// family. Written to a file by [`Options::save`](crate::Options::save), they reproduce this
    /// configuration.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.create_family("logs", FamilyOptions::new().filter_bits(17))?;
    /// let options = db.admin().options();
    /// assert_eq!(options.families["logs"].filter_bits, 17);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn options(&self) -> Options {
        let mut families: BTreeMap<String, FamilyOptions> = BTreeMap::new();
        for f in self.engine.all_families() {
            families.insert(f.name().to_string(), FamilyOptions::from_settings(&f.settings()));
        }
        Options::from_settings(self.engine.settings(), self.engine.env().clone(), families)
    }
    /// Limits flushes and compactions to `bytes_per_second` of I/O from now on (`None`: no limit).
    /// See [`crate::Options::background_rate`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.admin().set_background_rate(Some(20 << 20)); // 20 MiB per second, during the day
    /// assert_eq!(db.admin().background_rate(), Some(20 << 20));
    /// db.admin().set_background_rate(None);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn set_background_rate(&self, bytes_per_second: Option<u64>) {
        self.engine.set_background_rate(bytes_per_second.map_or(0, |rate| rate.max(1)));
    }
    /// Returns the current I/O limit of background work in bytes per second; `None`: no limit.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.admin().set_background_rate(Some(20 << 20));
    /// assert_eq!(db.admin().background_rate(), Some(20 << 20));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn background_rate(&self) -> Option<u64> {
        Some(self.engine.background_rate()).filter(|rate| *rate > 0)
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
    /// db.admin().set_min_free_space(1 << 40); // more than the disk has
    /// assert_eq!(db.put("moon", "new").unwrap_err().kind(), ErrorKind::NoSpace);
    /// db.admin().set_min_free_space(1 << 20);
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
    /// db.admin().register_comparator(by_length);
    /// db.create_family("words", options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn register_comparator(&self, comparator: crate::KeyComparator) {
        self.engine.add_comparator(comparator);
    }
    /// Renames a column family; durable when the call returns. Existing handles and batches stay
    /// valid.
    ///
    /// [`Options::family`](crate::Options::family) and options files refer to column families by
    /// name, and an open creates those that do not exist. After `tides` is renamed to `x`, an open
    /// with options for `tides` creates a new, empty `tides` next to `x`. Rename it in the options
    /// as well.
    ///
    /// ```
    /// # use perigee::{Db, ErrorKind, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let tides = db.create_family("tides", Default::default())?;
    /// tides.put("06:12", "high")?;
    /// db.admin().clone_family("tides", "tides of 2026")?; // cheap: the files are shared
    /// db.admin().clear_family("tides")?; // one manifest edit
    /// assert_eq!(tides.get("06:12")?, None);
    /// assert!(db.family("tides of 2026")?.contains("06:12")?);
    /// db.admin().rename_family("tides", "tides of 2027")?;
    /// tides.put("05:47", "low")?; // the handle stays valid
    /// assert_eq!(tides.name(), "tides of 2027");
    /// assert_eq!(db.families(), ["default", "tides of 2026", "tides of 2027"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists`; `InvalidArgument` if `name` is `default`, or if `to` is empty
    /// or longer than 255 bytes, or contains NUL; as [`Db::write`](crate::Db::write) otherwise.
    pub fn rename_family(&self, name: &str, to: &str) -> Result<()> {
        self.engine.rename_family(name, to)
    }
    /// Removes the contents of a column family; durable when the call returns. Costs one manifest
    /// edit, however much data there is. Options, name and handles stay valid. Existing iterators
    /// and cursors still return the old contents; existing snapshots can no longer read this column
    /// family (`NotFound`).
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let cache = db.create_family("cache", FamilyOptions::new())?;
    /// cache.put("moon", "full")?;
    /// db.admin().clear_family("cache")?;
    /// assert!(cache.is_empty()?); // the handle stays valid
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound`; `Busy` if a prepared transaction has read or written the column family; as
    /// [`Db::write`](crate::Db::write) otherwise.
    pub fn clear_family(&self, name: &str) -> Result<()> {
        self.engine.clear_family(name)
    }
    /// Creates a column family `name` with the contents that `source` has at one moment during the
    /// call, and with its options. Cost: one flush of `source`; the table files are shared until a
    /// compaction replaces them. The two are independent: writes to one are never visible in the
    /// other, and either can be dropped. Snapshots taken before the call cannot read the clone
    /// (`NotFound`).
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let tides = db.create_family("tides", FamilyOptions::new())?;
    /// tides.put("06:12", "high")?;
    /// let copy = db.admin().clone_family("tides", "tides before the correction")?;
    /// tides.put("06:12", "low")?;
    /// assert_eq!(copy.get("06:12")?.as_deref(), Some(&b"high"[..]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is no `source`; as [`Db::create_family`](crate::Db::create_family) and
    /// [`Admin::flush`] otherwise.
    pub fn clone_family(&self, source: &str, name: &str) -> Result<Family> {
        Ok(Family {
            inner: self.engine.clone_family(source, name)?,
            engine: Arc::clone(self.engine),
        })
    }
    /// Ingests standalone tables ([`TableWriter`](crate::load::TableWriter)) into one or more
    /// column families, atomically and durably: all entries become visible together, with one
    /// sequence number, and are newer than every write committed before. Every byte of every file
    /// is verified first. Then the entries are copied to new tables with the options of the column
    /// families; afterwards the files can be deleted.
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// let db = Db::open("/db", Options::in_env(env.clone()))?;
    /// let options = FamilyOptions::new();
    /// let mut table = perigee::load::TableWriter::create_in(env, "/db/1.table", options)?;
    /// table.put("moon", "full")?;
    /// table.finish()?;
    /// let files = vec!["/db/1.table".into()];
    /// assert_eq!(db.admin().ingest_many(&[(db.default_family(), files)])?.entries, 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if files for one column family overlap, have another comparator, contain
    /// keys out of order or range tombstones (a `TableWriter` writes none), or if a column family
    /// belongs to another open database; `Corruption`, with file and offset; as
    /// [`crate::load::BulkLoad::finish`] otherwise.
    pub fn ingest_many(&self, files: &[(Family, Vec<PathBuf>)]) -> Result<LoadReport> {
        let with_family = |(f, paths): &(Family, Vec<PathBuf>)| {
            Ok((Arc::clone(f.inner_for(self.engine)?), paths.clone()))
        };
        let files = files.iter().map(with_family).collect::<Result<Vec<_>>>()?;
        let (sequence, entries, bytes) = self.engine.ingest(&files)?;
        Ok(LoadReport { entries, bytes, sequence: sequence.0 })
    }
    /// Returns statistics of the database, its column families and background work.
    /// [`Admin::counters`] and [`Admin::cache_stats`] return parts of them at lower cost.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// let stats = db.admin().stats();
    /// assert_eq!(stats.last_sequence, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }
    /// Returns the last 100 flushes and compactions that have ended since the open, the newest
    /// first. [`Stats::running_jobs`] lists those that are running. A flush ends a moment after the
    /// call that waited for its data has returned: [`Admin::wait_idle`] waits for the end.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// db.default_family().flush()?;
    /// db.admin().wait_idle()?;
    /// let jobs = db.admin().finished_jobs();
    /// assert!(jobs[0].job.kind == "flush" && jobs[0].is_complete);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn finished_jobs(&self) -> Vec<FinishedJobStats> {
        self.engine.finished_jobs()
    }
    /// Returns the statistics as OpenMetrics text (`application/openmetrics-text; version=1.0.0`),
    /// for a `/metrics` endpoint.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// db.put("moon", "full")?;
    /// let text = db.admin().metrics();
    /// assert!(text.contains("perigee_operations_total 1\n"));
    /// assert!(text.ends_with("# EOF\n"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn metrics(&self) -> String {
        metrics::render(&self.stats())
    }
    /// Returns the counters since open, by name. Much cheaper than [`Admin::stats`], which contains
    /// them.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// let counters = db.admin().counters();
    /// let operations = counters.iter().find(|c| c.name == "operations").expect("a counter");
    /// assert_eq!(operations.value, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn counters(&self) -> Vec<CounterValue> {
        self.engine.counter_values()
    }
    /// Returns size and hit counts of the block cache. Much cheaper than [`Admin::stats`], which
    /// contains them.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let cache = db.admin().cache_stats();
    /// assert!(cache.used <= cache.capacity);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cache_stats(&self) -> CacheStats {
        self.engine.cache_stats()
    }
    /// Returns every table file with its level, sorted run, size and key range.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// db.admin().flush()?;
    /// let files = db.admin().files();
    /// assert_eq!((files[0].family.as_str(), files[0].entries), ("default", 1));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn files(&self) -> Vec<FileStats> {
        self.engine.files()
    }
    /// Returns the state of the clock that decides which entries have expired.
    ///
    /// Reads use the wall clock, except that time never goes backward: setting the clock back does
    /// not make expired entries reappear. If the wall clock is suddenly more than an hour ahead of
    /// the monotonic clock, the jump is not trusted: entries that expired because of it are hidden,
    /// but not removed from disk until two flushes have finished or [`Admin::confirm_clock`] is
    /// called. If the clock is corrected before that, they are visible again.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let clock = db.admin().clock();
    /// assert!(!clock.jumped);
    /// assert!(clock.confirmed_ms <= clock.now_ms);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn clock(&self) -> ClockStatus {
        let LogicalClockStatus { now_ms, confirmed_ms, jumped } =
            self.engine.logical_clock().status();
        ClockStatus { now_ms, confirmed_ms, jumped }
    }
    /// Confirms that the wall clock is right after a jump: expired entries may be removed from
    /// disk.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// if db.admin().clock().jumped {
    ///     db.admin().confirm_clock(); // after the operator has checked the time
    /// }
    /// assert!(!db.admin().clock().jumped);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn confirm_clock(&self) {
        self.engine.confirm_wall_clock();
    }
    /// Returns the number of commit-hook calls that panicked since the database was opened.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.default_family().on_commit(|_| println!("changed"));
    /// db.put("moon", "full")?;
    /// assert_eq!(db.admin().commit_hook_panics(), 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn commit_hook_panics(&self) -> u64 {
        self.engine.hook_panics()
    }
}
