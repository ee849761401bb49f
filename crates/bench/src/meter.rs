//! One thread's clock: latencies, failures, and the pace of a fixed-rate run.

use crate::engine::Result;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest latency that is told apart, in nanoseconds (ten minutes).
const LONGEST: u64 = 600_000_000_000;

/// Counts operations done, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn add(&self, n: u64) {
        // One thread writes: no need for a locked addition.
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }
}

/// An empty histogram: three significant digits from one nanosecond on.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are constant and valid")
}

/// Measures the calls of one thread.
#[derive(Debug)]
pub struct Meter<'a> {
    pub latency: Histogram<u64>,
    pub ops: u64,
    pub errors: u64,
    pub wrong: u64,
    /// Bytes of keys and values given to be written, and read.
    pub given: u64,
    pub seen: u64,
    pub first_failure: Option<String>,
    done: &'a Counter,
    /// Start, and time between calls, of a fixed-rate run.
    pace: Option<(Instant, Duration)>,
    calls: u32,
}

impl<'a> Meter<'a> {
    pub fn new(done: &'a Counter, between: Option<Duration>) -> Self {
        Meter {
            latency: histogram(),
            ops: 0,
            errors: 0,
            wrong: 0,
            given: 0,
            seen: 0,
            first_failure: None,
            done,
            pace: between.map(|b| (Instant::now(), b)),
            calls: 0,
        }
    }
    /// Makes one call of `ops` operations and counts it, whatever comes of it.
    pub fn call(&mut self, ops: u64, call: impl FnOnce() -> Result<()>) {
        let start = self.due();
        let result = call();
        let took = start.elapsed().as_nanos() as u64;
        self.latency.saturating_record(took.max(1));
        match result {
            Ok(()) => {
                self.ops += ops;
                self.done.add(ops);
            }
            Err(e) => self.error(&e.to_string()),
        }
    }
    /// Counts what was done since `since`, within one call that goes on, and begins anew.
    pub fn lap(&mut self, since: &mut Instant, ops: u64) {
        if ops > 0 {
            let now = Instant::now();
            self.latency.saturating_record(((now - *since).as_nanos() as u64).max(1));
            self.ops += ops;
            self.done.add(ops);
            *since = now;
        }
    }
    /// When the next call counts as begun: now, or, at a fixed rate, when it was due.
    fn due(&mut self) -> Instant {
        let Some((start, between)) = self.pace else { return Instant::now() };
        let due = start + between * self.calls;
        self.calls += 1;
        let now = Instant::now();
        if due > now {
            std::thread::sleep(due - now);
        }
        due
    }
    /// An engine refused.
    pub fn error(&mut self, what: &str) {
        self.errors += 1;
        self.first_failure.get_or_insert_with(|| format!("error: {what}"));
    }
    /// An engine answered, wrongly.
    pub fn wrong(&mut self, what: impl FnOnce() -> String) {
        self.wrong += 1;
        self.first_failure.get_or_insert_with(|| format!("wrong: {}", what()));
    }
}
