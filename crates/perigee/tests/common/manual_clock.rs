//! A clock that tests set.

use perigee::env::Clock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Wall clock and monotonic clock show the same time, in milliseconds.
#[derive(Debug)]
pub struct ManualClock(pub AtomicU64);

impl Clock for ManualClock {
    fn wall_ms(&self) -> u64 {
        self.0.load(SeqCst)
    }
    fn monotonic_us(&self) -> u64 {
        self.0.load(SeqCst) * 1000
    }
    fn sleep_us(&self, _: u64) {
        std::thread::yield_now();
    }
}
