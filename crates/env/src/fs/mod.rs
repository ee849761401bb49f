//! File system interface of the engine: flat directories, append-only writers, positional readers.
//!
//! Names are plain file names (no separators, no `..`); implementations refuse anything else.
//! Errors contain the file name; a full disk is `NoSpace`.

use crate::limits::ZERO_SCAN_WINDOW_BYTES;
use perigee_base::{Error, ErrorKind, Result};
use std::fmt::Debug;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod file_name;
mod os_error;
mod open_file_limiter;
#[cfg(feature = "sim")]
mod fault;
mod read_only_dir;
mod parallel_sync;
#[cfg(unix)]
mod posix;
#[cfg(windows)]
mod windows;
mod real_fs;
#[cfg(feature = "sim")]
pub mod memory;
mod closable_dir;
pub(crate) mod encrypted;

pub use closable_dir::ClosableDir;
pub use open_file_limiter::{IdleFileHolder, OpenFileLimiter};
pub use read_only_dir::{ReadOnlyDir, ReadOnlyFile, read_only_error};
pub use real_fs::RealFs;

/// How to open a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirOpenMode {
    /// The directory must exist (`NotFound` otherwise).
    Existing,
    /// The directory is created (mode 0700 where files have modes, its parent synced) if it does not
    /// exist.
    CreateIfMissing,
}

/// A file system.
pub trait Fs: Send + Sync + Debug {
    /// Opens a directory.
    fn open_dir(&self, path: &Path, mode: DirOpenMode) -> Result<Arc<dyn Dir>>;
    /// Returns a number that changes at every start of the operating system (not of the process).
    /// Equal numbers mean that no data handed to the kernel was lost in between.
    fn boot_id(&self) -> u64;
    /// Returns the memory that the process may use, in bytes, if known.
    fn memory_limit_bytes(&self) -> Option<u64> {
        None
    }
    /// Returns the resident set size of the process, in bytes, if known.
    fn resident_bytes(&self) -> Option<u64> {
        None
    }
    /// Makes the allocator return freed memory to the system where it would otherwise keep it. May
    /// take milliseconds.
    fn trim_heap(&self) {}
    /// Returns the number of files that the process may have open, if known.
    fn open_file_limit(&self) -> Option<u64> {
        None
    }
    /// Returns the limiter of open files shared by all databases on this file system; on the real
    /// file system, by all databases of the process.
    fn open_file_limiter(&self) -> Arc<OpenFileLimiter> {
        Arc::default()
    }
    /// Renames a directory within its parent, durably. `to` may be an empty directory; if anything
    /// else exists there, fails with `AlreadyExists` and changes nothing. Atomic: after a crash the
    /// directory has one of the two names.
    fn rename_dir(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes an empty directory (`AlreadyExists` if it is not empty).
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// Returns the file system below, if this one encrypts.
    fn without_encryption(&self) -> Option<Arc<dyn Fs>> {
        None
    }
}

/// One directory of regular files.
pub trait Dir: Send + Sync + Debug {
    /// Returns its path, for messages.
    fn path(&self) -> &Path;
    /// Returns true if `path` currently refers to this directory, which may have been renamed, or
    /// removed and recreated, since it was opened.
    fn is_located_at(&self, path: &Path) -> Result<bool>;
    /// Returns the names of the regular files, sorted.
    fn list(&self) -> Result<Vec<String>>;
    /// Returns the names of all other entries (directories, links, sockets, and files whose name is
    /// not UTF-8, which then contains replacement characters), sorted.
    fn list_non_files(&self) -> Result<Vec<String>>;
    /// Returns the length of a file, or `None` if it does not exist.
    fn file_len(&self, name: &str) -> Result<Option<u64>>;
    /// Creates a new, empty file (mode 0600 where files have modes); `AlreadyExists` if the name
    /// exists.
    fn create(&self, name: &str) -> Result<Arc<dyn WritableFile>>;
    /// Opens an existing file for appending, truncating and syncing.
    fn append_to(&self, name: &str) -> Result<Arc<dyn WritableFile>>;
    /// Opens an existing file for reading.
    fn open(&self, name: &str) -> Result<Arc<dyn RandomAccessFile>>;
    /// Renames a file, replacing the target. Atomic; durable after [`Dir::sync`].
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Removes a file. Durable after [`Dir::sync`].
    fn remove(&self, name: &str) -> Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync(&self) -> Result<()>;
    /// Writes the contents of several files of this directory to stable storage, as
    /// [`WritableFile::sync`] does, possibly in parallel. After an error the state of every file is
    /// unknown.
    fn sync_files(&self, files: &[Arc<dyn WritableFile>]) -> Result<()> {
        files.iter().try_for_each(|file| file.sync())
    }
    /// Returns the free space of this file system in bytes (`u64::MAX`: unlimited or unknown).
    fn free_space(&self) -> Result<u64> {
        Ok(u64::MAX)
    }
    /// Takes the exclusive lock held on file `name` (created if missing, never removed); `Locked`
    /// if another process, or another handle in this one, holds it. Released on drop.
    fn lock(&self, name: &str) -> Result<Box<dyn DirLock>>;
    /// Opens a subdirectory, created if missing. Durable after [`Dir::sync`].
    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>>;
    /// Moves a file of this directory into its subdirectory `subdir` (created if missing). Atomic;
    /// durable after [`Dir::sync`] of this directory. `AlreadyExists` if the name exists there.
    fn move_into(&self, name: &str, subdir: &str) -> Result<()>;
    /// Creates a hard link with the same name in `target`. `AlreadyExists` if the name exists
    /// there. Returns false if the file cannot be linked (another file system, no support for
    /// links, too many links) and must be copied. Durable after [`Dir::sync`] of `target`.
    fn link_into(&self, name: &str, target: &dyn Dir) -> Result<bool> {
        let _ = (name, target);
        Ok(false)
    }
}

/// A held directory lock; released when dropped.
pub trait DirLock: Send + Sync + Debug {}

/// A file opened for writing. Callers serialize `append` and `truncate`; `sync` may run
/// concurrently with them.
pub trait WritableFile: Send + Sync + Debug {
    /// Appends the parts in order. After an error the file may contain any prefix of them.
    fn append(&self, parts: &[&[u8]]) -> Result<()>;
    /// Returns the length in bytes, counting every append that succeeded.
    fn len(&self) -> u64;
    /// Returns true if nothing was appended.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Extends the file to `len` bytes with zeros, if it is shorter: appends up to that length
    /// change neither its length nor its allocated space. Appends still continue where the last one
    /// ended, and [`WritableFile::len`] does not count the zeros. Returns false, without a change,
    /// if the file system does not support it. After an error there may be any number of zeros.
    /// Appends may write those zeros to the disk before they are overwritten.
    fn allocate(&self, len: u64) -> Result<bool> {
        let _ = len;
        Ok(false)
    }
    /// Overwrites bytes that were appended before; must not extend the file. Rewriting the same
    /// bytes makes the next sync cover them even if an earlier sync failed; on most file systems
    /// this takes no space.
    fn overwrite(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let _ = (offset, bytes);
        Err(Error::invalid("this file does not support overwriting"))
    }
    /// Truncates the file to `len` bytes, at most its length. Also removes the zeros of
    /// [`WritableFile::allocate`].
    fn truncate(&self, len: u64) -> Result<()>;
    /// Writes contents and length to stable storage (`fdatasync`). After an error the state of the
    /// contents remains unknown: a later success does not mean that they are durable.
    fn sync(&self) -> Result<()>;
    /// Lets the system begin to write the bytes of `begin` to the disk, and waits until it has
    /// written those of `finish`, which it began before. Bounds what a later sync has to write,
    /// while the caller goes on; nothing is durable before that sync. An error is like one of a
    /// sync. The default is a sync.
    fn write_back(&self, begin: Range<u64>, finish: Range<u64>) -> Result<()> {
        let _ = (begin, finish);
        self.sync()
    }
}

/// A file opened for positional reads.
pub trait RandomAccessFile: Send + Sync + Debug {
    /// Fills `buf` from `offset`. If the file ends before, fails with `Corruption` and the offset.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// Hints that these bytes will be read soon, so that the system may read them ahead. May do
    /// nothing, and errors are ignored.
    fn prefetch(&self, _range: Range<u64>) {}
    /// Returns the length of the file, in bytes.
    fn len(&self) -> Result<u64>;
    /// Returns true if the file is empty.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Returns where the contents end without the zeros at the end of the file, at least `from`.
    fn data_end(&self, from: u64) -> Result<DataEnd> {
        let written = end_without_zeros(self, from, self.len()?)?;
        Ok(DataEnd { written, readable: written })
    }
}

/// Where the contents of a file end that may have unwritten zeros at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataEnd {
    /// The end of what was certainly written.
    pub written: u64,
    /// The end of what may have been written, a few bytes later in an encrypted file.
    pub readable: u64,
}

