//! The logical clock, which decides whether entries have expired: the wall clock, prevented from
//! going backwards, and not trusted when it jumps forward.
//!
//! Rules (`docs/RELIABILITY.md`): reads use the later of the wall clock and the high-water mark,
//! which is stored with manifest edits that are written anyway. A wall clock that is ahead of the
//! monotonic clock by more than an hour is not yet trusted: reads hide the entries that have
//! expired by it, but nothing is deleted because of it and the mark does not follow it, until it is
//! confirmed by two flushes or by [`LogicalClock::confirm_wall_clock`]. After open, no clock is
//! read until an expiring entry is encountered. Independent of its callers.

use perigee_base::{Counters, ExpiryClock};
use perigee_env::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

/// A wall clock this far ahead of its expected time has jumped.
const CLOCK_JUMP_MS: i64 = 3_600_000;
/// Number of flushes that confirm a clock that has jumped.
const CONFIRMING_FLUSHES: u32 = 2;

/// The latest confirmed time, shared with the manifest.
#[derive(Debug, Default)]
pub struct ClockHighWater(AtomicU64);

impl ClockHighWater {
    /// Returns the mark if it is later than `stored`.
    pub fn newer_than(&self, stored: u64) -> Option<u64> {
        Some(self.0.load(SeqCst)).filter(|ms| *ms > stored)
    }
    fn raise(&self, ms: u64) -> u64 {
        self.0.fetch_max(ms, SeqCst).max(ms)
    }
}

/// The state of the clock, for statistics and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalClockStatus {
    /// The time that reads use.
    pub now_ms: u64,
    /// The time up to which expired entries may be deleted.
    pub confirmed_ms: u64,
    /// True if the wall clock has jumped forward and is not yet confirmed.
    pub jumped: bool,
}

/// A reading of both clocks, in milliseconds.
#[derive(Debug)]
struct ClockTimes {
    wall: i64,
    monotonic: i64,
}

/// A reading of the clocks and its evaluation.
#[derive(Debug)]
struct ClockReading {
    times: ClockTimes,
    status: LogicalClockStatus,
}

/// The clock that decides whether entries have expired.
#[derive(Debug)]
pub struct LogicalClock {
    clock: Arc<dyn Clock>,
    high_water_mark: Arc<ClockHighWater>,
    /// Confirmed wall time minus monotonic time, in milliseconds. Never decreases.
    offset: AtomicI64,
    /// Set when the time is first queried.
    used: AtomicBool,
    jumped: AtomicBool,
    /// Flushes since the jump.
    flushes: AtomicU32,
    counters: Arc<Counters>,
}

impl LogicalClock {
    /// Creates the clock from the stored mark (0: none). The wall clock is trusted at open.
    pub fn new(clock: Arc<dyn Clock>, stored_ms: u64, counters: Arc<Counters>) -> LogicalClock {
        let logical = LogicalClock {
            clock,
            high_water_mark: Arc::new(ClockHighWater(AtomicU64::new(stored_ms))),
            offset: AtomicI64::new(0),
            used: AtomicBool::new(false),
            jumped: AtomicBool::new(false),
            flushes: AtomicU32::new(0),
            counters,
        };
        logical.accept_wall_clock(&logical.read_clocks());
        logical
    }

    /// Returns the high-water mark, for the manifest.
    pub fn high_water(&self) -> Arc<ClockHighWater> {
        Arc::clone(&self.high_water_mark)
    }

    /// Reads both clocks.
    fn read_clocks(&self) -> ClockTimes {
        let ms = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        ClockTimes {
            wall: ms(self.clock.wall_ms()),
            monotonic: ms(self.clock.monotonic_us() / 1000),
        }
    }
    /// Accepts the wall time of a reading as confirmed, unless it went back.
    fn accept_wall_clock(&self, times: &ClockTimes) {
        self.offset.fetch_max(times.wall.saturating_sub(times.monotonic), SeqCst);
        self.jumped.store(false, SeqCst);
        self.flushes.store(0, SeqCst);
    }

    /// Reads and evaluates both clocks.
    fn evaluate(&self) -> ClockReading {
        self.used.store(true, SeqCst);
        let times = self.read_clocks();
        let expected = self.offset.load(SeqCst).saturating_add(times.monotonic);
        let jumped = times.wall.saturating_sub(expected) > CLOCK_JUMP_MS;
        if self.jumped.swap(jumped, SeqCst) != jumped && jumped {
            self.counters.clock_jumps.add(1);
            self.flushes.store(0, SeqCst);
        }
        let confirmed = if jumped { expected } else { expected.max(times.wall) };
        let confirmed_ms = self.high_water_mark.raise(u64::try_from(confirmed).unwrap_or(0));
        let now_ms = u64::try_from(times.wall).unwrap_or(0).max(confirmed_ms);
        ClockReading { times, status: LogicalClockStatus { now_ms, confirmed_ms, jumped } }
    }

