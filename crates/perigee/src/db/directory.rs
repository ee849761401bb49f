//! Database directories: the lock kept by a failed open, and queries that do not open the database.

use crate::env::Env;
use crate::{Db, Options, Result};
use std::path::Path;

/// The lock on a database directory, kept by a failed [`DirectoryLock::open`] for the next attempt.
/// Dropping it releases the lock.
#[derive(Debug, Default)]
pub struct DirectoryLock(Option<perigee_engine::RetainedDirLock>);

impl DirectoryLock {
    /// Returns true if it contains a lock.
    ///
    /// ```
    /// # use perigee::*;
    /// let lock = DirectoryLock::default();
    /// assert!(!lock.is_held()); // no open has failed after it took the lock
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_held(&self) -> bool {
        self.0.is_some()
    }
    /// Opens the database like [`Db::open`], but keeps the directory lock if recovery fails, for
    /// example because a comparator is not registered yet. The next call uses this lock, so no
    /// other process can open the database in between.
    ///
    /// ```
    /// # use perigee::*;
    /// # let env = example_env();
    /// let mut lock = DirectoryLock::default();
    /// let db = lock.open("/db", Options::in_env(env))?; // on failure the next call has the lock
    /// assert!(!lock.is_held());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Db::open`].
    pub fn open(&mut self, path: impl AsRef<Path>, options: Options) -> Result<Db> {
        Db::open_locked(path.as_ref(), options, &mut self.0)
    }
}

/// A column family of a database that is not open; see [`list_families`].
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredFamily {
    /// Its name.
    pub name: String,
    /// Name of its comparator.
    pub comparator: String,
    /// True if its tables contain entries.
    pub has_entries: bool,
}

/// Checks that [`Db::open`] may create or open a database in `path`: rejects a directory that
/// belongs to another program. Accepts a directory that is missing, empty, or contains a
/// Perigee database, damaged or not.
///
/// A directory counts as empty if it contains only files left by an interrupted first open, the
/// options file, hidden entries (names that begin with a dot), and `lost+found`.
///
/// ```
/// # use perigee::*;
/// # let env = example_env();
/// assert!(check_directory(&env, "/db").is_ok()); // does not exist: can be created
/// Db::open("/db", Options::in_env(env.clone()))?.close()?;
/// check_directory(&env, "/db")?;
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// `InvalidArgument`, naming what the directory contains and, if there is one, the command that
/// imports it; `Io`.
pub fn check_directory(env: &Env, path: impl AsRef<Path>) -> Result<()> {
    perigee_engine::Engine::check_path(env, path.as_ref())
}

/// Returns the column families of the database in `path`: for each its name, the name of its
/// comparator, and whether its tables contain any entries. Reads only the manifest: the
/// database is not opened or changed, and comparators need not be registered.
///
/// ```
/// # use perigee::*;
/// # let env = example_env();
/// let db = Db::open("/db", Options::in_env(env.clone()))?;
/// db.create_family("tides", FamilyOptions::new())?;
/// db.close()?;
/// let names: Vec<_> = list_families(&env, "/db")?.into_iter().map(|f| f.name).collect();
/// assert_eq!(names, ["default", "tides"]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// `NotFound` if there is no database; `Corruption`; `FormatTooNew`; `Io`.
pub fn list_families(env: &Env, path: impl AsRef<Path>) -> Result<Vec<StoredFamily>> {
    let stored = |(name, comparator, has_entries)| StoredFamily { name, comparator, has_entries };
    let families = perigee_engine::Engine::list_families(env, path.as_ref())?;
    Ok(families.into_iter().map(stored).collect())
}
