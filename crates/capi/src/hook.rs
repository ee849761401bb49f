//! Commit hooks: the engine's events as arrays of operations.

use crate::abi::{CommitHook, CommitOp};
use crate::border::Within;
use crate::log;
use crate::state::Family;
use perigee::{CommitEvent, CommitOperation};
use std::ffi::{c_int, c_void};
use std::ops::Bound;
use std::ptr::null;
use std::sync::atomic::Ordering::Relaxed;

/// A user's hook and what it is given each time.
struct Hook {
    call: CommitHook,
    context: *mut c_void,
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
    fn tell(&self, event: &CommitEvent<'_>) {
        if event.entries_loaded().is_some() {
            log::warn(
                "a commit hook was not told of a transaction larger than memory, which was begun before the hook was set",
            );
            return;
        }
        let all: Vec<CommitOp> = event.operations().filter_map(|op| operation(&op)).collect();
        for ops in all.chunks(c_int::MAX as usize) {
            let _within = Within::hook();
            // SAFETY: the program has set the hook for such calls; the operations live in the event through the call.
            let code = unsafe {
                (self.call)(ops.as_ptr(), ops.len() as c_int, event.commit_sequence(), self.context)
            };
            if code != 0 {
                log::warn(&format!(
                    "a commit hook answered {code} to commit {}, which stands",
                    event.commit_sequence()
                ));
            }
        }
    }
}

/// Sets the hook of a family, or takes it away.
pub fn set(family: &Family, call: Option<CommitHook>, context: *mut c_void) {
    let (was, is) = (family.hooked.swap(call.is_some(), Relaxed), call.is_some());
    let hooks = &family.database.hooks;
    match (was, is) {
        (false, true) => drop(hooks.fetch_add(1, Relaxed)),
        (true, false) => drop(hooks.fetch_sub(1, Relaxed)),
        _ => {}
    }
    match call {
        Some(call) => {
            let hook = Hook { call, context };
            family.inner.on_commit(move |event| hook.tell(event));
        }
        None => family.inner.clear_commit_hook(),
    }
}
