//! Limits the number of open files, shared by all databases of a process.
//!
//! Each database keeps files of its tables open between reads. Together they stay within one limit;
//! above it, the database with the most idle files closes some. When the system refuses to open
//! another file (`EMFILE`, `ENFILE`: other code of the process may use them), idle files of all
//! databases are closed, and the call is retried.
//!
//! The lock guards the list of holders; no holder is called, and no file closed, under it.

use super::os_error::TOO_MANY_FILES;
use crate::limits::OPEN_RETRIES_MAX;
use perigee_base::bug::{self, Bug};
use perigee_base::{Error, Result};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Number of idle files closed before a retry.
const RECLAIM_BATCH: usize = 16;

/// An owner of open files that can be closed and reopened.
pub trait IdleFileHolder: Send + Sync + Debug {
    /// Returns the approximate number of idle files.
    fn idle_count(&self) -> usize;
    /// Closes up to `n` idle files; returns the number closed.
    fn close_idle(&self, n: usize) -> usize;
}

/// Number of open files of all holders, and its limit.
#[derive(Debug)]
pub struct OpenFileLimiter {
    limit: AtomicUsize,
    open: AtomicUsize,
    pinned: AtomicUsize,
    reclaimed_total: AtomicU64,
    holders: Mutex<Vec<Weak<dyn IdleFileHolder>>>,
}

impl Default for OpenFileLimiter {
    fn default() -> OpenFileLimiter {
        let (open, pinned, reclaimed_total, holders) = Default::default();
        OpenFileLimiter {
            limit: AtomicUsize::new(usize::MAX),
            open,
            pinned,
            reclaimed_total,
            holders,
        }
    }
}

impl OpenFileLimiter {
    /// Returns the limiter of this process.
    pub fn process_wide() -> Arc<OpenFileLimiter> {
        static ALL: OnceLock<Arc<OpenFileLimiter>> = OnceLock::new();
        Arc::clone(ALL.get_or_init(Arc::default))
    }
    /// Sets the limit of files that the holders keep open.
    pub fn set_limit(&self, files: usize) {
        self.limit.store(files.max(2), Relaxed);
    }
    /// Returns the limit of files that the holders keep open together.
    pub fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }
    /// Returns the number of idle files closed so far.
    pub fn reclaimed_files(&self) -> u64 {
        self.reclaimed_total.load(Relaxed)
    }
    /// Registers a holder, whose idle files may be closed from now on.
    pub fn register(&self, holder: Weak<dyn IdleFileHolder>) {
        self.lock_holders().push(holder);
    }
    /// Counts files opened by a holder.
    pub fn count_opened(&self, n: usize) {
        self.open.fetch_add(n, Relaxed);
    }
    /// Counts files closed by a holder.
    pub fn count_closed(&self, n: usize) {
        let open = self.open.fetch_sub(n, Relaxed);
        check!(open >= n, "only files that were counted are closed", open, n);
    }
    /// Counts a file that is never idle, and returns true, unless half of the limit is already used
    /// by such files.
    pub fn try_pin(&self) -> bool {
        let increment = |pinned: usize| (pinned < self.limit() / 2).then_some(pinned + 1);
        let pinned = self.pinned.fetch_update(Relaxed, Relaxed, increment).is_ok();
        if pinned {
            self.count_opened(1);
        }
        pinned
    }
    /// Counts pinned files that were closed.
    pub fn unpin(&self, n: usize) {
        let pinned = self.pinned.fetch_sub(n, Relaxed);
        check!(pinned >= n, "only pinned files are unpinned", pinned, n);
        self.count_closed(n);
    }
    /// Closes idle files if the holders keep more files open than the limit.
    pub fn enforce_limit(&self) {
        let excess = self.open.load(Relaxed).saturating_sub(self.limit());
        if excess > 0 {
            self.close_idle_files(excess);
        }
    }
    /// Closes up to `n` idle files, starting with the holder that has the most; returns the number
    /// closed.
    pub fn close_idle_files(&self, n: usize) -> usize {
        let mut holders: Vec<Arc<dyn IdleFileHolder>> = Vec::new();
        self.lock_holders().retain(|m| m.upgrade().map(|m| holders.push(m)).is_some());
        let mut idle: Vec<(usize, Arc<dyn IdleFileHolder>)> =
            holders.into_iter().map(|m| (m.idle_count(), m)).collect();
        idle.sort_by_key(|(idle, _)| std::cmp::Reverse(*idle));
        let mut closed = 0;
        for (_, holder) in idle {
            if closed < n {
                closed += holder.close_idle(n - closed);
            }
        }
        self.reclaimed_total.fetch_add(closed as u64, Relaxed);
        closed
    }
    /// Calls `open`. If it fails because too many files are open, closes idle files and calls it
    /// again. A failed call must have had no effect.
    ///
    /// # Errors
    /// Errors of `open`, including too many open files if no file is idle.
    pub fn open_with_retry<T>(&self, mut open: impl FnMut() -> Result<T>) -> Result<T> {
        let mut tries = if bug::is_active(Bug::NoFilesReclaimed) { OPEN_RETRIES_MAX } else { 0 };
        loop {
            match open() {
                Err(e)
                    if is_too_many_files(&e)
                        && tries < OPEN_RETRIES_MAX
                        && self.close_idle_files(RECLAIM_BATCH) > 0 =>
                {
                    tries += 1
                }
                done => return done,
            }
        }
    }

    fn lock_holders(&self) -> std::sync::MutexGuard<'_, Vec<Weak<dyn IdleFileHolder>>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the error for too many open files, in the simulation.
