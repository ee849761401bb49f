//! What the database says about itself. Plain data.

use crate::{Error, FamilyOptions};
use std::time::Duration;

/// A snapshot of everything worth knowing ([`crate::Db::stats`]).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Counters since open, by name (see `docs/STATISTICS.md`).
    pub counters: Vec<(&'static str, u64)>,
    /// One element for each family.
    pub families: Vec<FamilyStats>,
    /// Sequence number of the last visible operation.
    pub last_sequence: u64,
    /// Everything up to this sequence number is on stable storage.
    pub durable_sequence: u64,
    /// Bytes in the block cache, and its capacity.
    pub block_cache_bytes: (u64, u64),
    /// Bytes of resident indexes and filters.
    pub table_memory_bytes: u64,
    /// The block cache in detail.
    pub cache: CacheStats,
    /// Memory by owner, in bytes.
    pub memory: Vec<(&'static str, u64)>,
    /// Input and output by cause.
    pub io: Vec<IoStats>,
    /// How long operations took.
    pub latency: Vec<LatencyStats>,
    /// Why writers waited, for each reason that occurred.
    pub stalls: Vec<StallStats>,
    /// What all of `memory` together may be ([`crate::Options::memory_budget`]).
    pub memory_budget: u64,
    /// What the whole process has of memory (its resident set: program, stacks, and what the
    /// application holds, too), if the system tells.
    pub process_resident_bytes: Option<u64>,
    /// Table files open now, and how many are kept open at most.
    pub open_files: (usize, usize),
    /// Bytes free on the disk when the guard last looked (`u64::MAX`: not yet, or without bound).
    pub free_space: u64,
    /// Write-ahead log segments and their bytes.
    pub wal: (usize, u64),
    /// The number of the newest segment: it grows with each, and is never used again.
    pub wal_newest: u64,
    /// Bytes of all files of the database.
    pub disk_bytes: u64,
    /// Table files of all families (what clones share counts once).
    pub tables: usize,
    /// Snapshots alive.
    pub snapshots: usize,
    /// Transactions that are open, or prepared.
    pub transactions: TransactionStats,
    /// Flushes and compactions that run, and what waits for one.
    pub background: BackgroundStats,
    /// How tight memory is: 0 while less than half is in use of the budget (without the block
    /// cache, which gives way), and of the memtables' share of it; 1 below three quarters, 2 below
    /// nine tenths, 3 above. Writers are slowed from 2 on.
    pub memory_pressure: u8,
    /// Flushes and compactions that are running.
    pub running_jobs: Vec<JobStats>,
    /// Why writers are delayed or stopped right now: `none`, or a reason such as `sealed
    /// memtables`.
    pub stall_reason: String,
    /// What recovery did at open.
    pub recovery: RecoveryReport,
    /// The error that stopped writes, or the last one of a background task that is being retried.
    pub background_error: Option<Error>,
    /// One error for each damaged file that the background scrub has found
    /// ([`crate::Options::scrub_interval`]).
    pub scrub_errors: Vec<Error>,
}

/// Transactions.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TransactionStats {
    /// Begun, and neither committed nor rolled back nor prepared.
    pub open: u64,
    /// Bytes of memory that what they have written takes, all together; of those larger than
    /// memory, what they hold in it. Without lists of what they have read.
    pub bytes: u64,
    /// Prepared ones that nobody has decided.
    pub prepared: u64,
    /// For how long the oldest of those has waited, over restarts too, by the wall clock.
    pub oldest_prepared: Option<Duration>,
}

/// Background work: how much runs, and how much waits.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct BackgroundStats {
    /// Flushes that run (one may flush small memtables of many families).
    pub flushes_running: usize,
    /// Sealed memtables of all families that are not in tables yet, those being flushed included.
    pub immutable_memtables: usize,
    /// Compactions that run.
    pub compactions_running: usize,
    /// Families beside those at work that need a compaction.
    pub compactions_due: usize,
}

/// The block cache.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CacheStats {
    /// Bytes it may hold.
    pub capacity: u64,
    /// Bytes it holds.
    pub used: u64,
    /// Data blocks in it. (Indexes and filters are resident beside it: see [`Stats::memory`].)
    pub blocks: u64,
    /// Look-ups that found their block.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Blocks dropped to make room.
    pub evictions: u64,
    /// Parts with a lock of their own.
    pub shards: usize,
}

/// What was read and written for one cause.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct IoStats {
    /// `wal`, `manifest`, `flush`, `compaction`, `get`, `scan`.
    pub cause: &'static str,
    /// Read calls.
    pub reads: u64,
    /// Bytes they read.
    pub bytes_read: u64,
    /// Write calls.
    pub writes: u64,
    /// Bytes they wrote.
    pub bytes_written: u64,
}

/// How long one operation took, in nanoseconds. Percentiles are at most 12.5 % too high, never too
/// low.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LatencyStats {
    /// `get`, `multi_get`, `write`, `delete`, `seek`, `next`, `flush`, `compaction`, `wal_sync`.
    pub operation: &'static str,
    /// One of so many was measured.
    pub one_in: u64,
    /// Measured.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// Nine of ten took no longer.
    pub p90_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// 999 of 1000 took no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// For each bucket that holds any: its upper bound, and how many took no longer.
    pub buckets: Vec<(u64, u64)>,
}

/// What writers spent on one reason to wait.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StallStats {
    /// For example `sealed memtables`.
    pub reason: &'static str,
    /// Writes that were delayed.
    pub delays: u64,
    /// Microseconds of it.
    pub delay_us: u64,
    /// Writes that were stopped.
    pub stops: u64,
    /// Microseconds of it.
    pub stop_us: u64,
}

