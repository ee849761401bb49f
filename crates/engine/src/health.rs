//! Whether the database may still write, and what went wrong. A poisoned database reads on; only a reopen heals it.

use perigee_base::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Guards: `poison` is set once; `background` by its mutex (no I/O inside).
#[derive(Debug, Default)]
pub struct Health {
    poison: OnceLock<Error>,
    closed: AtomicBool,
    background: Mutex<Option<Error>>,
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
    /// `Closed` if the handle is closed.
    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(SeqCst) {
            return Err(Error::new(ErrorKind::Closed, "the database is closed"));
        }
        Ok(())
    }
    /// `Closed` or `Poisoned` if nothing may be written.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        match self.poison.get() {
            None => Ok(()),
            Some(cause) => {
                Err(cause.clone().wrap(ErrorKind::Poisoned, "writes are stopped, close and reopen"))
            }
        }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Error>> {
        self.background.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Remembers (or, with `None`, forgets) the failure of a job that will be tried again.
    pub fn set_background(&self, e: Option<Error>) {
        *self.slot() = e;
    }
    /// The failure of a job that is being tried again, or the poison.
    pub fn background(&self) -> Option<Error> {
        self.poison.get().cloned().or_else(|| self.slot().clone())
    }
}
