//! The real file system of Windows, through the standard library where it has the function.
//!
//! - A directory is an open handle. Windows opens files by path only, so each call asks for the
//!   current path of the handle: the directory may be renamed. Links are not followed: the name is
//!   checked before it is opened.
//! - Files are opened so that others may read, write, rename and delete them (the default of the
//!   standard library, `FILE_SHARE_DELETE`), as on Unix: a table may be deleted while it is read.
//!   Programs such as virus scanners open files without that; `retry` waits for them.
//! - A directory in which a file is open cannot be renamed. See [`lock`] for its lock file.
//! - Files and directories inherit their permissions from the parent directory.
//!
//! Contents are durable after `FlushFileBuffers` of the file. A rename is followed by
//! `FlushFileBuffers` of the renamed file, and names are durable after `FlushFileBuffers` of the
//! directory, which NTFS and ReFS support: it writes their log of metadata up to then. Where the
//! file system refuses it, the flushes of the files are all there is.

mod system;
mod retry;
mod lock;
mod file;
mod dir;

use super::{Dir, DirOpenMode, parent_of};
use dir::{WindowsDir, flush_dir, open_dir_handle};
use perigee_base::{Error, ErrorKind, Result};
use std::io;
use std::path::Path;
use std::sync::Arc;
pub(super) use system::{memory_limit_bytes, resident_bytes};

/// Opens a directory; see [`super::Fs::open_dir`].
pub(super) fn open_dir(path: &Path, mode: DirOpenMode) -> Result<Arc<dyn Dir>> {
    if mode == DirOpenMode::CreateIfMissing {
        create_dir(path)?;
    }
    let handle = open_dir_handle(path).map_err(|e| open_dir_error(path, &e))?;
    let dir = WindowsDir::new(handle, path)?;
    if mode == DirOpenMode::CreateIfMissing {
        // Also if it exists: the process that created it may have crashed before this sync.
        sync_parent(path)?;
    }
    Ok(Arc::new(dir))
}

/// Renames a directory; see [`super::Fs::rename_dir`]. Locks that this process holds on files in it
/// are released meanwhile, and taken again.
pub(super) fn rename_dir(from: &Path, to: &Path) -> Result<()> {
    let doing = format!("rename {} to {}", from.display(), to.display());
    let failed = |e: io::Error| Error::io(&doing, &e);
    let identity = |path| system::identity(&open_dir_handle(path)?);
    let dir = identity(from).map_err(failed)?;
    match to.symlink_metadata() {
        // Its own name, perhaps in another case.
        Ok(meta) if meta.is_dir() && identity(to).map_err(failed)? == dir => {}
        // Windows replaces no directory, not even an empty one. After a crash in between, the
        // directory has its old name.
        Ok(meta) if meta.is_dir() => remove_dir(to)?,
        Ok(_) => {
            let text = format!("{} is not a directory", to.display());
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
    }
    lock::rename_dir_unlocked(dir, from, to).map_err(|e| match e.kind() {
        io::ErrorKind::PermissionDenied => failed(e).wrap(
            ErrorKind::Io,
            "a file in the directory may be open in another program, or a permission is missing",
        ),
        _ => failed(e),
    })?;
    sync_parent(to)
        .map_err(|e| e.wrap(ErrorKind::OutcomeUnknown, "the new name may not be durable"))
}

/// Removes an empty directory; see [`super::Fs::remove_dir`].
pub(super) fn remove_dir(path: &Path) -> Result<()> {
    retry::while_in_use(|| std::fs::remove_dir(path)).map_err(|e| match e.kind() {
        io::ErrorKind::DirectoryNotEmpty => {
            let text = format!("{} exists and is not empty", path.display());
            Error::new(ErrorKind::AlreadyExists, text)
        }
        _ => Error::io(format_args!("remove directory {}", path.display()), &e),
    })
}

/// Returns `None`: Windows has no number that is certain to change at every start, so that each
/// open assumes that the system may have been restarted.
pub(super) fn boot_id() -> Option<u64> {
    None
}

/// Returns `None`: the number of handles has no limit of practical use.
pub(super) fn open_file_limit() -> Option<u64> {
    None
}

/// Does nothing: the heap of Windows returns memory by its own rules.
pub(super) fn trim_heap() {}

fn create_dir(path: &Path) -> Result<()> {
    match std::fs::create_dir(path) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let parent = parent_of(path);
            let text = format!(
                "cannot create {}: its parent {} does not exist",
                path.display(),
                parent.display()
            );
            Err(Error::new(ErrorKind::NotFound, text))
        }
        Err(e) => Err(Error::io(format_args!("create directory {}", path.display()), &e)),
    }
}

/// Makes the name of a directory durable. A user may have the right to create directories in the
/// parent, but not to open it for a sync.
fn sync_parent(path: &Path) -> Result<()> {
    let parent = parent_of(path);
    let failed = |e: &io::Error| Error::io(format_args!("sync directory {}", parent.display()), e);
    match open_dir_handle(&parent) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        opened => flush_dir(&opened.map_err(|e| failed(&e))?).map_err(|e| failed(&e)),
    }
}

fn open_dir_error(path: &Path, e: &io::Error) -> Error {
    let shown = path.display();
    let is_link = path.symlink_metadata().is_ok_and(|m| m.file_type().is_symlink());
    match e.kind() {
        io::ErrorKind::NotFound if is_link => {
            Error::new(ErrorKind::NotFound, format!("{shown} is a dangling symbolic link"))
        }
        io::ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, format!("directory {shown} does not exist"))
        }
        io::ErrorKind::NotADirectory => Error::invalid(format!("{shown} is not a directory")),
        _ => Error::io(format_args!("open directory {shown}"), e),
    }
}

#[cfg(test)]
mod tests;
