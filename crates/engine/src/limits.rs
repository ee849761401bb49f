//! Limits of the modules of this crate, grouped by subject, and the relations between them. Limits
//! that the file formats or users see are in [`perigee_base::limits`].

use perigee_base::limits::{
    BATCH_BYTES_MAX, EDIT_BYTES_MAX, FAMILIES_MAX, FAMILY_NAME_BYTES_MAX, INLINE_VALUE_BYTES_MAX,
    KEY_BYTES_MAX, LEVEL0_RUNS_MAX, PREPARE_BYTES_MAX, VALUE_BYTES_MAX, VLOG_CHUNK_BYTES,
};

// Commits
/// Longest time that the leader of a commit group waits for more writers, in microseconds.
pub const GROUP_WAIT_US_MAX: u64 = 2_000;
/// Shortest time, in microseconds, for which a thread that is about to sync waits for the threads
/// of the last sync. In shorter times they do not come back from their clients.
pub const SYNC_WAIT_US_MIN: u64 = 100;
/// Batches of at most this many operations look up their column families in the commit section: the
/// list is readily available there, and outside of it writers would contend for its lock.
pub const LATE_LOOKUP_OPS_MAX: u32 = 4;
/// Longest log record, in bytes, that is copied into the memtables; longer ones stay in the buffer
/// that was logged or read.
pub const COPIED_RECORD_BYTES_MAX: usize = 4 << 10;
/// Writers of larger batches block on the lock right away: they hold it longer than a wake-up
/// costs. In bytes.
pub const SMALL_BATCH_BYTES: usize = 8 << 10;
/// Spin iterations before a writer sleeps on the lock: longer than a small commit takes.
pub const COMMIT_SPINS_MAX: u32 = 150;
/// Spin iterations per attempt: each attempt takes the lock's cache line from the lock holder.
pub const COMMIT_SPINS_PER_TRY: u32 = 4;
/// Duration of a back-off per thread that is backing off, in microseconds.
pub const COMMIT_BACKOFF_US: u64 = 50;
/// Longest back-off, in microseconds.
pub const COMMIT_BACKOFF_US_MAX: u64 = 1_000;
/// Contention level at which a writer backs off: a collision adds two, an uncontended entry
/// subtracts one.
pub const CONTENTION_MAX: u32 = 8;

// Values that are written in parts
/// Values of at most this many bytes are logged like others; longer ones get a file of their own.
pub const STREAMED_VALUE_BYTES_MIN: usize = VLOG_CHUNK_BYTES;
const _: () = assert!(
    STREAMED_VALUE_BYTES_MIN >= INLINE_VALUE_BYTES_MAX
        && STREAMED_VALUE_BYTES_MIN <= VALUE_BYTES_MAX,
    "what is not logged is separated in every column family"
);
/// Most bytes of such a value that are written without regard to the rate limit and free space.
pub const PACED_VALUE_BYTES: usize = 4 << 20;

// Log segments and the manifest
/// Most bytes that are preallocated for a segment; space beyond that is allocated as it is written.
pub const SEGMENT_PREALLOCATED_BYTES_MAX: u64 = 64 << 20;
/// Segments with fewer bytes need no successor soon: they were rotated for another reason than
/// their size.
pub const SPARE_REQUEST_BYTES_MIN: u64 = 512;
/// Delay between a sync of the log and its watermark, which also covers the syncs in between, in
/// microseconds.
pub const WATERMARK_INTERVAL_US: u64 = 1_000_000;
/// The manifest is rewritten when it exceeds this many bytes and four times the size of its
/// snapshot.
pub const MANIFEST_REWRITE_BYTES: u64 = 4 << 20;
/// Claims of a prepared transaction that the manifest lists one by one, in bytes; beyond that they
/// become ranges.
pub const PREPARED_CLAIM_BYTES_MAX: usize = 1 << 20;
/// Largest valid id or number in a manifest; larger ones could overflow in calculations.
pub const ID_MAX: u64 = 1 << 60;
/// Catalogs with more column families are not validated after each edit: that would take too long.
pub const VALIDATED_FAMILIES_MAX: usize = 64;
/// Longest time between two polls of a waiting change feed, in microseconds.
pub const FEED_POLL_US: u64 = 50_000;
/// Poll interval of a change feed while an operation is durable but not visible yet, which takes
/// only moments, in microseconds.
pub const FEED_DURABLE_POLL_US: u64 = 20;

