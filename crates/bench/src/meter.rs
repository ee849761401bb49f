//! Measurements of one thread: latencies, failures, and the pace of a fixed-rate run.

use crate::engine::Result;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest latency that is distinguished, in nanoseconds (ten minutes).
const LATENCY_MAX_NS: u64 = 600_000_000_000;

/// Completed operations and the longest call since the last sample, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ProgressCounter {
    done: AtomicU64,
    worst: AtomicU64,
}

impl ProgressCounter {
    pub fn ops_done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
    /// Returns the longest call in nanoseconds since the previous call of this function.
    pub fn take_worst(&self) -> u64 {
        self.worst.swap(0, Ordering::Relaxed)
    }
    fn clear(&self) {
        self.done.store(0, Ordering::Relaxed);
        self.worst.store(0, Ordering::Relaxed);
    }
    fn add(&self, n: u64, took: u64) {
        // Only one thread adds, so no atomic addition is needed. The sampler also resets the
        // longest call, but that seldom coincides with a new maximum.
        self.done.store(self.done.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        if took > self.worst.load(Ordering::Relaxed) {
            self.worst.fetch_max(took, Ordering::Relaxed);
        }
    }
}

/// Limits and pace of a thread's measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Time between calls in a fixed-rate run.
    pub interval: Option<Duration>,
    /// Time after which to stop, even if not done.
    pub time_limit: Option<Duration>,
    /// True to record writes separately as well.
    pub mixed: bool,
}

/// Returns an empty histogram: three significant digits from one nanosecond on.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("the bounds are constant and valid")
}

/// Measures the calls of one thread.
#[derive(Debug)]
pub struct Meter<'a> {
    pub latency: Histogram<u64>,
    /// Latency of the writes alone, in workloads that also read.
    pub writes: Option<Histogram<u64>>,
    pub ops: u64,
    pub errors: u64,
    pub wrong: u64,
    /// Transactions that lost a conflict and were retried.
    pub aborts: u64,
    /// Bytes of keys and values submitted for writing, and bytes read.
    pub written_bytes: u64,
    pub read_bytes: u64,
    pub first_failure: Option<String>,
    /// True once the time limit was reached.
    pub time_up: bool,
    progress: &'a ProgressCounter,
    /// Start time and time between calls of a fixed-rate run.
    pace: Option<(Instant, Duration)>,
    end: Option<Instant>,
    calls: u32,
}

impl<'a> Meter<'a> {
    pub fn new(done: &'a ProgressCounter, pace: Pace) -> Self {
        let now = Instant::now();
        Meter {
            latency: histogram(),
            writes: pace.mixed.then(histogram),
            ops: 0,
            errors: 0,
            wrong: 0,
            aborts: 0,
            written_bytes: 0,
            read_bytes: 0,
            first_failure: None,
            time_up: false,
            progress: done,
            pace: pace.interval.map(|b| (now, b)),
            end: pace.time_limit.map(|d| now + d),
            calls: 0,
        }
    }
    /// Begins the measured phase: clears all counts except failures.
    pub fn begin(&mut self, pace: Pace) {
        let (errors, wrong, first_failure) = (self.errors, self.wrong, self.first_failure.take());
        self.progress.clear();
        *self = Meter { errors, wrong, first_failure, ..Meter::new(self.progress, pace) };
    }
    /// Runs and measures one call of `ops` operations, whatever its result.
    pub fn time_call(&mut self, ops: u64, call: impl FnOnce() -> Result<()>) {
        self.measure_call(ops, call);
    }
    /// Like `time_call`, for a write of a workload that also reads.
    pub fn time_write(&mut self, ops: u64, call: impl FnOnce() -> Result<()>) {
        let took = self.measure_call(ops, call);
        if let Some(writes) = &mut self.writes {
            writes.saturating_record(took);
        }
    }
    fn measure_call(&mut self, ops: u64, call: impl FnOnce() -> Result<()>) -> u64 {
        let start = self.call_start();
        let result = call();
        let now = Instant::now();
        let took = ((now - start).as_nanos() as u64).max(1);
        self.latency.saturating_record(took);
        self.time_up = self.end.is_some_and(|end| now >= end);
        match result {
            Ok(()) => {
                self.ops += ops;
                self.progress.add(ops, took);
            }
            Err(e) => self.record_error(&e.to_string()),
        }
        took
    }
    /// Records `ops` operations done since `since` within a continuing call, and resets `since`.
    pub fn record_since(&mut self, since: &mut Instant, ops: u64) {
        if ops > 0 {
            let now = Instant::now();
            let took = ((now - *since).as_nanos() as u64).max(1);
            self.latency.saturating_record(took);
            self.ops += ops;
            self.progress.add(ops, took);
            *since = now;
        }
    }
    /// Returns the start time of the next call: now or, at a fixed rate, when it was due.
    fn call_start(&mut self) -> Instant {
        let Some((start, between)) = self.pace else { return Instant::now() };
        let due = start + between * self.calls;
        self.calls += 1;
        let now = Instant::now();
        if due > now {
            std::thread::sleep(due - now);
        }
        due
    }
    /// Counts an operation that the engine refused.
    pub fn record_error(&mut self, what: &str) {
        self.errors += 1;
        self.first_failure.get_or_insert_with(|| format!("error: {what}"));
    }
    /// Counts a wrong answer of the engine.
    pub fn record_wrong(&mut self, what: impl FnOnce() -> String) {
        self.wrong += 1;
        self.first_failure.get_or_insert_with(|| format!("wrong: {}", what()));
    }
}
