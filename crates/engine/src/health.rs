//! Whether the database may still write, and what went wrong. A poisoned database reads on; only a
//! reopen heals it.

use perigee_base::{Error, ErrorKind, Result};
use perigee_env::fork::{self, ForkGuard};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Whose failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundTask {
    /// The flush worker.
    Flush,
    /// The compaction worker.
    Compact,
    /// The log sync worker.
    Sync,
    /// The manifest's rewriting.
    Manifest,
    /// The scrub's thread (not the damage that it finds: see `scrub`).
    Scrub,
}

impl BackgroundTask {
    /// In words.
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

/// Failures that are being tried again, one for each slot, and how many there have ever been.
#[derive(Debug, Default)]
struct BackgroundErrors {
    failures: [Option<(u64, Error)>; 5],
    total: u64,
}

/// Guards: `poison` is set once; `background` by its mutex (no I/O inside).
#[derive(Debug, Default)]
pub struct Health {
    poison: OnceLock<Error>,
    closed: AtomicBool,
    process: ForkGuard,
    read_only: AtomicBool,
    background_errors: Mutex<BackgroundErrors>,
}

impl Health {
    /// Stops all writes for the life of this handle. The first cause is kept.
    pub fn poison(&self, cause: &Error) {
        let _ = self.poison.set(cause.clone());
    }
    /// Why writes are stopped, if they are.
    pub fn poisoned(&self) -> Option<&Error> {
        self.poison.get()
    }
    /// Closes the handle; false if it was closed before.
    pub fn close(&self) -> bool {
        !self.closed.swap(true, SeqCst)
    }
    /// `Closed` if the handle is closed, or if a forked child asks.
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
            return fork::forked_error();
        }
        Error::new(ErrorKind::Closed, "the database is closed")
    }
    /// Whether this is a child of the process that opened the database.
    pub fn is_forked(&self) -> bool {
        self.process.is_forked()
    }
    /// Refuses what needs the log as a writer knows it: a read-only database does not.
    pub fn check_log_readable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only.load(SeqCst) {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                "the database was opened read-only, without the log that this needs; open it for writing",
            ));
        }
        Ok(())
    }
    /// From now on nothing may be written.
    pub fn set_read_only(&self) {
        self.read_only.store(true, SeqCst);
    }
    /// Whether it was opened so.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(SeqCst)
    }
    /// `Closed`, `ReadOnly` or `Poisoned` if nothing may be written.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only.load(SeqCst) {
            return Err(perigee_env::fs::read_only_dir::read_only_error());
        }
        match self.poison.get() {
            None => Ok(()),
            Some(cause) => {
                Err(cause.clone().wrap(ErrorKind::Poisoned, "writes are stopped, close and reopen"))
            }
        }
    }

    fn lock_errors(&self) -> MutexGuard<'_, BackgroundErrors> {
        self.background_errors.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Remembers (or, with `None`, forgets) the failure of a job that will be tried again.
    pub fn set_background_error(&self, slot: BackgroundTask, e: Option<Error>) {
        let mut list = self.lock_errors();
        list.total += u64::from(e.is_some());
        let count = list.total;
        list.failures[slot as usize] = e.map(|e| (count, e));
    }
    /// How many background failures there have been: see [`Health::background_error_since`].
    pub fn background_error_count(&self) -> u64 {
        self.lock_errors().total
    }
    /// The newest failure after the first `count`, if it still stands; or the poison.
    pub fn background_error_since(&self, count: u64) -> Option<Error> {
        let newest = || {
            let list = self.lock_errors();
            let newer = list.failures.iter().flatten().filter(|(n, _)| *n > count);
            newer.max_by_key(|(n, _)| *n).map(|(_, e)| e.clone())
        };
        self.poison.get().cloned().or_else(newest)
    }
    /// The newest failure of a job that is being tried again, or the poison.
    pub fn background_error(&self) -> Option<Error> {
        self.background_error_since(0)
    }
}
