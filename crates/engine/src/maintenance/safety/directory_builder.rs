//! Builds a database directory that appears completely or not at all: it is filled as
//! `NAME.incomplete`, a name under which no database is opened, synced, and finally renamed.
//!
//! Invariant: from `begin` to the end, the lock of `NAME.incomplete` is held and the directory at
//! that path is the locked one. So two attempts at one target exclude each other, and a finished
//! directory, which an old handle still refers to after the rename, is never cleared.

use perigee_base::{Error, ErrorKind, Result};
use perigee_env::{Dir, DirLock, DirOpenMode, Env};
use perigee_file::filename;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory being filled.
#[derive(Debug)]
pub struct DirectoryBuilder {
    env: Env,
    target: PathBuf,
    temporary: PathBuf,
    dir: Arc<dyn Dir>,
    /// Becomes the lock of the finished database; released after the rename.
    lock: Box<dyn DirLock>,
}

impl DirectoryBuilder {
    /// Starts to fill `target`, which must not exist or must be empty.
    ///
    /// # Errors
    /// `AlreadyExists` if it is not empty, or if the temporary directory contains foreign files;
    /// `Locked` if another attempt at the same target is running; `InvalidArgument` if the path
    /// does not end in a name.
    pub fn begin(env: &Env, target: &Path) -> Result<DirectoryBuilder> {
        let Some(last) = target.file_name() else {
            let text = format!("{:?} does not end in a name: name the new directory", target);
            return Err(Error::invalid(text));
        };
        // Without a trailing slash.
        let target = target.with_file_name(last);
        let mut temporary = last.to_owned();
        temporary.push(".incomplete");
        let temporary = target.with_file_name(temporary);
        check_target_empty(env, &target)?;
        let dir = env.fs.open_dir(&temporary, DirOpenMode::CreateIfMissing)?;
        let lock = dir.lock(filename::LOCK)?;
        if !dir.is_located_at(&temporary)? {
            let text = format!("another attempt has just created {}", target.display());
            return Err(Error::new(ErrorKind::Locked, text));
        }
        clear_leftovers(&*dir)?;
        Ok(DirectoryBuilder { env: env.clone(), target, temporary, dir, lock })
    }

    /// Runs `fill`, which syncs files and directory entries, then renames the directory to its
    /// final name. On a failure removes what was created.
    pub fn fill<T>(self, fill: impl FnOnce(&Arc<dyn Dir>) -> Result<T>) -> Result<T> {
        let named = || self.env.fs.rename_dir(&self.temporary, &self.target);
        let done = fill(&self.dir).and_then(|done| named().map(|()| done));
        if done.is_err() && self.dir.is_located_at(&self.temporary).unwrap_or(false) {
            // Best effort: the next attempt removes what remains. The lock file goes last.
            let _ = clear_leftovers(&*self.dir);
            let _ = self.dir.remove(filename::LOCK);
            let _ = self.env.fs.remove_dir(&self.temporary);
        }
        drop(self.lock);
        done
    }
}

/// Checks that the target contains nothing, not even directories. An empty directory is removed for
/// the finished one.
fn check_target_empty(env: &Env, target: &Path) -> Result<()> {
    let full = || {
        let text =
            format!("{} is not empty: name a directory that does not exist", target.display());
        Err(Error::new(ErrorKind::AlreadyExists, text))
    };
    match env.fs.open_dir(target, DirOpenMode::Existing) {
        Ok(dir) if !dir.list()?.is_empty() => full(),
        Ok(_) => match env.fs.remove_dir(target) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => full(),
            removed => removed,
        },
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// Removes what an unfinished attempt left, except for the lock. If there is a file that no attempt
/// creates, nothing is removed.
fn clear_leftovers(dir: &dyn Dir) -> Result<()> {
    let files = dir.list()?;
    let known = [filename::MANIFEST, filename::MANIFEST_TMP, filename::LOCK];
    let ours = |f: &String| filename::parse_file_name(f).is_some() || known.contains(&f.as_str());
    if let Some(strange) = files.iter().find(|f| !ours(f)) {
        let text = format!(
            "{} exists and contains {strange}, which Perigee did not create: move it away",
            dir.path().display()
        );
        return Err(Error::new(ErrorKind::AlreadyExists, text));
    }
    // The manifest first: without it the rest cannot be mistaken for a database.
    for first in [filename::MANIFEST, filename::MANIFEST_TMP] {
        if files.iter().any(|f| f == first) {
            dir.remove(first)?;
        }
    }
    files.iter().filter(|f| filename::parse_file_name(f).is_some()).try_for_each(|f| dir.remove(f))
}
