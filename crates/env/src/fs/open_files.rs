//! The files that a process may have open, shared by all databases in it.
//!
//! Each database keeps files of its tables open between reads. All of them together stay within one
//! limit; beyond it the database with the most gives some back. When the system refuses to open another file
//! (`EMFILE`, `ENFILE`: the rest of the process may have taken them), idle files of every database are closed, and the call is
//! repeated.
//!
//! Must not know what the files hold. The lock guards the list of members; no member is called, and no file closed, under it.

use perigee_base::bug::{self, Bug};
use perigee_base::{Error, Result};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Error numbers of a process, or a system, that has too many files open.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;
/// So many idle files are closed before a call is repeated.
const CLOSED_AT_ONCE: usize = 16;
/// So often a call is repeated: others may be faster to take what was given back.
const TRIES_MAX: usize = 64;

/// Something that holds files open which it could open again.
pub trait IdleFiles: Send + Sync + Debug {
    /// About how many.
    fn idle(&self) -> usize;
    /// Closes up to `n` of them; returns how many.
    fn close_idle(&self, n: usize) -> usize;
}

/// What the members hold together, and how much that may be.
#[derive(Debug)]
pub struct OpenFiles {
    limit: AtomicUsize,
    count: AtomicUsize,
    kept: AtomicUsize,
    reclaimed: AtomicU64,
    members: Mutex<Vec<Weak<dyn IdleFiles>>>,
}

impl Default for OpenFiles {
    fn default() -> OpenFiles {
        let (count, kept, reclaimed, members) = Default::default();
        OpenFiles { limit: AtomicUsize::new(usize::MAX), count, kept, reclaimed, members }
    }
}

impl OpenFiles {
    /// Those of this process.
    pub fn of_process() -> Arc<OpenFiles> {
        static ALL: OnceLock<Arc<OpenFiles>> = OnceLock::new();
        Arc::clone(ALL.get_or_init(Arc::default))
    }
    /// Limits the number of files that the members hold.
    pub fn set_limit(&self, files: usize) {
        self.limit.store(files.max(2), Relaxed);
    }
    /// How many files the members may hold together.
    pub fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }
    /// How many files were closed for others to be opened.
    pub fn reclaimed(&self) -> u64 {
        self.reclaimed.load(Relaxed)
    }
    /// Adds a member, whose idle files may be closed from now on.
    pub fn join(&self, member: Weak<dyn IdleFiles>) {
        self.lock().push(member);
    }
    /// Counts files that a member has opened.
    pub fn add(&self, n: usize) {
        self.count.fetch_add(n, Relaxed);
    }
    /// Counts files that a member has closed.
    pub fn sub(&self, n: usize) {
        self.count.fetch_sub(n, Relaxed);
    }
    /// Counts a file that stays open until it is closed for good, if less than half of all are such.
    pub fn keep(&self) -> bool {
        let below = |kept: usize| (kept < self.limit() / 2).then_some(kept + 1);
        let kept = self.kept.fetch_update(Relaxed, Relaxed, below).is_ok();
        if kept {
            self.add(1);
        }
        kept
    }
    /// Counts the end of files that stayed open.
    pub fn release(&self, n: usize) {
        self.kept.fetch_sub(n, Relaxed);
        self.sub(n);
    }
    /// Closes idle files while the members hold more than they may.
    pub fn settle(&self) {
        let excess = self.count.load(Relaxed).saturating_sub(self.limit());
        if excess > 0 {
            self.reclaim(excess);
        }
    }
    /// Closes up to `n` idle files, of the members that have the most of them; returns how many.
    pub fn reclaim(&self, n: usize) -> usize {
        let mut members: Vec<Arc<dyn IdleFiles>> = Vec::new();
        self.lock().retain(|m| m.upgrade().map(|m| members.push(m)).is_some());
        let mut idle: Vec<(usize, Arc<dyn IdleFiles>)> = members.into_iter().map(|m| (m.idle(), m)).collect();
        idle.sort_by_key(|(idle, _)| std::cmp::Reverse(*idle));
        let mut closed = 0;
        for (_, member) in idle {
            if closed < n {
                closed += member.close_idle(n - closed);
            }
        }
        self.reclaimed.fetch_add(closed as u64, Relaxed);
        closed
    }
    /// Calls `open`; where it fails because too many files are open, closes idle ones and calls it again. A call that fails so
    /// has done nothing.
    ///
    /// # Errors
    /// Those of `open`; also of too many open files, if no file is idle.
    pub fn retry<T>(&self, mut open: impl FnMut() -> Result<T>) -> Result<T> {
        let mut tries = if bug::on(Bug::NoFilesReclaimed) { TRIES_MAX } else { 0 };
        loop {
            match open() {
                Err(e) if too_many(&e) && tries < TRIES_MAX && self.reclaim(CLOSED_AT_ONCE) > 0 => tries += 1,
                done => return done,
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Weak<dyn IdleFiles>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a simulated process that has too many files open.
pub(crate) fn too_many_error(doing: &str) -> Error {
    Error::io(doing, &std::io::Error::from_raw_os_error(EMFILE))
}

fn too_many(e: &Error) -> bool {
    matches!(e.os_error(), Some(EMFILE | ENFILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_base::ErrorKind;

    #[derive(Debug)]
    struct Member(AtomicUsize);

    impl IdleFiles for Member {
        fn idle(&self) -> usize {
            self.0.load(Relaxed)
        }
        fn close_idle(&self, n: usize) -> usize {
            let closed = n.min(self.idle());
            self.0.fetch_sub(closed, Relaxed);
            closed
        }
    }

    fn member(files: &OpenFiles, idle: usize) -> Arc<Member> {
        let member = Arc::new(Member(AtomicUsize::new(idle)));
        let weak: Weak<Member> = Arc::downgrade(&member);
        files.join(weak);
        member
    }

    #[test]
    fn the_largest_member_gives_first() {
        let files = OpenFiles::default();
        let (a, b) = (member(&files, 5), member(&files, 9));
        drop(member(&files, 100));
        assert_eq!(files.reclaim(3), 3);
        assert_eq!((a.idle(), b.idle()), (5, 6));
        assert_eq!(files.reclaim(8), 8);
        assert_eq!((a.idle(), b.idle()), (3, 0));
        assert_eq!((files.reclaim(8), files.reclaimed()), (3, 14));
    }

    #[test]
    fn a_refused_open_is_repeated_while_files_are_idle() {
        let files = OpenFiles::default();
        let idle = member(&files, 40);
        let mut refusals = 2;
        let opened = files.retry(|| {
            refusals -= 1;
            if refusals >= 0 { Err(too_many_error("open")) } else { Ok(7) }
        });
        assert_eq!((opened.unwrap(), idle.idle()), (7, 8));
        let mut calls = 0;
        let refused = files.retry(|| {
            calls += 1;
            Err::<(), _>(too_many_error("open"))
        });
        assert_eq!(refused.unwrap_err().os_error(), Some(EMFILE));
        assert_eq!((calls, idle.idle()), (2, 0));
        let other = files.retry(|| Err::<(), _>(Error::new(ErrorKind::NotFound, "none")));
        assert_eq!(other.unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn half_may_be_kept() {
        let files = OpenFiles::default();
        files.set_limit(4);
        assert!(files.keep() && files.keep() && !files.keep());
        files.release(1);
        assert!(files.keep());
    }
}
