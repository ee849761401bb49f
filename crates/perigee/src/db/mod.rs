//! The database handle: opening, column families, commits, and shortcuts to `default`.

pub mod limits;
pub mod locks;
pub mod metrics;
pub mod admin;
pub mod family;
pub mod family_maintenance;
pub mod directory;

use crate::db::limits::FAMILY_ATTEMPTS_MAX;
use crate::read::source::ReadSource;
use crate::{
    Admin, Backups, Error, ErrorKind, Family, FamilyOptions, History, Iter, Options, Readable,
    Result, Slice, Snapshot, TwoPhaseCommit, WriteBatch, WriteOptions,
};
use perigee_engine::reader::Reader;
use perigee_engine::{Engine, FamilyState as Inner, Operation, RetainedDirLock};
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

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
/// assert!(db.admin().verify()?.errors.is_empty());
/// assert_eq!(db.admin().stats().last_sequence, 1);
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
    /// write-ahead log before the call returns; [`Stats::recovery`](crate::stats::Stats::recovery)
    /// reports what it did.
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// let db = Db::open("/tides", Options::in_env(env.clone()))?; // created
    /// db.put("moon", "full")?;
    /// db.close()?;
    /// let db = Db::open("/tides", Options::in_env(env).error_if_exists(false))?;
    /// assert!(db.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `Locked` if the database is already open, in this or in another process; `NotFound` if there
    /// is none and it must not be created; `AlreadyExists` if there is one and
    /// [`Options::error_if_exists`] is set; `InvalidArgument` if an option is out of range, a
    /// comparator or merge operator is not registered, or the directory belongs to another program
    /// (see [`check_directory`](crate::check_directory)); `Corruption` if stored bytes are damaged;
    /// `FormatTooNew`; `Io`. After `InvalidArgument`, `Corruption` or `FormatTooNew` the directory
    /// is unchanged.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        Db::open_locked(path.as_ref(), options, &mut None)
    }
    /// Stops background work, makes every acknowledged write durable, closes all files and releases
    /// the directory lock. Memtables are not flushed: the next open replays the log. Snapshots,
    /// cursors, iterators, transactions and other handles may outlive this call; calls on them fail
    /// with `Closed`. Closing again returns `Ok`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// db.close()?;
    /// assert_eq!(db.get("moon").unwrap_err().kind(), ErrorKind::Closed);
    /// db.close()?; // closing again is fine
    /// # Ok::<(), Error>(())
    /// ```
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
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// let db = Db::open("/tides", Options::in_env(env))?;
    /// assert_eq!(db.path().file_name().unwrap_or_default(), "tides");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn path(&self) -> &Path {
        self.engine.path()
    }
    /// Returns the column family `default`, which always exists.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let family = db.default_family();
    /// family.put("moon", "full")?;
    /// assert!(db.contains("moon")?); // the same column family
    /// # Ok::<(), Error>(())
    /// ```
    pub fn default_family(&self) -> Family {
        self.default.clone()
    }
    /// Creates a column family. It is durable when the call returns.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let options = FamilyOptions::new().compression(Compression::Zstd(3));
    /// let logs = db.create_family("logs", options)?;
    /// logs.put("2026/11/21", "first light")?;
    /// let again = db.create_family("logs", FamilyOptions::new()).unwrap_err();
    /// assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` if the name is empty or longer than 255 bytes, or
    /// contains NUL, or if an option is out of range; as [`Db::write`] otherwise.
    pub fn create_family(&self, name: &str, options: FamilyOptions) -> Result<Family> {
        Ok(self.family_handle(self.engine.create_family(name, options.to_settings())?))
    }
    /// Returns the column family named `name`, or creates it with `options` if there is none. If
    /// several threads do this at once, one of them creates it and all get the same column family.
    /// `options` have no effect on a column family that exists: [`Family::options`] returns those
    /// that it has.
    ///
    /// ```
    /// # use perigee::{Db, FamilyOptions, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let tides = db.family_or_create("tides", FamilyOptions::new().filter_bits(17))?;
    /// tides.put("06:12", "high")?;
    /// let same = db.family_or_create("tides", FamilyOptions::new())?;
    /// assert!(same.contains("06:12")?);
    /// assert_eq!(same.options().filter_bits, 17);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::create_family`], except `AlreadyExists`. `Busy` if other threads keep
    /// creating and dropping this column family.
    pub fn family_or_create(&self, name: &str, options: FamilyOptions) -> Result<Family> {
        for _ in 0..FAMILY_ATTEMPTS_MAX {
            match self.family(name) {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                result => return result,
            }
            match self.create_family(name, options.clone()) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                result => return result,
            }
        }
        let text = format!("the column family {name:?} is being created and dropped repeatedly");
        Err(Error::new(ErrorKind::Busy, text))
    }
    /// Returns the column family named `name`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.create_family("logs", FamilyOptions::new())?.put("moon", "full")?;
    /// assert!(db.family("logs")?.contains("moon")?);
    /// assert_eq!(db.family("none").unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is none; [`Db::family_or_create`] creates it.
    pub fn family(&self, name: &str) -> Result<Family> {
        Ok(self.family_handle(self.engine.family(name)?))
    }
    /// Drops a column family and its contents; durable when the call returns. Open iterators and
    /// cursors still return its entries; its files are deleted when the last of them is dropped.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let cache = db.create_family("cache", FamilyOptions::new())?;
    /// db.drop_family("cache")?;
    /// assert_eq!(cache.put("moon", "full").unwrap_err().kind(), ErrorKind::NotFound);
    /// assert_eq!(db.families(), ["default"]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound`; `InvalidArgument` for `default`, which cannot be dropped; `Busy` if a prepared
    /// transaction has read or written the column family ([`TwoPhaseCommit::prepared`]); as
    /// [`Db::write`] otherwise.
    pub fn drop_family(&self, name: &str) -> Result<()> {
        self.engine.drop_family(name)
    }
    /// Returns the names of all column families, sorted.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.create_family("tides", FamilyOptions::new())?;
    /// db.create_family("moons", FamilyOptions::new())?;
    /// assert_eq!(db.families(), ["default", "moons", "tides"]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn families(&self) -> Vec<String> {
        self.engine.family_names()
    }
    /// Commits a batch atomically with the durability in [`Options::durability`], and returns the
    /// sequence number of its last operation. From then on reads see the batch:
    /// [`History::latest_seq`] is at least the returned number. An empty batch returns the current
    /// [`History::latest_seq`].
    ///
    /// A write can be delayed, or wait, while flushes and compactions catch up;
    /// [`Stats::stalls`](crate::stats::Stats::stalls) counts the time.
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
    /// assert_eq!((seq, db.history().latest_seq()), (2, 2));
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
    /// - `NotFound`: a column family of the batch was dropped.
    /// - `ReadOnly`, `Closed`, `Io`.
    pub fn write(&self, batch: WriteBatch) -> Result<u64> {
        self.write_with(batch, WriteOptions::new())
    }
    /// Commits a batch like [`Db::write`], with `options`, for example another durability.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// let mut batch = WriteBatch::new();
    /// batch.put_default("moon", "full")?;
    /// db.write_with(batch, WriteOptions::new().durability(Durability::None))?; // no sync
    /// assert!(db.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Db::write`].
    pub fn write_with(&self, batch: WriteBatch, options: WriteOptions) -> Result<u64> {
        let batch = batch.into_engine_batch(&self.engine)?;
        Ok(self.engine.write_measured(Operation::Write, batch, options.durability)?.0)
    }
    /// Calls [`Family::put`] on `default`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "new")?;
    /// db.put("moon", "full")?;
    /// assert_eq!(db.get("moon")?.as_deref(), Some(&b"full"[..]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default.put(key, value)
    }
    /// Calls [`Family::delete`] on `default`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// db.delete("moon")?;
    /// assert_eq!(db.get("moon")?, None);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default.delete(key)
    }
    /// Calls [`Family::get`] on `default`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// assert_eq!(db.get("moon")?, Some(b"full".to_vec()));
    /// assert_eq!(db.get("sun")?, None);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.default.get(key)
    }
    /// Calls [`Family::get_pinned`] on `default`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// let value = db.get_pinned("moon")?.expect("the key was put");
    /// assert_eq!(value, "full");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.default.get_pinned(key)
    }
    /// Calls [`Family::contains`] on `default`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// assert!(db.contains("moon")? && !db.contains("sun")?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default.contains(key)
    }
    /// Calls [`Family::iter`] on `default`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("tide", "high")?;
    /// db.put("moon", "full")?;
    /// let (key, value) = db.iter()?.next().expect("two entries")?;
    /// assert!(key == "moon" && value == "full");
    /// assert_eq!(db.iter()?.rev().count(), 2); // from both ends
    /// # Ok::<(), Error>(())
    /// ```
    pub fn iter(&self) -> Result<Iter> {
        self.default.iter()
    }
    /// Calls [`Family::range`] on `default`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// for day in ["11/20", "11/21", "11/22"] {
    ///     db.put(day, "")?;
    /// }
    /// assert_eq!(db.range("11/21"..)?.count(), 2);
    /// assert_eq!(db.range("11/20".."11/22")?.count(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        self.default.range(range)
    }
    /// Calls [`Family::prefix`] on `default`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// for day in ["11/20", "11/21", "12/01"] {
    ///     db.put(day, "")?;
    /// }
    /// assert_eq!(db.prefix("11/")?.count(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.default.prefix(prefix)
    }
    /// Takes a snapshot of all column families at this moment. O(1): pins a sequence number and
    /// copies nothing. Until it is dropped, compactions keep the versions that it sees.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// db.put("moon", "new")?;
    /// let before = db.snapshot()?;
    /// db.put("moon", "full")?;
    /// assert_eq!(before.get(&family, "moon")?.as_deref(), Some(&b"new"[..]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot { handle: self.engine.snapshot()?, engine: Arc::clone(&self.engine) })
    }
    /// Returns the handle for maintenance, run-time options and statistics.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// db.admin().flush()?;
    /// assert_eq!(db.admin().stats().last_sequence, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn admin(&self) -> Admin<'_> {
        Admin { engine: &self.engine }
    }
    /// Returns the handle for checkpoints and backups.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// assert_eq!(db.backups().create("/backup")?.generation, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn backups(&self) -> Backups<'_> {
        Backups { engine: &self.engine }
    }
    /// Returns the handle for past states: named snapshots, historical reads, the change feed.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "new")?;
    /// db.history().create_snapshot("before the eclipse")?;
    /// assert_eq!(db.history().named_snapshots().len(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn history(&self) -> History<'_> {
        History { engine: &self.engine }
    }
    /// Returns the handle for prepared transactions ([`Txn::prepare`](crate::Txn::prepare)).
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// # let family = db.default_family();
    /// # let txn = db.begin(TxnOptions::new())?;
    /// txn.put(&family, "moon", "full")?;
    /// txn.prepare("transfer 7")?;
    /// db.two_phase().commit("transfer 7")?;
    /// assert!(db.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn two_phase(&self) -> TwoPhaseCommit<'_> {
        TwoPhaseCommit { engine: &self.engine }
    }
    /// Syncs the write-ahead log: makes every write acknowledged so far survive a power loss.
    /// Needed only with a [`Durability`](crate::Durability) other than `Full`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// let db = Db::open("/db", Options::in_env(env).durability(Durability::None))?;
    /// db.put("moon", "full")?; // a power loss could delete it
    /// db.sync()?; // not any more
    /// assert!(db.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `OutcomeUnknown` if the sync fails: which of the writes survive a power loss is unknown, and
    /// later writes fail with `Poisoned`. As [`Db::write`] otherwise.
    pub fn sync(&self) -> Result<()> {
        self.engine.sync()
    }
    /// Waits until every write up to the sequence number `seq` survives a power loss. Threads that
    /// wait at the same time share syncs. If the log is durable up to `seq` already, this costs
    /// nothing.
    ///
    /// With [`Durability::None`](crate::Durability::None) for the commit it splits a synced commit
    /// into two steps: others see the writes, and locks are released, before the sync. That makes
    /// transactions that compete for the same locks faster. A power loss between the two steps may
    /// delete writes that others have read; it never deletes them and keeps a later commit.
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// let db = Db::open("/db", Options::in_env(env))?;
    /// let transfer = db.begin(TxnOptions::new())?;
    /// transfer.put(&db.default_family(), "moon", "full")?;
    /// let seq = transfer.commit_with(Durability::None)?; // locks are free, others see it
    /// db.sync_up_to(seq)?; // now answer the client
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if no write has this sequence number yet. `OutcomeUnknown` if this or an
    /// earlier sync failed: which of the writes survive a power loss is unknown.
    pub fn sync_up_to(&self, seq: u64) -> Result<()> {
        self.engine.sync_up_to(perigee_engine::SeqNo(seq))
    }

    /// Opens the database with the directory lock in `kept`, or stores the lock there on failure.
    pub(crate) fn open_locked(
        path: &Path,
        options: Options,
        kept: &mut Option<RetainedDirLock>,
    ) -> Result<Db> {
        let settings = options.to_settings();
        let families = settings.families.clone();
        let reads_only = options.read_only || options.salvage_readonly;
        let engine = Arc::new(Engine::open_with_lock(options.env, path, settings, kept)?);
        for (name, settings) in families.iter().filter(|_| !reads_only) {
            if !engine.family_names().contains(name) {
                engine.create_family(name, settings.clone())?;
            }
        }
        let inner = engine.family("default")?;
        Ok(Db { default: Family { inner, engine: Arc::clone(&engine) }, engine })
    }
    fn family_handle(&self, inner: Arc<Inner>) -> Family {
        Family { inner, engine: Arc::clone(&self.engine) }
    }
}

impl ReadSource for Db {
    fn family_state(&self) -> Result<&Inner> {
        self.default.family_state()
    }
    #[inline]
    fn with_reader<R>(&self, read: impl FnOnce(Reader<'_>) -> Result<R>) -> Result<R> {
        self.default.with_reader(read)
    }
}

/// Reads the column family `default`.
impl Readable for Db {}
