//! Repair: writes a new database with everything that is readable in a damaged one.

use crate::Result;
use crate::env::Env;
use crate::recovery::RepairReport;
use std::path::Path;

/// Writes a new database to `target`, which must not exist or must be empty, with everything that
/// can be read in `source`. Skips damaged blocks and holes in the log, and works without a
/// manifest. `source` is never changed. For an undamaged database the result contains exactly the
/// same entries. Everything that was lost is listed in [`RepairReport::lost`].
///
/// # Errors
/// `Locked` if the source database is open; `NotFound` if `source` contains no database file;
/// `AlreadyExists` if `target` is not empty; `Io`, `NoSpace` for `target`. Damage in `source` is
/// not an error.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("perigee-repair-doc-{}", std::process::id()));
/// # let _ = std::fs::remove_dir_all(&dir);
/// # std::fs::create_dir(&dir).unwrap();
/// # fn main_(dir: &std::path::Path) -> perigee::Result<()> {
/// use perigee::{Db, Options, repair};
/// let db = Db::open(dir.join("db"), Options::new())?;
/// db.put("moon", "full")?;
/// db.close()?;
/// std::fs::remove_file(dir.join("db/MANIFEST")).unwrap(); // simulates damage
/// let report = repair(dir.join("db"), dir.join("repaired"))?;
/// assert!(!report.lost.is_empty());
/// let repaired = Db::open(dir.join("repaired"), Options::new())?;
/// assert_eq!(repaired.get("moon")?.as_deref(), Some(&b"full"[..]));
/// # Ok(())
/// # }
/// # main_(&dir).unwrap();
/// # std::fs::remove_dir_all(&dir).unwrap();
/// ```
pub fn repair(source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<RepairReport> {
    repair_in(&Env::real(), source, target, |_done, _total| {})
}

/// Repairs like [`repair`], in the environment `env`, and calls `progress(done, total)` with byte
/// counts.
///
/// ```
/// # use perigee::*;
/// # let env = example_env();
/// let db = Db::open("/db", Options::in_env(env.clone()))?;
/// db.put("moon", "full")?;
/// db.close()?;
/// let report = repair_in(&env, "/db", "/repaired", |_done, _total| {})?;
/// assert!(report.lost.is_empty());
/// assert!(Db::open("/repaired", Options::in_env(env))?.contains("moon")?);
/// # Ok::<(), Error>(())
/// ```
pub fn repair_in(
    env: &Env,
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    progress: impl FnMut(u64, u64),
) -> Result<RepairReport> {
    let mut progress = progress;
    perigee_engine::backup::repair_database(env, source.as_ref(), target.as_ref(), &mut progress)
}
