//! Time. Order never depends on it: the clock serves delays, statistics and (later) time to live.

use std::fmt::Debug;

/// A source of time.
pub trait Clock: Send + Sync + Debug {
    /// Milliseconds since the Unix epoch; may jump.
    fn wall_ms(&self) -> u64;
    /// Microseconds since some start; never goes back.
    fn monotonic_us(&self) -> u64;
    /// Waits. Under the simulation this passes virtual time and lets other threads run.
    fn sleep_us(&self, us: u64);
}
