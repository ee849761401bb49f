//! Repair: builds a new database from everything that is readable in a damaged one, and a list of
//! what is not. The source is only read, through a directory that rejects every change.
//!
//! The stages, one file each: `survey` (which files exist, and how far the manifest can be
//! trusted), `tables` (the entries of each table, around its damage), `logs` (the records of each
//! log, before and after damage; `coverage`: which operations are missing), `repair_builder` (one
//! merge of everything found, as a rewrite). The target directory appears completely or not at all.
//!
//! Every entry has its sequence number, so no order between files has to be trusted: of each key
//! the newest version found counts. Lost entries may have hidden older versions; the report says
//! so.

pub mod report;
mod survey;
mod coverage;
mod repair_builder;
mod tables;
mod logs;

pub use report::{DataLoss, LostSequences, RepairReport, RepairedFamily};

use crate::maintenance::safety::directory_builder::DirectoryBuilder;
use crate::recover::foreign_dir;
use perigee_base::{Error, ErrorKind, Result};
use perigee_env::fs::ReadOnlyDir;
use perigee_env::{Dir, DirOpenMode, Env};
use perigee_file::filename;
use std::path::Path;
use std::sync::Arc;

/// Builds a database in `target` from what is readable in `source`; calls `progress` with the bytes
/// read and the total bytes.
///
/// # Errors
/// `Locked` if the source is open for writing; `NotFound` if it contains no database files;
/// `AlreadyExists` if the target is not empty. Damage is not an error: it is in the report.
pub fn repair_database(
    env: &Env,
    source: &Path,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RepairReport> {
    let real = env.fs.open_dir(source, DirOpenMode::Existing)?;
    foreign_dir::refuse_foreign(env, &*real, false)?;
    let _lock = lock_source(&*real)?;
    let from = ReadOnlyDir::wrap(real);
    let survey = survey::survey_files(&from)?;
    DirectoryBuilder::begin(env, target)?.fill(|to| {
        let mut report = survey.report.clone();
        let mut builder =
            repair_builder::RepairBuilder::new(env, Arc::clone(&from), Arc::clone(to), &survey);
        tables::gather_tables(&survey, &mut builder, &mut report, progress)?;
        logs::gather_logs(&survey, &mut builder, &mut report)?;
        builder.write_database(&survey, &mut report)?;
        Ok(report)
    })
}

/// Locks the source, to exclude a writer. A lock file that cannot be opened (on a read-only medium)
/// means that there is no writer.
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

/// Returns true for errors that go into the report: damage, and files that cannot be read for
/// another reason, but not a format that is too new.
fn is_damage(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Io | ErrorKind::NotFound)
}
