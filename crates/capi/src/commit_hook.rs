//! Commit hooks: the engine's events as arrays of operations. The engine runs a hook on the thread
//! that commits, before the commit returns.

use crate::abi::{CommitHookFn, CommitOp};
use crate::ffi::CallbackScope;
use crate::handle::{backoff, current_thread_id};
use crate::log;
use perigee::{CommitEvent, CommitOperation};
use std::ffi::{c_int, c_void};
use std::ops::Bound;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// A user's hook and what it is given each time.
pub struct UserCommitHook {
    function: CommitHookFn,
    context: *mut c_void,
    enabled: AtomicBool,
    /// The thread that is in it; 0: none.
    running_thread: AtomicUsize,
}

// SAFETY: the program has set both for use by any thread that commits, as the interface says.
unsafe impl Send for UserCommitHook {}
// SAFETY: the same.
unsafe impl Sync for UserCommitHook {}

/// When an entry expires, for C: seconds, 0 for never.
fn expiry_seconds(expires_at_ms: Option<u64>) -> libc::time_t {
    expires_at_ms.map_or(0, |ms| libc::time_t::try_from(ms / 1000).unwrap_or(libc::time_t::MAX))
}

fn bound_key<'a>(bound: &Bound<&'a [u8]>) -> &'a [u8] {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    }
}

fn to_commit_op(op: &CommitOperation<'_>) -> Option<CommitOp> {
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
            of(key, Some(value), expiry_seconds(*expires_at_ms), 0)
        }
        CommitOperation::Delete { key, .. } => of(key, None, 0, 1),
        CommitOperation::DeleteRange { start, end: last, .. } => {
            of(bound_key(start), Some(bound_key(last)), 0, 2)
        }
        CommitOperation::Merge { key, operand, .. } => of(key, Some(operand), 0, 3),
        _ => return None,
    })
}

impl UserCommitHook {
    /// A hook that was not called yet.
    pub fn new(call: CommitHookFn, context: *mut c_void) -> UserCommitHook {
        UserCommitHook {
            function: call,
            context,
            enabled: AtomicBool::new(true),
            running_thread: AtomicUsize::new(0),
        }
    }

    /// It is not called any more; waits until who is in it has left (this thread itself is not
    /// waited for).
    pub fn disable(&self) {
        self.enabled.store(false, SeqCst);
        let mut tries = 0;
        loop {
            let inside = self.running_thread.load(SeqCst);
            if inside == 0 || inside == current_thread_id() {
                return;
            }
            tries += 1;
            backoff(tries);
        }
    }

    /// Tells it of a commit.
    pub fn notify(&self, event: &CommitEvent<'_>) {
        self.running_thread.store(current_thread_id(), SeqCst);
        // Either this sees that it was retired, or who retires it sees this.
        if self.enabled.load(SeqCst) {
            self.run(event);
        }
        self.running_thread.store(0, SeqCst);
    }

    fn run(&self, event: &CommitEvent<'_>) {
        if event.entries_loaded().is_some() {
            log::warn(
                "a commit hook was not told of a transaction larger than memory, which was begun before the hook was set",
            );
            return;
        }
        let all: Vec<CommitOp> = event.operations().filter_map(|op| to_commit_op(&op)).collect();
        let seq = event.commit_sequence();
        for ops in all.chunks(c_int::MAX as usize) {
            let _within = CallbackScope::hook();
            // SAFETY: the program has set the hook for such calls; the operations live in the event
            // through the call.
            let code =
                unsafe { (self.function)(ops.as_ptr(), ops.len() as c_int, seq, self.context) };
            if code != 0 {
                log::warn(&format!("a commit hook answered {code} to commit {seq}, which stands"));
            }
        }
    }
}
