//! Entries as files below a directory.
//!
//! Invariants: the directory was empty, so that no link in it can lead out; every file and
//! directory in it is made by this room, files only where nothing was.

use crate::failure::{Failure, Result, show_path};
use crate::progress::Progress;
use crate::text::escape;
use perigee::Cursor;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{ExportCounts, safe_path};

/// Refusals printed one by one; the rest is only counted.
const REFUSALS_SHOWN_MAX: u64 = 20;

/// Writes a file for each entry.
pub fn export(cursor: &mut Cursor, root: &Path, strict: bool) -> Result<ExportCounts> {
    prepare_root(root)?;
    let mut tally = ExportCounts::default();
    let mut progress = Progress::bytes("exporting", 0);
    let mut last_dir = PathBuf::new();
    while cursor.valid() {
        match create_file(root, cursor.key(), &mut last_dir)? {
            Ok(mut file) => {
                let value = cursor.value()?;
                file.write_all(&value).map_err(|e| Failure::file("write", root, &e))?;
                tally.entries += 1;
                tally.bytes += value.len() as u64;
                progress.set_position(tally.bytes);
            }
            Err(why) => refuse_key(cursor.key(), why, strict, &mut tally, &progress)?,
        }
        cursor.next()?;
    }
    Ok(tally)
}

/// The root: made, or there and empty.
fn prepare_root(root: &Path) -> Result<()> {
    fs::create_dir_all(root).map_err(|e| Failure::file("create", root, &e))?;
    let mut entries = fs::read_dir(root).map_err(|e| Failure::file("read", root, &e))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(Failure::usage(format!("{} is not empty", show_path(root)))
            .hint("give a new directory")),
    }
}

fn refuse_key(
    key: &[u8],
    why: &str,
    strict: bool,
    tally: &mut ExportCounts,
    progress: &Progress,
) -> Result<()> {
    let message = format!("the key {} cannot become a file: {why}", escape(key));
    if strict {
        return Err(
            Failure::other("export", message).hint("export to a .jsonl file keeps every key")
        );
    }
    tally.refused += 1;
    if tally.refused <= REFUSALS_SHOWN_MAX {
        progress.print_line(&format!("perigee: refused: {message}"));
    } else if tally.refused == REFUSALS_SHOWN_MAX + 1 {
        progress.print_line("perigee: refused: more, which are only counted");
    }
    Ok(())
}

/// The new file of a key, or why there can be none.
fn create_file(
    root: &Path,
    key: &[u8],
    last_dir: &mut PathBuf,
) -> Result<std::result::Result<File, &'static str>> {
    let parts = match safe_path::path_parts(key) {
        Ok(parts) => parts,
        Err(why) => return Ok(Err(why)),
    };
    let Some((name, dirs)) = parts.split_last() else { return Ok(Err("it is empty")) };
    let mut dir = root.to_path_buf();
    dir.extend(dirs.iter().map(|d| OsStr::from_bytes(d)));
    if dir != *last_dir {
        match make_dirs(root, dirs) {
            Ok(()) => last_dir.clone_from(&dir),
            Err(e) => return classify_create_error(e, &dir),
        }
    }
    let path = dir.join(OsStr::from_bytes(name));
    match File::create_new(&path) {
        Ok(file) => Ok(Ok(file)),
        Err(e) => classify_create_error(e, &path),
    }
}

/// A place that is taken, or a name that the file system refuses, speaks against the key; all else
/// stops the export.
fn classify_create_error(
    e: io::Error,
    path: &Path,
) -> Result<std::result::Result<File, &'static str>> {
    match e.kind() {
        io::ErrorKind::AlreadyExists
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory => Ok(Err("another key has that place")),
        io::ErrorKind::InvalidFilename | io::ErrorKind::InvalidInput => {
            Ok(Err("the file system refuses the name"))
        }
        _ => Err(Failure::file("create", path, &e)),
    }
}

/// Makes the directories one by one; each was made by us before, or is made now.
fn make_dirs(root: &Path, dirs: &[&[u8]]) -> io::Result<()> {
    let mut at = root.to_path_buf();
    for dir in dirs {
        at.push(OsStr::from_bytes(dir));
        match fs::create_dir(&at) {
            Err(e)
                if e.kind() == io::ErrorKind::AlreadyExists
                    && fs::symlink_metadata(&at)?.is_dir() => {}
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
        assert!(put(b"a").is_err(), "a is there");
        assert_eq!(put(b"d/e/f"), Ok(()));
        assert_eq!(put(b"d/e/g"), Ok(()));
        assert!(put(b"d/e").is_err(), "d/e is a directory");
        assert!(put(b"../escape").is_err());
        assert!(prepare_root(&root).is_err(), "not empty any more");
        fs::remove_dir_all(&root).unwrap();
    }
}
