//! Open directories of the real file system.

use super::file::{WindowsRandomAccessFile, WindowsWritableFile};
use super::system::{self, FileIdentity};
use super::{lock, retry};
use crate::fs::parallel_sync::sync_files_parallel;
use crate::fs::{
    Dir, DirLock, RandomAccessFile, WritableFile, file_name, not_regular_error, regular_file_len,
    sync_error,
};
use perigee_base::{Error, ErrorKind, Result};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_INVALID_FUNCTION, ERROR_INVALID_HANDLE, ERROR_INVALID_PARAMETER,
    ERROR_NOT_SUPPORTED, ERROR_WRITE_PROTECT, GENERIC_READ,
};
use windows_sys::Win32::Storage::FileSystem::{FILE_APPEND_DATA, FILE_FLAG_BACKUP_SEMANTICS};

#[derive(Debug)]
pub(super) struct WindowsDir {
    handle: File,
    identity: FileIdentity,
    /// As passed to `open_dir`, for messages.
    path: PathBuf,
    /// Independent of the current directory; used only where the file system does not know the path
    /// of the handle.
    absolute: PathBuf,
}

impl WindowsDir {
    /// Wraps the handle of the directory at `path`.
    pub fn new(handle: File, path: &Path) -> Result<WindowsDir> {
        let shown = path.display();
        let failed = |e: io::Error| Error::io(format_args!("stat {shown}"), &e);
        if !handle.metadata().map_err(failed)?.is_dir() {
            return Err(Error::invalid(format!("{shown} is not a directory")));
        }
        let identity = system::identity(&handle).map_err(failed)?;
        let absolute = std::path::absolute(path).map_err(failed)?;
        check!(absolute.is_absolute(), "a directory has an absolute path", absolute);
        Ok(WindowsDir { handle, identity, path: path.to_owned(), absolute })
    }

    /// Returns its current path.
    fn location(&self) -> PathBuf {
        system::current_path(&self.handle).unwrap_or_else(|_| self.absolute.clone())
    }

    fn file_path(&self, name: &str) -> Result<PathBuf> {
        file_name::check_file_name(name)?;
        Ok(self.location().join(name))
    }

    fn open_at(&self, name: &str, options: &OpenOptions) -> Result<File> {
        let path = self.file_path(name)?;
        match path.symlink_metadata() {
            Ok(meta) if meta.file_type().is_symlink() => {
                let text = "it is a symbolic link, which is not followed";
                return Err(Error::invalid(text).in_file(name));
            }
            Ok(meta) if meta.is_dir() => {
                return Err(Error::invalid("it is a directory, not a file").in_file(name));
            }
            _ => {}
        }
        let opened = retry::while_in_use(|| options.open(&path));
        opened.map_err(|e| Error::io(format_args!("open {name}"), &e).in_file(name))
    }

    fn stat(&self, name: &str) -> Result<Option<Metadata>> {
        match self.file_path(name)?.symlink_metadata() {
            Ok(meta) => Ok(Some(meta)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(format_args!("stat {name}"), &e).in_file(name)),
        }
    }

    /// Opens or creates the directory `name` inside this one.
    fn open_subdir(&self, name: &str) -> Result<WindowsDir> {
        let path = self.file_path(name)?;
        let failed = |doing: &str, e: &io::Error| {
            Error::io(format_args!("{doing} directory {name}"), e).in_file(name)
        };
        match std::fs::create_dir(&path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("create", &e));
            }
            _ => {}
        }
        // A link to a directory is not one.
        if !path.symlink_metadata().map_err(|e| failed("stat", &e))?.is_dir() {
            return Err(Error::invalid("it is not a directory").in_file(name));
        }
        let handle = open_dir_handle(&path).map_err(|e| failed("open", &e))?;
        WindowsDir::new(handle, &self.path.join(name))
    }

    /// Returns the names of the regular files and of all other entries, both sorted.
    fn list_entries(&self) -> Result<(Vec<String>, Vec<String>)> {
        let failed = |e| Error::io(format_args!("list directory {}", self.path.display()), &e);
        let (mut files, mut others) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(self.location()).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_file = entry.file_type().map_err(failed)?.is_file();
            match entry.file_name().to_str() {
                Some(name) if is_file => files.push(name.to_owned()),
                // The engine creates no names that are not Unicode.
                _ => others.push(entry.file_name().to_string_lossy().into_owned()),
            }
        }
        files.sort_unstable();
        others.sort_unstable();
        Ok((files, others))
    }

    /// Checks that a regular file of that name exists; nothing else is renamed, removed or moved.
    fn check_regular(&self, name: &str) -> Result<()> {
        match self.stat(name)? {
            Some(meta) if meta.is_file() => Ok(()),
            Some(_) => Err(not_regular_error(name)),
            None => Err(Error::new(ErrorKind::NotFound, "the file does not exist").in_file(name)),
        }
    }

    /// Fails if this process held the lock of the directory and lost it.
    fn check_changeable(&self) -> Result<()> {
        lock::check_not_lost(self.identity, &self.path)
    }
}

impl Dir for WindowsDir {
    fn free_space(&self) -> Result<u64> {
        system::free_space(&self.location()).map_err(|e| Error::io("query free space", &e))
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn is_located_at(&self, path: &Path) -> Result<bool> {
        // No access right: only the identity is read.
        let opened =
            OpenOptions::new().access_mode(0).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(path);
        match opened.and_then(|found| system::identity(&found)) {
            Ok(found) => Ok(found == self.identity),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Error::io(format_args!("stat {}", path.display()), &e)),
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
            Some(meta) if meta.is_file() => Ok(Some(meta.len())),
            Some(_) => Err(not_regular_error(name)),
            None => Ok(None),
        }
    }

