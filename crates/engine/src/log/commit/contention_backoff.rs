//! Controls how writers that need no sync enter a contended commit section.
//!
//! A small commit takes less time than handing the section from one processor to another, and
//! waking a thread that sleeps on the lock costs ten times as much. So a writer that finds the
//! section taken spins briefly instead of sleeping. Where writers collide repeatedly, one of them
//! sleeps for a short time, without being woken, and the others run at full speed meanwhile; then
//! they collide again, and the next one sleeps. Over time each gets its share, and together they
//! write more than if all contended.
//!
//! Independent of what the section guards. It only decides when threads wait; correctness does not
//! depend on it.

use crate::limits::{
    COMMIT_BACKOFF_US, COMMIT_BACKOFF_US_MAX, COMMIT_SPINS_MAX, COMMIT_SPINS_PER_TRY,
    CONTENTION_MAX,
};
use perigee_env::{Clock, spin_until};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Contention level, and the number of threads backing off.
#[derive(Debug, Default)]
pub struct ContentionBackoff {
    contention: AtomicU32,
    backing_off: AtomicU32,
}

impl ContentionBackoff {
    /// Creates a state without contention.
    pub fn new() -> ContentionBackoff {
        ContentionBackoff::default()
    }

    /// Enters the section with `try_enter`, or with `enter`, which may sleep.
    #[inline]
    pub fn enter<S>(
        &self,
        clock: &dyn Clock,
        try_enter: impl Fn() -> Option<S>,
        enter: impl Fn() -> S,
    ) -> S {
        let section = try_enter();
        let level = self.contention.load(Relaxed);
        check_slow!(level <= CONTENTION_MAX, "the contention level is bounded", level);
        let next_level = next_contention(level, section.is_none());
        if next_level != level {
            self.contention.store(next_level, Relaxed);
        }
        section.unwrap_or_else(|| self.enter_contended(next_level, clock, try_enter, enter))
    }

    #[cold]
    fn enter_contended<S>(
        &self,
        level: u32,
        clock: &dyn Clock,
        try_enter: impl Fn() -> Option<S>,
        enter: impl Fn() -> S,
    ) -> S {
        if level >= CONTENTION_MAX {
            self.contention.store(0, Relaxed);
            let others = self.backing_off.fetch_add(1, Relaxed);
            clock.sleep_us((COMMIT_BACKOFF_US * u64::from(others + 1)).min(COMMIT_BACKOFF_US_MAX));
            self.backing_off.fetch_sub(1, Relaxed);
        }
        let (mut section, mut spins) = (None, 0);
        spin_until(COMMIT_SPINS_MAX, || {
            spins += 1;
            if spins % COMMIT_SPINS_PER_TRY == 0 {
                section = try_enter();
            }
            section.is_some()
        });
        section.unwrap_or_else(enter)
    }
}

/// Returns the contention level after another entry.
fn next_contention(level: u32, taken: bool) -> u32 {
    if taken { level.saturating_add(2).min(CONTENTION_MAX) } else { level.saturating_sub(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perigee_env::RealClock;
    use std::sync::Mutex;

    #[test]
    fn uncontended_writer_never_backs_off() {
        let mut level = 0;
        for i in 0..1000 {
            level = next_contention(level, i % 4 == 0);
            assert!(level < CONTENTION_MAX, "one entry in four collides");
        }
        let backs_off = (0..1000).filter(|i| {
            level = next_contention(level, i % 8 != 0);
            let backs_off = level >= CONTENTION_MAX;
            if backs_off {
                level = 0;
            }
            backs_off
        });
        assert!((100..300).contains(&backs_off.count()), "seven entries in eight collide");
    }

    #[test]
    fn all_contending_writers_enter() {
        let (backoff, section) = (ContentionBackoff::new(), Mutex::new([0u64; 4]));
        let clock = RealClock::default();
        std::thread::scope(|s| {
            for writer in 0..4 {
                let (backoff, section, clock) = (&backoff, &section, &clock);
                s.spawn(move || {
                    for _ in 0..10_000 {
                        let mut at = backoff.enter(
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
        assert_eq!(backoff.backing_off.into_inner(), 0);
    }
}
