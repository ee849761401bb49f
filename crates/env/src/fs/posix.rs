//! The real file system of Unix systems. Files in a directory are accessed relative to its handle,
//! never by path and never through symbolic links. Directories have mode 0700 and files 0600,
//! regardless of the umask.
//!
//! A rename, creation or removal is durable after an `fsync` of the directory; contents are durable
//! after `fdatasync` (macOS: both `F_FULLFSYNC`). What differs between Unix systems is in `linux`,
//! `macos` and `other_unix`, modules with the same functions; only one is compiled.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
mod other_unix;
mod lock;
mod sync;
mod write_back;
mod zeroed_space;
mod file;
mod heap;
mod dir;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(target_os = "macos")]
use macos as system;
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
use other_unix as system;

use super::{Dir, DirOpenMode, parent_of};
use dir::PosixDir;
pub(super) use heap::trim_heap;
use perigee_base::{Error, ErrorKind, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
pub(super) use system::{boot_id, memory_limit_bytes, resident_bytes};

const DIR_MODE: Mode = Mode::RWXU;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Opening a fifo or device by mistake must not block; the flag has no effect on regular files.
const FILE_FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);
const DIR_FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::DIRECTORY);

/// Opens a directory; see [`super::Fs::open_dir`].
pub(super) fn open_dir(path: &Path, mode: DirOpenMode) -> Result<Arc<dyn Dir>> {
    let created = mode == DirOpenMode::CreateIfMissing && create_dir(path)?;
    let handle =
        rustix::fs::open(path, DIR_FLAGS, Mode::empty()).map_err(|e| open_dir_error(path, e))?;
    if created {
        set_mode(&handle, DIR_MODE, path)?;
    }
    let dir = PosixDir::new(File::from(handle), path.to_owned())?;
    if mode == DirOpenMode::CreateIfMissing {
        // Also if it exists: the process that created it may have crashed before this sync.
        sync_parent(path, created)?;
    }
    Ok(Arc::new(dir))
}

/// Renames a directory; see [`super::Fs::rename_dir`].
pub(super) fn rename_dir(from: &Path, to: &Path) -> Result<()> {
    rustix::fs::rename(from, to).map_err(|e| {
        let shown = to.display();
        match e {
            Errno::NOTEMPTY | Errno::EXIST => {
                Error::new(ErrorKind::AlreadyExists, format!("{shown} exists and is not empty"))
            }
            Errno::NOTDIR => {
                Error::new(ErrorKind::AlreadyExists, format!("{shown} is not a directory"))
            }
            e => os_error(format_args!("rename {} to {shown}", from.display()), e),
        }
    })?;
    sync_parent(to, true)
        .map_err(|e| e.wrap(ErrorKind::OutcomeUnknown, "the new name may not be durable"))
}

/// Removes an empty directory; see [`super::Fs::remove_dir`].
pub(super) fn remove_dir(path: &Path) -> Result<()> {
    rustix::fs::rmdir(path).map_err(|e| match e {
        Errno::NOTEMPTY | Errno::EXIST => {
            Error::new(ErrorKind::AlreadyExists, format!("{} is not empty", path.display()))
        }
        e => os_error(format_args!("remove directory {}", path.display()), e),
    })
}

/// Returns the number of files that the process may have open.
pub(super) fn open_file_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Creates a directory. Returns true if this call created it, false if it existed.
fn create_dir(path: &Path) -> Result<bool> {
    match rustix::fs::mkdir(path, DIR_MODE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(Errno::NOENT) => {
            let parent = parent_of(path);
            let text = format!(
                "cannot create {}: its parent {} does not exist",
                path.display(),
                parent.display()
            );
            Err(Error::new(ErrorKind::NotFound, text))
        }
        Err(e) => Err(os_error(format_args!("create directory {}", path.display()), e)),
    }
}

fn sync_parent(path: &Path, created: bool) -> Result<()> {
    let parent = parent_of(path);
    let result = File::open(&parent).and_then(|dir| sync::sync_dir(&dir));
    match result {
        // The parent may be searchable but not readable; an existing entry in it need not be
        // synced.
        Err(e) if !created && e.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        Err(e) => Err(Error::io(format_args!("sync directory {}", parent.display()), &e)),
        Ok(()) => Ok(()),
    }
}

fn open_dir_error(path: &Path, e: Errno) -> Error {
    let shown = path.display();
    let is_link = path.symlink_metadata().is_ok_and(|m| m.file_type().is_symlink());
    match e {
        Errno::NOTDIR => Error::invalid(format!("{shown} is not a directory")),
        Errno::NOENT if is_link => {
            Error::new(ErrorKind::NotFound, format!("{shown} is a dangling symbolic link"))
        }
        Errno::NOENT => {
            Error::new(ErrorKind::NotFound, format!("directory {shown} does not exist"))
        }
        e => os_error(format_args!("open directory {shown}"), e),
    }
}

fn set_mode(handle: impl std::os::fd::AsFd, mode: Mode, what: impl AsRef<Path>) -> Result<()> {
    let done = rustix::fs::fchmod(handle, mode);
    done.map_err(|e| os_error(format_args!("set permissions of {}", what.as_ref().display()), e))
}

fn os_error(doing: impl std::fmt::Display, e: Errno) -> Error {
    Error::io(doing, &e.into())
}

#[cfg(test)]
mod tests;
