//! Counters that any layer may bump and anybody may read. Plain relaxed atomics: no order is
//! promised between two of them.

use crate::io_stats::IoCounters;
use crate::latency::LatencyHistograms;
use crate::thread_stripe::StripedCounter;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What every read or write bumps is striped, so that threads that do it at once do not meet at a
/// counter.
macro_rules! counter {
    () => {
        Counter
    };
    ($kind:ident) => {
        $kind
    };
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident $(: $kind:ident)?),+ $(,)?) => {
        /// All counters of one open database.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: counter!($($kind)?),)+
            /// Input and output by cause.
            pub io: IoCounters,
            /// How long operations took.
            pub latency: LatencyHistograms,
        }

        impl Counters {
            /// Every counter by name, in a stable order.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)+]
            }
        }
    };
}

counters! {
    /// Write calls that were acknowledged.
    commits: StripedCounter,
    /// Operations inside them.
    operations: StripedCounter,
    /// Bytes of user keys and values in them.
    user_bytes_written: StripedCounter,
    /// Group commits (one log append each).
    commit_groups,
    /// Bytes appended to the write-ahead log.
    wal_bytes_written,
    /// Syncs of the write-ahead log.
    wal_syncs,
    /// Iterators and cursors positioned.
    seeks: StripedCounter,
    /// Steps of iterators and cursors; counted 61 at a time, and when one is dropped.
    nexts: StripedCounter,
    /// Tombstones that iterators and cursors passed, counted 64 at a time in each memtable or
    /// table.
    tombstones_passed: StripedCounter,
    /// Point reads.
    gets: StripedCounter,
    /// Point reads that found a value.
    get_hits: StripedCounter,
    /// Times a filter answered "not here" and a block read was saved.
    filter_negatives: StripedCounter,
    /// Times a filter said "maybe" and the file had no such key.
    filter_false_positives: StripedCounter,
    /// Blocks found in the block cache.
    cache_hits: StripedCounter,
    /// Blocks that had to be read.
    cache_misses: StripedCounter,
    /// Bytes read from klogs.
    klog_bytes_read: StripedCounter,
    /// Bytes read from value logs.
    vlog_bytes_read,
    /// Flushes finished.
    flushes,
    /// Bytes written by flushes (klog and vlog).
    flush_bytes_written,
    /// Compactions finished.
    compactions,
    /// Bytes read by compactions.
    compaction_bytes_read,
    /// Bytes written by compactions.
    compaction_bytes_written,
    /// Entries dropped because a newer version hides them.
    dropped_shadowed,
    /// Tombstones dropped at the bottom of the tree.
    dropped_tombstones,
    /// Entries dropped because a range tombstone hides them.
    dropped_covered,
    /// Single deletes and the puts that they cancelled.
    dropped_cancelled,
    /// Operands, and what lay below them, that flushes and compactions merged into another entry.
    operands_merged,
    /// Operands that they could have merged, had the merge operator not failed; counted each time.
    operands_unmerged,
    /// Range tombstones (in fragments) dropped by compactions.
    dropped_ranges,
    /// Tables dropped unread because a range tombstone hides everything in them.
    dropped_tables,
    /// Expired entries dropped at the bottom of the tree, or replaced by a tombstone above it.
    dropped_expired,
    /// Forward jumps of the wall clock that were noticed: expired entries stay stored until the
    /// clock is confirmed.
    clock_jumps,
    /// Files that the background scrub has read.
    scrub_files,
    /// Bytes that it has read of them.
    scrub_bytes,
    /// Times that it came to the end of all files.
    scrub_passes,
    /// Damaged files that it met, each time it met one.
    scrub_errors,
    /// Manifest edits appended.
    manifest_edits,
    /// Manifest edits that only record how far the log is durable.
    log_watermarks,
    /// Bytes appended to the manifest.
    manifest_bytes_written,
    /// Microseconds that writers were delayed by back-pressure.
    delay_us,
    /// Microseconds that writers were stopped by back-pressure.
    stop_us,
}