    /// Records a finished flush: two of them confirm a clock that has jumped.
    pub fn record_flush(&self) {
        if !self.used.load(SeqCst) {
            return;
        }
        // Accept exactly the reading that was evaluated: other threads evaluate concurrently, and
        // the clock may jump after this reading.
        let ClockReading { times, status } = self.evaluate();
        if !status.jumped || self.flushes.fetch_add(1, SeqCst) + 1 >= CONFIRMING_FLUSHES {
            self.accept_wall_clock(&times);
        }
    }
    /// Accepts the wall clock, as confirmed by the operator.
    pub fn confirm_wall_clock(&self) {
        self.accept_wall_clock(&self.read_clocks());
        self.evaluate();
    }
    /// Returns the state of the clock.
    pub fn status(&self) -> LogicalClockStatus {
        self.evaluate().status
    }
}

impl ExpiryClock for LogicalClock {
    fn now_ms(&self) -> u64 {
        self.evaluate().status.now_ms
    }
    fn confirmed_ms(&self) -> u64 {
        self.evaluate().status.confirmed_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct ManualClock(AtomicU64, AtomicU64);
    impl Clock for ManualClock {
        fn wall_ms(&self) -> u64 {
            self.0.load(SeqCst)
        }
        fn monotonic_us(&self) -> u64 {
            self.1.load(SeqCst) * 1000
        }
        fn sleep_us(&self, _: u64) {}
    }

    const YEARS: u64 = 10 * 365 * 24 * 3_600_000;
    const START: u64 = 5 * YEARS;

    fn clock(stored: u64) -> (Arc<ManualClock>, LogicalClock) {
        let times = Arc::new(ManualClock(AtomicU64::new(START), AtomicU64::new(7)));
        (times.clone(), LogicalClock::new(times, stored, Arc::default()))
    }

    #[test]
    fn time_does_not_go_back() {
        let (times, c) = clock(0);
        assert_eq!(c.high_water_mark.newer_than(0), None, "not queried: nothing to store");
        assert_eq!((c.now_ms(), c.confirmed_ms()), (START, START));
        times.0.store(START - YEARS, SeqCst);
        times.1.store(1007, SeqCst);
        assert_eq!(c.now_ms(), START + 1000, "continues with the monotonic clock");
        assert_eq!(c.high_water_mark.newer_than(START), Some(START + 1000));
        let (_, reopened) = clock(START + YEARS);
        assert_eq!(reopened.now_ms(), START + YEARS, "the stored mark holds after a reopen");
    }

    #[test]
    fn clock_jump_hides_but_keeps_entries_until_confirmed() {
        let (times, c) = clock(0);
        times.0.store(START + CLOCK_JUMP_MS as u64, SeqCst);
        assert_eq!(c.confirmed_ms(), START + CLOCK_JUMP_MS as u64, "an hour is not a jump");
        let (times, c) = clock(0);
        times.0.store(START + YEARS, SeqCst);
        assert_eq!((c.now_ms(), c.confirmed_ms()), (START + YEARS, START));
        c.record_flush();
        assert_eq!(c.confirmed_ms(), START);
        times.0.store(START + 5, SeqCst);
        assert_eq!(c.now_ms(), START + 5, "back to the right time: nothing was lost");
        times.0.store(START + YEARS, SeqCst);
        c.record_flush();
        assert_eq!(
            c.status(),
            LogicalClockStatus { now_ms: START + YEARS, confirmed_ms: START + 5, jumped: true }
        );
        c.record_flush();
        assert_eq!(c.confirmed_ms(), START + YEARS, "two flushes after the jump");
        assert_eq!(c.counters.clock_jumps.get(), 2);
        times.0.store(START + 2 * YEARS, SeqCst);
        c.confirm_wall_clock();
        assert_eq!(c.confirmed_ms(), START + 2 * YEARS);
    }

    /// Returns one time per reading, then the last one forever.
    #[derive(Debug)]
    struct ScriptedClock(std::sync::Mutex<Vec<u64>>);
    impl Clock for ScriptedClock {
        fn wall_ms(&self) -> u64 {
            let mut left = self.0.lock().unwrap();
            if left.len() > 1 { left.remove(0) } else { left[0] }
        }
        fn monotonic_us(&self) -> u64 {
            7000
        }
        fn sleep_us(&self, _: u64) {}
    }

    /// Regression test: a flush evaluated one reading of the clock and accepted a second one, so
    /// that a jump between the two was trusted at once.
    #[test]
    fn flush_confirms_only_the_reading_it_evaluated() {
        let times = vec![START, START, START, START + YEARS];
        let c = LogicalClock::new(Arc::new(ScriptedClock(times.into())), 0, Arc::default());
        assert_eq!(c.now_ms(), START);
        c.record_flush();
        let jumped =
            LogicalClockStatus { now_ms: START + YEARS, confirmed_ms: START, jumped: true };
        assert_eq!((c.status(), c.status()), (jumped, jumped));
        c.record_flush();
        assert_eq!(c.status(), jumped, "after one flush of two");
        c.record_flush();
        assert!(!c.status().jumped);
    }
}
