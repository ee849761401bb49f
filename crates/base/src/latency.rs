//! Latency histograms that many threads update without a lock. Durations are in nanoseconds and
//! measured by the caller.
//!
//! Buckets are logarithmic, eight per doubling: a percentile is at most 12.5 % too high and never
//! too low. Atomics are relaxed: a reader may see a duration in the sum before it appears in its
//! bucket.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Binary logarithm of the number of buckets per doubling.
const SUB_BUCKET_BITS: u32 = 3;
const SUB_BUCKETS: u64 = 1 << SUB_BUCKET_BITS;
/// Number of doublings: up to 2^43 nanoseconds (more than two hours). Longer durations are counted
/// in the last bucket.
const OCTAVES: u64 = 41;
const BUCKETS: usize = (OCTAVES * SUB_BUCKETS) as usize;
const _: () = assert!(SUB_BUCKETS.is_power_of_two() && OCTAVES + (SUB_BUCKET_BITS as u64) < 64);

/// Histogram of the durations of one operation.
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

/// Returns the longest duration that belongs to a bucket, in nanoseconds.
fn bucket_upper_bound(bucket: usize) -> u64 {
    let (octave, sub) = (bucket as u64 / SUB_BUCKETS, bucket as u64 % SUB_BUCKETS);
    if octave == 0 { sub } else { ((SUB_BUCKETS + sub + 1) << (octave - 1)) - 1 }
}

impl Histogram {
    /// Adds a duration, in nanoseconds.
    #[inline]
    pub fn record(&self, ns: u64) {
        self.buckets[bucket_index(ns)].fetch_add(1, Relaxed);
        self.sum.fetch_add(ns, Relaxed);
        self.max.fetch_max(ns, Relaxed);
    }

    /// Returns a summary of the durations recorded so far.
    pub fn summary(&self) -> HistogramSummary {
        let counts: Vec<u64> = self.buckets.iter().map(|b| b.load(Relaxed)).collect();
        let count: u64 = counts.iter().sum();
        let max = self.max.load(Relaxed);
        let percentile = |permille: u64| {
            let rank = (count * permille).div_ceil(1000).max(1);
            let mut seen = 0;
            let found = counts.iter().position(|n| {
                seen += n;
                seen >= rank
            });
            found.map_or(0, |b| bucket_upper_bound(b).min(max))
        };
        let mut cumulative = 0;
        let non_empty = counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(b, n)| {
            cumulative += n;
            (bucket_upper_bound(b), cumulative)
        });
        let percentiles = [500, 900, 990, 999].map(percentile);
        check!(
            percentiles.is_sorted() && percentiles[3] <= max,
            "percentiles ascend up to the maximum",
            percentiles,
            max
        );
        let [p50, p90, p99, p999] = percentiles;
        HistogramSummary {
            count,
            sum: self.sum.load(Relaxed),
            max,
            p50,
            p90,
            p99,
            p999,
            buckets: non_empty.collect(),
        }
    }
}

/// A snapshot of a histogram; durations are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSummary {
    /// Number of durations.
    pub count: u64,
    /// Sum of the durations.
    pub sum: u64,
    /// Longest duration.
    pub max: u64,
    /// 50th percentile (median).
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// For each non-empty bucket: its upper bound, and the number of durations up to that bound.
    pub buckets: Vec<(u64, u64)>,
}

macro_rules! operations {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal, one_in $sample:literal;)+) => {
        /// A measured operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Operation { $($(#[doc = $doc])+ $name,)+ }

        /// All operations, in the order of their discriminants.
        pub const OPERATIONS: &[Operation] = &[$(Operation::$name,)+];

        impl Operation {
            /// Returns the name used in statistics.
            pub fn name(self) -> &'static str {
                match self { $(Operation::$name => $text,)+ }
            }
            /// Sampling interval: one call in this many is measured, because reading the clock may
            /// cost more than a short operation.
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

/// One histogram per operation.
#[derive(Debug)]
pub struct LatencyHistograms(Vec<Histogram>);

impl Default for LatencyHistograms {
    fn default() -> Self {
        LatencyHistograms(OPERATIONS.iter().map(|_| Histogram::default()).collect())
    }
}

impl LatencyHistograms {
    /// Returns the histogram of an operation.
    pub fn histogram(&self, operation: Operation) -> &Histogram {
        &self.0[operation as usize]
    }
    /// Returns a summary per operation, in the order of [`OPERATIONS`].
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
