//! The database handle: opening, column families, commits, and the shortcuts to `default`.

use crate::env::Env;
use crate::{
    Cursor, Family, FamilyOptions, FileStats, Iter, Options, Result, Slice, Snapshot, Stats,
    VerifyReport, WriteBatch, WriteOptions, translate,
};
use perigee_base::latency::Operation;
use perigee_engine::{Engine, FamilyState as Inner};
use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

/// The lock on a database directory, kept by a failed [`Db::open_with_lock`] for the next attempt.
/// Dropping it releases the lock.
#[derive(Debug, Default)]
pub struct DirectoryLock(Option<perigee_engine::engine::RetainedDirLock>);

impl DirectoryLock {
    /// Returns true if it contains a lock.
    pub fn is_held(&self) -> bool {
        self.0.is_some()
    }
}

/// An open database. Clones are cheap and refer to the same database, which can be used from any
/// number of threads at once. It is closed by [`Db::close`], or when the last handle to it is
/// dropped (database, column family, snapshot, transaction, cursor, iterator).
///
/// Methods such as [`Db::get`] and [`Db::put`], which take no [`Family`], use the column family
/// `default`.
///
/// # Errors
/// Unless stated otherwise, any call can fail with `Closed` after [`Db::close`]; a call on a
/// dropped column family with `NotFound`; a read with `Io`, with `Corruption` if a checksum does
/// not match, or with `NoMemory` if a large buffer cannot be allocated; a write, flush or
/// compaction with the errors listed at [`Db::write`].
///
/// ```
/// # use perigee::{Db, Options};
/// # fn main() -> perigee::Result<()> {
/// # use perigee::env::{Env, fs::memory::SimDisk};
/// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
/// db.put("moon", "full")?;
/// db.sync()?;
/// assert!(db.verify()?.errors.is_empty());
/// assert_eq!(db.stats().last_sequence, 1);
/// db.close()?;
/// assert_eq!(db.get("moon").unwrap_err().kind(), perigee::ErrorKind::Closed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Db {
    pub(crate) engine: Arc<Engine>,
    default: Family,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.path().display())
    }
}

