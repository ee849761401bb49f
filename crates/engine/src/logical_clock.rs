//! The time for entries that expire: the wall clock, kept from going back and from being believed
//! when it leaps.
//!
//! The rules (`docs/RELIABILITY.md`): reads go by the later of the wall clock and the high-water
//! mark, which is stored with manifest edits that happen anyway. A wall clock that runs ahead of
//! the monotonic one by more than an hour is not yet believed: reads hide what it says has expired,
//! but nothing is destroyed by it and the mark does not follow it, until it is confirmed by two
//! flushes or by [`LogicalClock::confirm_wall_clock`]. No clock is read, after open, until an entry
//! that expires is met. Must not know what it is asked for.

use perigee_base::ExpiryClock;
use perigee_base::stats::Counters;
use perigee_env::clock::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

/// A clock this far ahead of where it should be has jumped.
const CLOCK_JUMP_MS: i64 = 3_600_000;
/// So many flushes confirm a clock that has jumped.
const CONFIRMING_FLUSHES: u32 = 2;

/// The latest time that was believed, shared with the manifest.
#[derive(Debug, Default)]
pub struct ClockHighWater(AtomicU64);

impl ClockHighWater {
    /// The mark, if it is beyond what is stored already.
    pub fn newer_than(&self, stored: u64) -> Option<u64> {
        Some(self.0.load(SeqCst)).filter(|ms| *ms > stored)
    }
    fn raise(&self, ms: u64) -> u64 {
        self.0.fetch_max(ms, SeqCst).max(ms)
    }
}

/// What the clock is thought to be, for statistics and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalClockStatus {
    /// The time that reads go by.
    pub now_ms: u64,
    /// The time by which entries may be destroyed.
    pub confirmed_ms: u64,
    /// Whether the wall clock has jumped forward and is not yet confirmed.
    pub jumped: bool,
}

/// What both clocks said, in milliseconds.
#[derive(Debug)]
struct ClockTimes {
    wall: i64,
    monotonic: i64,
}

/// A look at the clocks, and what is thought of it.
#[derive(Debug)]
struct ClockReading {
    times: ClockTimes,
    status: LogicalClockStatus,
}

/// The time for entries that expire.
#[derive(Debug)]
pub struct LogicalClock {
    clock: Arc<dyn Clock>,
    high_water_mark: Arc<ClockHighWater>,
    /// Believed wall time minus monotonic time, in milliseconds. Only grows.
    offset: AtomicI64,
    /// Set by the first question.
    used: AtomicBool,
    jumped: AtomicBool,
    /// Flushes since the jump.
    flushes: AtomicU32,
    counters: Arc<Counters>,
}

impl LogicalClock {
    /// From the stored mark (0: none). The wall clock is believed at open.
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

    /// The mark, for the manifest.
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
    /// Takes what the wall clock said then for the truth, unless it went back.
    fn accept_wall_clock(&self, hands: &ClockTimes) {
        self.offset.fetch_max(hands.wall.saturating_sub(hands.monotonic), SeqCst);
        self.jumped.store(false, SeqCst);
        self.flushes.store(0, SeqCst);
    }

    /// Reads both clocks, and says what may be believed.
    fn evaluate(&self) -> ClockReading {
        self.used.store(true, SeqCst);
        let hands = self.read_clocks();
        let expected = self.offset.load(SeqCst).saturating_add(hands.monotonic);
        let jumped = hands.wall.saturating_sub(expected) > CLOCK_JUMP_MS;
        if self.jumped.swap(jumped, SeqCst) != jumped && jumped {
            self.counters.clock_jumps.add(1);
            self.flushes.store(0, SeqCst);
        }
        let settled = if jumped { expected } else { expected.max(hands.wall) };
        let settled_ms = self.high_water_mark.raise(u64::try_from(settled).unwrap_or(0));
        let now_ms = u64::try_from(hands.wall).unwrap_or(0).max(settled_ms);
        ClockReading {
            times: hands,
            status: LogicalClockStatus { now_ms, confirmed_ms: settled_ms, jumped },
        }
    }

