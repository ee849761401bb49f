//! Syncs of files and directories to stable storage. On macOS `fsync` leaves data in the cache of
//! the disk; there the standard library uses `F_FULLFSYNC`, which empties that cache.

use std::fs::File;
use std::io;

/// Syncs the contents and the length of a file.
pub(super) fn sync_data(file: &File) -> io::Result<()> {
    with_fallback(file, file.sync_data())
}

/// Syncs the names in a directory.
pub(super) fn sync_dir(dir: &File) -> io::Result<()> {
    with_fallback(dir, dir.sync_all())
}

#[cfg(not(target_os = "macos"))]
fn with_fallback(_: &File, done: io::Result<()>) -> io::Result<()> {
    done
}

/// Some file systems (network, some external disks) do not support `F_FULLFSYNC`; there `fsync` is
/// the strongest call. Only if they say so: a sync that failed must not be repeated.
#[cfg(target_os = "macos")]
fn with_fallback(file: &File, done: io::Result<()>) -> io::Result<()> {
    use rustix::io::Errno;
    let unsupported = |e: &io::Error| {
        let number = e.raw_os_error().map(Errno::from_raw_os_error);
        matches!(number, Some(Errno::NOTSUP | Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL))
    };
    match done {
        Err(e) if unsupported(&e) => Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(file))?),
        done => done,
    }
}
