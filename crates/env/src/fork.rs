//! Notices that this process is the child of a `fork`: threads, locks on directories and file
//! positions of its parent are not its own, so what was opened before must not be used here. Must
//! not know what was opened.
//!
//! A counter grows in each child, by a handler that the C library runs there: looking at it costs
//! one load. A child made by the bare system call `clone`, which runs no handlers, is not noticed.

use perigee_base::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Forks between this process and the first one that watched.
static FORK_COUNT: AtomicU64 = AtomicU64::new(0);

/// Number of forks that lead to this process.
#[inline]
pub fn fork_count() -> u64 {
    FORK_COUNT.load(Relaxed)
}

/// Starts counting forks. Calling it again does nothing.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub fn install_fork_handler() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    extern "C" fn forked() {
        FORK_COUNT.fetch_add(1, Relaxed);
    }
    ONCE.call_once(|| {
        // SAFETY: the handler lives as long as this library, whose unloading removes it, and does
        // nothing but an atomic addition, which is allowed in a child whose other threads are gone.
        unsafe {
            libc::pthread_atfork(None, None, Some(forked));
        }
    });
}

/// Forks are not noticed with other C libraries.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn install_fork_handler() {}

/// The process in which something was made.
#[derive(Clone, Copy, Debug)]
pub struct ForkGuard(u64);

impl Default for ForkGuard {
    fn default() -> ForkGuard {
        ForkGuard::new()
    }
}

impl ForkGuard {
    /// The process that calls.
    pub fn new() -> ForkGuard {
        ForkGuard(fork_count())
    }
    /// Whether a child of that process calls.
    #[inline]
    pub fn is_forked(self) -> bool {
        self.0 != fork_count()
    }
    /// Refuses a child.
    ///
    /// # Errors
    /// `Closed`.
    #[inline]
    pub fn check(self) -> Result<()> {
        if self.is_forked() { Err(forked_error()) } else { Ok(()) }
    }
}

/// What a child hears that uses something of its parent's.
#[cold]
pub fn forked_error() -> Error {
    Error::new(
        ErrorKind::Closed,
        "this process was forked from the one that opened the database, whose handles it may not use: open the database here \
         after the parent has closed it",
    )
}
