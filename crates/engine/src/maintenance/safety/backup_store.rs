//! The directory of a backup: data files named by content and shared between generations, and one
//! record per generation.
//!
//! ```text
//! 000003.generation                                the record of generation 3
//! 1122334455667788-000007-0102030405060708.klog   database, number, checksum of the whole file
//! incoming.*                                       being written; ignored
//! LOCK                                             one writer at a time
//! ```
//! Invariant: a file with a final name is complete (it was synced before it was renamed), and a
//! record with a final name references files whose names are durable.

use super::generation::{BackupGeneration, StoredFile};
use crate::limits::BACKUP_RECORD_BYTES_MAX;
use perigee_base::{Error, ErrorKind, FileId, FileKind, Result};
use perigee_env::{Dir, DirLock, DirOpenMode, Env};
use perigee_file::filename;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Name prefix of files that are being written.
pub const INCOMING_PREFIX: &str = "incoming";

/// A backup directory.
#[derive(Debug)]
pub struct BackupStore {
    /// The directory.
    pub dir: Arc<dyn Dir>,
}

impl BackupStore {
    /// Opens a backup for reading; nothing is written, so it may be on a read-only medium.
    pub fn open(env: &Env, path: &Path) -> Result<BackupStore> {
        let dir = env.fs.open_dir(path, DirOpenMode::Existing)?;
        check_not_database(env, &*dir)?;
        Ok(BackupStore { dir })
    }

    /// Opens or creates a backup for exclusive writing.
    pub fn open_for_writing(env: &Env, path: &Path) -> Result<(BackupStore, Box<dyn DirLock>)> {
        let dir = env.fs.open_dir(path, DirOpenMode::CreateIfMissing)?;
        check_not_database(env, &*dir)?;
        let lock = dir.lock(filename::LOCK)?;
        Ok((BackupStore { dir }, lock))
    }

    /// Returns the numbers of all generations, ascending, readable or not.
    pub fn generation_numbers(&self) -> Result<Vec<u64>> {
        let names = self.dir.list()?;
        let mut all: Vec<u64> = names.iter().filter_map(|n| generation_number(n)).collect();
        all.sort_unstable();
        Ok(all)
    }

    /// Reads the record of a generation.
    ///
    /// # Errors
    /// `NotFound` if there is none with that number; `Corruption` with the file name.
    pub fn read_generation(&self, number: u64) -> Result<BackupGeneration> {
        let file = generation_name(number);
        let Some(bytes) = self.dir.file_len(&file)? else {
            let text = format!("there is no generation {number} in {}", self.dir.path().display());
            return Err(Error::new(ErrorKind::NotFound, text));
        };
        if bytes > BACKUP_RECORD_BYTES_MAX {
            return Err(Error::corruption("a backup record is too long")
                .in_file(file)
                .expected(format_args!("at most {BACKUP_RECORD_BYTES_MAX}"), bytes));
        }
        let mut content = vec![0u8; bytes as usize];
        self.dir.open(&file)?.read_exact_at(&mut content, 0).map_err(|e| e.in_file(&file))?;
        BackupGeneration::decode(&content, number).map_err(|e| e.in_file(&file))
    }

    /// Returns true if the backup contains a file with that name and length.
    pub fn contains_file(&self, database: u64, file: &StoredFile) -> Result<bool> {
        Ok(self.dir.file_len(&stored_name(database, file))? == Some(file.bytes))
    }

    /// Removes the files of unfinished attempts.
    pub fn clear_incoming(&self) -> Result<()> {
        for file in self.dir.list()?.iter().filter(|f| f.starts_with(INCOMING_PREFIX)) {
            self.dir.remove(file)?;
        }
        Ok(())
    }

    /// Returns the names of all stored files, referenced or not.
    pub fn stored_file_names(&self) -> Result<BTreeSet<String>> {
        Ok(self.dir.list()?.into_iter().filter(|f| is_stored_name(f)).collect())
    }
}

fn check_not_database(env: &Env, dir: &dyn Dir) -> Result<()> {
    if dir.file_len(filename::MANIFEST)?.is_some() {
        return Err(Error::invalid(format!(
            "{} is a database, not a backup: name another directory",
            dir.path().display()
        )));
    }
    // A database deletes its own subdirectories.
    let above = match dir.path().parent() {
        Some(p) if p.as_os_str().is_empty() => Some(Path::new(".")),
        parent => parent,
    };
    let above = above.and_then(|p| env.fs.open_dir(p, DirOpenMode::Existing).ok());
    if above.is_some_and(|above| matches!(above.file_len(filename::MANIFEST), Ok(Some(_)))) {
        let text = format!(
            "{} is inside a database: name a directory outside of it",
            dir.path().display()
        );
        return Err(Error::invalid(text));
    }
    Ok(())
}

/// Returns the name of a generation's record.
pub fn generation_name(number: u64) -> String {
    format!("{number:06}.generation")
}

fn generation_number(file: &str) -> Option<u64> {
    let number = file.strip_suffix(".generation")?.parse().ok()?;
    (generation_name(number) == file).then_some(number)
}

/// Returns the name of a file in a backup, which identifies its contents.
pub fn stored_name(database: u64, file: &StoredFile) -> String {
    let plain = filename::file_name(file.id, file.kind);
    let extension = plain.rsplit_once('.').map_or("manifest", |(_, ext)| ext);
    format!("{database:016x}-{:06}-{:016x}.{extension}", file.id.0, file.checksum)
}

/// Returns the name of the file in a database.
pub fn database_file_name(file: &StoredFile) -> String {
    filename::file_name(file.id, file.kind)
}

fn is_stored_name(file: &str) -> bool {
    let Some((stem, extension)) = file.rsplit_once('.') else { return false };
    let parts: Vec<&str> = stem.split('-').collect();
    let kinds = [FileKind::Wal, FileKind::Klog, FileKind::Vlog];
    let known = extension == "manifest"
        || kinds
            .iter()
            .any(|k| filename::file_name(FileId(0), *k).ends_with(&format!(".{extension}")));
    let hex = |p: &str| p.len() == 16 && p.bytes().all(|b| b.is_ascii_hexdigit());
    known && parts.len() == 3 && hex(parts[0]) && hex(parts[2])
}
