//! Open directories of the real file system.

use super::file::{PosixRandomAccessFile, PosixWritableFile};
use super::{DIR_FLAGS, DIR_MODE, FILE_FLAGS, FILE_MODE, lock, os_error, set_mode, sync};
use crate::fork::ForkGuard;
use crate::fs::parallel_sync::sync_files_parallel;
use crate::fs::{
    Dir, DirLock, RandomAccessFile, WritableFile, file_name, not_regular_error, regular_file_len,
    sync_error,
};
use perigee_base::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct PosixDir {
    handle: File,
    path: PathBuf,
    fork_guard: ForkGuard,
}

impl PosixDir {
    /// Wraps an open directory. Refuses one that is world-writable without the sticky bit, because
    /// any user could replace files in it.
    pub fn new(handle: File, path: PathBuf) -> Result<PosixDir> {
        let stat = rustix::fs::fstat(&handle)
            .map_err(|e| os_error(format_args!("stat {}", path.display()), e))?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        if mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX) {
            let shown = path.display();
            return Err(Error::invalid(format!(
                "directory {shown} is world-writable; run: chmod o-w {shown}"
            )));
        }
        Ok(PosixDir { handle, path, fork_guard: ForkGuard::new() })
    }

    fn open_at(&self, name: &str, flags: OFlags) -> Result<File> {
        file_name::check_file_name(name)?;
        let opened = rustix::io::retry_on_intr(|| {
            rustix::fs::openat(&self.handle, name, flags | FILE_FLAGS, FILE_MODE)
        });
        opened.map(File::from).map_err(|e| match e {
            Errno::LOOP => {
                Error::invalid("it is a symbolic link, which is not followed").in_file(name)
            }
            Errno::ISDIR => Error::invalid("it is a directory, not a file").in_file(name),
            Errno::NXIO => not_regular_error(name),
            e => os_error(format_args!("open {name}"), e).in_file(name),
        })
    }

    fn stat(&self, name: &str) -> Result<Option<Stat>> {
        file_name::check_file_name(name)?;
        match rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(os_error(format_args!("stat {name}"), e).in_file(name)),
        }
    }

    /// Opens or creates the directory `name` inside this one.
    fn open_subdir(&self, name: &str) -> Result<PosixDir> {
        file_name::check_file_name(name)?;
        let created = match rustix::fs::mkdirat(&self.handle, name, DIR_MODE) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(e) => {
                return Err(os_error(format_args!("create directory {name}"), e).in_file(name));
            }
        };
        let flags = DIR_FLAGS | OFlags::NOFOLLOW;
        let opened = rustix::fs::openat(&self.handle, name, flags, Mode::empty());
        let handle = opened.map_err(|e| match e {
            Errno::NOTDIR | Errno::LOOP => Error::invalid("it is not a directory").in_file(name),
            e => os_error(format_args!("open directory {name}"), e).in_file(name),
        })?;
        if created {
            set_mode(&handle, DIR_MODE, name)?;
        }
        PosixDir::new(File::from(handle), self.path.join(name))
    }

    /// Returns the names of the regular files and of all other entries, both sorted.
    fn list_entries(&self) -> Result<(Vec<String>, Vec<String>)> {
        let failed = |e| os_error(format_args!("list directory {}", self.path.display()), e);
        let (mut files, mut others) = (Vec::new(), Vec::new());
        for entry in rustix::fs::Dir::read_from(&self.handle).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // The engine creates no names that are not UTF-8.
            let Ok(name) = entry.file_name().to_str() else {
                others.push(entry.file_name().to_string_lossy().into_owned());
                continue;
            };
            if name == "." || name == ".." {
                continue;
            }
            let is_file = match entry.file_type() {
                FileType::RegularFile => true,
                // Some file systems do not return the type in the listing.
                FileType::Unknown => {
                    self.stat(name)?.is_some_and(|s| FileType::from_raw_mode(s.st_mode).is_file())
                }
                _ => false,
            };
            if is_file { &mut files } else { &mut others }.push(name.to_owned());
        }
        files.sort_unstable();
        others.sort_unstable();
        Ok((files, others))
    }

    /// Checks that a regular file of that name exists; nothing else is renamed, removed or moved.
    fn check_regular(&self, name: &str) -> Result<()> {
        match self.stat(name)? {
            Some(stat) if FileType::from_raw_mode(stat.st_mode).is_file() => Ok(()),
            Some(_) => Err(not_regular_error(name)),
            None => Err(Error::new(ErrorKind::NotFound, "the file does not exist").in_file(name)),
        }
    }
}

