//! Files, as the engine sees them: one flat directory, append-only writers, positional readers.
//!
//! Names are plain file names (no separators, no `..`); implementations refuse anything else.
//! Errors carry the file's name; a full disk is `NoSpace`.

use open_file_limiter::OpenFileLimiter;
use perigee_base::{Error, ErrorKind, Result};
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

mod file_name;
pub mod open_file_limiter;
pub mod fault;
pub mod read_only_dir;
pub mod posix;
pub mod memory;
pub mod closable_dir;

/// How to open a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirOpenMode {
    /// It must exist (`NotFound` otherwise).
    Existing,
    /// It is created (mode 0700, its parent synced) if it does not exist.
    CreateIfMissing,
}

/// A file system.
pub trait Fs: Send + Sync + Debug {
    /// Opens a directory.
    fn open_dir(&self, path: &Path, mode: DirOpenMode) -> Result<Arc<dyn Dir>>;
    /// A number that changes at every start of the operating system (not of the process). Two equal
    /// numbers mean that nothing handed to the kernel was lost in between.
    fn boot_id(&self) -> u64;
    /// Bytes of memory that the process may use, if that is known.
    fn memory_limit_bytes(&self) -> Option<u64> {
        None
    }
    /// Bytes of memory that the process has now (its resident set), if that is known.
    fn resident_bytes(&self) -> Option<u64> {
        None
    }
    /// Asks the allocator to give memory that was freed back to the system, where it would keep it.
    /// May take milliseconds.
    fn trim_heap(&self) {}
    /// Files that the process may have open, if that is known.
    fn open_file_limit(&self) -> Option<u64> {
        None
    }
    /// The open files that all databases on this file system share: of the process, on the real
    /// one.
    fn open_file_limiter(&self) -> Arc<OpenFileLimiter> {
        Arc::default()
    }
    /// Renames a directory inside its parent, and makes that durable. `to` may be an empty
    /// directory; anything else there is `AlreadyExists`, and nothing happened. Atomic: after a
    /// crash the directory has one of the two names.
    fn rename_dir(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes an empty directory (`AlreadyExists` if it holds anything).
    fn remove_dir(&self, path: &Path) -> Result<()>;
}

/// One directory of regular files.
pub trait Dir: Send + Sync + Debug {
    /// Its path, for messages.
    fn path(&self) -> &Path;
    /// Whether `path` leads to this very directory now: it may have been renamed, or removed and
    /// made again, since it was opened.
    fn is_located_at(&self, path: &Path) -> Result<bool>;
    /// Names of the regular files in it, sorted.
    fn list(&self) -> Result<Vec<String>>;
    /// Names of everything else in it (directories, links, sockets, and files whose name is not
    /// UTF-8, which is then shown with replacement characters), sorted.
    fn list_non_files(&self) -> Result<Vec<String>>;
    /// Length of a file, or `None` if there is none.
    fn file_len(&self, name: &str) -> Result<Option<u64>>;
    /// Creates a new, empty file (0600); `AlreadyExists` if there is one.
    fn create(&self, name: &str) -> Result<Arc<dyn WritableFile>>;
    /// Opens an existing file for appending, truncating and syncing.
    fn append_to(&self, name: &str) -> Result<Arc<dyn WritableFile>>;
    /// Opens an existing file for reading.
    fn open(&self, name: &str) -> Result<Arc<dyn RandomAccessFile>>;
    /// Renames, replacing the target. Atomic; durable after [`Dir::sync`].
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Removes a file. Durable after [`Dir::sync`].
    fn remove(&self, name: &str) -> Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync(&self) -> Result<()>;
    /// Puts the contents of several files of this directory on stable storage, as [`Append::sync`]
    /// does, perhaps side by side. After an error that is so of all of them: the state of every one
    /// is unknown.
    fn sync_files(&self, files: &[Arc<dyn WritableFile>]) -> Result<()> {
        files.iter().try_for_each(|file| file.sync())
    }
    /// Bytes that can still be written on this file system (`u64::MAX`: without bound, or not
    /// known).
    fn free_space(&self) -> Result<u64> {
        Ok(u64::MAX)
    }
    /// Takes the exclusive lock held on file `name` (created if missing, never removed); `Locked`
    /// if another process, or another handle in this one, holds it. Released on drop.
    fn lock(&self, name: &str) -> Result<Box<dyn DirLock>>;
    /// A directory inside this one, created if missing. Durable after [`Dir::sync`].
    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>>;
    /// Moves a file of this directory into the directory `subdir` inside it (created if missing).
    /// Atomic; durable after [`Dir::sync`] of this directory. `AlreadyExists` if the name is taken
    /// there.
    fn move_into(&self, name: &str, subdir: &str) -> Result<()>;
    /// Gives a file of this directory the same name in `target` too, without copying it (a hard
    /// link). `AlreadyExists` if the name is taken there. False: it cannot be linked (another file
    /// system, one without links, too many of them), and has to be copied. Durable after
    /// [`Dir::sync`] of `target`.
    fn link_into(&self, name: &str, target: &dyn Dir) -> Result<bool> {
        let _ = (name, target);
        Ok(false)
    }
}

/// A held lock.
pub trait DirLock: Send + Sync + Debug {}

/// A file being written. Callers serialise `append` and `truncate`; `sync` may run beside them.
pub trait WritableFile: Send + Sync + Debug {
    /// Appends the parts in order. After an error the file may hold any prefix of them.
    fn append(&self, parts: &[&[u8]]) -> Result<()>;
    /// Bytes in the file, counting every append that succeeded.
    fn len(&self) -> u64;
    /// Whether nothing was appended.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Makes the file `len` bytes long, if it is shorter, with zeros behind what was appended:
    /// appends up to there change neither its length nor the space that it takes. They still go
    /// where the last one ended, and [`Append::len`] counts no zeros. False: this file system
    /// cannot, and nothing happened. After an error there may be any number of zeros.
    fn allocate(&self, len: u64) -> Result<bool> {
        let _ = len;
        Ok(false)
    }
    /// Writes over bytes that were appended before, which must not become more. Who writes the same
    /// bytes once more makes the next sync cover them, whatever became of an earlier one; on most
    /// file systems that takes no space.
    fn overwrite(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let _ = (offset, bytes);
        Err(Error::invalid("this file cannot be written over"))
    }
    /// Cuts the file to `len` bytes (at most its length; zeros of [`Append::allocate`] go too).
    fn truncate(&self, len: u64) -> Result<()>;
    /// Puts the contents and length on stable storage (`fdatasync`). After an error the state of
    /// the contents is unknown for ever: callers must not call again and believe the answer.
    fn sync(&self) -> Result<()>;
}

/// A file being read.
pub trait RandomAccessFile: Send + Sync + Debug {
    /// Fills `buf` from `offset`; a file that ends before is an error of kind `Corruption` with the
    /// offset.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// Says that these bytes will be read soon, so that the system may fetch them meanwhile. A
    /// hint: it may do nothing, and fails silently.
    fn prefetch(&self, _offset: u64, _len: u64) {}
    /// Length of the file.
    fn len(&self) -> Result<u64>;
    /// Whether it holds nothing.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// The error of a lock that somebody else holds.
fn locked_error(path: &Path) -> Error {
    let text = format!(
        "{} is locked: another process, or another handle in this one, has it open",
        path.display()
    );
    Error::new(ErrorKind::Locked, text)
}

/// The error of a read beyond the end.
fn short_file_error(name: &str, offset: u64, wanted: usize, len: u64) -> Error {
    Error::corruption("file ends early")
        .at(name, offset)
        .expected(format_args!("{wanted} bytes"), format_args!("a file of {len} bytes"))
}
