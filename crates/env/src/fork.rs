//! Detects use in the child of a `fork`: threads, directory locks and file positions belong to the
//! parent, so the child must not use anything that was opened before the fork.
//!
//! A fork handler of the C library increments a counter in each child; a check costs one load. A
//! child created by the bare system call `clone`, which runs no handlers, is not detected.

use perigee_base::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of forks since the first process that installed the handler.
static FORK_COUNT: AtomicU64 = AtomicU64::new(0);

/// Returns the number of forks between the first process that installed the handler and this one.
#[inline]
pub fn fork_count() -> u64 {
    FORK_COUNT.load(Relaxed)
}

/// Installs the fork handler. Further calls have no effect.
#[cfg(any(all(target_os = "linux", target_env = "gnu"), target_os = "macos"))]
#[allow(unsafe_code)]
pub fn install_fork_handler() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    extern "C" fn forked() {
        FORK_COUNT.fetch_add(1, Relaxed);
    }
    ONCE.call_once(|| {
        // SAFETY: the handler lives as long as this library, and unloading the library removes it.
        // It only performs an atomic addition, which is allowed in a child whose other threads are
        // gone.
        unsafe {
            libc::pthread_atfork(None, None, Some(forked));
        }
    });
}

/// Does nothing: forks are not detected with other C libraries, and Windows has none.
#[cfg(not(any(all(target_os = "linux", target_env = "gnu"), target_os = "macos")))]
pub fn install_fork_handler() {}

/// Identifies the process in which an object was created.
#[derive(Clone, Copy, Debug)]
pub struct ForkGuard(u64);

impl Default for ForkGuard {
    fn default() -> ForkGuard {
        ForkGuard::new()
    }
}

impl ForkGuard {
    /// Creates a guard for the calling process.
    pub fn new() -> ForkGuard {
        ForkGuard(fork_count())
    }
    /// Returns true in a forked child of the process that created the guard.
    #[inline]
    pub fn is_forked(self) -> bool {
        self.0 != fork_count()
    }
    /// Fails in a forked child.
    ///
    /// # Errors
    /// `Closed` in a forked child of the process that created the guard.
    #[inline]
    pub fn check(self) -> Result<()> {
        if self.is_forked() { Err(forked_error()) } else { Ok(()) }
    }
}

/// Returns the error for a forked child that uses a handle of its parent.
#[cold]
pub fn forked_error() -> Error {
    Error::new(
        ErrorKind::Closed,
        "this process was forked from the one that opened the database and cannot use its handles: \
         open the database in this process after the parent has closed it",
    )
}
