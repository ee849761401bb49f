//! A directory whose files are closed together; used by an open database. After the database is
//! closed none of its files stays open, even while handles, snapshots or iterators exist: each call
//! on one of them fails with `Closed`. Calls in progress finish with the file they started with.
//!
//! If the system refuses to open another file, idle ones are closed first
//! ([`OpenFileLimiter::open_with_retry`]).
//!
//! The locks guard pointers only; no I/O happens under them.

use super::open_file_limiter::OpenFileLimiter;
use super::{DataEnd, Dir, DirLock, RandomAccessFile, WritableFile};
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

/// An open handle that can be closed once for all its users.
#[derive(Debug)]
struct ClosableSlot<T: ?Sized>(RwLock<Option<Arc<T>>>);

impl<T: ?Sized> ClosableSlot<T> {
    fn new(inner: Arc<T>) -> Arc<ClosableSlot<T>> {
        Arc::new(ClosableSlot(RwLock::new(Some(inner))))
    }
    #[inline]
    fn get(&self) -> Result<Arc<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(closed_error)
    }
}

/// A handle that can be closed.
trait CloseHandle: Send + Sync + Debug {
    fn close(&self);
}

impl<T: ?Sized + Send + Sync + Debug> CloseHandle for ClosableSlot<T> {
    fn close(&self) {
        let handle = self.0.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(handle);
    }
}

#[cold]
fn closed_error() -> Error {
    Error::new(ErrorKind::Closed, "the database is closed")
}

/// All open handles, by number.
#[derive(Debug, Default)]
struct HandleRegistry {
    next: u64,
    open: BTreeMap<u64, Weak<dyn CloseHandle>>,
    closed: bool,
}

/// State shared by a directory and its subdirectories.
#[derive(Debug)]
struct ClosableDirShared {
    registry: Mutex<HandleRegistry>,
    files: Arc<OpenFileLimiter>,
}

impl ClosableDirShared {
    fn lock_registry(&self) -> MutexGuard<'_, HandleRegistry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Registers an open handle; fails with `Closed` after the directory was closed.
    fn register_handle<T: ?Sized + Send + Sync + Debug + 'static>(
        self: &Arc<Self>,
        inner: Arc<T>,
    ) -> Result<RegisteredHandle<T>> {
        let slot = ClosableSlot::new(inner);
        let mut registry = self.lock_registry();
        if registry.closed {
            drop(registry);
            return Err(closed_error());
        }
        registry.next += 1;
        let number = registry.next;
        let weak: Weak<ClosableSlot<T>> = Arc::downgrade(&slot);
        let before = registry.open.insert(number, weak);
        check!(before.is_none(), "a number stands for one handle", number);
        drop(registry);
        Ok(RegisteredHandle { slot, number, shared: Arc::clone(self) })
    }
}

/// An open handle in the registry.
#[derive(Debug)]
struct RegisteredHandle<T: ?Sized> {
    slot: Arc<ClosableSlot<T>>,
    number: u64,
    shared: Arc<ClosableDirShared>,
}

impl<T: ?Sized> Drop for RegisteredHandle<T> {
    fn drop(&mut self) {
        let mut registry = self.shared.lock_registry();
        let handle = registry.open.remove(&self.number);
        check!(
            handle.is_some() || registry.closed,
            "a handle is registered until it is dropped or the directory is closed",
            self.number
        );
        drop(registry);
        drop(handle);
    }
}

/// A directory that can be closed with everything opened in it.
#[derive(Debug)]
pub struct ClosableDir {
    path: PathBuf,
    inner: RegisteredHandle<dyn Dir>,
}

impl ClosableDir {
    /// Wraps `inner`; opens go through the limiter `files`.
    ///
    /// # Errors
    /// None in practice: a new directory is not closed.
    pub fn new(inner: Arc<dyn Dir>, files: Arc<OpenFileLimiter>) -> Result<ClosableDir> {
        Self::with_shared(inner, &Arc::new(ClosableDirShared { registry: Mutex::default(), files }))
    }
    fn with_shared(inner: Arc<dyn Dir>, shared: &Arc<ClosableDirShared>) -> Result<ClosableDir> {
        Ok(ClosableDir { path: inner.path().to_owned(), inner: shared.register_handle(inner)? })
    }
    /// Closes every handle opened in this directory, and the directory itself.
    pub fn close(&self) {
        if bug::is_active(Bug::CloseKeepsFiles) {
            return;
        }
        let all = {
            let mut registry = self.inner.shared.lock_registry();
            registry.closed = true;
            std::mem::take(&mut registry.open)
        };
        all.values().filter_map(Weak::upgrade).for_each(|handle| handle.close());
    }
    fn get(&self) -> Result<Arc<dyn Dir>> {
        self.inner.slot.get()
    }
    fn open_with_retry<T>(&self, open: impl Fn(&dyn Dir) -> Result<T>) -> Result<T> {
        let dir = self.get()?;
        self.inner.shared.files.open_with_retry(|| open(&*dir))
    }
    fn register_writable(&self, file: Arc<dyn WritableFile>) -> Result<Arc<dyn WritableFile>> {
        Ok(Arc::new(ClosableWritableFile(self.inner.shared.register_handle(file)?)))
    }
}

