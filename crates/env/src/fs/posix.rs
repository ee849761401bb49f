//! The real file system. Files in a directory are accessed relative to its handle, never by path
//! and never through symbolic links. Directories have mode 0700 and files 0600, regardless of the
//! umask.
//!
//! A rename, creation or removal is durable after an `fsync` of the directory; contents are durable
//! after `fdatasync`.

mod lock;
mod write_back;
mod zeroed_space;
mod file;
mod system_limits;
mod heap;
mod parallel_sync;
mod dir;

use super::open_file_limiter::OpenFileLimiter;
use super::{Dir, DirOpenMode, Fs};
use crate::rand::{Rand, RealRand};
use dir::PosixDir;
use perigee_base::{Error, ErrorKind, Result, checksum};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DIR_MODE: Mode = Mode::RWXU;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Opening a fifo or device by mistake must not block; the flag has no effect on regular files.
const FILE_FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);
const DIR_FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::DIRECTORY);

/// The file system of the operating system.
#[derive(Debug)]
pub struct PosixFs {
    boot_id: u64,
}

impl PosixFs {
    /// Creates the file system, reads the boot id and installs the fork handler.
    pub fn new() -> Self {
        crate::fork::install_fork_handler();
        PosixFs { boot_id: read_boot_id() }
    }
}

impl Default for PosixFs {
    fn default() -> Self {
        Self::new()
    }
}

impl Fs for PosixFs {
    /// A symbolic link to a directory is followed: the owner decides where a database is stored.
    fn open_dir(&self, path: &Path, mode: DirOpenMode) -> Result<Arc<dyn Dir>> {
        let created = mode == DirOpenMode::CreateIfMissing && create_dir(path)?;
        let handle = rustix::fs::open(path, DIR_FLAGS, Mode::empty())
            .map_err(|e| open_dir_error(path, e))?;
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

    fn boot_id(&self) -> u64 {
        self.boot_id
    }

    fn memory_limit_bytes(&self) -> Option<u64> {
        system_limits::memory_limit_bytes()
    }

    fn resident_bytes(&self) -> Option<u64> {
        system_limits::resident_bytes()
    }

    fn trim_heap(&self) {
        heap::trim_heap();
    }

    fn open_file_limit(&self) -> Option<u64> {
        system_limits::open_file_limit()
    }

    fn open_file_limiter(&self) -> Arc<OpenFileLimiter> {
        OpenFileLimiter::process_wide()
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> Result<()> {
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

    fn remove_dir(&self, path: &Path) -> Result<()> {
        rustix::fs::rmdir(path).map_err(|e| match e {
            Errno::NOTEMPTY | Errno::EXIST => {
                Error::new(ErrorKind::AlreadyExists, format!("{} is not empty", path.display()))
            }
            e => os_error(format_args!("remove directory {}", path.display()), e),
        })
    }
}

/// Returns a number derived from the boot id of Linux. If the boot id cannot be read, the number is
/// random: it differs from every stored number, so the reader assumes that the system may have
/// stopped in between, which is safe. (0 for "unknown" would be equal to itself.)
fn read_boot_id() -> u64 {
    match std::fs::read("/proc/sys/kernel/random/boot_id") {
        Ok(id) if !id.is_empty() => checksum::key_hash(&id),
        _ => RealRand::new().next_u64(),
    }
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
    let result = File::open(&parent).and_then(|dir| dir.sync_all());
    match result {
        // The parent may be searchable but not readable; an existing entry in it need not be
        // synced.
        Err(e) if !created && e.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        Err(e) => Err(Error::io(format_args!("sync directory {}", parent.display()), &e)),
        Ok(()) => Ok(()),
    }
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p.to_owned(),
        _ => PathBuf::from(if path.has_root() { "/" } else { "." }),
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
