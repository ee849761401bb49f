//! Restores a generation into a new database directory, and verifies backups.

use super::backup_store::{BackupStore, database_file_name, stored_name};
use super::directory_builder::DirectoryBuilder;
use super::file_copy::{self, DirEntry, RecordedFile};
use super::generation::{BackupGeneration, StoredFile};
use super::reports::{
    BackupDamage, BackupFile, BackupInfo, BackupList, BackupVerifyReport, RestoreReport,
};
use perigee_base::{Error, ErrorKind, Result};
use perigee_env::Env;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Restores a generation (`None`: the newest) into `target`, which must not exist or must be empty.
pub fn restore_generation(
    env: &Env,
    backup: &Path,
    generation: Option<u64>,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RestoreReport> {
    let store = BackupStore::open(env, backup)?;
    let number = match generation {
        Some(number) => number,
        None => newest_generation(&store, backup)?,
    };
    let g = store.read_generation(number)?;
    let mut out =
        RestoreReport { generation: g.number, sequence: g.last_seq.0, files: 0, bytes: 0 };
    let total = g.bytes();
    DirectoryBuilder::begin(env, target)?.fill(|dir| {
        for f in &g.files {
            let stored = stored_name(g.database, f);
            file_copy::copy_file(
                DirEntry { dir: &*store.dir, name: &stored },
                DirEntry { dir: &**dir, name: &database_file_name(f) },
                RecordedFile { id: f.id, bytes: f.bytes, checksum: f.checksum },
            )
            .map_err(|e| explain_missing_file(&store, e, &stored, number))?;
            out.files += 1;
            out.bytes += f.bytes;
            progress(out.bytes, total);
        }
        dir.sync()
    })?;
    Ok(out)
}

/// Returns the newest generation, if all generations are of one database.
fn newest_generation(store: &BackupStore, backup: &Path) -> Result<u64> {
    let numbers = store.generation_numbers()?;
    let newest = *numbers.last().ok_or_else(|| no_generation(backup))?;
    let databases: BTreeSet<u64> =
        numbers.iter().filter_map(|n| store.read_generation(*n).ok()).map(|g| g.database).collect();
    if databases.len() > 1 {
        let (path_text, count) = (backup.display(), databases.len());
        return Err(Error::invalid(format!(
            "{path_text} holds generations of {count} databases: specify the number of the \
             generation to restore"
        )));
    }
    Ok(newest)
}

fn no_generation(backup: &Path) -> Error {
    Error::new(ErrorKind::NotFound, format!("{} holds no generation", backup.display()))
}

/// Explains a failed copy: a missing file is damage, and the message says what to do.
fn explain_missing_file(store: &BackupStore, e: Error, file: &str, number: u64) -> Error {
    match e.kind() {
        // Records are removed before their files.
        ErrorKind::NotFound if !matches!(store.generation_numbers(), Ok(n) if n.contains(&number)) => {
            Error::new(
                ErrorKind::NotFound,
                format!("generation {number} was pruned in the meantime: choose another one"),
            )
        }
        ErrorKind::NotFound => Error::corruption(format!(
            "a file of generation {number} is missing: restore another generation"
        ))
        .in_file(file),
        ErrorKind::Corruption => e.wrap(
            ErrorKind::Corruption,
            &format!("generation {number} is damaged: restore another generation"),
        ),
        _ => e,
    }
}

fn backup_info(g: &BackupGeneration) -> BackupInfo {
    let file = |f: &StoredFile| BackupFile {
        name: stored_name(g.database, f),
        bytes: f.bytes,
        checksum: f.checksum,
    };
    BackupInfo {
        generation: g.number,
        database: g.database,
        sequence: g.last_seq.0,
        created_ms: g.created_ms,
        bytes: g.bytes(),
        files: g.files.iter().map(file).collect(),
    }
}

/// Returns all readable generations, oldest first, and the errors of the others.
pub fn list_generations(env: &Env, backup: &Path) -> Result<BackupList> {
    let store = BackupStore::open(env, backup)?;
    let mut out = BackupList::default();
    for number in store.generation_numbers()? {
        match store.read_generation(number) {
            Ok(g) => out.generations.push(backup_info(&g)),
            Err(e) => out.errors.push(e),
        }
    }
    Ok(out)
}

/// Reads every file of a generation (`None`: of all generations) once, and verifies it against its
/// record.
pub fn verify_backup(
    env: &Env,
    backup: &Path,
    generation: Option<u64>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<BackupVerifyReport> {
    let store = BackupStore::open(env, backup)?;
    let numbers = match generation {
        Some(n) => vec![n],
        None => store.generation_numbers()?,
    };
    let mut out = BackupVerifyReport::default();
    let mut files = BTreeMap::new();
    for number in numbers {
        out.generations += 1;
        match store.read_generation(number) {
            Ok(g) => {
                for f in &g.files {
                    let entry = files.entry(stored_name(g.database, f)).or_insert((*f, Vec::new()));
                    entry.1.push(number);
                }
            }
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(e),
            Err(e) => {
                out.errors.push(BackupDamage { error: e, generations: vec![number] });
            }
        }
    }
    let total = files.values().map(|(f, _)| f.bytes).sum();
    for (name, (f, needed)) in files {
        let recorded = RecordedFile { id: f.id, bytes: f.bytes, checksum: f.checksum };
        let checked = file_copy::verify_file(&*store.dir, &name, recorded, |_| Ok(()));
        out.files += 1;
        out.bytes += f.bytes;
        progress(out.bytes, total);
        if let Err(e) = checked {
            let error = explain_missing_file(&store, e, &name, needed[0]);
            out.errors.push(BackupDamage { error, generations: needed });
        }
    }
    Ok(out)
}
