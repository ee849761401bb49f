//! Copies a source to a scratch directory, after checking that no other process has it open and
//! that there is enough free space. Opening a database of another engine may replay its log, flush
//! and compact; with a copy the source stays unchanged.
//!
//! Invariant: nothing is ever written to a source; only directories created here are removed.

use crate::failure::{Failure, Result, show_path};
use crate::progress::Progress;
use crate::size;
use rustix::fs::{FlockOperation, fcntl_lock, flock, statvfs};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// Free space that must remain after a copy.
const RESERVED_BYTES: u64 = 64 << 20;

/// Lock on a source's lock file, which prevents other processes from opening the source.
#[derive(Debug)]
pub struct SourceLock(#[allow(dead_code)] Option<File>);

/// Takes a shared lock on a source, without writing to it. TidesDB and RocksDB hold a record lock
/// on the file `LOCK` while they have a database open; older builds of TidesDB use `flock`.
pub fn lock_source(source: &Path, engine: &str) -> Result<SourceLock> {
    let path = source.join("LOCK");
    let file = match File::open(&path) {
        Ok(file) => file,
        // A backup has no lock file until it is opened for the first time.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(SourceLock(None)),
        Err(e) => return Err(Failure::file("open", &path, &e)),
    };
    let operation = FlockOperation::NonBlockingLockShared;
    match fcntl_lock(&file, operation).and_then(|()| flock(&file, operation)) {
        Ok(()) => Ok(SourceLock(Some(file))),
        Err(Errno::AGAIN | Errno::ACCESS) => Err(in_use_failure(source, engine)),
        Err(e) => Err(Failure::file("lock", &path, &e.into())),
    }
}

/// Returns the error for a source that another process has open.
pub fn in_use_failure(source: &Path, engine: &str) -> Failure {
    Failure::other(
        "locked",
        format!("another process has the {engine} database {} open", show_path(source)),
    )
    .hint(format!(
        "close it there first (`fuser -v {}` shows the process); nothing was read or changed",
        show_path(&source.join("LOCK"))
    ))
}

/// A temporary directory for an import, removed with its contents when dropped.
#[derive(Debug)]
pub struct ScratchDir {
    dir: PathBuf,
}

impl ScratchDir {
    /// Creates a directory, which must not exist.
    pub fn create(dir: PathBuf) -> Result<ScratchDir> {
        match fs::create_dir(&dir) {
            Ok(()) => Ok(ScratchDir { dir }),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Err(Failure::usage(format!("{} already exists", show_path(&dir))).hint(
                    "an interrupted import left it behind: remove it, and run the import again",
                ))
            }
            Err(e) => Err(Failure::file("create", &dir, &e)),
        }
    }
    /// Returns the path of the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // If this fails, the next import to the same target reports the directory.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A regular file of a source, and its length.
struct SourceFile {
    path: PathBuf,
    relative_path: PathBuf,
    bytes: u64,
}

/// Lists the directories and the files of a source, without its lock file.
fn list_source(source: &Path) -> Result<(Vec<PathBuf>, Vec<SourceFile>)> {
    let (mut dirs, mut files) = (Vec::new(), Vec::new());
    for entry in WalkDir::new(source).min_depth(1).sort_by_file_name() {
        let entry = entry.map_err(|e| {
            let path = e.path().unwrap_or(source).to_owned();
            Failure::file("read", &path, &e.into())
        })?;
        let path = entry.path().to_owned();
        let relative_path = path.strip_prefix(source).unwrap_or(&path).to_owned();
        // A link to a file is followed; a link to a directory, which may lead anywhere, is refused.
        let meta = fs::metadata(&path).map_err(|e| Failure::file("read", &path, &e))?;
        match (meta.is_dir(), entry.path_is_symlink()) {
            (true, false) => dirs.push(relative_path),
            (true, true) => {
                return Err(Failure::usage(format!(
                    "{} is a link to a directory",
                    show_path(&path)
                ))
                .hint(
                    "copy the database, replacing links by their targets, or import it with \
                     --in-place",
                ));
            }
            (false, _) if relative_path.as_os_str() == "LOCK" => {}
            (false, _) if meta.is_file() => {
                files.push(SourceFile { path, relative_path, bytes: meta.len() })
            }
            (false, _) => {}
        }
    }
    Ok((dirs, files))
}

/// Returns an error if the file system of a directory has less free space than `bytes` plus a
/// reserve. `what` describes the data in the message.
pub fn check_free_space(dir: &Path, bytes: u64, what: &str) -> Result<()> {
    let disk =
        statvfs(dir).map_err(|e| Failure::file("query the free space of", dir, &e.into()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free >= bytes.saturating_add(RESERVED_BYTES) {
        return Ok(());
    }
    Err(Failure::other(
        "no space",
        format!(
            "{what} needs {}, but {} has only {} free",
            size::bytes(bytes),
            show_path(dir),
            size::bytes(free)
        ),
    )
    .hint(
        "specify a directory with more free space with --scratch DIR, or import the source itself \
         with --in-place",
    ))
}

/// Copies a source into an existing directory. Returns the number of bytes copied.
pub fn copy_source(source: &Path, to: &Path) -> Result<u64> {
    let (dirs, files) = list_source(source)?;
    let total = files.iter().map(|f| f.bytes).sum();
    check_free_space(to, total, "a copy of the source")?;
    for dir in dirs {
        let path = to.join(dir);
        fs::create_dir(&path).map_err(|e| Failure::file("create", &path, &e))?;
    }
    let mut progress = Progress::bytes("copying the source", total);
    let mut done = 0;
    for file in files {
        let target = to.join(&file.relative_path);
        fs::copy(&file.path, &target).map_err(|e| Failure::file("copy", &file.path, &e))?;
        // The engine's library must be able to write to the copy of a read-only file.
        let mut permissions =
            fs::metadata(&target).map_err(|e| Failure::file("stat", &target, &e))?.permissions();
        if permissions.readonly() {
            std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
            fs::set_permissions(&target, permissions)
                .map_err(|e| Failure::file("change the permissions of", &target, &e))?;
        }
        done += file.bytes;
        progress.set_position(done);
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch_dir(name: &str) -> ScratchDir {
        let dir =
            std::env::temp_dir().join(format!("perigee-scratch-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        ScratchDir::create(dir).unwrap()
    }

    #[test]
    fn copy_has_all_files_except_the_lock() {
        let w = scratch_dir("copy");
        let source = w.dir().join("source");
        fs::create_dir_all(source.join("cf/deep")).unwrap();
        for (name, bytes) in [("LOCK", "1"), ("a", "aa"), ("cf/b", "bbb"), ("cf/deep/LOCK", "x")] {
            fs::write(source.join(name), bytes).unwrap();
        }
        std::os::unix::fs::symlink("a", source.join("link")).unwrap();
        let to = ScratchDir::create(w.dir().join("to")).unwrap();
        assert_eq!(copy_source(&source, to.dir()).unwrap(), 2 + 3 + 1 + 2);
        assert!(!to.dir().join("LOCK").exists());
        assert_eq!(fs::read(to.dir().join("cf/deep/LOCK")).unwrap(), b"x");
        assert_eq!(fs::read(to.dir().join("link")).unwrap(), b"aa");
        assert!(ScratchDir::create(w.dir().join("to")).is_err());
        let dir = to.dir().to_owned();
        drop(to);
        assert!(!dir.exists() && source.join("cf/b").exists());
        std::os::unix::fs::symlink("cf", source.join("other")).unwrap();
        let to = ScratchDir::create(w.dir().join("to")).unwrap();
        assert!(copy_source(&source, to.dir()).is_err());
    }

    #[test]
    fn missing_free_space_is_an_error() {
        let w = scratch_dir("space");
        assert!(check_free_space(w.dir(), 1, "this").is_ok());
        assert!(check_free_space(w.dir(), u64::MAX, "this").is_err());
    }

    #[test]
    fn existing_lock_is_respected() {
        let w = scratch_dir("lock");
        assert!(lock_source(w.dir(), "TidesDB").is_ok(), "no lock file: not in use");
        fs::write(w.dir().join("LOCK"), b"").unwrap();
        let held = lock_source(w.dir(), "TidesDB").unwrap();
        let other = File::open(w.dir().join("LOCK")).unwrap();
        assert!(
            flock(&other, FlockOperation::NonBlockingLockExclusive).is_err(),
            "locked while it is read"
        );
        drop(held);
        flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(lock_source(w.dir(), "TidesDB").is_err());
        assert_eq!(fs::read(w.dir().join("LOCK")).unwrap(), b"");
    }
}
