//! Tracks whether the database may still write, and its background errors. A poisoned database can
//! still be read; only closing and reopening it clears the poison.

use perigee_base::{Error, ErrorKind, Result};
use perigee_env::{ForkGuard, forked_error};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The background task that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundTask {
    /// The flush worker.
    Flush,
    /// The compaction worker.
    Compact,
    /// The log sync worker.
    Sync,
    /// Rewriting the manifest.
    Manifest,
    /// The scrub thread itself (damage that it finds is reported by `scrub`).
    Scrub,
}

impl BackgroundTask {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            BackgroundTask::Flush => "flush",
            BackgroundTask::Compact => "compaction",
            BackgroundTask::Sync => "log sync",
            BackgroundTask::Manifest => "manifest",
            BackgroundTask::Scrub => "scrub",
        }
    }
}

/// Number of background tasks.
const BACKGROUND_TASKS: usize = 5;

/// Failures of tasks that will be retried, one per task, each with its ordinal; and the total
/// number of failures so far.
#[derive(Debug, Default)]
struct BackgroundErrors {
    failures: [Option<(u64, Error)>; BACKGROUND_TASKS],
    total: u64,
}

const _: () = assert!(BackgroundTask::Scrub as usize + 1 == BACKGROUND_TASKS);

/// `poison` is set once; `background_errors` is guarded by its mutex (no I/O while it is held).
#[derive(Debug, Default)]
pub struct Health {
    poison: OnceLock<Error>,
    closed: AtomicBool,
    process: ForkGuard,
    read_only: AtomicBool,
    background_errors: Mutex<BackgroundErrors>,
}

impl Health {
    /// Stops all writes until the database is reopened. The first cause is kept.
    pub fn poison(&self, cause: &Error) {
        let _ = self.poison.set(cause.clone());
    }
    /// Returns the error that stopped writes, if any.
    pub fn poisoned(&self) -> Option<&Error> {
        self.poison.get()
    }
    /// Marks the database as closed; returns false if it was closed before.
    pub fn close(&self) -> bool {
        !self.closed.swap(true, SeqCst)
    }
    /// Returns `Closed` if the database is closed, or in a forked child.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(SeqCst) || self.process.is_forked() {
            return Err(self.closed_error());
        }
        Ok(())
    }
    #[cold]
    fn closed_error(&self) -> Error {
        if self.process.is_forked() {
            return forked_error();
        }
        Error::new(ErrorKind::Closed, "the database is closed")
    }
    /// Returns true in a child process of the one that opened the database.
    pub fn is_forked(&self) -> bool {
        self.process.is_forked()
    }
    /// Returns `ReadOnly` if the database is open read-only: it then lacks the state that reading
    /// the log needs.
    pub fn check_log_readable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only.load(SeqCst) {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                "the database is open read-only: open it for writing to use this operation",
            ));
        }
        Ok(())
    }
    /// Makes the database read-only.
    pub fn set_read_only(&self) {
        self.read_only.store(true, SeqCst);
    }
    /// Returns true if the database is read-only.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(SeqCst)
    }
    /// Returns `Closed`, `ReadOnly` or `Poisoned` if nothing may be written.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only.load(SeqCst) {
            return Err(perigee_env::fs::read_only_error());
        }
        match self.poison.get() {
            None => Ok(()),
            Some(cause) => Err(cause
                .clone()
                .wrap(ErrorKind::Poisoned, "writes are stopped: close and reopen the database")),
        }
    }

    fn lock_errors(&self) -> MutexGuard<'_, BackgroundErrors> {
        self.background_errors.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Records the failure of a task that will be retried, or (`None`) that it succeeded.
    pub fn set_background_error(&self, slot: BackgroundTask, e: Option<Error>) {
        let mut list = self.lock_errors();
        list.total += u64::from(e.is_some());
        let count = list.total;
        list.failures[slot as usize] = e.map(|e| (count, e));
    }
    /// Returns the number of background failures so far, for [`Health::background_error_since`].
    pub fn background_error_count(&self) -> u64 {
        self.lock_errors().total
    }
    /// Returns the newest failure after the first `count` that has not been resolved; or the
    /// poison.
    pub fn background_error_since(&self, count: u64) -> Option<Error> {
        let newest = || {
            let list = self.lock_errors();
            let newer = list.failures.iter().flatten().filter(|(n, _)| *n > count);
            newer.max_by_key(|(n, _)| *n).map(|(_, e)| e.clone())
        };
        self.poison.get().cloned().or_else(newest)
    }
    /// Returns the newest failure of a task that is being retried, or the poison.
    pub fn background_error(&self) -> Option<Error> {
        self.background_error_since(0)
    }
}