// Transactions
/// Up to this many operations, and range deletes, of a transaction are searched linearly; more
/// operations by the hash of the key, and among more range deletes in memtables.
pub const TXN_LINEAR_SEARCH_MAX: usize = 16;
/// Most ended serializable transactions that are kept for the checks of concurrent ones.
pub const ENDED_TXNS_MAX: usize = 4096;
/// Most bytes of their read and write sets.
pub const ENDED_TXN_BYTES_MAX: u64 = 16 << 20;

// Memory
/// Largest buffer of a file writer, in bytes.
pub const FILE_BUFFER_BYTES_MAX: u64 = 512 << 10;
/// Most parallel merges: their outputs all coexist with their inputs until the last of them is
/// done.
pub const PARALLEL_MERGES_MAX: usize = 4;
/// Most parts of the buffer of a bulk load that are written at the same time.
pub const LOAD_PARTS_MAX: usize = 4;
/// A part is at least as large as this fraction of a table.
pub const LOAD_PARTS_PER_TABLE_MAX: u64 = 4;
/// This many freed bytes are returned to the operating system even if the budget does not require
/// it, but not more often than [`RELEASE_INTERVAL_US`].
pub const RELEASE_BURST_BYTES: u64 = 64 << 20;
/// Shortest time between two such releases, in microseconds.
pub const RELEASE_INTERVAL_US: u64 = 5_000_000;

// Row cache
/// Most shards of the row cache.
pub const ROW_CACHE_SHARDS_MAX: u64 = 64;
/// Smallest shard of the row cache, in bytes.
pub const ROW_CACHE_SHARD_BYTES_MIN: u64 = 64 << 10;
/// First number of slots of a shard of the row cache; a power of two.
pub const ROW_CACHE_SLOTS_MIN: usize = 64;
/// A row takes at most this part of a shard of the row cache.
pub const ROW_CACHE_ROWS_PER_SHARD_MIN: u64 = 8;
/// Lookups of a shard of the row cache after which its hit rate is evaluated.
pub const ROW_CACHE_WINDOW_LOOKUPS: u64 = 1024;

// Disk space
/// Longest time for which a query of the free space is valid, in microseconds.
pub const FREE_SPACE_CHECK_US: u64 = 200_000;
/// Largest ballast, in bytes.
pub const BALLAST_BYTES_MAX: u64 = 16 << 20;
/// Smallest ballast, in bytes.
pub const BALLAST_BYTES_MIN: u64 = 64 << 10;
/// Bytes per write call while the ballast is created.
pub const BALLAST_WRITE_CHUNK_BYTES: usize = 64 << 10;

// Writers that wait
/// A delayed writer checks at this interval whether the write pressure has ended, in microseconds.
pub const DELAY_SLICE_US: u64 = 20_000;
/// A stopped writer rechecks at least this often, in microseconds.
pub const STALL_RECHECK_US: u64 = 50_000;
/// The bytes that a delay is charged for.
pub const DELAY_CHUNK_BYTES: u64 = 64 << 10;
/// Less garbage than this, in thousandths, causes no delay: compaction begins at an eighth.
pub const GARBAGE_DELAY_PERMILLE_MIN: u64 = 130;
/// Longest delay of a chunk for space, in microseconds: 4 MiB per second.
pub const GARBAGE_DELAY_US_MAX: u64 = 16_000;
/// The delay of a chunk in the middle of a zone, in microseconds: 64 MiB per second.
pub const MIDDLE_DELAY_US: u64 = 1_000;
/// Shortest wait of a writer, in nanoseconds: a sleep takes about this long anyway.
pub const THROTTLE_WAIT_NS_MIN: u64 = 500_000;
/// Largest debt of all writers, in nanoseconds; the rest is dropped: one second, so that eight
/// writers of batches of megabytes also wait for each other.
pub const THROTTLE_DEBT_NS_MAX: u64 = 1_000_000_000;

