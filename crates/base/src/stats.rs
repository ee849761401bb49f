//! Engine counters: any layer may increment them and any thread may read them. They are relaxed
//! atomics: two counters read one after the other are not a consistent snapshot.

use crate::io_stats::IoCounters;
use crate::latency::LatencyHistograms;
use crate::thread_stripe::StripedCounter;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A monotonically increasing counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    /// Returns the current value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counters that every read or write increments are striped, so that concurrent threads do not
/// contend on one cache line.
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
            /// I/O calls and bytes per activity.
            pub io: IoCounters,
            /// Latency histograms per operation.
            pub latency: LatencyHistograms,
        }

        impl Counters {
            /// Returns the name and value of every counter, in a stable order.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)+]
            }
        }
    };
}

counters! {
    /// Acknowledged write calls.
    commits: StripedCounter,
    /// Operations in acknowledged write calls.
    operations: StripedCounter,
    /// Bytes of user keys and values in acknowledged write calls.
    user_bytes_written: StripedCounter,
    /// Group commits (one log append each).
    commit_groups,
    /// Bytes appended to the write-ahead log.
    wal_bytes_written,
    /// Syncs of the write-ahead log.
    wal_syncs,
    /// Seeks of iterators and cursors.
    seeks: StripedCounter,
    /// Steps of iterators and cursors; added in units of 61, the rest when the iterator is dropped.
    nexts: StripedCounter,
    /// Tombstones skipped by iterators and cursors, added in units of 64 per memtable or table.
    tombstones_skipped: StripedCounter,
    /// Memtables flushed early because scans took many steps in them.
    scanned_memtables,
    /// Point reads.
    gets: StripedCounter,
    /// Point reads that found a value.
    get_hits: StripedCounter,
    /// Filter checks that returned "not present" and saved a block read.
    filter_negatives: StripedCounter,
    /// Filter checks that returned "maybe present" for a key that the file does not contain.
    filter_false_positives: StripedCounter,
    /// Block reads served by the block cache.
    cache_hits: StripedCounter,
    /// Block reads that missed the block cache.
    cache_misses: StripedCounter,
    /// Bytes read from klogs.
    klog_bytes_read: StripedCounter,
    /// Bytes read from value logs.
    vlog_bytes_read,
    /// Completed flushes.
    flushes,
    /// Bytes written by flushes (klog and vlog).
    flush_bytes_written,
    /// Completed compactions.
    compactions,
    /// Bytes read by compactions.
    compaction_bytes_read,
    /// Bytes written by compactions.
    compaction_bytes_written,
    /// Entries dropped because a newer version shadows them.
    dropped_shadowed,
    /// Tombstones dropped at the bottom level.
    dropped_tombstones,
    /// Entries dropped because a range tombstone covers them.
    dropped_covered,
    /// Single deletes and the puts that they cancelled.
    dropped_cancelled,
    /// Merge operands and base values that flushes and compactions merged into another entry.
    operands_merged,
    /// Merge operands left unmerged by flushes and compactions because the merge operator failed;
    /// an operand counts once per failed attempt.
    operands_unmerged,
    /// Range tombstones (in fragments) dropped by compactions.
    dropped_ranges,
    /// Tables dropped without reading them because a range tombstone covers all their keys.
    dropped_tables,
    /// Expired entries dropped at the bottom level, or converted to tombstones above it.
    dropped_expired,
    /// Detected forward jumps of the wall clock. Expired entries are kept until the clock is
    /// confirmed.
    clock_jumps,
    /// Files read by the background scrub.
    scrub_files,
    /// Bytes read by the background scrub.
    scrub_bytes,
    /// Completed passes of the background scrub over all files.
    scrub_passes,
    /// Damaged files found by the background scrub, counted each time.
    scrub_errors,
    /// Manifest edits appended.
    manifest_edits,
    /// Manifest edits that only record the durable position of the log.
    log_watermarks,
    /// Bytes appended to the manifest.
    manifest_bytes_written,
    /// Microseconds for which back-pressure delayed writers.
    delay_us,
    /// Microseconds for which back-pressure stopped writers.
    stop_us,
}