impl Dir for ClosableDir {
    fn path(&self) -> &Path {
        &self.path
    }
    fn is_located_at(&self, path: &Path) -> Result<bool> {
        self.get()?.is_located_at(path)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.open_with_retry(|dir| dir.list())
    }
    fn list_non_files(&self) -> Result<Vec<String>> {
        self.open_with_retry(|dir| dir.list_non_files())
    }
    fn file_len(&self, name: &str) -> Result<Option<u64>> {
        self.get()?.file_len(name)
    }
    fn create(&self, name: &str) -> Result<Arc<dyn WritableFile>> {
        self.register_writable(self.open_with_retry(|dir| dir.create(name))?)
    }
    fn append_to(&self, name: &str) -> Result<Arc<dyn WritableFile>> {
        self.register_writable(self.open_with_retry(|dir| dir.append_to(name))?)
    }
    fn open(&self, name: &str) -> Result<Arc<dyn RandomAccessFile>> {
        Ok(Arc::new(ClosableRandomAccessFile(
            self.inner.shared.register_handle(self.open_with_retry(|dir| dir.open(name))?)?,
        )))
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.get()?.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.get()?.remove(name)
    }
    fn sync(&self) -> Result<()> {
        self.get()?.sync()
    }
    fn sync_files(&self, files: &[Arc<dyn WritableFile>]) -> Result<()> {
        self.get()?.sync_files(files)
    }
    fn free_space(&self) -> Result<u64> {
        self.get()?.free_space()
    }
    /// The lock is not registered: its owner releases it.
    fn lock(&self, name: &str) -> Result<Box<dyn DirLock>> {
        self.open_with_retry(|dir| dir.lock(name))
    }
    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Arc::new(Self::with_shared(
            self.open_with_retry(|dir| dir.subdir(name))?,
            &self.inner.shared,
        )?))
    }
    fn move_into(&self, name: &str, subdir: &str) -> Result<()> {
        self.open_with_retry(|dir| dir.move_into(name, subdir))
    }
    fn link_into(&self, name: &str, target: &dyn Dir) -> Result<bool> {
        self.open_with_retry(|dir| dir.link_into(name, target))
    }
}

#[derive(Debug)]
struct ClosableWritableFile(RegisteredHandle<dyn WritableFile>);

impl WritableFile for ClosableWritableFile {
    fn append(&self, parts: &[&[u8]]) -> Result<()> {
        self.0.slot.get()?.append(parts)
    }
    /// Returns 0 after the close.
    fn len(&self) -> u64 {
        self.0.slot.get().map_or(0, |file| file.len())
    }
    fn allocate(&self, len: u64) -> Result<bool> {
        self.0.slot.get()?.allocate(len)
    }
    fn overwrite(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.slot.get()?.overwrite(offset, bytes)
    }
    fn truncate(&self, len: u64) -> Result<()> {
        self.0.slot.get()?.truncate(len)
    }
    fn sync(&self) -> Result<()> {
        self.0.slot.get()?.sync()
    }
    fn write_back(&self, begin: Range<u64>, finish: Range<u64>) -> Result<()> {
        self.0.slot.get()?.write_back(begin, finish)
    }
}

#[derive(Debug)]
struct ClosableRandomAccessFile(RegisteredHandle<dyn RandomAccessFile>);

impl RandomAccessFile for ClosableRandomAccessFile {
    #[inline]
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.slot.get()?.read_exact_at(buf, offset)
    }
    fn prefetch(&self, range: Range<u64>) {
        if let Ok(file) = self.0.slot.get() {
            file.prefetch(range);
        }
    }
    fn len(&self) -> Result<u64> {
        self.0.slot.get()?.len()
    }
    fn data_end(&self, from: u64) -> Result<DataEnd> {
        self.0.slot.get()?.data_end(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::memory::SimDisk;
    use crate::fs::os_error::TOO_MANY_FILES;
    use crate::fs::{DirOpenMode, Fs};

    #[test]
    fn close_closes_every_open_handle() {
        let disk = SimDisk::new(1);
        let inner = disk.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
        let dir = ClosableDir::new(inner, disk.open_file_limiter()).unwrap();
        let (log, inside) = (dir.create("log").unwrap(), dir.subdir("trash").unwrap());
        log.append(&[b"abc"]).unwrap();
        let (read, deep) = (dir.open("log").unwrap(), inside.create("x").unwrap());
        drop(dir.open("log").unwrap());
        assert_eq!(disk.open_handles(), 3);
        dir.close();
        assert_eq!(disk.open_handles(), 0);
        let closed = |e: Error| assert_eq!(e.kind(), ErrorKind::Closed, "{e}");
        closed(read.read_exact_at(&mut [0], 0).unwrap_err());
        closed(log.append(&[b"d"]).unwrap_err());
        closed(deep.sync().unwrap_err());
        closed(inside.list().unwrap_err());
        closed(dir.open("log").unwrap_err());
        assert_eq!(log.len(), 0);
        dir.close();
    }

    #[test]
    fn too_many_open_files_reports_emfile() {
        let disk = SimDisk::new(1);
        let inner = disk.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
        let dir = ClosableDir::new(inner, disk.open_file_limiter()).unwrap();
        disk.set_open_file_limit(Some(2));
        let held = [dir.create("a").unwrap(), dir.create("b").unwrap()];
        let e = dir.create("c").unwrap_err();
        assert_eq!((e.kind(), e.os_error()), (ErrorKind::Io, Some(TOO_MANY_FILES[0])), "{e}");
        assert_eq!(dir.list().unwrap(), ["a", "b"], "the failed create left no file");
        drop(held);
        dir.create("c").unwrap();
    }
}
