//! Repair: writes a new database with everything that is readable in a damaged one.

use crate::env::Env;
use crate::{Error, Result};
use perigee_engine::repair::LostRange;
use std::path::Path;

/// Result of [`repair`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RepairReport {
    /// Column families of the new database, each with its number of entries.
    pub families: Vec<(String, u64)>,
    /// Number of tables read.
    pub tables: u64,
    /// Number of entries found in tables, counting all versions.
    pub entries_found: u64,
    /// Number of log records read.
    pub log_records: u64,
    /// Sequence number of the last operation found.
    pub sequence: u64,
    /// Everything that could not be read; empty for an undamaged database.
    pub lost: Vec<DataLoss>,
    /// Consequences as text, above all if overwritten versions or deleted keys may have reappeared.
    pub warnings: Vec<String>,
}

/// A part of a file, or a whole file, that could not be read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DataLoss {
    /// File name.
    pub file: String,
    /// Offset of the unreadable part; `None`: the whole file.
    pub offset: Option<u64>,
    /// Length of the unreadable part in bytes, if known.
    pub bytes: Option<u64>,
    /// The column family, if known.
    pub family: Option<String>,
    /// Lower bound (inclusive) of the lost keys; `None`: unknown or unbounded.
    pub first_key: Option<Vec<u8>>,
    /// Upper bound (inclusive) of the lost keys; `None`: unknown or unbounded.
    pub last_key: Option<Vec<u8>>,
    /// Number of lost entries, if known.
    pub entries: Option<u64>,
    /// Sequence numbers of the first and the last lost operation, if known. The last is `None` at
    /// the end of a log that was not closed cleanly: an unknown number of operations may be missing
    /// there.
    pub sequences: Option<(u64, Option<u64>)>,
    /// The error.
    pub error: Error,
}

impl From<LostRange> for DataLoss {
    fn from(l: LostRange) -> DataLoss {
        DataLoss {
            file: l.file,
            offset: l.offset,
            bytes: l.bytes,
            family: l.family,
            first_key: l.first_key,
            last_key: l.last_key,
            entries: l.entries,
            sequences: l.sequences.map(|s| (s.first.0, s.last.map(|last| last.0))),
            error: l.error,
        }
    }
}

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
pub fn repair_in(
    env: &Env,
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    progress: impl FnMut(u64, u64),
) -> Result<RepairReport> {
    let mut progress = progress;
    let r = perigee_engine::repair::repair_database(
        env,
        source.as_ref(),
        target.as_ref(),
        &mut progress,
    )?;
    Ok(RepairReport {
        families: r.families,
        tables: r.tables,
        entries_found: r.entries_found,
        log_records: r.records,
        sequence: r.last_seq.0,
        lost: r.lost.into_iter().map(DataLoss::from).collect(),
        warnings: r.warnings,
    })
}
