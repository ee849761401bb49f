//! A directory whose files close together: what an open database stands on. When the database is
//! closed no file of it stays open, even while handles, snapshots or iterators exist; each call on
//! one of them answers `Closed` from then on. A call that has begun ends with the file that it
//! began with.
//!
//! Where the system refuses to open another file, idle ones are closed first
//! ([`OpenFileLimiter::open_with_retry`]).
//!
//! Must not know what the files hold. The locks guard pointers; no I/O happens under them.

use super::open_file_limiter::OpenFileLimiter;
use super::{Dir, DirLock, RandomAccessFile, WritableFile};
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

/// Something open, until it is closed.
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

/// Something that can be closed.
trait CloseHandle: Send + Sync + Debug {
    fn close(&self);
}

impl<T: ?Sized + Send + Sync + Debug> CloseHandle for ClosableSlot<T> {
    fn close(&self) {
        let gone = self.0.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(gone);
    }
}

#[cold]
fn closed_error() -> Error {
    Error::new(ErrorKind::Closed, "the database is closed")
}

/// Everything that is open, by number.
#[derive(Debug, Default)]
struct HandleRegistry {
    next: u64,
    open: BTreeMap<u64, Weak<dyn CloseHandle>>,
    closed: bool,
}

/// What a directory and those inside it share.
#[derive(Debug)]
struct ClosableDirShared {
    registry: Mutex<HandleRegistry>,
    files: Arc<OpenFileLimiter>,
}

impl ClosableDirShared {
    fn lock_registry(&self) -> MutexGuard<'_, HandleRegistry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Lists something that was opened; what comes after the close is closed at once.
    fn register_handle<T: ?Sized + Send + Sync + Debug + 'static>(
        self: &Arc<Self>,
        inner: Arc<T>,
    ) -> Result<RegisteredHandle<T>> {
        let slot = ClosableSlot::new(inner);
        let mut register = self.lock_registry();
        if register.closed {
            drop(register);
            return Err(closed_error());
        }
        register.next += 1;
        let number = register.next;
        let weak: Weak<ClosableSlot<T>> = Arc::downgrade(&slot);
        register.open.insert(number, weak);
        drop(register);
        Ok(RegisteredHandle { slot, number, shared: Arc::clone(self) })
    }
}

/// Something open and listed.
#[derive(Debug)]
struct RegisteredHandle<T: ?Sized> {
    slot: Arc<ClosableSlot<T>>,
    number: u64,
    shared: Arc<ClosableDirShared>,
}

impl<T: ?Sized> Drop for RegisteredHandle<T> {
    fn drop(&mut self) {
        let gone = self.shared.lock_registry().open.remove(&self.number);
        drop(gone);
    }
}

/// The directory.
#[derive(Debug)]
pub struct ClosableDir {
    path: PathBuf,
    inner: RegisteredHandle<dyn Dir>,
}

impl ClosableDir {
    /// Over `inner`, with the open files of its file system.
    ///
    /// # Errors
    /// None in practice: a new directory is open.
    pub fn new(inner: Arc<dyn Dir>, files: Arc<OpenFileLimiter>) -> Result<ClosableDir> {
        Self::with_shared(inner, &Arc::new(ClosableDirShared { registry: Mutex::default(), files }))
    }
    fn with_shared(inner: Arc<dyn Dir>, shared: &Arc<ClosableDirShared>) -> Result<ClosableDir> {
        Ok(ClosableDir { path: inner.path().to_owned(), inner: shared.register_handle(inner)? })
    }
    /// Closes everything that was opened here, and the directory itself.
    pub fn close(&self) {
        if bug::is_active(Bug::CloseKeepsFiles) {
            return;
        }
        let all = {
            let mut register = self.inner.shared.lock_registry();
            register.closed = true;
            std::mem::take(&mut register.open)
        };
        all.values().filter_map(Weak::upgrade).for_each(|open| open.close());
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
    /// Its owner lets the lock go.
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
    /// 0 after the close.
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
}

#[derive(Debug)]
struct ClosableRandomAccessFile(RegisteredHandle<dyn RandomAccessFile>);

impl RandomAccessFile for ClosableRandomAccessFile {
    #[inline]
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.slot.get()?.read_exact_at(buf, offset)
    }
    fn prefetch(&self, offset: u64, len: u64) {
        if let Ok(file) = self.0.slot.get() {
            file.prefetch(offset, len);
        }
    }
    fn len(&self) -> Result<u64> {
        self.0.slot.get()?.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::memory::SimDisk;
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
        assert_eq!((e.kind(), e.os_error()), (ErrorKind::Io, Some(24)), "{e}");
        assert_eq!(dir.list().unwrap(), ["a", "b"], "nothing happened");
        drop(held);
        dir.create("c").unwrap();
    }
}