#[cfg(feature = "sim")]
pub(crate) fn too_many_files_error(doing: &str) -> Error {
    Error::io(doing, &std::io::Error::from_raw_os_error(TOO_MANY_FILES[0]))
}

fn is_too_many_files(e: &Error) -> bool {
    e.os_error().is_some_and(|number| TOO_MANY_FILES.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::ErrorKind;

    #[derive(Debug)]
    struct TestIdleFiles(AtomicUsize);

    impl IdleFileHolder for TestIdleFiles {
        fn idle_count(&self) -> usize {
            self.0.load(Relaxed)
        }
        fn close_idle(&self, n: usize) -> usize {
            let closed = n.min(self.idle_count());
            self.0.fetch_sub(closed, Relaxed);
            closed
        }
    }

    fn add_holder(files: &OpenFileLimiter, idle: usize) -> Arc<TestIdleFiles> {
        let holder = Arc::new(TestIdleFiles(AtomicUsize::new(idle)));
        let weak: Weak<TestIdleFiles> = Arc::downgrade(&holder);
        files.register(weak);
        holder
    }

    #[test]
    fn largest_holder_closes_idle_files_first() {
        let files = OpenFileLimiter::default();
        let (a, b) = (add_holder(&files, 5), add_holder(&files, 9));
        drop(add_holder(&files, 100));
        assert_eq!(files.close_idle_files(3), 3);
        assert_eq!((a.idle_count(), b.idle_count()), (5, 6));
        assert_eq!(files.close_idle_files(8), 8);
        assert_eq!((a.idle_count(), b.idle_count()), (3, 0));
        assert_eq!((files.close_idle_files(8), files.reclaimed_files()), (3, 14));
    }

    #[test]
    fn refused_open_is_retried_while_files_are_idle() {
        let files = OpenFileLimiter::default();
        let idle = add_holder(&files, 40);
        let mut refusals = 2;
        let opened = files.open_with_retry(|| {
            refusals -= 1;
            if refusals >= 0 { Err(too_many_files_error("open")) } else { Ok(7) }
        });
        assert_eq!((opened.unwrap(), idle.idle_count()), (7, 8));
        let mut calls = 0;
        let refused = files.open_with_retry(|| {
            calls += 1;
            Err::<(), _>(too_many_files_error("open"))
        });
        assert_eq!(refused.unwrap_err().os_error(), Some(TOO_MANY_FILES[0]));
        assert_eq!((calls, idle.idle_count()), (2, 0));
        let other = files.open_with_retry(|| Err::<(), _>(Error::new(ErrorKind::NotFound, "none")));
        assert_eq!(other.unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn half_of_the_limit_may_be_pinned() {
        let files = OpenFileLimiter::default();
        files.set_limit(4);
        assert!(files.try_pin() && files.try_pin() && !files.try_pin());
        files.unpin(1);
        assert!(files.try_pin());
    }
}