impl Dir for PosixDir {
    fn free_space(&self) -> Result<u64> {
        let stat =
            rustix::fs::fstatvfs(&self.handle).map_err(|e| os_error("query free space", e))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn is_located_at(&self, path: &Path) -> Result<bool> {
        let failed = |e| os_error(format_args!("stat {}", path.display()), e);
        let opened = rustix::fs::fstat(&self.handle).map_err(failed)?;
        match rustix::fs::stat(path) {
            Ok(found) => Ok((found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(failed(e)),
        }
    }

    fn list(&self) -> Result<Vec<String>> {
        Ok(self.list_entries()?.0)
    }

    fn list_non_files(&self) -> Result<Vec<String>> {
        Ok(self.list_entries()?.1)
    }

    fn file_len(&self, name: &str) -> Result<Option<u64>> {
        match self.stat(name)? {
            Some(stat) if FileType::from_raw_mode(stat.st_mode).is_file() => {
                Ok(Some(u64::try_from(stat.st_size).unwrap_or(0)))
            }
            Some(_) => Err(not_regular_error(name)),
            None => Ok(None),
        }
    }

    fn create(&self, name: &str) -> Result<Arc<dyn WritableFile>> {
        self.fork_guard.check()?;
        let file = self.open_at(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        set_mode(&file, FILE_MODE, name)?;
        Ok(Arc::new(PosixWritableFile::new(file, name, 0)))
    }

    fn append_to(&self, name: &str) -> Result<Arc<dyn WritableFile>> {
        self.fork_guard.check()?;
        let file = self.open_at(name, OFlags::WRONLY)?;
        let len = regular_file_len(&file, name)?;
        Ok(Arc::new(PosixWritableFile::new(file, name, len)))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn RandomAccessFile>> {
        let file = self.open_at(name, OFlags::RDONLY)?;
        regular_file_len(&file, name)?;
        Ok(Arc::new(PosixRandomAccessFile::new(file, name)))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.fork_guard.check()?;
        self.check_regular(from)?;
        file_name::check_file_name(to)?;
        if let Some(stat) = self.stat(to)?
            && FileType::from_raw_mode(stat.st_mode).is_dir()
        {
            return Err(
                Error::invalid(format!("rename {from}: the target is a directory")).in_file(to)
            );
        }
        let done = rustix::fs::renameat(&self.handle, from, &self.handle, to);
        done.map_err(|e| os_error(format_args!("rename {from} to {to}"), e).in_file(from))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.fork_guard.check()?;
        self.check_regular(name)?;
        let done = rustix::fs::unlinkat(&self.handle, name, AtFlags::empty());
        done.map_err(|e| os_error(format_args!("remove {name}"), e).in_file(name))
    }

    fn sync(&self) -> Result<()> {
        let done = sync::sync_dir(&self.handle);
        done.map_err(|e| sync_error(format_args!("sync directory {}", self.path.display()), &e))
    }

    fn sync_files(&self, files: &[Arc<dyn WritableFile>]) -> Result<()> {
        self.fork_guard.check()?;
        sync_files_parallel(files)
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirLock>> {
        self.fork_guard.check()?;
        let file = match self.open_at(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL) {
            Ok(file) => {
                set_mode(&file, FILE_MODE, name)?;
                file
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => self.open_at(name, OFlags::RDWR)?,
            Err(e) => return Err(e),
        };
        regular_file_len(&file, name)?;
        lock::lock_file(file, &self.path.join(name))
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        self.fork_guard.check()?;
        Ok(Arc::new(self.open_subdir(name)?))
    }

    fn move_into(&self, name: &str, subdir: &str) -> Result<()> {
        self.fork_guard.check()?;
        self.check_regular(name)?;
        let target = self.open_subdir(subdir)?;
        // No other process can create the name between the check and the move: the directory lock
        // excludes them.
        if target.stat(name)?.is_some() {
            let text = format!("move {name}: {subdir} contains a file of that name");
            return Err(Error::new(ErrorKind::AlreadyExists, text).in_file(name));
        }
        let done = rustix::fs::renameat(&self.handle, name, &target.handle, name);
        done.map_err(|e| os_error(format_args!("move {name} into {subdir}"), e).in_file(name))?;
        // The target is synced first: a file system without a journal may then show both names
        // after a crash, but never none.
        target.sync()
    }

    fn link_into(&self, name: &str, target: &dyn Dir) -> Result<bool> {
        self.fork_guard.check()?;
        self.check_regular(name)?;
        let path = target.path();
        let opened = rustix::fs::open(path, DIR_FLAGS | OFlags::NOFOLLOW, Mode::empty());
        let target_handle =
            opened.map_err(|e| os_error(format_args!("open directory {}", path.display()), e))?;
        match rustix::fs::linkat(&self.handle, name, &target_handle, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::NOSYS) => {
                Ok(false)
            }
            Err(e) => {
                Err(os_error(format_args!("link {name} into {}", path.display()), e).in_file(name))
            }
        }
    }
}
