//! Shared by the tests that read the sources.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the Rust files below `dir`, sorted; none if there is no such directory.
pub fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = fs::read_dir(dir) else { return files };
    for entry in entries.map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            files.extend(rust_files(&entry));
        } else if entry.extension().is_some_and(|e| e == "rs") {
            files.push(entry);
        }
    }
    files.sort();
    files
}
