//! A database directory that appears whole or not at all: it is filled as `NAME.incomplete`, which
//! holds no database under the name that anybody opens, synced, and renamed last.
//!
//! Invariant: from `begin` to the end the lock of `NAME.incomplete` is held, and the directory at
//! that path is the one that is locked; so two attempts at one target never meet, and a finished
//! directory, to which a handle still leads after the rename, is never cleared.

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
    /// Becomes the lock of the finished database; let go after the rename.
    lock: Box<dyn DirLock>,
}

impl DirectoryBuilder {
    /// Begins to fill `target`, which must not exist or be empty.
    ///
    /// # Errors
    /// `AlreadyExists` if it holds anything, or if something that is not ours is in the way of the
    /// temporary name; `Locked` if another attempt at the same target is under way;
    /// `InvalidArgument` if the path ends in no name.
    pub fn begin(env: &Env, target: &Path) -> Result<DirectoryBuilder> {
        let Some(last) = target.file_name() else {
            let text =
                format!("{:?} ends in no name: say how the new directory is to be called", target);
            return Err(Error::invalid(text));
        };
        // Without a slash at the end.
        let target = target.with_file_name(last);
        let mut temporary = last.to_owned();
        temporary.push(".incomplete");
        let temporary = target.with_file_name(temporary);
        check_target_empty(env, &target)?;
        let dir = env.fs.open_dir(&temporary, DirOpenMode::CreateIfMissing)?;
        let lock = dir.lock(filename::LOCK)?;
        if !dir.is_located_at(&temporary)? {
            let text = format!("another attempt has just finished {}", target.display());
            return Err(Error::new(ErrorKind::Locked, text));
        }
        clear_leftovers(&*dir)?;
        Ok(DirectoryBuilder { env: env.clone(), target, temporary, dir, lock })
    }

    /// Runs `fill`, which syncs files and names, then gives the directory its name; if anything
    /// fails, takes away what was made.
    pub fn fill<T>(self, fill: impl FnOnce(&Arc<dyn Dir>) -> Result<T>) -> Result<T> {
        let named = || self.env.fs.rename_dir(&self.temporary, &self.target);
        let done = fill(&self.dir).and_then(|done| named().map(|()| done));
        if done.is_err() && self.dir.is_located_at(&self.temporary).unwrap_or(false) {
            // Nothing depends on it: what cannot be removed is removed by the next attempt. The
            // lock last.
            let _ = clear_leftovers(&*self.dir);
            let _ = self.dir.remove(filename::LOCK);
            let _ = self.env.fs.remove_dir(&self.temporary);
        }
        drop(self.lock);
        done
    }
}

/// Anything in the target, directories too, is somebody's. An empty one makes room for the finished
/// one.
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

/// Removes what an attempt that did not finish left, but for the lock. A file that no attempt makes
/// is somebody's: then nothing is removed.
fn clear_leftovers(dir: &dyn Dir) -> Result<()> {
    let files = dir.list()?;
    let known = [filename::MANIFEST, filename::MANIFEST_TMP, filename::LOCK];
    let ours = |f: &String| filename::parse_file_name(f).is_some() || known.contains(&f.as_str());
    if let Some(strange) = files.iter().find(|f| !ours(f)) {
        let text = format!(
            "{} is in the way and holds {strange}, which is not ours: move it aside",
            dir.path().display()
        );
        return Err(Error::new(ErrorKind::AlreadyExists, text));
    }
    // The manifest first: without it nothing that is left can pass for a database.
    for first in [filename::MANIFEST, filename::MANIFEST_TMP] {
        if files.iter().any(|f| f == first) {
            dir.remove(first)?;
        }
    }
    files.iter().filter(|f| filename::parse_file_name(f).is_some()).try_for_each(|f| dir.remove(f))
}
