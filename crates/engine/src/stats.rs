//! Statistics and reports of a database: plain data, part of the public interface of `perigee`.
//! Collected by `report`, `verify` and `recover`.

use perigee_base::Error;
use std::time::Duration;

/// Statistics of a database at one moment (`Admin::stats`).
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Counters since open, by name (see `docs/STATISTICS.md`).
    pub counters: Vec<CounterValue>,
    /// Statistics of each column family.
    pub families: Vec<FamilyStats>,
    /// Sequence number of the newest visible operation.
    pub last_sequence: u64,
    /// All operations up to this sequence number are on stable storage.
    pub durable_sequence: u64,
    /// Bytes of indexes and filters of tables, which are always kept in memory.
    pub table_memory_bytes: u64,
    /// Statistics of the block cache.
    pub cache: CacheStats,
    /// Statistics of the row cache.
    pub row_cache: RowCacheStats,
    /// Memory use by owner, in bytes.
    pub memory: Vec<OwnerMemory>,
    /// I/O by cause.
    pub io: Vec<IoStats>,
    /// Latency of operations.
    pub latency: Vec<LatencyStats>,
    /// Write stalls, by reason.
    pub stalls: Vec<StallStats>,
    /// Limit in bytes for the sum of `memory` (`Options::memory_budget`).
    pub memory_budget: u64,
    /// Resident set size of the process in bytes, including the program and the application's
    /// memory, if the operating system reports it.
    pub process_resident_bytes: Option<u64>,
    /// Open table files.
    pub open_files: OpenFileStats,
    /// Free disk space in bytes at the last check (`u64::MAX`: not checked yet, or unlimited).
    pub free_space: u64,
    /// The write-ahead log.
    pub wal: WalStats,
    /// Total size in bytes of all files of the database.
    pub disk_bytes: u64,
    /// Number of table files. A file shared by cloned column families counts once.
    pub tables: usize,
    /// Number of open snapshots.
    pub snapshots: usize,
    /// Open and prepared transactions.
    pub transactions: TransactionStats,
    /// Running and pending flushes and compactions.
    pub background: BackgroundStats,
    /// Memory pressure, 0 to 3, from the used share of the memory budget (without the block cache,
    /// which shrinks on demand) or of the part of it that is reserved for memtables, whichever is
    /// higher: 0 below 1/2, 1 below 3/4, 2 below 9/10, 3 above. From 2 on writers are slowed.
    pub memory_pressure: u8,
    /// Flushes and compactions that are running, in detail.
    pub running_jobs: Vec<JobStats>,
    /// Current reason for delaying or stopping writers, for example `immutable memtables`; `none`
    /// if there is none.
    pub stall_reason: String,
    /// What recovery did when the database was opened.
    pub recovery: RecoveryReport,
    /// The error that stopped writes, or the last error of a background job that is being retried.
    pub background_error: Option<Error>,
    /// One error per damaged file found by the background scrub
    /// (`Options::scrub_interval`).
    pub scrub_errors: Vec<Error>,
}

impl Stats {
    /// Returns the value of a counter by its name in `docs/STATISTICS.md`, or `None` if there is no
    /// such counter.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.iter().find(|c| c.name == name).map(|c| c.value)
    }
    /// Returns the memory in use in bytes: the sum of [`Stats::memory`].
    pub fn memory_bytes(&self) -> u64 {
        self.memory.iter().map(|m| m.bytes).sum()
    }
}

/// A counter: a number of events or an amount since open.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CounterValue {
    /// Name in `docs/STATISTICS.md`. It ends in the unit, if the counter has one.
    pub name: &'static str,
    /// Value since open.
    pub value: u64,
}

/// Memory in use by one owner.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnerMemory {
    /// What the memory is used for, for example `block cache`.
    pub owner: &'static str,
    /// Bytes in use.
    pub bytes: u64,
}

/// Open table files.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenFileStats {
    /// Number of open files.
    pub open: usize,
    /// Limit (`Options::max_open_files`).
    pub limit: usize,
}

/// The segments of the write-ahead log.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WalStats {
    /// Number of segments.
    pub segments: usize,
    /// Their total size in bytes.
    pub bytes: u64,
    /// File number of the newest segment. Numbers increase and are never reused.
    pub newest_segment: u64,
}

/// A bucket of a cumulative latency histogram.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatencyBucket {
    /// Upper bound in nanoseconds.
    pub upper_ns: u64,
    /// Number of operations up to this bound.
    pub cumulative_count: u64,
}

/// The active memtable of a column family.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActiveMemtableStats {
    /// Memory in bytes.
    pub bytes: u64,
    /// Number of entries.
    pub entries: u64,
}

/// Immutable memtables of a column family.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImmutableMemtableStats {
    /// Number of memtables.
    pub count: usize,
    /// Their memory in bytes.
    pub bytes: u64,
}

/// Value logs of a column family.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VlogStats {
    /// Number of files.
    pub files: usize,
    /// Their size in bytes.
    pub bytes: u64,
    /// Bytes of them that tables still reference.
    pub referenced_bytes: u64,
}

