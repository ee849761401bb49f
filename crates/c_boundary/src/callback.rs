//! Callbacks of the program on the current thread. A comparator or merge operator is called by the
//! engine, which may hold any of its locks: a call of the library from inside one is refused. A
//! commit hook is called while no lock is held, and may call the library.

use perigee::{Error, Result};
use std::cell::Cell;

thread_local! {
    /// Nesting depth of callbacks on this thread.
    static CALLBACK_DEPTH: Cell<CallbackDepth> =
        const { Cell::new(CallbackDepth { comparators: 0, hooks: 0 }) };
}

#[derive(Clone, Copy, Default)]
struct CallbackDepth {
    comparators: u32,
    hooks: u32,
}

/// Marks a callback as running until it is dropped.
pub struct CallbackScope {
    previous: CallbackDepth,
}

impl CallbackScope {
    fn enter_callback(change: impl FnOnce(&mut CallbackDepth)) -> CallbackScope {
        let before = CALLBACK_DEPTH.try_with(Cell::get).unwrap_or_default();
        let mut now = before;
        change(&mut now);
        let _ = CALLBACK_DEPTH.try_with(|i| i.set(now));
        CallbackScope { previous: before }
    }
    /// Enters a comparator or merge operator: the engine may hold any of its locks.
    pub fn comparator() -> CallbackScope {
        CallbackScope::enter_callback(|i| i.comparators += 1)
    }
    /// Enters a commit hook: no lock is held.
    pub fn hook() -> CallbackScope {
        CallbackScope::enter_callback(|i| i.hooks += 1)
    }
}

impl Drop for CallbackScope {
    fn drop(&mut self) {
        let _ = CALLBACK_DEPTH.try_with(|i| i.set(self.previous));
    }
}

/// Returns true if this thread runs a commit hook.
pub fn in_hook() -> bool {
    CALLBACK_DEPTH.try_with(Cell::get).is_ok_and(|i| i.hooks > 0)
}

/// Refuses a call of the library from inside a comparator or merge operator.
///
/// # Errors
/// `InvalidArgument`.
#[inline]
pub fn check_not_in_comparator() -> Result<()> {
    match CALLBACK_DEPTH.try_with(Cell::get) {
        Ok(i) if i.comparators > 0 => Err(refused_call()),
        _ => Ok(()),
    }
}

#[cold]
fn refused_call() -> Error {
    Error::invalid(
        "a comparator or merge operator must not call the library: the engine may hold locks \
         during the call",
    )
}