// Background jobs
/// Most memtables per flush job: if its edit fails, all of their tables were written in vain.
pub const FLUSH_MEMTABLES_MAX: usize = 512;
/// Most bytes of the memtables of a flush job, unless the first one is larger: then it goes alone.
pub const FLUSH_GROUP_BYTES_MAX: u64 = 4 << 20;
/// Most column families per compaction job: if its edit fails, all merges were done in vain.
pub const COMPACTION_FAMILIES_MAX: usize = 512;
/// Most input bytes of a compaction job, unless its first compaction is larger: then it runs alone.
/// Inputs and outputs exist side by side until the job ends.
pub const COMPACTION_GROUP_BYTES_MAX: u64 = 8 << 20;
/// First pause of a thread whose job failed, in microseconds; each further one is twice as long.
pub const JOB_BACKOFF_US_MIN: u64 = 50_000;
/// Longest such pause, in microseconds.
pub const JOB_BACKOFF_US_MAX: u64 = 5_000_000;
/// Interval at which the clock is rechecked while expiring entries exist, in microseconds: it may
/// have been set.
pub const EXPIRY_RECHECK_US: u64 = 600_000_000;
/// Burst size of the rate limit: work that may be done at once after an idle period, as
/// microseconds at the rate.
pub const RATE_BURST_US: u64 = 100_000;
/// Longest wait between two checks for cancellation, in microseconds.
pub const CANCEL_CHECK_US: u64 = 50_000;
/// Longest wait between two checks of a caller that waits for jobs, in microseconds.
pub const IDLE_POLL_US: u64 = 50_000;
/// Approximate bytes that the scrub reads between two pauses.
pub const SCRUB_QUANTUM_BYTES: u64 = 4 << 20;
/// Shortest pause of the scrub, even if its pass is late, in microseconds: at most 200 MiB per
/// second.
pub const SCRUB_PAUSE_US_MIN: u64 = 20_000;
/// Longest time that a quantum of the scrub waits for running jobs, in microseconds: a busy
/// database is scrubbed, too.
pub const SCRUB_YIELD_US_MAX: u64 = 10_000_000;
/// Longest single wait of the scrub, in microseconds.
pub const SCRUB_SLEEP_US_MAX: u64 = 3_600_000_000;
/// Longest line of the info log, in bytes; the rest is cut off.
pub const INFO_LOG_LINE_BYTES_MAX: usize = 4096;

// Backups
/// Bytes copied per read.
pub const COPY_CHUNK_BYTES: usize = 1 << 20;
/// Largest record of a backup, in bytes: enough for a million files.
pub const BACKUP_RECORD_BYTES_MAX: u64 = 32 << 20;

// Opening
/// Bytes per read and write while a log segment is rewritten in place.
pub const LOG_REWRITE_CHUNK_BYTES: usize = 256 << 10;
/// If the number of column families would make their average flush smaller than this many bytes,
/// the log is replayed in groups of column families.
pub const CATCH_UP_FLUSH_BYTES_MIN: u64 = 256 << 10;
/// Level-0 runs of a column family at which a replay runs compactions before it writes more tables.
pub const CATCH_UP_LEVEL0_RUNS_MAX: u64 = 12;
/// Most retries of a read-only open, each after a longer pause.
pub const READ_ONLY_RETRIES_MAX: u64 = 30;
/// First pause between them, in microseconds.
pub const READ_ONLY_RETRY_US: u64 = 500;
/// Most consecutive rounds of a read-only open in which files disappear before they are opened.
/// Only damage, or a writer that removes files faster than they can be opened, gets close to it.
pub const FOLLOWER_ROUNDS_MAX: u32 = 10_000;
/// Handles of unreferenced files are closed once per this number of rounds.
pub const FOLLOWER_ROUNDS_KEPT: u32 = 64;
/// Most subdirectories of a directory that are searched for a database of another program.
pub const FOREIGN_SUBDIRECTORIES_MAX: usize = 256;

