//! Syncs many files in parallel. A sync waits for a journal commit of the file system, and one
//! commit completes the syncs of all waiting threads: 16 threads sync small new files about eight
//! times as fast as one.

use crate::fs::WritableFile;
use crate::limits::{FILES_PER_SYNC_THREAD_MIN, SYNC_THREADS_MAX};
use perigee_base::Result;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Syncs all files, or returns the first error; the state of every file is unknown then.
pub(super) fn sync_files_parallel(files: &[Arc<dyn WritableFile>]) -> Result<()> {
    let (next, failed) = (AtomicUsize::new(0), OnceLock::new());
    let work = || {
        while failed.get().is_none() {
            let Some(file) = files.get(next.fetch_add(1, Relaxed)) else { return };
            if let Err(e) = file.sync() {
                let _ = failed.set(e);
            }
        }
    };
    std::thread::scope(|s| {
        for _ in 1..(files.len() / FILES_PER_SYNC_THREAD_MIN).min(SYNC_THREADS_MAX) {
            // Fewer threads only take longer.
            if std::thread::Builder::new().spawn_scoped(s, work).is_err() {
                break;
            }
        }
        work();
    });
    let failed = failed.into_inner();
    check!(
        failed.is_some() || next.load(Relaxed) >= files.len(),
        "a sync that succeeds has synced every file",
        files.len()
    );
    failed.map_or(Ok(()), Err)
}
