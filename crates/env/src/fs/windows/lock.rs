//! Directory lock: `LockFileEx`, which excludes other processes, and a table of this process.
//!
//! Windows does not rename a directory in which a file is open, and the lock file of a directory is
//! open while it is locked. So a rename closes the lock files in the directory, renames it, opens
//! them under the new path and locks them. If another process opens a lock file in between, the
//! rename fails, because that file is open; and if it has locked the file, the lock is *lost*:
//! calls that change the directory fail from then on. So what an owner of the lock assumes stays
//! true: no other process has changed a directory that it changes.

use super::retry;
use super::system::FileIdentity;
use crate::fs::{DirLock, locked_error};
use perigee_base::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock file that this process holds.
#[derive(Debug)]
struct HeldLockFile {
    dir: FileIdentity,
    name: String,
    /// `None`: the lock is lost.
    file: Option<File>,
}

/// Lock files held by this process, by number. Locked while a directory is renamed.
static HELD_LOCK_FILES: Mutex<BTreeMap<u64, HeldLockFile>> = Mutex::new(BTreeMap::new());

fn held_lock_files() -> MutexGuard<'static, BTreeMap<u64, HeldLockFile>> {
    HELD_LOCK_FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct WindowsLock {
    number: u64,
}

impl DirLock for WindowsLock {}

impl Drop for WindowsLock {
    fn drop(&mut self) {
        let mut held = held_lock_files();
        let removed = held.remove(&self.number);
        check!(removed.is_some(), "a held lock is registered until it is released", self.number);
        // The system releases the lock of a closed file at some later time.
        if let Some(file) = removed.and_then(|lock| lock.file) {
            let _ = file.unlock();
        }
    }
}

/// Opens the file `name` at `path`, which is in the directory `dir`, and locks it. `open` opens it.
pub(super) fn lock_file(
    dir: FileIdentity,
    name: &str,
    path: &Path,
    open: impl FnOnce() -> Result<File>,
) -> Result<Box<dyn DirLock>> {
    let mut held = held_lock_files();
    if held.values().any(|lock| lock.dir == dir && lock.name.eq_ignore_ascii_case(name)) {
        return Err(locked_error(path));
    }
    let file = open()?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(locked_error(path)),
        Err(TryLockError::Error(e)) => {
            return Err(Error::io(format_args!("lock {}", path.display()), &e));
        }
    }
    let number = held.last_key_value().map_or(0, |(last, _)| last + 1);
    let before = held.insert(number, HeldLockFile { dir, name: name.to_owned(), file: Some(file) });
    check!(before.is_none(), "a number stands for one held lock", number);
    Ok(Box::new(WindowsLock { number }))
}

/// Renames the directory `dir`, without the lock files that this process holds in it.
pub(super) fn rename_dir_unlocked(dir: FileIdentity, from: &Path, to: &Path) -> io::Result<()> {
    let mut held = held_lock_files();
    let mut inside: Vec<_> = held.values_mut().filter(|lock| lock.dir == dir).collect();
    for lock in &mut inside {
        if let Some(file) = lock.file.take() {
            let _ = file.unlock();
        }
    }
    let done = retry::while_in_use(|| std::fs::rename(from, to));
    let location = if done.is_ok() { to } else { from };
    for lock in inside {
        check!(lock.file.is_none(), "no lock file is open while its directory is renamed", from);
        let opened = OpenOptions::new().read(true).write(true).open(location.join(&lock.name));
        lock.file = opened.ok().filter(|file| file.try_lock().is_ok());
    }
    done
}

/// Fails if this process held a lock in the directory and lost it in a rename.
///
/// # Errors
/// `Locked`.
pub(super) fn check_not_lost(dir: FileIdentity, path: &Path) -> Result<()> {
    if held_lock_files().values().any(|lock| lock.dir == dir && lock.file.is_none()) {
        let text = format!(
            "another process has locked {} while this one renamed it: try again",
            path.display()
        );
        return Err(Error::new(ErrorKind::Locked, text));
    }
    Ok(())
}
