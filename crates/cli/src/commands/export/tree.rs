//! Writes entries as files below a directory.
//!
//! Invariants: the directory is empty at the start, so no link in it can lead outside; every file
//! and directory in it is created by this module, and no existing file is overwritten.

use crate::failure::{Failure, Result, show_path};
use crate::progress::Progress;
use crate::text::escape;
use perigee::Cursor;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{ExportCounts, safe_path};

/// Number of refused keys that are printed; further ones are only counted.
const REFUSALS_SHOWN_MAX: u64 = 20;

/// Writes one file per entry, from the position of the cursor.
pub fn export(cursor: &mut Cursor, root: &Path, strict: bool) -> Result<ExportCounts> {
    prepare_root(root)?;
    let mut counts = ExportCounts::default();
    let mut progress = Progress::bytes("exporting", 0);
    let mut last_dir = PathBuf::new();
    while cursor.is_valid() {
        match create_file(root, cursor.key(), &mut last_dir)? {
            Ok(mut file) => {
                let value = cursor.value()?;
                file.write_all(&value).map_err(|e| Failure::file("write", root, &e))?;
                counts.entries += 1;
                counts.bytes += value.len() as u64;
                progress.set_position(counts.bytes);
            }
            Err(reason) => refuse_key(cursor.key(), reason, strict, &mut counts, &progress)?,
        }
        cursor.next()?;
    }
    Ok(counts)
}

/// Creates the root directory; an error if it exists and is not empty.
fn prepare_root(root: &Path) -> Result<()> {
    fs::create_dir_all(root).map_err(|e| Failure::file("create", root, &e))?;
    let mut entries = fs::read_dir(root).map_err(|e| Failure::file("read", root, &e))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(Failure::usage(format!("{} is not empty", show_path(root)))
            .hint("specify a new directory")),
    }
}

fn refuse_key(
    key: &[u8],
    reason: &str,
    strict: bool,
    counts: &mut ExportCounts,
    progress: &Progress,
) -> Result<()> {
    let message = format!("the key {} cannot become a file: {reason}", escape(key));
    if strict {
        return Err(
            Failure::other("export", message).hint("export to a .jsonl file keeps every key")
        );
    }
    counts.refused += 1;
    if counts.refused <= REFUSALS_SHOWN_MAX {
        progress.print_line(&format!("perigee: refused: {message}"));
    } else if counts.refused == REFUSALS_SHOWN_MAX + 1 {
        progress.print_line("perigee: refused: further keys are only counted");
    }
    Ok(())
}

/// Creates the file of a key; the inner error is the reason why the key is refused.
fn create_file(
    root: &Path,
    key: &[u8],
    last_dir: &mut PathBuf,
) -> Result<std::result::Result<File, &'static str>> {
    let parts = match safe_path::path_parts(key) {
        Ok(parts) => parts,
        Err(reason) => return Ok(Err(reason)),
    };
    let Some((name, dirs)) = parts.split_last() else { return Ok(Err("it is empty")) };
    let names = dirs.iter().map(|dir| file_name(dir)).collect::<Option<Vec<&OsStr>>>();
    let (Some(dirs), Some(name)) = (names, file_name(name)) else {
        return Ok(Err("it is not Unicode, unlike file names on Windows"));
    };
    let mut dir = root.to_path_buf();
    dir.extend(&dirs);
    if dir != *last_dir {
        match make_dirs(root, &dirs) {
            Ok(()) => last_dir.clone_from(&dir),
            Err(e) => return classify_create_error(e, &dir),
        }
    }
    let path = dir.join(name);
    match File::create_new(&path) {
        Ok(file) => Ok(Ok(file)),
        Err(e) => classify_create_error(e, &path),
    }
}

/// Returns a component of a key as a file name, if it can be one.
#[cfg(unix)]
fn file_name(bytes: &[u8]) -> Option<&OsStr> {
    Some(std::os::unix::ffi::OsStrExt::from_bytes(bytes))
}

#[cfg(not(unix))]
fn file_name(bytes: &[u8]) -> Option<&OsStr> {
    std::str::from_utf8(bytes).ok().map(OsStr::new)
}

/// Returns the reason to refuse the key if its path is taken or its name is rejected by the file
/// system. Any other error ends the export.
fn classify_create_error(
    e: io::Error,
    path: &Path,
) -> Result<std::result::Result<File, &'static str>> {
    match e.kind() {
        io::ErrorKind::AlreadyExists
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory => Ok(Err("its path collides with that of another key")),
        io::ErrorKind::InvalidFilename | io::ErrorKind::InvalidInput => {
            Ok(Err("the file system rejects the name"))
        }
        _ => Err(Failure::file("create", path, &e)),
    }
}

/// Creates the directories one by one. Each that exists was created earlier in this export.
fn make_dirs(root: &Path, dirs: &[&OsStr]) -> io::Result<()> {
    let mut path = root.to_path_buf();
    for dir in dirs {
        path.push(dir);
        match fs::create_dir(&path) {
            Err(e)
                if e.kind() == io::ErrorKind::AlreadyExists
                    && fs::symlink_metadata(&path)?.is_dir() => {}
            other => other?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colliding_paths_are_refused() {
        let root = std::env::temp_dir().join(format!("perigee-cli-export-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        prepare_root(&root).unwrap();
        let mut last = PathBuf::new();
        let mut put = |key: &[u8]| create_file(&root, key, &mut last).unwrap().map(|_| ());
        assert_eq!(put(b"a"), Ok(()));
        assert!(put(b"a/b").is_err(), "a is a file");
        assert!(put(b"a").is_err(), "a exists");
        assert_eq!(put(b"d/e/f"), Ok(()));
        assert_eq!(put(b"d/e/g"), Ok(()));
        assert!(put(b"d/e").is_err(), "d/e is a directory");
        assert!(put(b"../escape").is_err());
        assert!(prepare_root(&root).is_err(), "no longer empty");
        fs::remove_dir_all(&root).unwrap();
    }
}
