//! Clocks. They serve delays, statistics and expiry; the order of operations never depends on them.

use crate::limits::PRECISE_SLEEP_US_MAX;
use std::fmt::Debug;
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
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
        let _precise = (us <= PRECISE_SLEEP_US_MAX).then(PreciseTimers::begin);
        std::thread::sleep(Duration::from_micros(us));
    }
}

/// Makes the timers of this thread precise until it is dropped. Otherwise the kernel may delay the
/// end of a sleep by the timer slack of the thread, 50 us by default, in order to wake it together
/// with others: the sleep of a writer that backs off would take twice as long.
#[derive(Debug)]
struct PreciseTimers {
    /// Slack of the thread before, in nanoseconds; `None` if it is not changed.
    #[cfg(target_os = "linux")]
    slack_ns: Option<NonZeroU64>,
}

#[cfg(target_os = "linux")]
impl PreciseTimers {
    fn begin() -> PreciseTimers {
        // Where it is not permitted, sleeps take longer.
        let slack_ns = rustix::thread::current_timer_slack().ok().and_then(NonZeroU64::new);
        if slack_ns.is_some() {
            let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
        }
        PreciseTimers { slack_ns }
    }
}

#[cfg(target_os = "linux")]
impl Drop for PreciseTimers {
    fn drop(&mut self) {
        if self.slack_ns.is_some() {
            let _ = rustix::thread::set_current_timer_slack(self.slack_ns);
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl PreciseTimers {
    fn begin() -> PreciseTimers {
        PreciseTimers {}
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_restores_timer_slack() {
        let clock = RealClock::new();
        let slack = || rustix::thread::current_timer_slack().unwrap();
        let before = slack();
        for us in [1, PRECISE_SLEEP_US_MAX, PRECISE_SLEEP_US_MAX + 1] {
            let started = clock.monotonic_ns();
            clock.sleep_us(us);
            assert!(clock.monotonic_ns() - started >= us * 1000);
            assert_eq!(slack(), before);
        }
        let precise = PreciseTimers::begin();
        assert_eq!(slack(), 1);
        drop(precise);
        assert_eq!(slack(), before);
    }
}
