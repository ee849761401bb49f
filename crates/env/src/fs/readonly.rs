//! A directory that refuses every change: what a read-only database stands on. The engine does not write when it is told
//! not to; this is the second lock on that door.

use super::{Append, Dir, DirLock, ReadAt};
use perigee_base::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reads what another directory holds, and changes nothing. Files that it holds open stay, whoever removes them.
#[derive(Debug)]
pub struct ReadOnlyDir(Arc<dyn Dir>, Mutex<BTreeMap<String, Arc<dyn ReadAt>>>);

impl ReadOnlyDir {
    /// Over `inner`.
    pub fn over(inner: Arc<dyn Dir>) -> Arc<dyn Dir> {
        Self::holding(inner)
    }
    /// The same, to hold files with.
    pub fn holding(inner: Arc<dyn Dir>) -> Arc<ReadOnlyDir> {
        Arc::new(ReadOnlyDir(inner, Mutex::default()))
    }
    fn held(&self) -> MutexGuard<'_, BTreeMap<String, Arc<dyn ReadAt>>> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Opens the file now, unless it is open: [`Dir::open`] returns this handle from here on, also after the file was removed.
    ///
    /// # Errors
    /// Those of [`Dir::open`]; the file is not held then.
    pub fn hold(&self, name: &str) -> Result<()> {
        if !self.held().contains_key(name) {
            let file = self.0.open(name)?;
            self.held().insert(name.to_owned(), file);
        }
        Ok(())
    }
    /// Number of files held open.
    pub fn held_files(&self) -> usize {
        self.held().len()
    }
    /// Lets go of the files that are not in `names`.
    pub fn keep_only(&self, names: &BTreeSet<String>) {
        self.held().retain(|name, _| names.contains(name));
    }
    /// Lets go of all of them; who has opened one keeps it.
    pub fn release(&self) {
        let all = std::mem::take(&mut *self.held());
        drop(all);
    }
}

/// The answer to every change.
pub fn refusal() -> Error {
    Error::new(ErrorKind::ReadOnly, "the database was opened read-only; open it without `read_only` to write")
}

impl Dir for ReadOnlyDir {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn is_at(&self, path: &Path) -> Result<bool> {
        self.0.is_at(path)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.0.list()
    }
    fn list_others(&self) -> Result<Vec<String>> {
        self.0.list_others()
    }
    fn file_len(&self, name: &str) -> Result<Option<u64>> {
        self.0.file_len(name)
    }
    fn create(&self, name: &str) -> Result<Arc<dyn Append>> {
        Err(refusal().in_file(name))
    }
    fn append_to(&self, name: &str) -> Result<Arc<dyn Append>> {
        Err(refusal().in_file(name))
    }
    fn open(&self, name: &str) -> Result<Arc<dyn ReadAt>> {
        let held = self.held().get(name).cloned();
        held.map_or_else(|| self.0.open(name), Ok)
    }
    fn rename(&self, from: &str, _to: &str) -> Result<()> {
        Err(refusal().in_file(from))
    }
    fn remove(&self, name: &str) -> Result<()> {
        Err(refusal().in_file(name))
    }
    fn sync(&self) -> Result<()> {
        Err(refusal())
    }
    fn lock(&self, name: &str) -> Result<Box<dyn DirLock>> {
        Err(refusal().in_file(name))
    }
    fn subdir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Err(refusal().in_file(name))
    }
    fn move_into(&self, name: &str, _subdir: &str) -> Result<()> {
        Err(refusal().in_file(name))
    }
}

/// A file that takes no byte.
#[derive(Debug)]
pub struct Refusing;

impl Append for Refusing {
    fn append(&self, _parts: &[&[u8]]) -> Result<()> {
        Err(refusal())
    }
    fn len(&self) -> u64 {
        0
    }
    fn truncate(&self, _len: u64) -> Result<()> {
        Err(refusal())
    }
    fn sync(&self) -> Result<()> {
        Err(refusal())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::memory::SimDisk;
    use crate::fs::{Fs, OpenDir};

    #[test]
    fn what_it_holds_stays() {
        let disk = SimDisk::new(1);
        let real = disk.open_dir(Path::new("/db"), OpenDir::CreateIfMissing).unwrap();
        real.create("f").unwrap().append(&[b"x"]).unwrap();
        let dir = ReadOnlyDir::holding(Arc::clone(&real));
        assert_eq!(dir.hold("g").unwrap_err().kind(), ErrorKind::NotFound);
        dir.hold("f").unwrap();
        real.create("h").unwrap();
        dir.hold("h").unwrap();
        real.remove("f").unwrap();
        dir.hold("f").unwrap();
        dir.keep_only(&BTreeSet::from(["f".to_owned(), "g".to_owned()]));
        assert_eq!(dir.held_files(), 1, "h is not kept");
        let file = dir.open("f").unwrap();
        dir.release();
        assert!(dir.open("f").is_err());
        assert_eq!(file.len().unwrap(), 1);
    }

    #[test]
    fn it_reads_and_changes_nothing() {
        let disk = SimDisk::new(1);
        let real = disk.open_dir(Path::new("/db"), OpenDir::CreateIfMissing).unwrap();
        real.create("f").unwrap().append(&[b"x"]).unwrap();
        let calls = disk.io_count();
        let dir = ReadOnlyDir::over(real);
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
        assert_eq!(disk.io_count(), calls);
    }
}
