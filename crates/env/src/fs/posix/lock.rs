//! The lock on a directory: `flock`, which keeps other processes out, and a table of this process,
//! because a file system without working locks (some network ones) must at least not let two
//! handles of one process in.

use crate::fork::ForkGuard;
use crate::fs::{DirLock, locked_error};
use perigee_base::{Error, Result};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Device and inode of a locked file.
type DeviceInode = (u64, u64);

/// Files that this process has locked, or a process that it was forked from: those count no more.
static HELD_LOCKS: Mutex<BTreeMap<DeviceInode, ForkGuard>> = Mutex::new(BTreeMap::new());

fn held_locks() -> MutexGuard<'static, BTreeMap<DeviceInode, ForkGuard>> {
    HELD_LOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct PosixLock {
    file: File,
    key: DeviceInode,
    fork_guard: ForkGuard,
}

impl DirLock for PosixLock {}

impl Drop for PosixLock {
    fn drop(&mut self) {
        // A forked child shares the lock with its parent, which still has it.
        if self.fork_guard.is_forked() {
            return;
        }
        // The table last: nobody here may find it free while the file is still locked. A failure to
        // unlock is repaired by the close that follows.
        let _ = self.file.unlock();
        held_locks().remove(&self.key);
    }
}

/// Locks the open file at `path`.
pub(super) fn lock_file(file: File, path: &Path) -> Result<Box<dyn DirLock>> {
    let failed = |e: &std::io::Error| Error::io(format_args!("lock {}", path.display()), e);
    let meta = file.metadata().map_err(|e| failed(&e))?;
    let key = (meta.dev(), meta.ino());
    let mut held = held_locks();
    if held.get(&key).is_some_and(|process| !process.is_forked()) {
        return Err(locked_error(path));
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(locked_error(path)),
        Err(TryLockError::Error(e)) => return Err(failed(&e)),
    }
    let process = ForkGuard::new();
    held.insert(key, process);
    Ok(Box::new(PosixLock { file, key, fork_guard: process }))
}
