//! A new database of everything that can still be read of a damaged one, and a list of what cannot.
//! The source is only read, through a directory that refuses every change.
//!
//! The stages, each a file: `survey` (what files there are, and how far the manifest can be
//! believed), `write` (one merge of all that is found, by the rewrite road), `tables` (the entries
//! of each table, around its damage), `logs` (the records of each log, on both sides of its holes;
//! `coverage`: which operations they lack). The directory appears whole or not at all.
//!
//! Every entry carries its sequence number, so no order between files has to be trusted: of each
//! key the newest version that was found counts. What was lost may have hidden older versions; the
//! report says so.

pub mod report;
mod survey;
mod coverage;
mod repair_builder;
mod tables;
mod logs;

pub use report::{LostRange, RepairSummary};

use crate::recover::foreign_dir;
use crate::safety::directory_builder::DirectoryBuilder;
use perigee_base::{Error, ErrorKind, Result};
use perigee_env::fs::read_only_dir::ReadOnlyDir;
use perigee_env::{Dir, DirOpenMode, Env};
use perigee_file::filename;
use std::path::Path;
use std::sync::Arc;

/// Makes a database in `target` of what can be read in `source`; `progress` is told (bytes read,
/// bytes in all).
///
/// # Errors
/// `Locked` if the source is open for writing; `NotFound` if it holds no file of a database;
/// `AlreadyExists` if the target holds anything. Damage is no error: it is in the report.
pub fn repair_database(
    env: &Env,
    source: &Path,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RepairSummary> {
    let real = env.fs.open_dir(source, DirOpenMode::Existing)?;
    foreign_dir::refuse_foreign(env, &*real, false)?;
    let _nobody_writes = lock_source(&*real)?;
    let from = ReadOnlyDir::wrap(real);
    let survey = survey::survey_files(&from)?;
    DirectoryBuilder::begin(env, target)?.fill(|to| {
        let mut report = survey.report.clone();
        let mut making =
            repair_builder::RepairBuilder::new(env, Arc::clone(&from), Arc::clone(to), &survey);
        tables::gather_tables(&survey, &mut making, &mut report, progress)?;
        logs::gather_logs(&survey, &mut making, &mut report)?;
        making.write_database(&survey, &mut report)?;
        Ok(report)
    })
}

/// Whoever writes must have closed. A lock file that cannot be opened (a read-only medium) means
/// that nobody does.
fn lock_source(dir: &dyn Dir) -> Result<Option<Box<dyn perigee_env::DirLock>>> {
    if dir.file_len(filename::LOCK)?.is_none() {
        return Ok(None);
    }
    match dir.lock(filename::LOCK) {
        Ok(lock) => Ok(Some(lock)),
        Err(e) if e.kind() == ErrorKind::Locked => Err(e),
        Err(_) => Ok(None),
    }
}

/// Damage goes into the report; what the operating system refuses to read for another reason too,
/// but not a format that is too new.
fn is_damage(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Io | ErrorKind::NotFound)
}
