//! Checkpoints and backups of an open database, and [`Backups`]: listing, verifying, restoring and
//! pruning a backup directory.

use crate::env::Env;
use crate::{
    BackupInfo, BackupOptions, BackupReport, BackupVerifyReport, CheckpointReport, Db, Error,
    PruneReport, RestoreReport, Result, translate,
};
use perigee_engine::safety::{prune, restore};
use std::path::{Path, PathBuf};

/// A backup directory, written by [`Db::backup`]. It contains one or more generations. Each can be
/// restored to a complete database; files that several generations need are stored once. Backups do
/// not depend on the source database.
///
/// ```
/// # use perigee::{Backups, Db, Options, env::{Env, fs::memory::SimDisk}};
/// # fn main() -> perigee::Result<()> {
/// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
/// # let db = Db::open("/db", Options::in_env(env.clone()))?;
/// db.put("moon", "full")?;
/// db.backup("/backup")?; // generation 1
/// db.put("moon", "new")?;
/// db.backup("/backup")?; // generation 2 copies only new files
///
/// let backups = Backups::open_in(env.clone(), "/backup");
/// assert_eq!(backups.list()?.len(), 2);
/// assert!(backups.verify(None)?.errors.is_empty());
/// backups.restore(Some(1), "/restored")?;
/// let restored = Db::open("/restored", Options::in_env(env))?;
/// assert_eq!(restored.get("moon")?.as_deref(), Some(&b"full"[..]));
/// backups.prune(1)?;
/// assert_eq!(backups.list()?[0].generation, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Backups {
    env: Env,
    path: PathBuf,
}

impl Backups {
    /// Returns a handle of the backup directory `path`. Reads nothing yet.
    pub fn open(path: impl AsRef<Path>) -> Backups {
        Self::open_in(Env::real(), path)
    }
    /// Returns a handle of the backup directory `path` in the environment `env`.
    pub fn open_in(env: Env, path: impl AsRef<Path>) -> Backups {
        Backups { env, path: path.as_ref().to_owned() }
    }
    /// Returns all generations, oldest first.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory; `Corruption` if the file that describes a
    /// generation cannot be read. [`Backups::list_readable`] skips such generations.
    pub fn list(&self) -> Result<Vec<BackupInfo>> {
        let (good, bad) = self.list_readable()?;
        bad.into_iter().next().map_or(Ok(good), Err)
    }
    /// Returns the generations whose description can be read, oldest first, and one error for each
    /// of the others.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory; `Io`.
    pub fn list_readable(&self) -> Result<(Vec<BackupInfo>, Vec<Error>)> {
        let (good, bad) = restore::list_generations(&self.env, &self.path)?;
        Ok((good.into_iter().map(translate::backup_info).collect(), bad))
    }
    /// Reads every file of `generation` (`None`: of all generations) and compares it with the
    /// recorded length and checksum. Damage is reported in [`BackupVerifyReport::errors`].
    ///
    /// # Errors
    /// `NotFound` if there is no such directory or generation; `Io`.
    pub fn verify(&self, generation: Option<u64>) -> Result<BackupVerifyReport> {
        self.verify_with(generation, |_done, _total| {})
    }
    /// Verifies like [`Backups::verify`], and calls `progress(done, total)` with byte counts.
    pub fn verify_with(
        &self,
        generation: Option<u64>,
        progress: impl FnMut(u64, u64),
    ) -> Result<BackupVerifyReport> {
        let mut progress = progress;
        restore::verify_backup(&self.env, &self.path, generation, &mut progress)
            .map(translate::backup_verify_report)
    }
    /// Restores `generation` (`None`: the newest) to the directory `target`, which must not exist
    /// or must be empty. Every byte is compared with its checksum. The directory is renamed to
    /// `target` as the last step, so a partly restored database is never opened by mistake.
    ///
    /// # Errors
    /// `NotFound` if there is no such generation; `AlreadyExists` if `target` is not empty;
    /// `Corruption`, naming the damaged or missing file of the backup: `target` is not created
    /// then.
    pub fn restore(
        &self,
        generation: Option<u64>,
        target: impl AsRef<Path>,
    ) -> Result<RestoreReport> {
        self.restore_with(generation, target, |_done, _total| {})
    }
    /// Restores like [`Backups::restore`], and calls `progress(done, total)` with byte counts.
    pub fn restore_with(
        &self,
        generation: Option<u64>,
        target: impl AsRef<Path>,
        progress: impl FnMut(u64, u64),
    ) -> Result<RestoreReport> {
        let mut progress = progress;
        restore::restore_generation(
            &self.env,
            &self.path,
            generation,
            target.as_ref(),
            &mut progress,
        )
        .map(translate::restore_report)
    }
    /// Removes all but the newest `keep` generations of each source database, and the files that
    /// only those needed. Crash-safe: the remaining generations stay complete.
    ///
    /// # Errors
    /// `InvalidArgument` if `keep` is 0; `Corruption` if the file that describes a generation
    /// cannot be read: nothing is removed then.
    pub fn prune(&self, keep: usize) -> Result<PruneReport> {
        prune::prune_generations(&self.env, &self.path, keep).map(translate::prune_report)
    }
}

impl Db {
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
    /// db.checkpoint("/copy")?;
    /// db.put("moon", "new")?;
    /// let copy = Db::open("/copy", Options::in_env(env))?;
    /// assert_eq!(copy.get("moon")?.as_deref(), Some(&b"full"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<CheckpointReport> {
        self.engine.checkpoint(dir.as_ref()).map(translate::checkpoint_report)
    }
    /// Adds a generation to the backup directory `dir`, which is created if it does not exist.
    /// Copies only the table and value-log files that no earlier generation has stored. Reads and
    /// writes continue during the backup. See [`Backups`](crate::Backups).
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<BackupReport> {
        self.backup_with(dir, BackupOptions::new(), |_done, _total| {})
    }
    /// Backs up like [`Db::backup`], with options, and calls `progress(done, total)` with byte
    /// counts.
    pub fn backup_with(
        &self,
        dir: impl AsRef<Path>,
        options: BackupOptions,
        progress: impl FnMut(u64, u64),
    ) -> Result<BackupReport> {
        let mut progress = progress;
        self.engine
            .backup(dir.as_ref(), options.reread, &mut progress)
            .map(translate::backup_report)
    }
}
