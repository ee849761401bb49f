//! A directory for one test of one run: several runs of the tests may go on at the same time.

use std::ops::Deref;
use std::path::{Path, PathBuf};

/// An empty directory, deleted when it is dropped.
pub struct TestDir(PathBuf);

impl TestDir {
    /// Creates the directory; its name contains the id of this process.
    pub fn new(name: &str) -> TestDir {
        let name = format!("{name}-{}", std::process::id());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        TestDir(dir)
    }
}

impl Deref for TestDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