    /// A flush was finished: two of them confirm a clock that has jumped.
    pub fn record_flush(&self) {
        if !self.used.load(SeqCst) {
            return;
        }
        // What is believed is what was judged: others read meanwhile, and the clock may leap after
        // this look.
        let ClockReading { times: hands, status } = self.evaluate();
        if !status.jumped || self.flushes.fetch_add(1, SeqCst) + 1 >= CONFIRMING_FLUSHES {
            self.accept_wall_clock(&hands);
        }
    }
    /// Somebody who knows says that the wall clock is right.
    pub fn confirm_wall_clock(&self) {
        self.accept_wall_clock(&self.read_clocks());
        self.evaluate();
    }
    /// What the clock is thought to be.
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
        let hands = Arc::new(ManualClock(AtomicU64::new(START), AtomicU64::new(7)));
        (hands.clone(), LogicalClock::new(hands, stored, Arc::default()))
    }

    #[test]
    fn time_does_not_go_back() {
        let (hands, c) = clock(0);
        assert_eq!(c.high_water_mark.newer_than(0), None, "nobody asked: nothing is stored");
        assert_eq!((c.now_ms(), c.confirmed_ms()), (START, START));
        hands.0.store(START - YEARS, SeqCst);
        hands.1.store(1007, SeqCst);
        assert_eq!(c.now_ms(), START + 1000, "it goes on with the monotonic clock");
        assert_eq!(c.high_water_mark.newer_than(START), Some(START + 1000));
        let (_, reopened) = clock(START + YEARS);
        assert_eq!(reopened.now_ms(), START + YEARS, "the stored mark holds after a reopen");
    }

    #[test]
    fn clock_jump_hides_but_keeps_entries_until_confirmed() {
        let (hands, c) = clock(0);
        hands.0.store(START + CLOCK_JUMP_MS as u64, SeqCst);
        assert_eq!(c.confirmed_ms(), START + CLOCK_JUMP_MS as u64, "an hour is no leap");
        let (hands, c) = clock(0);
        hands.0.store(START + YEARS, SeqCst);
        assert_eq!((c.now_ms(), c.confirmed_ms()), (START + YEARS, START));
        c.record_flush();
        assert_eq!(c.confirmed_ms(), START);
        hands.0.store(START + 5, SeqCst);
        assert_eq!(c.now_ms(), START + 5, "back in time: nothing was lost");
        hands.0.store(START + YEARS, SeqCst);
        c.record_flush();
        assert_eq!(
            c.status(),
            LogicalClockStatus { now_ms: START + YEARS, confirmed_ms: START + 5, jumped: true }
        );
        c.record_flush();
        assert_eq!(c.confirmed_ms(), START + YEARS, "two flushes after the leap");
        assert_eq!(c.counters.clock_jumps.get(), 2);
        hands.0.store(START + 2 * YEARS, SeqCst);
        c.confirm_wall_clock();
        assert_eq!(c.confirmed_ms(), START + 2 * YEARS);
    }

    /// Tells one time at each look, then the last for ever.
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

    /// A flush read the clock, found it right, and read it again to believe it: a leap between the
    /// two was believed at once.
    #[test]
    fn flush_confirms_only_the_reading_it_evaluated() {
        let times = vec![START, START, START, START + YEARS];
        let c = LogicalClock::new(Arc::new(ScriptedClock(times.into())), 0, Arc::default());
        assert_eq!(c.now_ms(), START);
        c.record_flush();
        let leapt = LogicalClockStatus { now_ms: START + YEARS, confirmed_ms: START, jumped: true };
        assert_eq!((c.status(), c.status()), (leapt, leapt));
        c.record_flush();
        assert_eq!(c.status(), leapt, "after one flush of two");
        c.record_flush();
        assert!(!c.status().jumped);
    }
}
