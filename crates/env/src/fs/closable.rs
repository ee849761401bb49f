//! A directory whose files close together: what an open database stands on. When the database is closed no file of it stays
//! open, even while handles, snapshots or iterators exist; each call on one of them answers `Closed` from then on. A call
//! that has begun ends with the file that it began with.
//!
//! Where the system refuses to open another file, idle ones are closed first ([`OpenFiles::retry`]).
//!
//! Must not know what the files hold. The locks guard pointers; no I/O happens under them.

use super::open_files::OpenFiles;
use super::{Append, Dir, DirLock, ReadAt};
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

/// Something open, until it is closed.
#[derive(Debug)]
struct Slot<T: ?Sized>(RwLock<Option<Arc<T>>>);

impl<T: ?Sized> Slot<T> {
    fn new(inner: Arc<T>) -> Arc<Slot<T>> {
        Arc::new(Slot(RwLock::new(Some(inner))))
    }
    #[inline]
    fn get(&self) -> Result<Arc<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(closed_error)
    }
}

/// Something that can be closed.
trait Close: Send + Sync + Debug {
    fn close(&self);
}

impl<T: ?Sized + Send + Sync + Debug> Close for Slot<T> {
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
struct Register {
    next: u64,
    open: BTreeMap<u64, Weak<dyn Close>>,
    closed: bool,
}

/// What a directory and those inside it share.
#[derive(Debug)]
struct Shared {
    register: Mutex<Register>,
    files: Arc<OpenFiles>,
}

impl Shared {
    fn register(&self) -> MutexGuard<'_, Register> {
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Lists something that was opened; what comes after the close is closed at once.
    fn list<T: ?Sized + Send + Sync + Debug + 'static>(self: &Arc<Self>, inner: Arc<T>) -> Result<Open<T>> {
        let slot = Slot::new(inner);
        let mut register = self.register();
        if register.closed {
            drop(register);
            return Err(closed_error());
        }
        register.next += 1;
        let number = register.next;
        let weak: Weak<Slot<T>> = Arc::downgrade(&slot);
        register.open.insert(number, weak);
        drop(register);
        Ok(Open { slot, number, shared: Arc::clone(self) })
    }
}

/// Something open and listed.
#[derive(Debug)]
struct Open<T: ?Sized> {
    slot: Arc<Slot<T>>,
    number: u64,
    shared: Arc<Shared>,
}

impl<T: ?Sized> Drop for Open<T> {
    fn drop(&mut self) {
        let gone = self.shared.register().open.remove(&self.number);
        drop(gone);
    }
}

/// The directory.
#[derive(Debug)]
pub struct ClosableDir {
    path: PathBuf,
    inner: Open<dyn Dir>,
}

impl ClosableDir {
    /// Over `inner`, with the open files of its file system.
    ///
    /// # Errors
    /// None in practice: a new directory is open.
    pub fn over(inner: Arc<dyn Dir>, files: Arc<OpenFiles>) -> Result<ClosableDir> {
        Self::inside(inner, &Arc::new(Shared { register: Mutex::default(), files }))
    }
    fn inside(inner: Arc<dyn Dir>, shared: &Arc<Shared>) -> Result<ClosableDir> {
        Ok(ClosableDir { path: inner.path().to_owned(), inner: shared.list(inner)? })
    }
    /// Closes everything that was opened here, and the directory itself.
    pub fn close(&self) {
        if bug::on(Bug::CloseKeepsFiles) {
            return;
        }
        let all = {
            let mut register = self.inner.shared.register();
            register.closed = true;
            std::mem::take(&mut register.open)
        };
        all.values().filter_map(Weak::upgrade).for_each(|open| open.close());
    }
    fn get(&self) -> Result<Arc<dyn Dir>> {
        self.inner.slot.get()
    }
    fn retry<T>(&self, open: impl Fn(&dyn Dir) -> Result<T>) -> Result<T> {
        let dir = self.get()?;
        self.inner.shared.files.retry(|| open(&*dir))
    }
    fn list_append(&self, file: Arc<dyn Append>) -> Result<Arc<dyn Append>> {
        Ok(Arc::new(ClosableAppend(self.inner.shared.list(file)?)))
    }
}

