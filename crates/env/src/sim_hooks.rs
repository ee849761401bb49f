//! Where the simulation intervenes in code that also runs without it: locks, busy waits and a few
//! decisions. Without the feature `sim` no thread is simulated, and these functions do nothing.

#[cfg(feature = "sim")]
pub(crate) use crate::sched::{
    lock_yield_point, note_lock_acquired, note_lock_released, notify, on_simulated_thread,
    wait_cond, wait_lock,
};

/// Lets the scheduler switch threads, in code whose interleaving matters but which has neither a
/// lock nor I/O at which it could switch. Always switches if another thread can run. Does nothing
/// on an ordinary thread.
#[inline]
pub fn yield_point() {
    #[cfg(feature = "sim")]
    crate::sched::yield_now();
}

/// Returns true on a simulated thread.
#[inline]
pub fn is_simulated() -> bool {
    on_simulated_thread()
}

#[cfg(not(feature = "sim"))]
pub(crate) use disabled::*;

/// The functions of the scheduler in a build without it. All but the first are called only on
/// simulated threads.
#[cfg(not(feature = "sim"))]
mod disabled {
    #[inline]
    pub(crate) fn on_simulated_thread() -> bool {
        false
    }
    pub(crate) fn lock_yield_point() {}
    pub(crate) fn note_lock_acquired(_lock: usize) {}
    pub(crate) fn note_lock_released(_lock: usize) {}
    pub(crate) fn wait_lock(_lock: usize, _guards: &'static str) -> bool {
        false
    }
    pub(crate) fn wait_cond(_cond: usize, _timeout_us: Option<u64>) -> bool {
        false
    }
    pub(crate) fn notify(_cond: usize, _all: bool) {}
}
