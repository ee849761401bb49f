//! A directory that refuses every change: what a read-only database stands on. The engine does not write when it is told
//! not to; this is the second lock on that door.

use super::{Append, Dir, DirLock, ReadAt};
use perigee_base::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;

/// Reads what another directory holds, and changes nothing.
#[derive(Debug)]
pub struct ReadOnlyDir(Arc<dyn Dir>);

impl ReadOnlyDir {
    /// Over `inner`.
    pub fn over(inner: Arc<dyn Dir>) -> Arc<dyn Dir> {
        Arc::new(ReadOnlyDir(inner))
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
        self.0.open(name)
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
