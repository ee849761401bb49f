//! A directory that refuses every change; used by a read-only database. The engine does not write
//! in read-only mode; this enforces it.

use super::{Dir, DirLock, RandomAccessFile, WritableFile};
use perigee_base::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A read-only view of another directory. Pinned files stay readable even if they are removed.
#[derive(Debug)]
pub struct ReadOnlyDir(Arc<dyn Dir>, Mutex<BTreeMap<String, Arc<dyn RandomAccessFile>>>);

impl ReadOnlyDir {
    /// Wraps `inner`.
    pub fn wrap(inner: Arc<dyn Dir>) -> Arc<dyn Dir> {
        Self::new(inner)
    }
    /// Wraps `inner`; the concrete type can pin files.
    pub fn new(inner: Arc<dyn Dir>) -> Arc<ReadOnlyDir> {
        Arc::new(ReadOnlyDir(inner, Mutex::default()))
    }
    fn lock_pinned(&self) -> MutexGuard<'_, BTreeMap<String, Arc<dyn RandomAccessFile>>> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Opens and pins the file, unless it is pinned: from then on [`Dir::open`] returns this
    /// handle, even after the file was removed.
    ///
    /// # Errors
    /// Errors of [`Dir::open`]; the file is not pinned then.
    pub fn pin_file(&self, name: &str) -> Result<()> {
        if !self.lock_pinned().contains_key(name) {
            let file = self.0.open(name)?;
            self.lock_pinned().insert(name.to_owned(), file);
        }
        Ok(())
    }
    /// Returns the number of pinned files.
    pub fn pinned_files(&self) -> usize {
        self.lock_pinned().len()
    }
    /// Unpins the files that are not in `names`.
    pub fn retain_pinned(&self, names: &BTreeSet<String>) {
        self.lock_pinned().retain(|name, _| names.contains(name));
    }
    /// Unpins all files; handles that were opened before stay valid.
    pub fn unpin_all(&self) {
        let all = std::mem::take(&mut *self.lock_pinned());
        drop(all);
    }
}

/// Returns the error of every change.
pub fn read_only_error() -> Error {
    Error::new(
        ErrorKind::ReadOnly,
        "the database was opened read-only; open it without `read_only` to write",
    )
}

impl Dir for ReadOnlyDir {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn is_located_at(&self, path: &Path) -> Result<bool> {
        self.0.is_located_at(path)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.0.list()
    }
    fn list_non_files(&self) -> Result<Vec<String>> {
        self.0.list_non_files()
    }
    fn file_len(&self, name: &str) -> Result<Option<u64>> {
        self.0.file_len(name)
    }
    fn create(&self, name: &str) -> Result<Arc<dyn WritableFile>> {
        Err(read_only_error().in_file(name))
    }
    fn append_to(&self, name: &str) -> Result<Arc<dyn WritableFile>> {
        Err(read_only_error().in_file(name))
    }
    fn open(&self, name: &str) -> Result<Arc<dyn RandomAccessFile>> {
        let held = self.lock_pinned().get(name).cloned();
        held.map_or_else(|| self.0.open(name), Ok)
    }
    fn rename(&self, from: &str, _to: &str) -> Result<()> {
        Err(read_only_error().in_file(from))
    }
    fn remove(&self, name: &str) -> Result<()> {
        Err(read_only_error().in_file(name))
    }
    fn sync(&self) -> Result<()> {
        Err(read_only_error())
    }
    fn lock(&self, name: &str) -> Result<Box<dyn DirLock>> {
        Err(read_only_error().in_file(name))
    }
    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Err(read_only_error().in_file(name))
    }
    fn move_into(&self, name: &str, _subdir: &str) -> Result<()> {
        Err(read_only_error().in_file(name))
    }
}

/// A file that refuses every write.
#[derive(Debug)]
pub struct ReadOnlyFile;

impl WritableFile for ReadOnlyFile {
    fn append(&self, _parts: &[&[u8]]) -> Result<()> {
        Err(read_only_error())
    }
    fn len(&self) -> u64 {
        0
    }
    fn truncate(&self, _len: u64) -> Result<()> {
        Err(read_only_error())
    }
    fn sync(&self) -> Result<()> {
        Err(read_only_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::memory::SimDisk;
    use crate::fs::{DirOpenMode, Fs};

    #[test]
    fn pinned_files_survive_removal() {
        let disk = SimDisk::new(1);
        let real = disk.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
        real.create("f").unwrap().append(&[b"x"]).unwrap();
        let dir = ReadOnlyDir::new(Arc::clone(&real));
        assert_eq!(dir.pin_file("g").unwrap_err().kind(), ErrorKind::NotFound);
        dir.pin_file("f").unwrap();
        real.create("h").unwrap();
        dir.pin_file("h").unwrap();
        real.remove("f").unwrap();
        dir.pin_file("f").unwrap();
        dir.retain_pinned(&BTreeSet::from(["f".to_owned(), "g".to_owned()]));
        assert_eq!(dir.pinned_files(), 1, "h is not kept");
        let file = dir.open("f").unwrap();
        dir.unpin_all();
        assert!(dir.open("f").is_err());
        assert_eq!(file.len().unwrap(), 1);
    }

    #[test]
    fn reads_succeed_and_changes_are_refused() {
        let disk = SimDisk::new(1);
        let real = disk.open_dir(Path::new("/db"), DirOpenMode::CreateIfMissing).unwrap();
        real.create("f").unwrap().append(&[b"x"]).unwrap();
        let calls = disk.mutating_calls();
        let dir = ReadOnlyDir::wrap(real);
        assert_eq!(dir.list().unwrap(), ["f"]);
        assert_eq!(dir.open("f").unwrap().len().unwrap(), 1);
        let refused = [
            dir.create("g").err(),
            dir.append_to("f").err(),
            dir.rename("f", "g").err(),
            dir.remove("f").err(),
            dir.sync().err(),
            dir.lock("LOCK").err(),
            dir.subdir("trash").err(),
            dir.move_into("f", "trash").err(),
        ];
        for e in refused {
            assert_eq!(e.unwrap().kind(), ErrorKind::ReadOnly);
        }
        assert_eq!(disk.mutating_calls(), calls);
    }
}
