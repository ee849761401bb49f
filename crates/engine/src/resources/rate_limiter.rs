//! Rate limit of reads and writes by background jobs. The policy is a pure function of the time;
//! the jobs do the waiting.
//!
//! Invariant: flushes alone stay within the rate, and so do flushes and compactions together; a
//! compaction never makes a flush wait. (Writers wait for flushes, but not for compactions.)

use crate::limits::RATE_BURST_US;
use perigee_base::{Bytes, Micros};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The kind of work that bytes are charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimitClass {
    /// Flushes, which writers wait for.
    Flush,
    /// Compactions, which no writer waits for directly.
    Compaction,
}

/// Two token buckets, one for flushes and one for all work. Each is the time until which everything
/// charged so far is paid for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimiterBuckets {
    flush_paid_until_us: u64,
    total_paid_until_us: u64,
}

impl RateLimiterBuckets {
    /// Charges `bytes` at `now_us` to buckets that fill with `rate` bytes per second; returns how
    /// many microseconds the caller must wait before it continues. A rate of 0 is no limit.
    #[must_use]
    fn charge(
        self,
        now_us: u64,
        bytes: u64,
        rate: u64,
        class: RateLimitClass,
    ) -> (RateLimiterBuckets, u64) {
        if rate == 0 {
            return (RateLimiterBuckets::default(), 0);
        }
        let cost =
            u64::try_from(u128::from(bytes) * 1_000_000 / u128::from(rate)).unwrap_or(u64::MAX);
        // An idle bucket fills no further than the burst.
        let pay = |paid: u64| paid.max(now_us.saturating_sub(RATE_BURST_US)).saturating_add(cost);
        let mut after =
            RateLimiterBuckets { total_paid_until_us: pay(self.total_paid_until_us), ..self };
        let paid = match class {
            RateLimitClass::Compaction => after.total_paid_until_us,
            RateLimitClass::Flush => {
                after.flush_paid_until_us = pay(self.flush_paid_until_us);
                after.flush_paid_until_us
            }
        };
        check_slow!(
            after.total_paid_until_us >= self.total_paid_until_us
                && after.flush_paid_until_us >= self.flush_paid_until_us,
            "a charge is never paid back",
            self,
            after
        );
        check_slow!(
            after.flush_paid_until_us <= after.total_paid_until_us,
            "the bytes of flushes are part of all bytes",
            self,
            after
        );
        (after, paid.saturating_sub(now_us))
    }
}

#[derive(Debug)]
struct RateLimiterState {
    rate: u64,
    /// Number of times the rate was set: setting the same rate again also clears the debt.
    generation: u64,
    buckets: RateLimiterBuckets,
}

/// The result of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitDebt {
    /// How long the caller must wait before it continues, in microseconds.
    pub wait_us: u64,
    /// The wait ends early when [`RateLimiter::generation`] is different.
    pub generation: u64,
}

/// The rate and the buckets. The mutex guards both, so that a charge at one rate is never booked
/// under the next; no I/O while it is held.
#[derive(Debug)]
pub struct RateLimiter {
    state: Mutex<RateLimiterState>,
}

impl RateLimiter {
    /// Creates a limiter with a rate in bytes per second; 0: no limit.
    pub fn new(rate: u64) -> RateLimiter {
        RateLimiter {
            state: Mutex::new(RateLimiterState {
                rate,
                generation: 0,
                buckets: RateLimiterBuckets::default(),
            }),
        }
    }
    fn state(&self) -> MutexGuard<'_, RateLimiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Returns the rate.
    pub fn rate(&self) -> u64 {
        self.state().rate
    }
    /// Returns how many times the rate was set.
    pub fn generation(&self) -> u64 {
        self.state().generation
    }
    /// Changes the rate. Debts at the old rate are cleared.
    pub fn set_rate(&self, rate: u64) {
        let mut state = self.state();
        *state = RateLimiterState {
            rate,
            generation: state.generation + 1,
            buckets: RateLimiterBuckets::default(),
        };
    }
    /// Charges bytes and returns the time to wait.
    pub fn charge(&self, now: Micros, bytes: Bytes, class: RateLimitClass) -> RateLimitDebt {
        let mut state = self.state();
        let (after, wait_us) = state.buckets.charge(now.0, bytes.0, state.rate, class);
        state.buckets = after;
        RateLimitDebt { wait_us, generation: state.generation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Returns the bytes that a single caller moves within ten seconds.
    fn bytes_moved(class: RateLimitClass, rate: u64) -> u64 {
        let (mut b, mut now, mut bytes) = (RateLimiterBuckets::default(), 1_000_000, 0);
        while now < 11_000_000 {
            let (after, wait) = b.charge(now, 64 << 10, rate, class);
            (b, now, bytes) = (after, now + wait + 10, bytes + (64 << 10));
        }
        bytes
    }

    #[test]
    fn each_class_alone_gets_the_full_rate() {
        for class in [RateLimitClass::Flush, RateLimitClass::Compaction] {
            let got = bytes_moved(class, MIB);
            assert!((10 * MIB..=10 * MIB + MIB / 4).contains(&got), "{class:?} moved {got}");
        }
    }

    #[test]
    fn no_rate_never_waits() {
        let (b, wait) =
            RateLimiterBuckets::default().charge(5, u64::MAX, 0, RateLimitClass::Compaction);
        assert_eq!((b, wait), (RateLimiterBuckets::default(), 0));
        assert_eq!(
            RateLimiterBuckets::default().charge(5, u64::MAX, 1, RateLimitClass::Flush).1,
            u64::MAX - 5,
            "no overflow"
        );
    }

    /// A compaction's debt does not delay a flush; the flush's bytes delay the compaction.
    #[test]
    fn compaction_debt_does_not_delay_flushes() {
        let now = 10_000_000;
        let (b, wait) =
            RateLimiterBuckets::default().charge(now, 5 * MIB, MIB, RateLimitClass::Compaction);
        assert_eq!(wait, 4_900_000);
        let (b, wait) = b.charge(now, 50 << 10, MIB, RateLimitClass::Flush);
        assert_eq!(wait, 0);
        let (b, wait) = b.charge(now, MIB, MIB, RateLimitClass::Flush);
        assert_eq!(wait, 948_828);
        let (_, wait) = b.charge(now, 0, MIB, RateLimitClass::Compaction);
        assert_eq!(wait, 4_900_000 + 48_828 + 1_000_000);
    }

    #[test]
    fn setting_the_rate_clears_debt() {
        let t = RateLimiter::new(1);
        let debt = t.charge(Micros(1_000_000), Bytes(100), RateLimitClass::Compaction);
        assert_eq!(debt, RateLimitDebt { wait_us: 99_900_000, generation: t.generation() });
        t.set_rate(MIB);
        assert_eq!(t.charge(Micros(1_000_000), Bytes(100), RateLimitClass::Compaction).wait_us, 0);
        t.set_rate(0);
        assert_eq!(t.charge(Micros(1_000_000), Bytes(u64::MAX), RateLimitClass::Flush).wait_us, 0);
        t.set_rate(1);
        assert_ne!(debt.generation, t.generation(), "the old rate again, but not the old debt");
        assert_eq!(
            t.charge(Micros(1_000_000), Bytes(100), RateLimitClass::Compaction).wait_us,
            99_900_000
        );
    }
}
