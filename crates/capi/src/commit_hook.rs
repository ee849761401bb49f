//! Commit hooks: converts the engine's commit events to arrays of operations. The engine runs a
//! hook on the committing thread, before the commit returns.

use crate::abi::{CommitHookFn, CommitOp};
use crate::ffi::CallbackScope;
use crate::log;
use perigee::changes::{CommitEvent, CommitOperation};
use perigee_c_boundary::handle::{backoff, current_thread_id};
use std::ffi::{c_int, c_void};
use std::ops::Bound;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// A user's commit hook with its context.
pub struct UserCommitHook {
    function: CommitHookFn,
    context: *mut c_void,
    enabled: AtomicBool,
    /// The thread that runs the hook; 0: none.
    running_thread: AtomicUsize,
}

// SAFETY: the program guarantees that both may be used on any committing thread.
unsafe impl Send for UserCommitHook {}
// SAFETY: as above.
unsafe impl Sync for UserCommitHook {}

/// Returns an expiry for C: seconds since 1970, 0 for never.
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
    /// Creates a hook that is enabled.
    pub fn new(call: CommitHookFn, context: *mut c_void) -> UserCommitHook {
        UserCommitHook {
            function: call,
            context,
            enabled: AtomicBool::new(true),
            running_thread: AtomicUsize::new(0),
        }
    }

    /// Disables the hook and waits until running calls have returned, except calls on this thread.
    pub fn disable(&self) {
        self.enabled.store(false, SeqCst);
        let mut tries = 0;
        loop {
            let running = self.running_thread.load(SeqCst);
            if running == 0 || running == current_thread_id() {
                return;
            }
            tries += 1;
            backoff(tries);
        }
    }

    /// Calls the hook for a commit, unless it is disabled.
    pub fn notify(&self, event: &CommitEvent<'_>) {
        self.running_thread.store(current_thread_id(), SeqCst);
        // Sequentially consistent: either this thread reads that the hook is disabled, or `disable`
        // reads that it is running.
        if self.enabled.load(SeqCst) {
            self.run(event);
        }
        self.running_thread.store(0, SeqCst);
    }

    fn run(&self, event: &CommitEvent<'_>) {
        if event.entries_loaded().is_some() {
            log::warn(
                "a commit hook was not called for a spilled transaction that was begun before the \
                 hook was set",
            );
            return;
        }
        let all: Vec<CommitOp> = event.operations().filter_map(|op| to_commit_op(&op)).collect();
        let seq = event.commit_sequence();
        for ops in all.chunks(c_int::MAX as usize) {
            let _within = CallbackScope::hook();
            // SAFETY: the program registered the hook for such calls; the operations borrow from
            // the event, which outlives the call.
            let code =
                unsafe { (self.function)(ops.as_ptr(), ops.len() as c_int, seq, self.context) };
            if code != 0 {
                log::warn(&format!(
                    "a commit hook returned {code} for commit {seq}; the commit is not affected"
                ));
            }
        }
    }
}