impl Db {
    /// Opens the database in directory `path`, or creates it, depending on
    /// [`Options::create_if_missing`] and [`Options::error_if_exists`]. Recovery replays the
    /// write-ahead log before the call returns; [`Stats::recovery`] reports what it did.
    ///
    /// # Errors
    /// `Locked` if the database is already open, in this or in another process; `NotFound` if there
    /// is none and it must not be created; `AlreadyExists` if there is one and
    /// [`Options::error_if_exists`] is set; `InvalidArgument` if an option is out of range, a
    /// comparator or merge operator is not registered, or the directory belongs to another program
    /// (see [`Db::check_directory`]); `Corruption` if stored bytes are damaged; `FormatTooNew`;
    /// `Io`. After `InvalidArgument`, `Corruption` or `FormatTooNew` the directory is unchanged.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        Db::open_with_lock(path, options, &mut DirectoryLock::default())
    }
    /// Opens the database like [`Db::open`], but stores the directory lock in `kept` if recovery
    /// fails, for example because a comparator is not registered yet. The next call with the same
    /// `kept` uses this lock, so no other process can open the database in between.
    ///
    /// # Errors
    /// Same as [`Db::open`].
    pub fn open_with_lock(
        path: impl AsRef<Path>,
        options: Options,
        kept: &mut DirectoryLock,
    ) -> Result<Db> {
        let settings = translate::settings(&options);
        let families = settings.families.clone();
        let reads_only = options.read_only || options.salvage_readonly;
        let engine =
            Arc::new(Engine::open_with_lock(options.env, path.as_ref(), settings, &mut kept.0)?);
        for (name, settings) in families.iter().filter(|_| !reads_only) {
            if !engine.family_names().contains(name) {
                engine.create_family(name, settings.clone())?;
            }
        }
        let inner = engine.family("default")?;
        Ok(Db { default: Family { inner, engine: Arc::clone(&engine) }, engine })
    }
    /// Checks that [`Db::open`] may create or open a database in `path`: rejects a directory that
    /// belongs to another program. Accepts a directory that is missing, empty, or contains a
    /// Perigee database, damaged or not.
    ///
    /// A directory counts as empty if it contains only files left by an interrupted first open, the
    /// options file, hidden entries (names that begin with a dot), and `lost+found`.
    ///
    /// # Errors
    /// `InvalidArgument`, naming what the directory contains and, if there is one, the command that
    /// imports it; `Io`.
    pub fn check_directory(env: &Env, path: impl AsRef<Path>) -> Result<()> {
        perigee_engine::recover::foreign_dir::refuse_foreign_path(env, path.as_ref())
    }
    /// Returns the column families of the database in `path`: for each its name, the name of its
    /// comparator, and whether its tables contain any entries. Reads only the manifest: the
    /// database is not opened or changed, and comparators need not be registered.
    ///
    /// # Errors
    /// `NotFound` if there is no database; `Corruption`; `FormatTooNew`; `Io`.
    pub fn list_families(env: &Env, path: impl AsRef<Path>) -> Result<Vec<(String, String, bool)>> {
        perigee_engine::recover::list_families(env, path.as_ref())
    }
    /// Stops background work, makes every acknowledged write durable, closes all files and releases
    /// the directory lock. Memtables are not flushed: the next open replays the log. Snapshots,
    /// cursors, iterators, transactions and other handles may outlive this call; calls on them fail
    /// with `Closed`. Closing again returns `Ok`.
    ///
    /// # Errors
    /// The database is closed even if this fails: `Poisoned` if writes were already stopped by an
    /// earlier failure, otherwise a failed write or sync of log or manifest (`OutcomeUnknown`,
    /// `Io`, `NoSpace`). `InvalidArgument` if called from a log listener
    /// ([`Options::log_listener`]): the database stays open.
    pub fn close(&self) -> Result<()> {
        self.engine.close()
    }
    /// Returns the database directory.
    pub fn path(&self) -> &Path {
        self.engine.path()
    }
    /// Returns the options in effect: those given at open, with the current options of every column
    /// family. Written to a file by [`Options::save`], they reproduce this configuration.
    pub fn options(&self) -> Options {
        let mut families: BTreeMap<String, FamilyOptions> = BTreeMap::new();
        for f in self.engine.all_families() {
            families.insert(f.name().to_string(), translate::family_options(&f.settings()));
        }
        translate::options(self.engine.settings(), self.engine.env().clone(), families)
    }
    /// Returns the column family `default`, which always exists.
    pub fn default_family(&self) -> Family {
        self.default.clone()
    }
    /// Creates a column family. It is durable when the call returns.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` if the name is empty, longer than 255 bytes or contains
    /// NUL, or if an option is out of range; as [`Db::write`] otherwise.
    pub fn create_family(&self, name: &str, options: FamilyOptions) -> Result<Family> {
        Ok(self
            .family_handle(self.engine.create_family(name, translate::family_settings(&options))?))
    }
    /// Returns the column family named `name`.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn family(&self, name: &str) -> Result<Family> {
        Ok(self.family_handle(self.engine.family(name)?))
    }
    /// Drops a column family and its contents; durable when the call returns. Open iterators and
    /// cursors still return its entries; its files are deleted when the last of them is dropped.
    ///
    /// # Errors
    /// `NotFound`; `InvalidArgument` for `default`, which cannot be dropped; `Busy` if a prepared
    /// transaction has read or written the column family ([`Db::recover_prepared`]); as
    /// [`Db::write`] otherwise.
    pub fn drop_family(&self, name: &str) -> Result<()> {
        self.engine.drop_family(name)
    }
    /// Renames a column family; durable when the call returns. Existing handles and batches stay
    /// valid.
    ///
    /// [`Options::family`] and options files refer to column families by name, and an open creates
    /// those that do not exist. After `tides` is renamed to `x`, an open with options for `tides`
    /// creates a new, empty `tides` next to `x`. Rename it in the options as well.
    ///
    /// ```
    /// # use perigee::{Db, ErrorKind, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let tides = db.create_family("tides", Default::default())?;
    /// tides.put("06:12", "high")?;
    /// db.clone_family("tides", "tides of 2026")?; // cheap: the files are shared
    /// db.clear_family("tides")?; // one manifest edit
    /// assert_eq!(tides.get("06:12")?, None);
    /// assert!(db.family("tides of 2026")?.contains("06:12")?);
    /// db.rename_family("tides", "tides of 2027")?;
    /// tides.put("05:47", "low")?; // the handle stays valid
    /// assert_eq!(tides.name(), "tides of 2027");
    /// assert_eq!(db.families(), ["default", "tides of 2026", "tides of 2027"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists`; `InvalidArgument` if `name` is `default`, or if `to` is empty,
    /// longer than 255 bytes or contains NUL; as [`Db::write`] otherwise.
    pub fn rename_family(&self, name: &str, to: &str) -> Result<()> {
        self.engine.rename_family(name, to)
    }
    /// Removes the contents of a column family; durable when the call returns. Costs one manifest
    /// edit, whatever the amount of data. Options, name and handles stay valid. Existing iterators
    /// and cursors still return the old contents; existing snapshots can no longer read this column
    /// family (`NotFound`).
    ///
    /// # Errors
    /// `NotFound`; `Busy` if a prepared transaction has read or written the column family; as
    /// [`Db::write`] otherwise.
    pub fn clear_family(&self, name: &str) -> Result<()> {
        self.engine.clear_family(name)
    }
    /// Creates a column family `name` with the contents that `source` has at one moment during the
    /// call, and with its options. Cost: one flush of `source`; the table files are shared until a
    /// compaction replaces them. The two are independent: writes to one are never visible in the
    /// other, and either can be dropped. Snapshots taken before the call cannot read the clone
    /// (`NotFound`).
    ///
    /// # Errors
    /// `NotFound` if there is no `source`; as [`Db::create_family`] and [`Db::flush`].
    pub fn clone_family(&self, source: &str, name: &str) -> Result<Family> {
        Ok(self.family_handle(self.engine.clone_family(source, name)?))
    }
    /// Returns the names of all column families, sorted.
    pub fn families(&self) -> Vec<String> {
        self.engine.family_names()
    }
    /// Commits a batch atomically with the durability in [`Options::durability`], and returns the
    /// sequence number of its last operation. From then on reads see the batch: [`Db::latest_seq`]
    /// is at least the returned number. An empty batch returns the current [`Db::latest_seq`].
    ///
    /// A write can be delayed, or wait, while flushes and compactions catch up; [`Stats::stalls`]
    /// counts the time.
    ///
    /// ```
    /// # use perigee::{Db, Options, WriteBatch};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(&db.default_family(), "moon", "full")?;
    /// batch.put(&db.default_family(), "tide", "high")?;
    /// let seq = db.write(batch)?;
    /// assert_eq!((seq, db.latest_seq()), (2, 2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - `OutcomeUnknown`: after the next open the batch is applied either completely or not at
    ///   all. After every other error it was not applied and never will be.
    /// - `NoSpace`: free some space and try again; the database need not be reopened.
    /// - `Poisoned`: writes are stopped because an earlier write or background job failed.
    /// - `Conflict`: the batch writes a key that was written by a prepared transaction which is not
    ///   yet committed or rolled back, or was read by it at an isolation level that protects reads
    ///   ([`Txn::prepare`](crate::Txn::prepare)).
    /// - `Busy`: background work is paused and the memtables are full.
    /// - `InvalidArgument`: the batch contains a column family of another open database.
    /// - `NotFound`: a column family of the batch was dropped. `ReadOnly`, `Closed`, `Io`.
    pub fn write(&self, batch: WriteBatch) -> Result<u64> {
        self.write_with(batch, WriteOptions::new())
    }
    /// Commits a batch like [`Db::write`], with `options`, for example another durability.
    ///
    /// # Errors
    /// Same as [`Db::write`].
    pub fn write_with(&self, batch: WriteBatch, options: WriteOptions) -> Result<u64> {
        let durability = options.durability.map(translate::durability);
        Ok(self
            .engine
            .write_measured(Operation::Write, batch.into_engine_batch(&self.engine)?, durability)?
            .0)
    }
    /// Returns the sequence number of the newest operation that is visible to reads.
    pub fn latest_seq(&self) -> u64 {
        self.engine.visible_seq().0
    }
    /// Calls [`Family::put`] on `default`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default.put(key, value)
    }
    /// Calls [`Family::delete`] on `default`.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default.delete(key)
    }
    /// Calls [`Family::get`] on `default`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.default.get(key)
    }
    /// Calls [`Family::get_pinned`] on `default`.
    pub fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.default.get_pinned(key)
    }
    /// Calls [`Family::contains`] on `default`.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default.contains(key)
    }
    /// Calls [`Family::iter`] on `default`.
    pub fn iter(&self) -> Result<Iter> {
        self.default.iter()
    }
    /// Calls [`Family::range`] on `default`.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        self.default.range(range)
    }
    /// Calls [`Family::prefix`] on `default`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.default.prefix(prefix)
    }
    /// Calls [`Family::cursor`] on `default`.
    pub fn cursor(&self) -> Result<Cursor> {
        self.default.cursor()
    }
    /// Calls [`Family::cursor_within`] on `default`.
    pub fn cursor_within<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Cursor> {
        self.default.cursor_within(range)
    }
    /// Takes a snapshot of all column families at this moment. O(1): pins a sequence number and
    /// copies nothing. Until it is dropped, compactions keep the versions that it sees.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot { handle: self.engine.snapshot()?, engine: Arc::clone(&self.engine) })
    }
    /// Syncs the write-ahead log: makes every write acknowledged so far survive a power loss.
    /// Needed only with a [`Durability`](crate::Durability) other than `Full`.
    ///
    /// # Errors
    /// `OutcomeUnknown` if the sync fails: which of the writes survive a power loss is unknown, and
    /// later writes fail with `Poisoned`. As [`Db::write`] otherwise.
    pub fn sync(&self) -> Result<()> {
        self.engine.sync()
    }
    /// Writes the memtables of all column families to table files, and returns when these are
    /// installed and durable.
    ///
    /// # Errors
    /// `Busy` if background work is paused; as [`Db::write`].
    pub fn flush(&self) -> Result<()> {
        self.engine.flush(&self.engine.all_families())
    }
    /// Flushes, then compacts every column family into its deepest level, one after the other.
    /// Drops all versions and tombstones that no snapshot needs. Cost: can read and rewrite the
    /// whole database.
    ///
    /// # Errors
    /// `Busy` if background work is paused or cancelled; as [`Db::write`].
    pub fn compact(&self) -> Result<()> {
        self.engine.compact(&self.engine.all_families())
    }
    /// Reads every byte of every file and checks it. Damage is not an `Err`: it is listed in
    /// [`VerifyReport::errors`], one error per damaged file.
    ///
    /// # Errors
    /// Only for what prevents the whole check, such as `Closed`.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(|_done, _total| {})
    }
    /// Verifies like [`Db::verify`], and calls `progress(done, total)` with byte counts.
    pub fn verify_with(&self, progress: impl FnMut(u64, u64)) -> Result<VerifyReport> {
        let mut progress = progress;
        Ok(translate::verify_report(self.engine.verify(&mut progress)?))
    }
    /// Returns statistics of the database, its column families and background work.
    /// [`Db::counters`] and [`Db::cache_stats`] return parts of them at lower cost.
    pub fn stats(&self) -> Stats {
        translate::stats(self.engine.status())
    }
    /// Returns every table file with its level, sorted run, size and key range.
    pub fn files(&self) -> Vec<FileStats> {
        self.engine.table_statuses().into_iter().map(translate::file_stats).collect()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }
    fn family_handle(&self, inner: Arc<Inner>) -> Family {
        Family { inner, engine: Arc::clone(&self.engine) }
    }
}
