//! [`Backups`]: checkpoints and backups of an open database.

pub mod backup_dir;
pub mod repair;

use crate::Result;
use crate::backup::{BackupDir, BackupOptions, BackupReport, CheckpointReport};
use perigee_engine::Engine;
use std::path::Path;

/// Checkpoints and backups of an open database ([`Db::backups`](crate::Db::backups)). Reads and
/// writes continue while they are made. [`BackupDir`] restores, verifies and prunes backups; it
/// needs no open database.
#[derive(Clone, Copy, Debug)]
pub struct Backups<'a> {
    pub(crate) engine: &'a Engine,
}

impl Backups<'_> {
    /// Creates a copy of the database, as of one sequence number, in the directory `dir`, which
    /// must not exist or must be empty. Reads and writes continue during the call. The copy
    /// includes writes that are not synced yet.
    ///
    /// Table and value-log files are shared by hard links, which take no extra space until a
    /// compaction of either database replaces the files; on another file system they are copied.
    /// Nothing is flushed: entries that are still in memtables go to the log of the checkpoint. The
    /// result is an independent database that can be opened for reading and writing.
    ///
    /// The directory is built as `dir.incomplete` and renamed as the last step. A crash leaves
    /// `dir.incomplete`, which the next attempt replaces.
    ///
    /// # Errors
    /// `AlreadyExists` if `dir` is not empty; `NotFound` if its parent directory does not exist;
    /// `OutcomeUnknown`: the checkpoint is complete, but its name may not survive a power loss.
    ///
    /// ```
    /// # use perigee::{Db, Options, env::{Env, fs::memory::SimDisk}};
    /// # fn main() -> perigee::Result<()> {
    /// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
    /// # let db = Db::open("/db", Options::in_env(env.clone()))?;
    /// db.put("moon", "full")?;
    /// db.backups().checkpoint("/copy")?;
    /// db.put("moon", "new")?;
    /// let copy = Db::open("/copy", Options::in_env(env))?;
    /// assert_eq!(copy.get("moon")?.as_deref(), Some(&b"full"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<CheckpointReport> {
        self.engine.checkpoint(dir.as_ref())
    }
    /// Adds a generation to the backup directory `dir`, which is created if it does not exist.
    /// Copies only the table and value-log files that no earlier generation has stored. Reads and
    /// writes continue during the backup. See [`BackupDir`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// db.admin().flush()?;
    /// assert_eq!(db.backups().create("/backup")?.generation, 1);
    /// let second = db.backups().create("/backup")?;
    /// assert_eq!(second.generation, 2);
    /// assert!(second.shared_files > 0); // the table is stored once
    /// # Ok::<(), Error>(())
    /// ```
    pub fn create(&self, dir: impl AsRef<Path>) -> Result<BackupReport> {
        self.create_with(dir, BackupOptions::new(), |_done, _total| {})
    }
    /// Backs up like [`Backups::create`], with options, and calls `progress(done, total)` with byte
    /// counts.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// let options = perigee::backup::BackupOptions::new().reread(true);
    /// let report = db.backups().create_with("/backup", options, |done, total| {
    ///     assert!(done <= total);
    /// })?;
    /// assert_eq!(report.sequence, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn create_with(
        &self,
        dir: impl AsRef<Path>,
        options: BackupOptions,
        progress: impl FnMut(u64, u64),
    ) -> Result<BackupReport> {
        let mut progress = progress;
        self.engine.backup(dir.as_ref(), options.reread, &mut progress)
    }
    /// Returns a handle to the backup directory `path`, in the environment of the database.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.backups().create("/backup")?;
    /// let backups = db.backups().dir("/backup"); // in the environment of the database
    /// assert_eq!(backups.list()?.len(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn dir(&self, path: impl AsRef<Path>) -> BackupDir {
        BackupDir::open_in(self.engine.env().clone(), path)
    }
}
