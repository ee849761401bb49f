//! How a writer that waits for no sync enters the commit section where others want it all the time.
//!
//! A small commit takes less than it costs to hand the section from one processor to another, and
//! waking a thread that sleeps for it costs ten times that. So a writer that finds the section
//! taken waits a moment without going to sleep; and where writers meet again and again, one of them
//! rests, nobody wakes it, and the other goes through at full speed meanwhile. Then they meet
//! again, and the next one rests: each has its turn, and both together write more than if they had
//! pushed.
//!
//! Must not know what the section guards. Decides nothing but when somebody waits: no promise
//! depends on it.

use perigee_env::clock::Clock;
use perigee_env::spin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Turns that a writer waits before it sleeps for the section: longer than a small commit takes.
const SPINS_MAX: u32 = 150;
/// It looks every so many turns: looking takes the lock's cache line from who is inside.
const SPINS_PER_TRY: u32 = 4;
/// A rest, times those that rest.
const BACKOFF_US: u64 = 50;
/// No rest is longer.
const BACKOFF_US_MAX: u64 = 1_000;

/// How often writers meet, and how many rest.
#[derive(Debug, Default)]
pub struct ContentionBackoff {
    contention: AtomicU32,
    backing_off: AtomicU32,
}

impl ContentionBackoff {
    /// Nobody has met.
    pub fn new() -> ContentionBackoff {
        ContentionBackoff::default()
    }

    /// Enters by `try_enter`, or by `enter`, which sleeps.
    #[inline]
    pub fn enter<S>(
        &self,
        clock: &dyn Clock,
        try_enter: impl Fn() -> Option<S>,
        enter: impl Fn() -> S,
    ) -> S {
        let section = try_enter();
        let met = self.contention.load(Relaxed);
        let after = next_contention(met, section.is_none());
        if after != met {
            self.contention.store(after, Relaxed);
        }
        section.unwrap_or_else(|| self.enter_contended(after, clock, try_enter, enter))
    }

    #[cold]
    fn enter_contended<S>(
        &self,
        met: u32,
        clock: &dyn Clock,
        try_enter: impl Fn() -> Option<S>,
        enter: impl Fn() -> S,
    ) -> S {
        if met >= CONTENTION_MAX {
            self.contention.store(0, Relaxed);
            let others = self.backing_off.fetch_add(1, Relaxed);
            clock.sleep_us((BACKOFF_US * u64::from(others + 1)).min(BACKOFF_US_MAX));
            self.backing_off.fetch_sub(1, Relaxed);
        }
        let (mut section, mut turn) = (None, 0);
        spin::spin_until(SPINS_MAX, || {
            turn += 1;
            if turn % SPINS_PER_TRY == 0 {
                section = try_enter();
            }
            section.is_some()
        });
        section.unwrap_or_else(enter)
    }
}

/// Meetings count two, passing through alone takes back one: so many, and somebody rests.
const CONTENTION_MAX: u32 = 8;

/// The count after another writer came.
fn next_contention(met: u32, taken: bool) -> u32 {
    if taken { met.saturating_add(2).min(CONTENTION_MAX) } else { met.saturating_sub(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_env::clock::RealClock;
    use std::sync::Mutex;

    #[test]
    fn uncontended_writer_never_backs_off() {
        let mut met = 0;
        for i in 0..1000 {
            met = next_contention(met, i % 4 == 0);
            assert!(met < CONTENTION_MAX, "one in four");
        }
        let rests = (0..1000).filter(|i| {
            met = next_contention(met, i % 8 != 0);
            let rests = met >= CONTENTION_MAX;
            if rests {
                met = 0;
            }
            rests
        });
        assert!((100..300).contains(&rests.count()), "seven of eight");
    }

    #[test]
    fn all_contending_writers_enter() {
        let (turns, section) = (ContentionBackoff::new(), Mutex::new([0u64; 4]));
        let clock = RealClock::default();
        std::thread::scope(|s| {
            for writer in 0..4 {
                let (turns, section, clock) = (&turns, &section, &clock);
                s.spawn(move || {
                    for _ in 0..10_000 {
                        let mut at = turns.enter(
                            clock,
                            || section.try_lock().ok(),
                            || section.lock().unwrap(),
                        );
                        at[writer] += 1;
                    }
                });
            }
        });
        assert_eq!(section.into_inner().unwrap(), [10_000; 4]);
        assert_eq!(turns.backing_off.into_inner(), 0);
    }
}
