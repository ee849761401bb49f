//! Commit hooks: the engine's events as arrays of operations. The engine runs a hook on the thread that commits, before the commit
//! returns.

use crate::abi::{CommitHook, CommitOp};
use crate::border::Within;
use crate::handle::{me, wait};
use crate::log;
use perigee::{CommitEvent, CommitOperation};
use std::ffi::{c_int, c_void};
use std::ops::Bound;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// A user's hook and what it is given each time.
pub struct Hook {
    call: CommitHook,
    context: *mut c_void,
    alive: AtomicBool,
    /// The thread that is in it; 0: none.
    inside: AtomicUsize,
}

// SAFETY: the program has set both for use by any thread that commits, as the interface says.
unsafe impl Send for Hook {}
// SAFETY: the same.
unsafe impl Sync for Hook {}

/// When an entry expires, for C: seconds, 0 for never.
fn seconds(expires_at_ms: Option<u64>) -> libc::time_t {
    expires_at_ms.map_or(0, |ms| libc::time_t::try_from(ms / 1000).unwrap_or(libc::time_t::MAX))
}

fn end<'a>(bound: &Bound<&'a [u8]>) -> &'a [u8] {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    }
}

fn operation(op: &CommitOperation<'_>) -> Option<CommitOp> {
    let of = |key: &[u8], value: Option<&[u8]>, ttl, is_delete| CommitOp {
        key: key.as_ptr(),
        key_size: key.len(),
        value: value.map_or(null(), <[u8]>::as_ptr),
        value_size: value.map_or(0, <[u8]>::len),
        ttl,
        is_delete,
    };
    Some(match op {
        CommitOperation::Put { key, value, expires_at_ms, .. } => {
            of(key, Some(value), seconds(*expires_at_ms), 0)
        }
        CommitOperation::Delete { key, .. } => of(key, None, 0, 1),
        CommitOperation::DeleteRange { start, end: last, .. } => of(end(start), Some(end(last)), 0, 2),
        CommitOperation::Merge { key, operand, .. } => of(key, Some(operand), 0, 3),
        _ => return None,
    })
}

impl Hook {
    /// A hook that was not called yet.
    pub fn new(call: CommitHook, context: *mut c_void) -> Hook {
        Hook { call, context, alive: AtomicBool::new(true), inside: AtomicUsize::new(0) }
    }

    /// It is not called any more; waits until who is in it has left (this thread itself is not waited for).
    pub fn retire(&self) {
        self.alive.store(false, SeqCst);
        let mut tries = 0;
        loop {
            let inside = self.inside.load(SeqCst);
            if inside == 0 || inside == me() {
                return;
            }
            tries += 1;
            wait(tries);
        }
    }

    /// Tells it of a commit.
    pub fn tell(&self, event: &CommitEvent<'_>) {
        self.inside.store(me(), SeqCst);
        // Either this sees that it was retired, or who retires it sees this.
        if self.alive.load(SeqCst) {
            self.call(event);
        }
        self.inside.store(0, SeqCst);
    }

    fn call(&self, event: &CommitEvent<'_>) {
        if event.entries_loaded().is_some() {
            log::warn(
                "a commit hook was not told of a transaction larger than memory, which was begun before the hook was set",
            );
            return;
        }
        let all: Vec<CommitOp> = event.operations().filter_map(|op| operation(&op)).collect();
        let seq = event.commit_sequence();
        for ops in all.chunks(c_int::MAX as usize) {
            let _within = Within::hook();
            // SAFETY: the program has set the hook for such calls; the operations live in the event through the call.
            let code = unsafe { (self.call)(ops.as_ptr(), ops.len() as c_int, seq, self.context) };
            if code != 0 {
                log::warn(&format!("a commit hook answered {code} to commit {seq}, which stands"));
            }
        }
    }
}