impl Dir for ClosableDir {
    fn path(&self) -> &Path {
        &self.path
    }
    fn is_at(&self, path: &Path) -> Result<bool> {
        self.get()?.is_at(path)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.retry(|dir| dir.list())
    }
    fn list_others(&self) -> Result<Vec<String>> {
        self.retry(|dir| dir.list_others())
    }
    fn file_len(&self, name: &str) -> Result<Option<u64>> {
        self.get()?.file_len(name)
    }
    fn create(&self, name: &str) -> Result<Arc<dyn Append>> {
        self.list_append(self.retry(|dir| dir.create(name))?)
    }
    fn append_to(&self, name: &str) -> Result<Arc<dyn Append>> {
        self.list_append(self.retry(|dir| dir.append_to(name))?)
    }
    fn open(&self, name: &str) -> Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(ClosableRead(self.inner.shared.list(self.retry(|dir| dir.open(name))?)?)))
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
    fn sync_files(&self, files: &[Arc<dyn Append>]) -> Result<()> {
        self.get()?.sync_files(files)
    }
    fn free_space(&self) -> Result<u64> {
        self.get()?.free_space()
    }
    /// Its owner lets the lock go.
    fn lock(&self, name: &str) -> Result<Box<dyn DirLock>> {
        self.retry(|dir| dir.lock(name))
    }
    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Arc::new(Self::inside(self.retry(|dir| dir.subdir(name))?, &self.inner.shared)?))
    }
    fn move_into(&self, name: &str, subdir: &str) -> Result<()> {
        self.retry(|dir| dir.move_into(name, subdir))
    }
    fn link_into(&self, name: &str, target: &dyn Dir) -> Result<bool> {
        self.retry(|dir| dir.link_into(name, target))
    }
}

#[derive(Debug)]
struct ClosableAppend(Open<dyn Append>);

impl Append for ClosableAppend {
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
    fn rewrite(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.slot.get()?.rewrite(offset, bytes)
    }
    fn truncate(&self, len: u64) -> Result<()> {
        self.0.slot.get()?.truncate(len)
    }
    fn sync(&self) -> Result<()> {
        self.0.slot.get()?.sync()
    }
}

#[derive(Debug)]
struct ClosableRead(Open<dyn ReadAt>);

impl ReadAt for ClosableRead {
    #[inline]
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.slot.get()?.read_exact_at(buf, offset)
    }
    fn will_need(&self, offset: u64, len: u64) {
        if let Ok(file) = self.0.slot.get() {
            file.will_need(offset, len);
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
    use crate::fs::{Fs, OpenDir};

    #[test]
    fn a_close_closes_everything_whoever_holds_it() {
        let disk = SimDisk::new(1);
        let inner = disk.open_dir(Path::new("/db"), OpenDir::CreateIfMissing).unwrap();
        let dir = ClosableDir::over(inner, disk.files()).unwrap();
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
    fn too_many_open_files_is_an_error_that_names_it() {
        let disk = SimDisk::new(1);
        let inner = disk.open_dir(Path::new("/db"), OpenDir::CreateIfMissing).unwrap();
        let dir = ClosableDir::over(inner, disk.files()).unwrap();
        disk.set_open_files(Some(2));
        let held = [dir.create("a").unwrap(), dir.create("b").unwrap()];
        let e = dir.create("c").unwrap_err();
        assert_eq!((e.kind(), e.os_error()), (ErrorKind::Io, Some(24)), "{e}");
        assert_eq!(dir.list().unwrap(), ["a", "b"], "nothing happened");
        drop(held);
        dir.create("c").unwrap();
    }
}
