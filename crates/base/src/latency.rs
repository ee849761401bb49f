//! How long things took: histograms that many threads add to without a lock. Knows no clock;
//! durations come in nanoseconds.
//!
//! Buckets are logarithmic, eight to each doubling: a figure read from them is at most 12.5 % too
//! high, never too low. Relaxed atomics: a reader may see a duration in the sum and not yet in its
//! bucket.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets to a doubling, as a power of two.
const SUB_BUCKET_BITS: u32 = 3;
const SUB_BUCKETS: u64 = 1 << SUB_BUCKET_BITS;
/// Doublings: up to 2^43 nanoseconds, more than two hours; what took longer counts as that.
const OCTAVES: u64 = 41;
const BUCKETS: usize = (OCTAVES * SUB_BUCKETS) as usize;

/// Durations of one operation.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }
}

fn bucket_index(ns: u64) -> usize {
    if ns < SUB_BUCKETS {
        return ns as usize;
    }
    let octave = ns.ilog2() - SUB_BUCKET_BITS;
    let sub = (ns >> octave) & (SUB_BUCKETS - 1);
    ((u64::from(octave) + 1) * SUB_BUCKETS + sub).min(BUCKETS as u64 - 1) as usize
}

/// The longest duration that falls into a bucket.
fn bucket_upper_bound(bucket: usize) -> u64 {
    let (octave, sub) = (bucket as u64 / SUB_BUCKETS, bucket as u64 % SUB_BUCKETS);
    if octave == 0 { sub } else { ((SUB_BUCKETS + sub + 1) << (octave - 1)) - 1 }
}

impl Histogram {
    /// Adds a duration.
    #[inline]
    pub fn record(&self, ns: u64) {
        self.buckets[bucket_index(ns)].fetch_add(1, Relaxed);
        self.sum.fetch_add(ns, Relaxed);
        self.max.fetch_max(ns, Relaxed);
    }

    /// What it holds now.
    pub fn summary(&self) -> HistogramSummary {
        let counts: Vec<u64> = self.buckets.iter().map(|b| b.load(Relaxed)).collect();
        let count: u64 = counts.iter().sum();
        let max = self.max.load(Relaxed);
        let at = |permille: u64| {
            let rank = (count * permille).div_ceil(1000).max(1);
            let mut seen = 0;
            let found = counts.iter().position(|n| {
                seen += n;
                seen >= rank
            });
            found.map_or(0, |b| bucket_upper_bound(b).min(max))
        };
        let mut below = 0;
        let full = counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(b, n)| {
            below += n;
            (bucket_upper_bound(b), below)
        });
        HistogramSummary {
            count,
            sum: self.sum.load(Relaxed),
            max,
            p50: at(500),
            p90: at(900),
            p99: at(990),
            p999: at(999),
            buckets: full.collect(),
        }
    }
}

/// A histogram at one moment, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSummary {
    /// Durations in it.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The longest.
    pub max: u64,
    /// Half of them took no longer.
    pub p50: u64,
    /// Nine of ten took no longer.
    pub p90: u64,
    /// 99 of 100 took no longer.
    pub p99: u64,
    /// 999 of 1000 took no longer.
    pub p999: u64,
    /// For each bucket that holds any: its upper bound, and how many took no longer.
    pub buckets: Vec<(u64, u64)>,
}

macro_rules! operations {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal, one_in $sample:literal;)+) => {
        /// What is measured.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Operation { $($(#[doc = $doc])+ $name,)+ }

        /// Every operation.
        pub const OPERATIONS: &[Operation] = &[$(Operation::$name,)+];

        impl Operation {
            /// Its name in statistics.
            pub fn name(self) -> &'static str {
                match self { $(Operation::$name => $text,)+ }
            }
            /// One of so many is measured: reading a clock costs more than a short operation may.
            pub const fn one_in(self) -> u64 {
                match self { $(Operation::$name => $sample,)+ }
            }
        }
    };
}

operations! {
    /// A point read.
    Get = "get", one_in 61;
    /// Many point reads in one call.
    MultiGet = "multi_get", one_in 1;
    /// A put or a batch.
    Write = "write", one_in 7;
    /// A delete.
    Delete = "delete", one_in 7;
    /// Positioning an iterator.
    Seek = "seek", one_in 7;
    /// A step of an iterator.
    Next = "next", one_in 61;
    /// A flush of one memtable.
    Flush = "flush", one_in 1;
    /// A compaction.
    Compaction = "compaction", one_in 1;
    /// A sync of the log.
    WalSync = "wal_sync", one_in 1;
}

/// A histogram for each operation.
#[derive(Debug)]
pub struct LatencyHistograms(Vec<Histogram>);

impl Default for LatencyHistograms {
    fn default() -> Self {
        LatencyHistograms(OPERATIONS.iter().map(|_| Histogram::default()).collect())
    }
}

impl LatencyHistograms {
    /// The histogram of an operation.
    pub fn histogram(&self, operation: Operation) -> &Histogram {
        &self.0[operation as usize]
    }
    /// All of them, in order.
    pub fn summaries(&self) -> Vec<(Operation, HistogramSummary)> {
        OPERATIONS.iter().map(|o| (*o, self.histogram(*o).summary())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_bounds_match_bucket_index() {
        let mut last = None;
        for b in 0..BUCKETS {
            assert_eq!(bucket_index(bucket_upper_bound(b)), b);
            assert!(last.is_none_or(|l| l < bucket_upper_bound(b)));
            last = Some(bucket_upper_bound(b));
        }
        for ns in (0..2000).chain([1 << 20, (1 << 30) + 12345, 1 << 42]) {
            let up = bucket_upper_bound(bucket_index(ns));
            assert!(
                up >= ns && up as f64 <= ns as f64 * 1.125 + 1.0,
                "{ns} is in the bucket of {up}"
            );
        }
        assert_eq!(bucket_index(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_upper_bounds_within_an_eighth() {
        let h = Histogram::default();
        assert_eq!(h.summary(), HistogramSummary::default());
        (1..=1000).for_each(|us| h.record(us * 1000));
        let s = h.summary();
        assert_eq!((s.count, s.sum, s.max), (1000, 500_500_000, 1_000_000));
        for (got, exact) in
            [(s.p50, 500_000), (s.p90, 900_000), (s.p99, 990_000), (s.p999, 999_000)]
        {
            assert!(got >= exact && got as f64 <= exact as f64 * 1.125, "{got} for {exact}");
        }
        assert_eq!(s.buckets.last().map(|b| b.1), Some(1000));
    }

    #[test]
    fn operations_have_separate_histograms() {
        let l = LatencyHistograms::default();
        l.histogram(Operation::Seek).record(7);
        let counts: Vec<u64> = l.summaries().iter().map(|(_, s)| s.count).collect();
        assert_eq!(counts.iter().sum::<u64>(), 1);
        assert_eq!(l.summaries()[Operation::Seek as usize].0.name(), "seek");
    }
}
