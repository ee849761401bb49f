//! A database directory that appears whole or not at all: it is filled as `NAME.incomplete`, which holds no database under
//! the name that anybody opens, synced, and renamed last.

use perigee_base::{Error, ErrorKind, Result};
use perigee_env::{Dir, Env, OpenDir};
use perigee_file::name;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory being filled.
#[derive(Debug)]
pub struct Building {
    env: Env,
    target: PathBuf,
    temporary: PathBuf,
    dir: Arc<dyn Dir>,
}

impl Building {
    /// Begins to fill `target`, which must not exist or be empty.
    ///
    /// # Errors
    /// `AlreadyExists` if it holds anything, or if something that is not ours is in the way of the temporary name.
    pub fn begin(env: &Env, target: &Path) -> Result<Building> {
        match env.fs.open_dir(target, OpenDir::Existing) {
            Ok(dir) if dir.list()?.is_empty() => {}
            Ok(_) => {
                let text = format!("{} is not empty: name a directory that does not exist", target.display());
                return Err(Error::new(ErrorKind::AlreadyExists, text));
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let mut temporary = target.as_os_str().to_owned();
        temporary.push(".incomplete");
        let temporary = PathBuf::from(temporary);
        let dir = env.fs.open_dir(&temporary, OpenDir::CreateIfMissing)?;
        clear_leftovers(&*dir)?;
        Ok(Building { env: env.clone(), target: target.to_owned(), temporary, dir })
    }

    /// Where to put the files.
    pub fn dir(&self) -> &Arc<dyn Dir> {
        &self.dir
    }

    /// The directory is whole: gives it its name. Its files and names are synced.
    pub fn finish(self) -> Result<()> {
        self.env.fs.rename_dir(&self.temporary, &self.target)
    }

    /// Runs `fill`, then finishes; if that fails, takes away what was made.
    pub fn fill<T>(self, fill: impl FnOnce(&Arc<dyn Dir>) -> Result<T>) -> Result<T> {
        match fill(&self.dir) {
            Ok(done) => self.finish().map(|()| done),
            Err(e) => {
                // Nothing depends on it: what cannot be removed is removed by the next attempt.
                let _ = clear_leftovers(&*self.dir);
                let _ = self.env.fs.remove_dir(&self.temporary);
                Err(e)
            }
        }
    }
}

/// Removes what an attempt that did not finish left. A file that no attempt makes is somebody's: then nothing is removed.
fn clear_leftovers(dir: &dyn Dir) -> Result<()> {
    let files = dir.list()?;
    let ours = |f: &String| name::parse(f).is_some() || *f == name::MANIFEST || *f == name::MANIFEST_TMP;
    if let Some(strange) = files.iter().find(|f| !ours(f)) {
        let text = format!(
            "{} is in the way and holds {strange}, which is not ours: move it aside",
            dir.path().display()
        );
        return Err(Error::new(ErrorKind::AlreadyExists, text));
    }
    // The manifest first: without it nothing that is left can pass for a database.
    for first in [name::MANIFEST, name::MANIFEST_TMP] {
        if files.iter().any(|f| f == first) {
            dir.remove(first)?;
        }
    }
    files.iter().filter(|f| name::parse(f).is_some()).try_for_each(|f| dir.remove(f))
}
