//! A new database of everything that can still be read of a damaged one, and a list of what cannot. The source is only read,
//! through a directory that refuses every change.
//!
//! The stages, each a file: `survey` (what files there are, and how far the manifest can be believed), `write` (one
//! merge of all that is found, by the rewrite road), `tables` (the entries of each table, around its damage), `logs` (the
//! records of each log, on both sides of its holes; `coverage`: which operations they lack). The directory appears whole or not at all.
//!
//! Every entry carries its sequence number, so no order between files has to be trusted: of each key the newest version
//! that was found counts. What was lost may have hidden older versions; the report says so.

pub mod report;
mod survey;
mod coverage;
mod write;
mod tables;
mod logs;

pub use report::{Loss, Repaired};

use crate::recover::foreign;
use crate::safety::build::Building;
use perigee_base::{Error, ErrorKind, Result};
use perigee_env::fs::readonly::ReadOnlyDir;
use perigee_env::{Dir, Env, OpenDir};
use perigee_file::name;
use std::path::Path;
use std::sync::Arc;

/// Makes a database in `target` of what can be read in `source`; `progress` is told (bytes read, bytes in all).
///
/// # Errors
/// `Locked` if the source is open for writing; `NotFound` if it holds no file of a database; `AlreadyExists` if the
/// target holds anything. Damage is no error: it is in the report.
pub fn repair(
    env: &Env,
    source: &Path,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Repaired> {
    let real = env.fs.open_dir(source, OpenDir::Existing)?;
    foreign::check(env, &*real, false)?;
    let _nobody_writes = lock(&*real)?;
    let from = ReadOnlyDir::over(real);
    let survey = survey::survey(&from)?;
    Building::begin(env, target)?.fill(|to| {
        let mut report = survey.report.clone();
        let mut making = write::Making::new(env, Arc::clone(&from), Arc::clone(to), &survey);
        tables::gather(&survey, &mut making, &mut report, progress)?;
        logs::gather(&survey, &mut making, &mut report)?;
        making.finish(&survey, &mut report)?;
        Ok(report)
    })
}

/// Whoever writes must have closed. A lock file that cannot be opened (a read-only medium) means that nobody does.
fn lock(dir: &dyn Dir) -> Result<Option<Box<dyn perigee_env::DirLock>>> {
    if dir.file_len(name::LOCK)?.is_none() {
        return Ok(None);
    }
    match dir.lock(name::LOCK) {
        Ok(lock) => Ok(Some(lock)),
        Err(e) if e.kind() == ErrorKind::Locked => Err(e),
        Err(_) => Ok(None),
    }
}

/// Damage goes into the report; what the operating system refuses to read for another reason too, but not a format that is
/// too new.
fn is_damage(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Io | ErrorKind::NotFound)
}