/// Returns the end of a file of `len` bytes without its trailing zeros, at least `from`.
fn end_without_zeros<F: RandomAccessFile + ?Sized>(file: &F, from: u64, len: u64) -> Result<u64> {
    let window = ZERO_SCAN_WINDOW_BYTES.min(len.saturating_sub(from) as usize);
    let mut buf = vec![0u8; window];
    let mut end = len;
    while end > from {
        let take = buf.len().min((end - from) as usize);
        file.read_exact_at(&mut buf[..take], end - take as u64)?;
        if let Some(last) = buf[..take].iter().rposition(|b| *b != 0) {
            return Ok(end - (take - last - 1) as u64);
        }
        end -= take as u64;
    }
    Ok(from)
}

/// Returns the error for a lock that is already held.
fn locked_error(path: &Path) -> Error {
    let text = format!(
        "{} is locked: another process, or another handle in this one, has it open",
        path.display()
    );
    Error::new(ErrorKind::Locked, text)
}

/// Returns the error of a failed sync, always of kind `Io`: a full disk that is detected at the
/// sync has lost data, so the caller must not retry.
fn sync_error(doing: impl std::fmt::Display, e: &std::io::Error) -> Error {
    let error = Error::io(doing, e);
    if error.kind() == ErrorKind::Io { error } else { error.wrap(ErrorKind::Io, "sync failed") }
}

/// Returns the error for a name of something that is not a regular file.
fn not_regular_error(name: &str) -> Error {
    Error::invalid("it is not a regular file").in_file(name)
}

/// Returns the length of an open file, which must be a regular one.
fn regular_file_len(file: &std::fs::File, name: &str) -> Result<u64> {
    let meta =
        file.metadata().map_err(|e| Error::io(format_args!("stat {name}"), &e).in_file(name))?;
    if meta.is_file() { Ok(meta.len()) } else { Err(not_regular_error(name)) }
}

/// Returns the parent of a path, which may be the current directory.
fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p.to_owned(),
        // The root of a file system is its own parent.
        _ if path.has_root() => path.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Returns the error for a read beyond the end of a file.
fn short_file_error(name: &str, offset: u64, wanted: usize, len: u64) -> Error {
    Error::corruption("file ends early")
        .at(name, offset)
        .expected(format_args!("{wanted} bytes"), format_args!("a file of {len} bytes"))
}
