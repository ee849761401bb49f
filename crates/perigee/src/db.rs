//! The database handle.

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

/// The lock on a directory, kept between two attempts to open the database in it: see
/// [`Db::open_with_lock`].
#[derive(Debug, Default)]
pub struct DirectoryLock(Option<perigee_engine::engine::RetainedDirLock>);

impl DirectoryLock {
    /// Whether a lock is kept.
    pub fn is_held(&self) -> bool {
        self.0.is_some()
    }
}

/// An open database. Cheap to clone; clones share it. Closed by [`Db::close`], or when the last
/// handle (database, family, snapshot, iterator) is dropped.
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
    /// Opens (or creates, see [`Options`]) the database in directory `path`.
    ///
    /// # Errors
    /// `Locked` if it is open already, here or in another process; `NotFound` if it is missing and
    /// must not be created; `InvalidArgument` if the directory belongs to another program (see
    /// [`Db::check_directory`]), and then nothing was changed; `Corruption` if stored bytes are
    /// damaged, and then nothing was changed; `FormatTooNew`; `Io`.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        Db::open_with_lock(path, options, &mut DirectoryLock::default())
    }
    /// As [`Db::open`]; if that fails, for example because a comparator is not registered yet, the
    /// lock on the directory stays in `kept`, and the next open with it takes it over: in between
    /// no other process can open the database. Dropping `kept` frees the lock.
    ///
    /// # Errors
    /// Those of [`Db::open`].
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
    /// Refuses a directory that belongs to another program, as an open does before it creates
    /// anything. A directory that is missing, empty, or holds a database of this engine, damaged or
    /// not, is accepted.
    ///
    /// What may lie beside nothing else: files that an interrupted first open has left, the options
    /// file, hidden entries (whose name begins with a dot), and `lost+found`.
    ///
    /// # Errors
    /// `InvalidArgument` naming what the directory holds, and the command that imports it if there
    /// is one; `Io`.
    pub fn check_directory(env: &Env, path: impl AsRef<Path>) -> Result<()> {
        perigee_engine::recover::foreign_dir::refuse_foreign_path(env, path.as_ref())
    }
    /// Names of the column families of the database in `path`, each with the name of its comparator
    /// and whether tables hold entries of it. Read from the manifest: the database is not opened,
    /// nothing is changed, and comparators need not be registered.
    ///
    /// # Errors
    /// `NotFound` if there is no database; `Corruption`; `FormatTooNew`; `Io`.
    pub fn list_families(env: &Env, path: impl AsRef<Path>) -> Result<Vec<(String, String, bool)>> {
        perigee_engine::recover::list_families(env, path.as_ref())
    }
    /// Stops background work, makes every acknowledged write durable, closes every file and
    /// releases the lock. Further calls on any handle (also snapshots, cursors and iterators that
    /// are still alive) fail with `Closed`; closing twice is no error.
    pub fn close(&self) -> Result<()> {
        self.engine.close()
    }
    /// Its directory.
    pub fn path(&self) -> &Path {
        self.engine.path()
    }
    /// The options that hold now: those given at open, with the families' as they are stored. Saved
    /// with [`Options::save`], they are the file of this database.
    pub fn options(&self) -> Options {
        let mut families: BTreeMap<String, FamilyOptions> = BTreeMap::new();
        for f in self.engine.all_families() {
            families.insert(f.name().to_string(), translate::family_options(&f.settings()));
        }
        translate::options(self.engine.settings(), self.engine.env().clone(), families)
    }
    /// The family `default`, which always exists.
    pub fn default_family(&self) -> Family {
        self.default.clone()
    }
    /// Creates a family.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` for a name that is empty, longer than 255 bytes or
    /// contains NUL, or for options out of range.
    pub fn create_family(&self, name: &str, options: FamilyOptions) -> Result<Family> {
        Ok(self
            .family_handle(self.engine.create_family(name, translate::family_settings(&options))?))
    }
    /// The family of that name (`NotFound` if there is none).
    pub fn family(&self, name: &str) -> Result<Family> {
        Ok(self.family_handle(self.engine.family(name)?))
    }
    /// Removes a family with everything in it; durable when the call returns. `default` cannot be
    /// dropped.
    pub fn drop_family(&self, name: &str) -> Result<()> {
        self.engine.drop_family(name)
    }
    /// Gives a family another name; durable when the call returns. Handles and batches made before
    /// go on working.
    ///
    /// Options at open go by name: after `tides` became `x`, an open with
    /// [`Options::family`]`("tides", …)`, or with a file of options that names it, finds no `tides`
    /// and creates an empty one, beside `x` with all that it holds. So rename it there, too.
    ///
    /// ```
    /// # use perigee::{Db, ErrorKind, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// let tides = db.create_family("tides", Default::default())?;
    /// tides.put("06:12", "high")?;
    /// db.clone_family("tides", "tides of 2026")?; // cheap: the files are shared
    /// db.clear_family("tides")?; // all at once
    /// assert_eq!(tides.get("06:12")?, None);
    /// assert!(db.family("tides of 2026")?.contains("06:12")?);
    /// db.rename_family("tides", "tides of 2027")?;
    /// tides.put("05:47", "low")?; // the handle goes on working
    /// assert_eq!(tides.name(), "tides of 2027");
    /// assert_eq!(db.families(), ["default", "tides of 2026", "tides of 2027"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists`; `InvalidArgument` for `default`, or for a name that is empty,
    /// longer than 255 bytes or contains NUL.
    pub fn rename_family(&self, name: &str, to: &str) -> Result<()> {
        self.engine.rename_family(name, to)
    }
    /// Removes everything in a family at once, whatever its size; durable when the call returns.
    /// The family stays, with its options, name and handles. Iterators opened before go on; a
    /// snapshot taken before can no longer read the family (`NotFound`).
    pub fn clear_family(&self, name: &str) -> Result<()> {
        self.engine.clear_family(name)
    }
    /// Makes a family that begins with what `source` holds at one moment between call and return,
    /// under the same options. Cheap: the memtable is written out and the table files are shared
    /// until a compaction replaces them. Writes to one never show in the other, and either can be
    /// dropped. Snapshots taken before cannot read it (`NotFound`).
    ///
    /// # Errors
    /// As [`Db::create_family`] and [`Db::rename_family`]; those of a flush.
    pub fn clone_family(&self, source: &str, name: &str) -> Result<Family> {
        Ok(self.family_handle(self.engine.clone_family(source, name)?))
    }
    /// Names of all families, sorted.
    pub fn families(&self) -> Vec<String> {
        self.engine.family_names()
    }
    /// Commits a batch with the database's durability; the number of its last operation
    /// ([`Db::latest_seq`] is not less from now on). An empty batch has that of the present.
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
    /// `OutcomeUnknown`: the commit may or may not be there after reopen, as a whole. Any other
    /// error: it is not there and never will be. `NoSpace`: free space and try again, no reopen
    /// needed. `Poisoned`: an earlier failure stopped writes. `Conflict`: a prepared transaction
    /// that nobody has decided yet wrote, or read, what the batch writes.
    pub fn write(&self, batch: WriteBatch) -> Result<u64> {
        self.write_with(batch, WriteOptions::new())
    }
    /// Commits a batch, with options.
    pub fn write_with(&self, batch: WriteBatch, options: WriteOptions) -> Result<u64> {
        let durability = options.durability.map(translate::durability);
        Ok(self
            .engine
            .write_measured(Operation::Write, batch.into_engine_batch(&self.engine)?, durability)?
            .0)
    }
    /// The number of the last operation that reads see.
    pub fn latest_seq(&self) -> u64 {
        self.engine.visible_seq().0
    }
    /// [`Family::put`] on `default`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default.put(key, value)
    }
    /// [`Family::delete`] on `default`.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default.delete(key)
    }
    /// [`Family::get`] on `default`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.default.get(key)
    }
    /// [`Family::get_pinned`] on `default`.
    pub fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.default.get_pinned(key)
    }
    /// [`Family::contains`] on `default`.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default.contains(key)
    }
    /// [`Family::iter`] on `default`.
    pub fn iter(&self) -> Result<Iter> {
        self.default.iter()
    }
    /// [`Family::range`] on `default`.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        self.default.range(range)
    }
    /// [`Family::prefix`] on `default`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.default.prefix(prefix)
    }
    /// [`Family::cursor`] on `default`.
    pub fn cursor(&self) -> Result<Cursor> {
        self.default.cursor()
    }
    /// [`Family::cursor_within`] on `default`.
    pub fn cursor_within<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Cursor> {
        self.default.cursor_within(range)
    }
    /// The database as it is now, held until the snapshot is dropped.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot { handle: self.engine.snapshot()?, engine: Arc::clone(&self.engine) })
    }
    /// Makes every write acknowledged so far durable against power loss.
    pub fn sync(&self) -> Result<()> {
        self.engine.sync()
    }
    /// Writes all memtables to table files.
    pub fn flush(&self) -> Result<()> {
        self.engine.flush(&self.engine.all_families())
    }
    /// Merges every family into its deepest level.
    pub fn compact(&self) -> Result<()> {
        self.engine.compact(&self.engine.all_families())
    }
    /// Reads every byte of every file and checks it. `Ok` with errors inside the report means:
    /// readable, damaged.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(|_done, _total| {})
    }
    /// The same, with progress in bytes (done, total).
    pub fn verify_with(&self, progress: impl FnMut(u64, u64)) -> Result<VerifyReport> {
        let mut progress = progress;
        Ok(translate::verify_report(self.engine.verify(&mut progress)?))
    }
    /// Statistics.
    pub fn stats(&self) -> Stats {
        translate::stats(self.engine.status())
    }
    /// Every table file with its place in the tree.
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
