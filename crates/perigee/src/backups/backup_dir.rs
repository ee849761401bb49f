//! [`BackupDir`]: lists, verifies, restores and prunes the backups in a directory.

use crate::Result;
use crate::backup::{BackupInfo, BackupList, BackupVerifyReport, PruneReport, RestoreReport};
use crate::env::Env;
use perigee_engine::backup::{
    list_generations, prune_generations, restore_generation, verify_backup,
};
use std::path::{Path, PathBuf};

/// A backup directory, written by [`Backups::create`](crate::Backups::create). It contains one or
/// more generations. Each can be restored to a complete database; files that several generations
/// need are stored once. A backup does not depend on the source database.
///
/// ```
/// # use perigee::backup::BackupDir;
/// # use perigee::{Db, Options, env::{Env, fs::memory::SimDisk}};
/// # fn main() -> perigee::Result<()> {
/// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
/// # let db = Db::open("/db", Options::in_env(env.clone()))?;
/// db.put("moon", "full")?;
/// db.backups().create("/backup")?; // generation 1
/// db.put("moon", "new")?;
/// db.backups().create("/backup")?; // generation 2 copies only new files
///
/// let backups = BackupDir::open_in(env.clone(), "/backup");
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
pub struct BackupDir {
    env: Env,
    path: PathBuf,
}

impl BackupDir {
    /// Returns a handle to the backup directory `path`. Reads nothing yet.
    ///
    /// ```
    /// # use perigee::*;
    /// let backups = perigee::backup::BackupDir::open("/mnt/backups/tides"); // reads nothing yet
    /// assert!(format!("{backups:?}").contains("tides"));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> BackupDir {
        Self::open_in(Env::real(), path)
    }
    /// Returns a handle to the backup directory `path` in the environment `env`.
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// # let db = Db::open("/db", Options::in_env(env.clone()))?;
    /// db.backups().create("/backup")?;
    /// let backups = perigee::backup::BackupDir::open_in(env, "/backup");
    /// assert_eq!(backups.list()?.len(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn open_in(env: Env, path: impl AsRef<Path>) -> BackupDir {
        BackupDir { env, path: path.as_ref().to_owned() }
    }
    /// Returns all generations, oldest first.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// db.backups().create("/backup")?;
    /// db.backups().create("/backup")?;
    /// let generations = db.backups().dir("/backup").list()?;
    /// assert_eq!(generations[1].generation, 2);
    /// assert_eq!(generations[1].sequence, 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is no such directory; `Corruption` if the file that describes a
    /// generation cannot be read. [`BackupDir::list_readable`] skips such generations.
    pub fn list(&self) -> Result<Vec<BackupInfo>> {
        let all = self.list_readable()?;
        all.errors.into_iter().next().map_or(Ok(all.generations), Err)
    }
    /// Returns the generations whose description can be read, oldest first, and one error for each
    /// of the others.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.backups().create("/backup")?;
    /// let list = db.backups().dir("/backup").list_readable()?;
    /// assert_eq!(list.generations.len(), 1);
    /// assert!(list.errors.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is no such directory; `Io`.
    pub fn list_readable(&self) -> Result<BackupList> {
        list_generations(&self.env, &self.path)
    }
    /// Reads every file of `generation` (`None`: of all generations) and compares it with the
    /// recorded length and checksum. Damage is reported in [`BackupVerifyReport::errors`].
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// db.backups().create("/backup")?;
    /// let report = db.backups().dir("/backup").verify(None)?; // all generations
    /// assert_eq!(report.generations, 1);
    /// assert!(report.errors.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is no such directory or generation; `Io`.
    pub fn verify(&self, generation: Option<u64>) -> Result<BackupVerifyReport> {
        self.verify_with(generation, |_done, _total| {})
    }
    /// Verifies like [`BackupDir::verify`], and calls `progress(done, total)` with byte counts.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// db.backups().create("/backup")?;
    /// let mut last = (0, 0);
    /// db.backups().dir("/backup").verify_with(Some(1), |done, total| last = (done, total))?;
    /// assert!(last.0 <= last.1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn verify_with(
        &self,
        generation: Option<u64>,
        progress: impl FnMut(u64, u64),
    ) -> Result<BackupVerifyReport> {
        let mut progress = progress;
        verify_backup(&self.env, &self.path, generation, &mut progress)
    }
    /// Restores `generation` (`None`: the newest) to the directory `target`, which must not exist
    /// or must be empty. Every byte is compared with its checksum. The directory is renamed to
    /// `target` as the last step, so a partly restored database is never opened by mistake.
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// # let db = Db::open("/db", Options::in_env(env.clone()))?;
    /// db.put("moon", "full")?;
    /// db.backups().create("/backup")?;
    /// db.backups().dir("/backup").restore(None, "/restored")?; // the newest generation
    /// let restored = Db::open("/restored", Options::in_env(env))?;
    /// assert!(restored.contains("moon")?);
    /// # Ok::<(), Error>(())
    /// ```
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
    /// Restores like [`BackupDir::restore`], and calls `progress(done, total)` with byte counts.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// db.put("moon", "full")?;
    /// db.backups().create("/backup")?;
    /// let mut last = (0, 0);
    /// let progress = |done, total| last = (done, total);
    /// let report = db.backups().dir("/backup").restore_with(Some(1), "/restored", progress)?;
    /// assert_eq!((report.generation, report.sequence), (1, 1));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn restore_with(
        &self,
        generation: Option<u64>,
        target: impl AsRef<Path>,
        progress: impl FnMut(u64, u64),
    ) -> Result<RestoreReport> {
        let mut progress = progress;
        restore_generation(&self.env, &self.path, generation, target.as_ref(), &mut progress)
    }
    /// Removes all but the newest `keep` generations of each source database, and the files that
    /// only the removed ones needed. Crash-safe: the remaining generations stay complete.
    ///
    /// ```
    /// # use perigee::*;
    /// # let db = example_db()?;
    /// for _ in 0..3 {
    ///     db.backups().create("/backup")?;
    /// }
    /// let report = db.backups().dir("/backup").prune(2)?; // keep the newest two
    /// assert_eq!((report.removed, report.kept), (vec![1], vec![2, 3]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if `keep` is 0; `Corruption` if the file that describes a generation
    /// cannot be read: nothing is removed then.
    pub fn prune(&self, keep: usize) -> Result<PruneReport> {
        prune_generations(&self.env, &self.path, keep)
    }
}