// A copied record is also a small batch, and one fits in a log record.
const _: () = assert!(COPIED_RECORD_BYTES_MAX <= SMALL_BATCH_BYTES);
const _: () = assert!(SMALL_BATCH_BYTES < BATCH_BYTES_MAX);
const _: () = assert!(COMMIT_SPINS_PER_TRY >= 1 && COMMIT_SPINS_PER_TRY < COMMIT_SPINS_MAX);
const _: () = assert!(COMMIT_BACKOFF_US <= COMMIT_BACKOFF_US_MAX);
const _: () = assert!(SYNC_WAIT_US_MIN < GROUP_WAIT_US_MAX);
const _: () = assert!(COMMIT_BACKOFF_US_MAX <= GROUP_WAIT_US_MAX, "no longer than a group waits");
const _: () = assert!(CONTENTION_MAX >= 2, "one collision alone is no contention");
const _: () = assert!(SPARE_REQUEST_BYTES_MIN < SEGMENT_PREALLOCATED_BYTES_MAX);
const _: () = assert!(2 * MANIFEST_REWRITE_BYTES <= EDIT_BYTES_MAX as u64, "a rewrite is one edit");
const _: () = assert!(VALIDATED_FAMILIES_MAX <= FAMILIES_MAX && FAMILIES_MAX as u64 <= ID_MAX);
// Two valid numbers can be added, and so can one and the length of a record.
const _: () = assert!(ID_MAX <= u64::MAX / 4 && PREPARE_BYTES_MAX as u64 <= ID_MAX);
const _: () = assert!(FEED_DURABLE_POLL_US < FEED_POLL_US);
const _: () = assert!(ENDED_TXNS_MAX as u64 * 256 <= ENDED_TXN_BYTES_MAX, "small ones fit");
const _: () = assert!(TXN_LINEAR_SEARCH_MAX > LATE_LOOKUP_OPS_MAX as usize);
const _: () = assert!(PARALLEL_MERGES_MAX >= 1);
const _: () = assert!(BALLAST_BYTES_MIN <= BALLAST_BYTES_MAX);
const _: () = assert!(BALLAST_WRITE_CHUNK_BYTES as u64 <= BALLAST_BYTES_MIN);
const _: () = assert!(BALLAST_WRITE_CHUNK_BYTES % 8 == 0, "the noise consists of words");
const _: () = assert!(DELAY_SLICE_US <= STALL_RECHECK_US);
const _: () =
    assert!(MIDDLE_DELAY_US < GARBAGE_DELAY_US_MAX && GARBAGE_DELAY_US_MAX < DELAY_SLICE_US);
const _: () = assert!(GARBAGE_DELAY_PERMILLE_MIN > 1000 / 8, "compaction begins before the delay");
const _: () = assert!(THROTTLE_WAIT_NS_MIN < THROTTLE_DEBT_NS_MAX, "a writer waits before the cut");
const _: () = assert!(DELAY_SLICE_US * 1000 < THROTTLE_DEBT_NS_MAX, "a long wait has slices");
const _: () = assert!(FLUSH_GROUP_BYTES_MAX <= COMPACTION_GROUP_BYTES_MAX);
const _: () = assert!(JOB_BACKOFF_US_MIN <= JOB_BACKOFF_US_MAX);
const _: () = assert!(JOB_BACKOFF_US_MAX < EXPIRY_RECHECK_US);
const _: () = assert!(CANCEL_CHECK_US <= RATE_BURST_US, "a cancelled job ends within a burst");
const _: () =
    assert!(SCRUB_PAUSE_US_MIN < SCRUB_YIELD_US_MAX && SCRUB_YIELD_US_MAX < SCRUB_SLEEP_US_MAX);
const _: () = assert!(CATCH_UP_LEVEL0_RUNS_MAX < LEVEL0_RUNS_MAX as u64);
const _: () = assert!(FOLLOWER_ROUNDS_KEPT < FOLLOWER_ROUNDS_MAX);
const _: () = assert!(READ_ONLY_RETRIES_MAX * READ_ONLY_RETRY_US < 1_000_000, "below a second");
// An edit has the first and the last key of every table that it adds.
const _: () = assert!(FLUSH_MEMTABLES_MAX * 2 * KEY_BYTES_MAX <= EDIT_BYTES_MAX);
const _: () = assert!(COMPACTION_FAMILIES_MAX * 2 * KEY_BYTES_MAX <= EDIT_BYTES_MAX);
const _: () = assert!(CATCH_UP_FLUSH_BYTES_MIN <= FLUSH_GROUP_BYTES_MAX, "a group is one flush");
const _: () = assert!(BACKUP_RECORD_BYTES_MAX <= u32::MAX as u64, "its length has 32 bits");
const _: () = assert!(INFO_LOG_LINE_BYTES_MAX > 4 * FAMILY_NAME_BYTES_MAX, "a line has a name");