/// A range of sequence numbers, both ends included.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SequenceRange {
    /// The smallest.
    pub first: u64,
    /// The largest.
    pub last: u64,
}

/// Uncompressed bytes of keys and values.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawByteTotals {
    /// Bytes of all keys.
    pub keys: u64,
    /// Bytes of all values.
    pub values: u64,
}

/// Statistics of transactions.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TransactionStats {
    /// Transactions begun and not yet committed, rolled back or prepared.
    pub open: u64,
    /// Memory in bytes used by the writes of open transactions. For a spilled transaction, only
    /// the part in memory counts. Read sets are not included.
    pub bytes: u64,
    /// Prepared transactions that are neither committed nor rolled back.
    pub prepared: u64,
    /// Age of the oldest prepared transaction by the wall clock, including time before a restart.
    pub oldest_prepared: Option<Duration>,
}

/// Statistics of flushes and compactions.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct BackgroundStats {
    /// Running flushes. One flush can write small memtables of several column families.
    pub flushes_running: usize,
    /// Immutable memtables that are not yet written to tables, including those being flushed.
    pub immutable_memtables: usize,
    /// Running compactions.
    pub compactions_running: usize,
    /// Column families that need a compaction and have none running.
    pub compactions_due: usize,
}

/// Statistics of the block cache.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CacheStats {
    /// Capacity in bytes.
    pub capacity: u64,
    /// Used bytes.
    pub used: u64,
    /// Number of data blocks in the cache. Indexes and filters are not in the cache; see
    /// [`Stats::memory`].
    pub blocks: u64,
    /// Lookups that found the block.
    pub hits: u64,
    /// Lookups that did not find the block.
    pub misses: u64,
    /// Blocks evicted to make space.
    pub evictions: u64,
    /// Number of independently locked shards.
    pub shards: usize,
}

/// Statistics of the row cache (`Options::row_cache_bytes`).
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowCacheStats {
    /// Capacity in bytes; 0: there is no row cache.
    pub capacity: u64,
    /// Used bytes.
    pub used: u64,
    /// Number of cached rows, including keys that do not exist.
    pub rows: u64,
    /// Lookups that found the row.
    pub hits: u64,
    /// Lookups that did not find the row. While the hit rate is low, most gets make no lookup.
    pub misses: u64,
    /// Rows removed because a write changed them.
    pub invalidations: u64,
    /// Rows evicted to make space.
    pub evictions: u64,
}

impl RowCacheStats {
    /// Returns the share of lookups that found the row, 0 to 1; 0 if there were none.
    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }
}

/// Read and write calls for one cause.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct IoStats {
    /// The cause: `wal`, `manifest`, `flush`, `compaction`, `get` or `scan`.
    pub cause: &'static str,
    /// Number of read calls.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Number of write calls.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

/// Latency of one kind of operation, in nanoseconds. Reported percentiles are up to 12.5 % too
/// high, never too low.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LatencyStats {
    /// The operation: `get`, `multi_get`, `write`, `delete`, `seek`, `next`, `flush`, `compaction`
    /// or `wal_sync`.
    pub operation: &'static str,
    /// Sampling rate: one of this many operations is measured.
    pub one_in: u64,
    /// Number of measured operations.
    pub count: u64,
    /// Sum of the measured latencies.
    pub sum_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
    /// Cumulative histogram: the non-empty buckets, in ascending order.
    pub buckets: Vec<LatencyBucket>,
}

/// Write stalls for one reason.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StallStats {
    /// The reason, for example `immutable memtables`.
    pub reason: &'static str,
    /// Number of delayed writes.
    pub delays: u64,
    /// Total delay in microseconds.
    pub delay_us: u64,
    /// Number of writes stopped until the reason no longer applied.
    pub stops: u64,
    /// Total time stopped in microseconds.
    pub stop_us: u64,
}

/// A running flush or compaction.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobStats {
    /// `flush` or `compaction`.
    pub kind: &'static str,
    /// Name of the column family.
    pub family: String,
    /// Why the job runs: `immutable memtable`, `level 0 runs`, `level bytes`,
    /// `overwritten entries`, `tombstones`, `skipped tombstones`, `expired entries`,
    /// `small tables`, `value-log garbage`, `deleted ranges` or `manual`.
    pub reason: &'static str,
    /// Input levels; empty for a flush.
    pub from: Vec<u8>,
    /// Output level.
    pub to: u8,
    /// Number of input tables.
    pub files: usize,
    /// Input size in bytes.
    pub bytes: u64,
    /// Input bytes processed so far, estimated from the number of entries.
    pub bytes_done: u64,
    /// Output bytes written so far.
    pub bytes_written: u64,
    /// Time since the start of the job in microseconds.
    pub elapsed_us: u64,
}

/// A flush or compaction that has ended.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FinishedJobStats {
    /// The job with its final progress; [`JobStats::elapsed_us`] is its duration.
    pub job: JobStats,
    /// Time since its end in microseconds.
    pub age_us: u64,
    /// True if all outputs were installed; false if it failed or was cancelled.
    pub is_complete: bool,
}