/// A flush or compaction that is running.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobStats {
    /// `flush` or `compaction`.
    pub kind: &'static str,
    /// Its family.
    pub family: String,
    /// Why it runs: `sealed memtable`, `level 0 runs`, `level bytes`, `overwritten entries`,
    /// `tombstones`, `small tables`, `value-log garbage`, `deleted ranges`, `manual`.
    pub reason: &'static str,
    /// Levels of its inputs; empty for a flush.
    pub from: Vec<u8>,
    /// Level of its outputs.
    pub to: u8,
    /// Tables among its inputs.
    pub files: usize,
    /// Bytes of its inputs.
    pub bytes: u64,
    /// How many of them are done, by the count of entries.
    pub bytes_done: u64,
    /// Bytes written so far.
    pub bytes_written: u64,
    /// Microseconds since it began.
    pub elapsed_us: u64,
}

/// One family.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FamilyStats {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: u32,
    /// Its effective options.
    pub options: FamilyOptions,
    /// Bytes and entries in the active memtable.
    pub memtable: (u64, u64),
    /// What the memtables hold, active and sealed together.
    pub memtables: MemtableStats,
    /// Sealed memtables that wait for their flush, and their bytes.
    pub immutable_memtables: (usize, u64),
    /// The levels, newest first.
    pub levels: Vec<LevelStats>,
    /// Value logs: files, bytes, and bytes still referenced by tables.
    pub vlogs: (usize, u64, u64),
    /// Bytes of keys and values committed to it since open, and of those that recovery replayed
    /// from the log. (Not of bulk loads; of a transaction larger than memory what was left of it at
    /// its commit.)
    pub user_bytes_written: u64,
    /// Tables that flushes made since open.
    pub flush_tables: u64,
    /// Bytes that they wrote, tables and value logs.
    pub flush_bytes_written: u64,
    /// Tables that compactions made since open.
    pub compaction_tables: u64,
    /// Bytes of the tables that they read.
    pub compaction_bytes_read: u64,
    /// Bytes that they wrote, tables and value logs.
    pub compaction_bytes_written: u64,
    /// See [`crate::Family::is_flushing`].
    pub is_flushing: bool,
    /// See [`crate::Family::is_compacting`].
    pub is_compacting: bool,
}

impl FamilyStats {
    /// Entries in memtables and tables together, tombstones and hidden versions included.
    pub fn entries(&self) -> u64 {
        self.memtables.entries + self.levels.iter().map(|l| l.entries).sum::<u64>()
    }
    /// Their bytes of keys, and of values, uncompressed.
    pub fn raw_bytes(&self) -> (u64, u64) {
        let sum = |of_memtables, of_level: fn(&LevelStats) -> u64| {
            self.levels.iter().map(of_level).fold(of_memtables, u64::wrapping_add)
        };
        (
            sum(self.memtables.key_bytes, |l| l.raw_key_bytes),
            sum(self.memtables.value_bytes, |l| l.raw_value_bytes),
        )
    }
}

/// What memtables hold.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct MemtableStats {
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones of single keys among them.
    pub tombstones: u64,
    /// Bytes of their keys.
    pub key_bytes: u64,
    /// Bytes of their values.
    pub value_bytes: u64,
}

/// One level of a family.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LevelStats {
    /// Its number.
    pub level: u8,
    /// Sorted runs in it.
    pub runs: usize,
    /// Table files in it.
    pub files: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// Entries in them, tombstones included.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Data blocks of the tables.
    pub blocks: u64,
    /// Bytes of their keys, uncompressed.
    pub raw_key_bytes: u64,
    /// Bytes of their values, uncompressed, also of those in value logs.
    pub raw_value_bytes: u64,
    /// Bytes in value logs that they reference.
    pub separated_bytes: u64,
}

/// One table file ([`crate::Db::files`]).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileStats {
    /// Name of its family.
    pub family: String,
    /// Its level.
    pub level: u8,
    /// Its run (larger is newer).
    pub run: u64,
    /// Its file name.
    pub file: String,
    /// Its bytes.
    pub bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Smallest key.
    pub first_key: Vec<u8>,
    /// Largest key.
    pub last_key: Vec<u8>,
    /// Smallest and largest sequence number.
    pub sequences: (u64, u64),
    /// Bytes of its keys, uncompressed.
    pub raw_key_bytes: u64,
    /// Bytes of its values, uncompressed, also of those in value logs.
    pub raw_value_bytes: u64,
    /// Bytes in value logs that it references.
    pub separated_bytes: u64,
}

/// What recovery found and did.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Sequence number of the last operation recovered.
    pub recovered_sequence: u64,
    /// Operations replayed from the write-ahead log.
    pub replayed_operations: u64,
    /// Bytes cut from the end of the logs.
    pub truncated_bytes: u64,
    /// Why they were cut, empty if nothing was.
    pub reason: String,
    /// Files that no metadata names, moved to `trash/`.
    pub orphans: u64,
    /// Whether the database had been closed cleanly.
    pub clean: bool,
    /// Most bytes of memory that replay held at a time, in memtables and in records to be copied.
    pub peak_bytes: u64,
    /// How long it took, in microseconds.
    pub elapsed_us: u64,
    /// Family options given at open that differed from those stored: `family: option: old -> new`.
    pub changed_options: Vec<String>,
}

/// The result of [`crate::Db::verify`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Entries seen in tables.
    pub entries: u64,
    /// Everything wrong, one error for each damaged file. Empty: every byte is as it was written.
    pub errors: Vec<Error>,
}
