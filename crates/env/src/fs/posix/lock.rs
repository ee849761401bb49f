//! Directory lock: `flock`, which excludes other processes, and a table of this process. On a file
//! system without working locks (some network file systems) the table still excludes other handles
//! of the same process.

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

/// Files locked by this process or by a process it was forked from; entries of the latter are
/// ignored.
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
        // A forked child shares the lock with its parent, which still holds it.
        if self.fork_guard.is_forked() {
            return;
        }
        // The table entry is removed last: the table must not show the file as free while it is
        // still locked. If unlocking fails, the close that follows releases the lock.
        let _ = self.file.unlock();
        let removed = held_locks().remove(&self.key);
        check!(removed.is_some(), "a held lock is registered until it is released", self.key);
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
    let before = held.insert(key, process);
    check!(before.is_none_or(ForkGuard::is_forked), "a process holds the lock of a file once", key);
    Ok(Box::new(PosixLock { file, key, fork_guard: process }))
}