/// Statistics of one column family.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FamilyStats {
    /// Name.
    pub name: String,
    /// Id.
    pub id: u32,
    /// The active memtable.
    pub memtable: ActiveMemtableStats,
    /// Contents of all memtables, active and immutable.
    pub memtables: MemtableStats,
    /// Immutable memtables waiting for a flush.
    pub immutable_memtables: ImmutableMemtableStats,
    /// Statistics of each level, from level 0.
    pub levels: Vec<LevelStats>,
    /// Value logs.
    pub vlogs: VlogStats,
    /// Bytes of keys and values committed since open, plus those replayed by recovery. Bulk loads
    /// are not included. For a spilled transaction, only the entries that exist at its commit are
    /// counted, not those that it overwrote itself.
    pub user_bytes_written: u64,
    /// Number of tables written by flushes since open.
    pub flush_tables: u64,
    /// Bytes written by flushes since open, to tables and value logs.
    pub flush_bytes_written: u64,
    /// Number of tables written by compactions since open.
    pub compaction_tables: u64,
    /// Bytes of input tables of compactions since open.
    pub compaction_bytes_read: u64,
    /// Bytes written by compactions since open, to tables and value logs.
    pub compaction_bytes_written: u64,
    /// See `Family::is_flushing`.
    pub is_flushing: bool,
    /// See `Family::is_compacting`.
    pub is_compacting: bool,
}

impl FamilyStats {
    /// Returns the number of entries in memtables and tables, including tombstones and overwritten
    /// versions.
    pub fn entries(&self) -> u64 {
        self.memtables.entries + self.levels.iter().map(|l| l.entries).sum::<u64>()
    }
    /// Returns the uncompressed bytes of all keys and of all values in memtables and tables.
    pub fn raw_bytes(&self) -> RawByteTotals {
        let sum = |of_memtables, of_level: fn(&LevelStats) -> u64| {
            self.levels.iter().map(of_level).fold(of_memtables, u64::wrapping_add)
        };
        RawByteTotals {
            keys: sum(self.memtables.key_bytes, |l| l.raw_key_bytes),
            values: sum(self.memtables.value_bytes, |l| l.raw_value_bytes),
        }
    }
}

/// Contents of memtables.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct MemtableStats {
    /// Number of entries, tombstones included.
    pub entries: u64,
    /// Number of point tombstones.
    pub tombstones: u64,
    /// Bytes of keys.
    pub key_bytes: u64,
    /// Bytes of values.
    pub value_bytes: u64,
}

/// Statistics of one level of a column family.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LevelStats {
    /// Number of the level.
    pub level: u8,
    /// Number of sorted runs.
    pub runs: usize,
    /// Number of table files.
    pub files: usize,
    /// Size of the table files in bytes.
    pub bytes: u64,
    /// Number of entries, tombstones included.
    pub entries: u64,
    /// Number of tombstones.
    pub tombstones: u64,
    /// Number of data blocks.
    pub blocks: u64,
    /// Uncompressed bytes of keys.
    pub raw_key_bytes: u64,
    /// Uncompressed bytes of values, including separated ones.
    pub raw_value_bytes: u64,
    /// Bytes in value logs that the tables reference.
    pub separated_bytes: u64,
}

/// One table file (`Admin::files`).
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileStats {
    /// Name of the column family.
    pub family: String,
    /// Level.
    pub level: u8,
    /// Sorted run of the table. A larger number is a newer run.
    pub run: u64,
    /// File name.
    pub file: String,
    /// File size in bytes.
    pub bytes: u64,
    /// Number of entries, tombstones included.
    pub entries: u64,
    /// Number of tombstones.
    pub tombstones: u64,
    /// Smallest key.
    pub first_key: Vec<u8>,
    /// Largest key.
    pub last_key: Vec<u8>,
    /// Sequence numbers of the entries.
    pub sequences: SequenceRange,
    /// Uncompressed bytes of keys.
    pub raw_key_bytes: u64,
    /// Uncompressed bytes of values, including separated ones.
    pub raw_value_bytes: u64,
    /// Bytes in value logs that the table references.
    pub separated_bytes: u64,
}

/// What recovery found and did at open.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Sequence number of the last recovered operation.
    pub recovered_sequence: u64,
    /// Number of operations replayed from the write-ahead log.
    pub replayed_operations: u64,
    /// Bytes truncated at the end of the log and the manifest.
    pub truncated_bytes: u64,
    /// Why they were truncated; empty if nothing was.
    pub reason: String,
    /// Number of files that the manifest does not reference; they were moved to `trash/`.
    pub orphans: u64,
    /// True if the database had been closed cleanly.
    pub clean: bool,
    /// Peak memory of the replay in bytes: memtables and records being copied.
    pub peak_bytes: u64,
    /// Duration of recovery in microseconds.
    pub elapsed_us: u64,
    /// Column-family options that were changed by this open, as `family: option: old -> new`.
    pub changed_options: Vec<String>,
}

/// Result of `Admin::verify`.
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Number of files read.
    pub files: u64,
    /// Number of bytes read.
    pub bytes: u64,
    /// Number of entries found in tables.
    pub entries: u64,
    /// One error per damaged file. Empty if all checksums are correct.
    pub errors: Vec<Error>,
}