    fn create(&self, name: &str) -> Result<Arc<dyn WritableFile>> {
        self.check_changeable()?;
        let path = self.file_path(name)?;
        // An existing link is not followed.
        let created = retry::while_in_use(|| File::create_new(&path));
        let file =
            created.map_err(|e| Error::io(format_args!("create {name}"), &e).in_file(name))?;
        Ok(Arc::new(WindowsWritableFile::new(file, name, 0)))
    }

    fn append_to(&self, name: &str) -> Result<Arc<dyn WritableFile>> {
        self.check_changeable()?;
        let file = self.open_at(name, OpenOptions::new().write(true))?;
        let len = regular_file_len(&file, name)?;
        Ok(Arc::new(WindowsWritableFile::new(file, name, len)))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn RandomAccessFile>> {
        let file = self.open_at(name, OpenOptions::new().read(true))?;
        regular_file_len(&file, name)?;
        Ok(Arc::new(WindowsRandomAccessFile::new(file, name)))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.check_changeable()?;
        self.check_regular(from)?;
        if self.stat(to)?.is_some_and(|meta| meta.is_dir()) {
            return Err(
                Error::invalid(format!("rename {from}: the target is a directory")).in_file(to)
            );
        }
        let target = self.file_path(to)?;
        rename_file(&self.file_path(from)?, &target)
            .map_err(|e| Error::io(format_args!("rename {from} to {to}"), &e).in_file(from))?;
        flush_file(&target)
            .map_err(|e| sync_error(format_args!("sync {to} after a rename"), &e).in_file(to))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.check_changeable()?;
        self.check_regular(name)?;
        let path = self.file_path(name)?;
        let done = retry::while_in_use(|| std::fs::remove_file(&path));
        done.map_err(|e| Error::io(format_args!("remove {name}"), &e).in_file(name))
    }

    fn sync(&self) -> Result<()> {
        flush_dir(&self.handle)
            .map_err(|e| sync_error(format_args!("sync directory {}", self.path.display()), &e))
    }

    fn sync_files(&self, files: &[Arc<dyn WritableFile>]) -> Result<()> {
        sync_files_parallel(files)
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirLock>> {
        self.check_changeable()?;
        file_name::check_file_name(name)?;
        let open = || {
            let file =
                self.open_at(name, OpenOptions::new().read(true).write(true).create(true))?;
            regular_file_len(&file, name).map(|_| file)
        };
        lock::lock_file(self.identity, name, &self.path.join(name), open)
    }

    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        self.check_changeable()?;
        Ok(Arc::new(self.open_subdir(name)?))
    }

    fn move_into(&self, name: &str, subdir: &str) -> Result<()> {
        self.check_changeable()?;
        self.check_regular(name)?;
        let target = self.open_subdir(subdir)?;
        // No other process can create the name between the check and the move: the directory lock
        // excludes them.
        if target.stat(name)?.is_some() {
            let text = format!("move {name}: {subdir} contains a file of that name");
            return Err(Error::new(ErrorKind::AlreadyExists, text).in_file(name));
        }
        let moved = target.file_path(name)?;
        rename_file(&self.file_path(name)?, &moved)
            .map_err(|e| Error::io(format_args!("move {name} into {subdir}"), &e).in_file(name))?;
        flush_file(&moved)
            .map_err(|e| sync_error(format_args!("sync {name} after a move"), &e).in_file(name))?;
        target.sync()
    }

    fn link_into(&self, name: &str, target: &dyn Dir) -> Result<bool> {
        self.check_regular(name)?;
        match std::fs::hard_link(self.file_path(name)?, target.path().join(name)) {
            Ok(()) => Ok(true),
            Err(e) if cannot_link(&e) => Ok(false),
            Err(e) => {
                let text = format!("link {name} into {}", target.path().display());
                Err(Error::io(text, &e).in_file(name))
            }
        }
    }
}

/// Opens a directory for listing and, if this user may add files to it, for syncs.
pub(super) fn open_dir_handle(path: &Path) -> io::Result<File> {
    let open = |access| {
        OpenOptions::new().access_mode(access).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(path)
    };
    match open(GENERIC_READ | FILE_APPEND_DATA) {
        Err(e) if is_one_of(&e, &[ERROR_ACCESS_DENIED, ERROR_WRITE_PROTECT]) => open(GENERIC_READ),
        opened => opened,
    }
}

/// Makes the names in a directory durable, if the file system can flush a directory.
pub(super) fn flush_dir(handle: &File) -> io::Result<()> {
    const UNSUPPORTED: [u32; 5] = [
        ERROR_ACCESS_DENIED,
        ERROR_INVALID_FUNCTION,
        ERROR_INVALID_HANDLE,
        ERROR_INVALID_PARAMETER,
        ERROR_NOT_SUPPORTED,
    ];
    match handle.sync_all() {
        Err(e) if is_one_of(&e, &UNSUPPORTED) => Ok(()),
        done => done,
    }
}

/// Renames a file, replacing the target.
fn rename_file(from: &Path, to: &Path) -> io::Result<()> {
    if from == to {
        return Ok(());
    }
    retry::while_in_use(|| std::fs::rename(from, to))
}

/// Flushes a closed file with its metadata, such as a new name.
fn flush_file(path: &Path) -> io::Result<()> {
    retry::while_in_use(|| OpenOptions::new().write(true).open(path))?.sync_all()
}

/// Returns true if the error says that a file must be copied because it cannot be linked.
fn cannot_link(e: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(e.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported)
        || is_one_of(e, &[ERROR_INVALID_FUNCTION, ERROR_NOT_SUPPORTED])
}

fn is_one_of(e: &io::Error, numbers: &[u32]) -> bool {
    e.raw_os_error().is_some_and(|number| numbers.iter().any(|n| i64::from(*n) == number.into()))
}
