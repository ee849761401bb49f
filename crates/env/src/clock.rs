//! Clocks. They serve delays, statistics and expiry; the order of operations never depends on them.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync + Debug {
    /// Returns the milliseconds since the Unix epoch; may jump.
    fn wall_ms(&self) -> u64;
    /// Returns the microseconds since an arbitrary start; never decreases.
    fn monotonic_us(&self) -> u64;
    /// Returns the nanoseconds since the same start, at the resolution of the clock: for measuring,
    /// not for waiting.
    fn monotonic_ns(&self) -> u64 {
        self.monotonic_us().saturating_mul(1000)
    }
    /// Sleeps for `us` microseconds. In the simulation this advances virtual time and lets other
    /// threads run.
    fn sleep_us(&self, us: u64);
}

/// The clocks of the operating system.
#[derive(Debug)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// Creates a clock whose monotonic time starts now.
    pub fn new() -> Self {
        RealClock { start: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn wall_ms(&self) -> u64 {
        // A clock set before 1970 reads as 0, which is harmless.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
    fn monotonic_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
    fn sleep_us(&self, us: u64) {
        std::thread::sleep(Duration::from_micros(us));
    }
}
