//! How fast background work may read and write. The policy is a pure function over a clock's reading; who waits, and how, is
//! the job's business.
//!
//! Invariant: flushes alone stay within the rate, and flushes and compactions together do; a compaction never makes a flush
//! wait. (Writers wait for flushes, nobody waits for a compaction.)

use std::sync::{Mutex, MutexGuard, PoisonError};

/// For whom bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Writers wait for it.
    Flush,
    /// Nobody waits for it.
    Compaction,
}

/// Work that may be done at once after a pause, in time.
const BURST_US: u64 = 100_000;

/// Two token buckets, each as the moment at which it has paid for everything taken so far: one for flushes, one for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    flush_paid_us: u64,
    all_paid_us: u64,
}

impl Buckets {
    /// Takes `bytes` at `now_us` from buckets that fill with `rate` bytes per second; says how long the taker waits before it
    /// goes on. A rate of 0 is no limit.
    #[must_use]
    pub fn take(self, now_us: u64, bytes: u64, rate: u64, class: Class) -> (Buckets, u64) {
        if rate == 0 {
            return (Buckets::default(), 0);
        }
        let cost = u64::try_from(u128::from(bytes) * 1_000_000 / u128::from(rate)).unwrap_or(u64::MAX);
        // An idle bucket fills no further than the burst.
        let pay = |paid: u64| paid.max(now_us.saturating_sub(BURST_US)).saturating_add(cost);
        let mut after = Buckets { all_paid_us: pay(self.all_paid_us), ..self };
        let paid = match class {
            Class::Compaction => after.all_paid_us,
            Class::Flush => {
                after.flush_paid_us = pay(self.flush_paid_us);
                after.flush_paid_us
            }
        };
        (after, paid.saturating_sub(now_us))
    }
}

#[derive(Debug)]
struct State {
    rate: u64,
    /// How often the rate was set: the same rate set again forgives, too.
    generation: u64,
    buckets: Buckets,
}

/// What a taker owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    /// How long it waits before it goes on, in microseconds.
    pub wait_us: u64,
    /// Forgiven when [`Throttle::generation`] is another.
    pub generation: u64,
}

/// The rate and the buckets. The mutex guards both, so that no debt at one rate is booked under the next; no I/O inside.
#[derive(Debug)]
pub struct Throttle {
    state: Mutex<State>,
}

impl Throttle {
    /// With a rate in bytes per second; 0: no limit.
    pub fn new(rate: u64) -> Throttle {
        Throttle { state: Mutex::new(State { rate, generation: 0, buckets: Buckets::default() }) }
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The rate.
    pub fn rate(&self) -> u64 {
        self.state().rate
    }
    /// How often the rate was set.
    pub fn generation(&self) -> u64 {
        self.state().generation
    }
    /// Another rate, from now on. Debts of the old one are forgiven.
    pub fn set_rate(&self, rate: u64) {
        let mut state = self.state();
        *state = State { rate, generation: state.generation + 1, buckets: Buckets::default() };
    }
    /// Takes bytes.
    pub fn take(&self, now_us: u64, bytes: u64, class: Class) -> Debt {
        let mut state = self.state();
        let (after, wait_us) = state.buckets.take(now_us, bytes, state.rate, class);
        state.buckets = after;
        Debt { wait_us, generation: state.generation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Bytes that a lone taker moves within ten seconds.
    fn moved(class: Class, rate: u64) -> u64 {
        let (mut b, mut now, mut bytes) = (Buckets::default(), 1_000_000, 0);
        while now < 11_000_000 {
            let (after, wait) = b.take(now, 64 << 10, rate, class);
            (b, now, bytes) = (after, now + wait + 10, bytes + (64 << 10));
        }
        bytes
    }

    #[test]
    fn each_class_alone_gets_the_rate() {
        for class in [Class::Flush, Class::Compaction] {
            let got = moved(class, MIB);
            assert!((10 * MIB..=10 * MIB + MIB / 4).contains(&got), "{class:?} moved {got}");
        }
    }

    #[test]
    fn no_rate_never_waits() {
        let (b, wait) = Buckets::default().take(5, u64::MAX, 0, Class::Compaction);
        assert_eq!((b, wait), (Buckets::default(), 0));
        assert_eq!(
            Buckets::default().take(5, u64::MAX, 1, Class::Flush).1,
            u64::MAX - 5,
            "and nothing overflows"
        );
    }

    /// A compaction's debt does not delay a flush; the flush's bytes delay the compaction.
    #[test]
    fn flush_goes_first() {
        let now = 10_000_000;
        let (b, wait) = Buckets::default().take(now, 5 * MIB, MIB, Class::Compaction);
        assert_eq!(wait, 4_900_000);
        let (b, wait) = b.take(now, 50 << 10, MIB, Class::Flush);
        assert_eq!(wait, 0);
        let (b, wait) = b.take(now, MIB, MIB, Class::Flush);
        assert_eq!(wait, 948_828);
        let (_, wait) = b.take(now, 0, MIB, Class::Compaction);
        assert_eq!(wait, 4_900_000 + 48_828 + 1_000_000);
    }

    #[test]
    fn a_new_rate_forgives() {
        let t = Throttle::new(1);
        let debt = t.take(1_000_000, 100, Class::Compaction);
        assert_eq!(debt, Debt { wait_us: 99_900_000, generation: t.generation() });
        t.set_rate(MIB);
        assert_eq!(t.take(1_000_000, 100, Class::Compaction).wait_us, 0);
        t.set_rate(0);
        assert_eq!(t.take(1_000_000, u64::MAX, Class::Flush).wait_us, 0);
        t.set_rate(1);
        assert_ne!(debt.generation, t.generation(), "the old rate again, but not the old debt");
        assert_eq!(t.take(1_000_000, 100, Class::Compaction).wait_us, 99_900_000);
    }
}
