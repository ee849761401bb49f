//! Compares the database with the files it was imported from.

use crate::commands::import::tree::read_file;
use crate::failure::Result;
use crate::progress::Progress;
use crate::text::escape;
use perigee::Db;
use std::path::Path;
use std::time::SystemTime;

use super::sources::Sources;

/// Number of differences that are printed; further ones are only counted.
const DIFFERENCES_SHOWN_MAX: u64 = 20;

/// The outcome of the comparison.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Files whose bytes are identical.
    pub same: u64,
    /// Files that differ, or whose key is missing.
    pub different: u64,
    /// Files that differ and were modified after the demo started.
    pub changed: u64,
    /// Files that can no longer be read.
    pub unreadable: u64,
}

/// Returns how many of the first `n` files are present in the database and how many are missing.
pub fn count_acknowledged(db: &Db, sources: &Sources, n: u64) -> Result<(u64, u64)> {
    let (mut present, mut missing) = (0, 0);
    // The import does not acknowledge files that it cannot read, so they do not count towards `n`.
    for (path, key, _) in sources.source_files() {
        if present + missing == n {
            break;
        }
        if db.contains(&key)? {
            present += 1;
        } else if std::fs::File::open(&path).is_ok() {
            missing += 1;
        }
    }
    Ok((present, missing))
}

/// Compares every byte of every file. `started_at` is the start of the demo.
pub fn compare_all(db: &Db, sources: &Sources, started_at: SystemTime) -> Result<Comparison> {
    let mut compared = Comparison::default();
    let mut progress = Progress::bytes("comparing", sources.bytes);
    let mut done = 0;
    for (path, key, bytes) in sources.source_files() {
        done += bytes;
        progress.set_position(done);
        let Ok(source) = read_file(&path, bytes) else {
            compared.unreadable += 1;
            continue;
        };
        let stored = db.get_pinned(&key)?;
        if stored.as_deref() == Some(&source[..]) {
            compared.same += 1;
        } else if changed_since(&path, started_at) {
            compared.changed += 1;
        } else {
            compared.different += 1;
            if compared.different <= DIFFERENCES_SHOWN_MAX {
                let what = if stored.is_some() { "differs" } else { "missing" };
                progress.print_line(&format!("perigee: {what}: {}", escape(&key)));
            }
        }
    }
    Ok(compared)
}

fn changed_since(path: &Path, start: SystemTime) -> bool {
    std::fs::metadata(path).and_then(|m| m.modified()).is_ok_and(|modified| modified >= start)
}
