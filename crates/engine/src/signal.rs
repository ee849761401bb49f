//! The bell: state that somebody may wait for has changed. Foreground rings, jobs pull; nobody
//! calls the other.

use perigee_env::sync::{Condvar, Mutex};

/// A counter of changes that can be waited on.
#[derive(Debug)]
pub struct Signal {
    notifications: Mutex<u64>,
    changed: Condvar,
}

impl Signal {
    /// A silent bell.
    pub fn new() -> Signal {
        Signal { notifications: Mutex::new(0), changed: Condvar::new() }
    }
    /// Something changed.
    pub fn notify(&self) {
        *self.notifications.lock() += 1;
        self.changed.notify_all();
    }
    /// How often it rang. Take this *before* looking at the state, then wait with it: no change is
    /// missed.
    pub fn generation(&self) -> u64 {
        *self.notifications.lock()
    }
    /// Waits until it rang after `seen`.
    pub fn wait(&self, seen: u64) {
        let mut g = self.notifications.lock();
        while *g == seen {
            g = self.changed.wait(g);
        }
    }
    /// The same, at most so long.
    pub fn wait_timeout_us(&self, seen: u64, us: u64) {
        let g = self.notifications.lock();
        if *g == seen {
            drop(self.changed.wait_timeout_us(g, us));
        }
    }
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}
