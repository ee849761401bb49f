//! A new database of what can be read of a damaged one.

use crate::env::Env;
use crate::{Error, Result};
use perigee_engine::repair::LostRange;
use std::path::Path;

/// What [`repair`] found and lost.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RepairReport {
    /// Families of the new database, and the entries of each.
    pub families: Vec<(String, u64)>,
    /// Tables read.
    pub tables: u64,
    /// Entries found in them, all versions.
    pub entries_found: u64,
    /// Log records read.
    pub log_records: u64,
    /// Sequence number of the last operation found.
    pub sequence: u64,
    /// Everything that could not be read; empty for a healthy database.
    pub lost: Vec<DataLoss>,
    /// What follows from that, in words: above all that older versions and deleted keys may have
    /// come back.
    pub warnings: Vec<String>,
}

/// A piece that could not be read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DataLoss {
    /// The file.
    pub file: String,
    /// Where in it, if not all of it.
    pub offset: Option<u64>,
    /// How many bytes, where that is known.
    pub bytes: Option<u64>,
    /// The family, where that is known.
    pub family: Option<String>,
    /// Only keys between this one (inclusive) ...
    pub first_key: Option<Vec<u8>>,
    /// ... and this one (inclusive) were lost here; `None`: unknown, or no bound.
    pub last_key: Option<Vec<u8>>,
    /// How many entries, where that is known.
    pub entries: Option<u64>,
    /// Sequence numbers of the operations that were lost here, where they are known: the first one,
    /// and the last one (inclusive; `None`: at the end of a log that was not closed, where more may
    /// have been lost than anything proves).
    pub sequences: Option<(u64, Option<u64>)>,
    /// What is wrong.
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
            sequences: l.sequences,
            error: l.error,
        }
    }
}

/// Makes a new database in `target` (which must not exist or be empty) of everything that can be
/// read in `source`, however damaged: around bad blocks, past holes in the log, without a manifest.
/// The source is never changed. Of a healthy database the result holds exactly the same entries.
/// What was lost is in the report.
///
/// # Errors
/// `Locked` if the source is open; `NotFound` if it holds no file of a database; `AlreadyExists` if
/// the target holds anything. Damage is no error.
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
/// std::fs::remove_file(dir.join("db/MANIFEST")).unwrap(); // a disaster
/// let report = repair(dir.join("db"), dir.join("mended"))?;
/// assert!(!report.lost.is_empty());
/// assert_eq!(Db::open(dir.join("mended"), Options::new())?.get("moon")?.as_deref(), Some(&b"full"[..]));
/// # Ok(())
/// # }
/// # main_(&dir).unwrap();
/// # std::fs::remove_dir_all(&dir).unwrap();
/// ```
pub fn repair(source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<RepairReport> {
    repair_in(&Env::real(), source, target, |_done, _total| {})
}

/// The same in another world, and with progress in bytes (done, total).
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
        sequence: r.last_seq,
        lost: r.lost.into_iter().map(DataLoss::from).collect(),
        warnings: r.warnings,
    })
}
