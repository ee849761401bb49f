//! Notifies waiting threads that shared state has changed. Foreground threads notify; jobs then
//! read the state themselves.

use perigee_env::{Condvar, Mutex};

/// A counter of changes that threads can wait on.
#[derive(Debug)]
pub struct Signal {
    notifications: Mutex<u64>,
    changed: Condvar,
}

/// Number of notifications so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct SignalGeneration(u64);

impl Signal {
    /// Creates a signal without notifications.
    pub fn new() -> Signal {
        Signal { notifications: Mutex::new(0), changed: Condvar::new() }
    }
    /// Notifies all waiting threads.
    pub fn notify(&self) {
        *self.notifications.lock() += 1;
        self.changed.notify_all();
    }
    /// Returns the number of notifications. Read it *before* checking the state, then wait with it:
    /// no change is missed.
    pub fn generation(&self) -> SignalGeneration {
        SignalGeneration(*self.notifications.lock())
    }
    /// Waits for a notification after `seen`.
    pub fn wait(&self, seen: SignalGeneration) {
        let mut count = self.notifications.lock();
        check_generation(*count, seen);
        while *count == seen.0 {
            count = self.changed.wait(count);
        }
    }
    /// Like [`wait`](Signal::wait), for at most `us` microseconds.
    pub fn wait_timeout_us(&self, seen: SignalGeneration, us: u64) {
        let count = self.notifications.lock();
        check_generation(*count, seen);
        if *count == seen.0 {
            drop(self.changed.wait_timeout_us(count, us));
        }
    }
}

fn check_generation(count: u64, seen: SignalGeneration) {
    check_slow!(
        seen.0 <= count,
        "a thread waits with a generation of the same signal",
        seen,
        count
    );
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}
