//! Checkpoints and backups of an open database; a directory of backups: what it holds, and the way
//! back.

use crate::env::Env;
use crate::{
    BackupInfo, BackupOptions, BackupReport, BackupVerifyReport, CheckpointReport, Db, Error,
    PruneReport, RestoreReport, Result, translate,
};
use perigee_engine::safety::{prune, restore};
use std::path::{Path, PathBuf};

/// A directory of backups: several generations, which share the files they have in common. Every
/// generation is a whole database by itself; all of them are independent of the database they were
/// made of.
///
/// ```
/// # use perigee::{Backups, Db, Options, env::{Env, fs::memory::SimDisk}};
/// # fn main() -> perigee::Result<()> {
/// # let env = Env { fs: SimDisk::new(1), ..Env::real() };
/// # let db = Db::open("/db", Options::in_env(env.clone()))?;
/// db.put("moon", "full")?;
/// db.backup("/backup")?; // generation 1
/// db.put("moon", "new")?;
/// db.backup("/backup")?; // generation 2 copies only what is new
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
    /// The backups in directory `path`. Nothing is read yet.
    pub fn open(path: impl AsRef<Path>) -> Backups {
        Self::open_in(Env::real(), path)
    }
    /// The same in another world.
    pub fn open_in(env: Env, path: impl AsRef<Path>) -> Backups {
        Backups { env, path: path.as_ref().to_owned() }
    }
    /// All generations, oldest first.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory; `Corruption` naming the record that cannot be read
    /// (see [`Backups::list_readable`]).
    pub fn list(&self) -> Result<Vec<BackupInfo>> {
        let (good, bad) = self.list_readable()?;
        bad.into_iter().next().map_or(Ok(good), Err)
    }
    /// The generations whose record can be read, oldest first, and the errors of the others.
    pub fn list_readable(&self) -> Result<(Vec<BackupInfo>, Vec<Error>)> {
        let (good, bad) = restore::list_generations(&self.env, &self.path)?;
        Ok((good.into_iter().map(translate::backup_info).collect(), bad))
    }
    /// Reads every file that a generation (`None`: any of them) needs, and compares it with its
    /// record.
    pub fn verify(&self, generation: Option<u64>) -> Result<BackupVerifyReport> {
        self.verify_with(generation, |_done, _total| {})
    }
    /// The same, with progress in bytes (done, total).
    pub fn verify_with(
        &self,
        generation: Option<u64>,
        progress: impl FnMut(u64, u64),
    ) -> Result<BackupVerifyReport> {
        let mut progress = progress;
        restore::verify_backup(&self.env, &self.path, generation, &mut progress)
            .map(translate::backup_verify_report)
    }
    /// Makes a database of a generation (`None`: the newest) in `target`, which must not exist or
    /// be empty. Every byte is compared with its checksum; the directory gets its name last, so
    /// that a database that was restored in part is never opened by mistake.
    ///
    /// # Errors
    /// `NotFound` if there is no such generation; `AlreadyExists` if `target` holds anything;
    /// `Corruption` naming the file of the backup that is damaged or missing, and then there is no
    /// `target`.
    pub fn restore(
        &self,
        generation: Option<u64>,
        target: impl AsRef<Path>,
    ) -> Result<RestoreReport> {
        self.restore_with(generation, target, |_done, _total| {})
    }
    /// The same, with progress in bytes (done, total).
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
    /// Keeps the newest `keep` generations of each database and removes the others, and the files
    /// that only they needed. A crash on the way leaves the kept ones whole.
    ///
    /// # Errors
    /// `InvalidArgument` for 0; `Corruption` if the record of any generation cannot be read: then
    /// nothing is removed.
    pub fn prune(&self, keep: usize) -> Result<PruneReport> {
        prune::prune_generations(&self.env, &self.path, keep).map(translate::prune_report)
    }
}

impl Db {
    /// Makes a second database with the same contents in `dir`, which must not exist or be empty,
    /// while reads and writes go on. All families are as they were at one moment, whatever the
    /// durability of the writes before it. Table files are shared with it by hard links, which
    /// takes no space until they are compacted away on one side; on another file system they are
    /// copied. Nothing is flushed: what is not in tables yet is in its own log. It is opened like
    /// any database, for reading and writing, independent of this one. It appears under its name
    /// last and durably: a crash on the way leaves `dir.incomplete`, which the next attempt clears.
    ///
    /// # Errors
    /// `AlreadyExists` if `dir` holds anything; `NotFound` if its parent does not exist.
    /// `OutcomeUnknown`: it is there and whole, but its name may not survive a power cut.
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
    /// Makes a new generation in the backup directory `dir` (created if missing), while reads and
    /// writes go on: see [`Backups`](crate::Backups).
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<BackupReport> {
        self.backup_with(dir, BackupOptions::new(), |_done, _total| {})
    }
    /// The same, with options, and with progress in bytes (done, total).
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
