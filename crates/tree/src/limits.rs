//! Limits of the modules of this crate, grouped by subject, and the relations between them. Limits
//! that the file formats or users see are in [`perigee_base::limits`].

// Memtables
/// Maximum number of memtable entries with equal prefixes that are sorted by comparing keys; more
/// are sorted by their next bytes.
pub const COMPARE_SORT_MAX: usize = 24;
/// Maximum depth of sorting by next bytes, after which keys are compared.
pub const PREFIX_DEPTH_MAX: usize = 16;
/// Unsorted entries of a memtable beyond which a background thread sorts them, which bounds what a
/// reader sorts. Small in the tests of this crate, so that they take all paths.
pub const UNSORTED_ENTRIES_MAX: u32 = if cfg!(test) { 100 } else { 8 << 10 };
/// Longest sorted run of a memtable that a reader merges, in entries: bounds the time of a merge.
/// The background thread merges longer ones.
pub const READER_MERGE_MAX: usize = UNSORTED_ENTRIES_MAX as usize;
/// Sorted runs of a memtable beyond which a reader merges long ones too: the background thread is
/// late or does not exist.
pub const READER_RUNS_MAX: usize = 32;
/// Size of a cache line: bytes that are loaded from memory together.
pub const CACHE_LINE_BYTES: usize = 64;
/// Bytes of a long value that are prefetched; the rest is left to the hardware prefetcher.
pub const PREFETCH_BYTES_MAX: usize = 512;
/// Maximum number of fragments of range tombstones in a memtable that newer ones overlap: it is
/// then flushed. With option `history` a flush needs memory for half of the square of their number.
pub const OVERLAPPING_TOMBSTONES_MAX: usize = if cfg!(debug_assertions) { 500 } else { 4096 };
/// Maximum number of steps that a scan takes through newer tombstones of a memtable in all, before
/// it gets the fragments of its time, which costs about as much.
pub const TOMBSTONE_STEPS_MAX: u32 = if cfg!(debug_assertions) { 20 } else { 4096 };
/// Minimum number of merge operands that a reader combines for later readers. Small with debug
/// assertions, so that the tests take this path.
pub const COMBINED_OPERANDS_MIN: usize = if cfg!(debug_assertions) { 3 } else { 32 };
/// Longer combined operands are not remembered: copying them costs as much as combining them.
pub const COMBINED_OPERAND_BYTES_MAX: usize = 4 << 10;
/// Maximum memory of the combined operands of a memtable.
pub const COMBINED_BYTES_MAX: u64 = 4 << 20;
/// Size of a memtable's first chunk: a database may have thousands of column families with one or
/// two entries each.
pub const COPIED_CHUNK_BYTES_MIN: usize = 64;
/// Maximum chunk size: a value pinned by a reader pins the whole chunk.
pub const COPIED_CHUNK_BYTES_MAX: usize = 64 << 10;

// Reads and scans
/// Entries of memtables in a range that an estimate does not sample, as a share of the keys that
/// tables have there.
pub const UNSAMPLED_SHARE_MAX: f64 = 0.25;
/// Maximum number of recent memtable entries checked one by one for a range; beyond that a sorted
/// cursor is used.
pub const RECENT_ENTRIES_MAX: usize = 512;
/// Maximum number of empty key ranges that a memtable remembers.
pub const EMPTY_RANGES_MAX: usize = 128;
/// Ranges with a longer key are not remembered.
pub const EMPTY_RANGE_KEY_BYTES_MAX: usize = 256;
/// Minimum number of tombstones in an empty range that is remembered: noting it costs about as much
/// as skipping them.
pub const EMPTY_RANGE_TOMBSTONES_MIN: u64 = 64;
/// Minimum number of further tombstones by which a remembered range is extended.
pub const EMPTY_RANGE_EXTENSION_MIN: u64 = 16;
/// Number of consecutive tombstones after which a scan looks for an empty range for the first time.
pub const EMPTY_RANGE_LOOKUP_MIN: u64 = 8;
/// Number of common bytes that a merging cursor keeps in its key prefixes before the first
/// difference, so that they stay valid as the scan goes on.
pub const PREFIX_SLACK_BYTES: usize = 4;
/// Minimum number of consecutive steps in one source, usual or just now, for counting visible
/// entries ahead in that source.
pub const STEPS_IN_SOURCE_MIN: (u32, u32) = (8, 4);
/// Base-2 logarithm of the maximum number of steps between attempts to find an interleaving, after
/// unsuccessful ones.
pub const INTERLEAVING_RETRY_LOG2_MAX: u32 = 6;
/// Maximum number of turns of an interleaving that are computed at once.
pub const INTERLEAVED_TURNS_MAX: usize = 128;
/// Maximum number of sources of an interleaving.
pub const INTERLEAVED_SOURCES_MAX: usize = 8;
/// Maximum number of entries per source of an interleaving, including the one that ends them.
pub const INTERLEAVED_PREFIXES_MAX: usize = 65;

// Compaction picking
/// Minimum number of tables in the last level, unless they would be very small.
pub const LAST_LEVEL_TABLES_MIN: u64 = 32;
/// Tables that are cut at the last level's boundaries are at least this fraction (1/64) of the size
/// of other tables.
pub const CUT_TABLES_MAX: u64 = 64;
/// Number of adjacent small tables that are merged into one.
pub const SMALL_TABLES_MIN: usize = 4;
/// Value logs smaller than this are left alone until nothing references them.
pub const COLLECTED_VLOG_BYTES_MIN: u64 = 64 << 10;
/// A value log is collected because there is too much garbage in all of them only if this fraction
/// of it is garbage: collecting less moves too many bytes for those that it frees.
pub const COLLECTED_VLOG_SHARE_MIN: u64 = 8;
/// Tables are merged because of the separated values that they may hide if these have at least this
/// many bytes, and
pub const HIDDEN_VLOG_BYTES_MIN: u64 = 1 << 20;
/// this many times the bytes of the tables.
pub const HIDDEN_VLOG_SHARE_MIN: u64 = 16;
/// A compaction of dense tombstones may read at most this many times the bytes of their tables.
pub const TOMBSTONE_COST_MAX: u64 = 16;
/// A compaction of expired entries may read at most this many times their bytes.
pub const EXPIRED_COST_MAX: u64 = 16;
/// Minimum number of tombstones at which a table of mostly tombstones is worth a merge of its own.
pub const DENSE_TOMBSTONES_MIN: u64 = 1000;

/// Minimum number of entries for a merge to free space; key sketches are not accurate for fewer.
pub const SPACE_ENTRIES_MIN: u64 = 4096;
/// Minimum number of skipped tombstones that justifies a merge or a flush: about the cost of its
/// syncs.
pub const SKIPPED_MIN: u64 = 64 << 10;

// Flushes because of scans
/// Minimum number of steps of scans in a memtable that may justify its flush.
pub const SCAN_STEPS_MIN: u64 = 256;

// Rewrites
/// Bytes after which a rewrite calls its pacer.
pub const QUANTUM_BYTES: u64 = 64 << 10;
/// Entries after which a rewrite calls its pacer.
pub const QUANTUM_ENTRIES: u64 = 64;
/// Number of operands of a key at which they are joined before more are added.
pub const PENDING_OPERANDS_MAX: usize = 64 << 10;
/// Bytes of operands of a key at which they are joined before more are added.
pub const PENDING_OPERAND_BYTES_MAX: usize = 8 << 20;
/// Number of files at which deferred syncs are done without waiting for more. The files stay open
/// until then.
pub const DEFERRED_FILES_MAX: usize = 64;
/// Bytes of files at which deferred syncs are done without waiting for more.
pub const DEFERRED_BYTES_MAX: u64 = 8 << 20;

const _: () = assert!(
    EMPTY_RANGE_LOOKUP_MIN.is_power_of_two()
        && EMPTY_RANGE_LOOKUP_MIN <= EMPTY_RANGE_EXTENSION_MIN
        && EMPTY_RANGE_EXTENSION_MIN <= EMPTY_RANGE_TOMBSTONES_MIN
);
const _: () = assert!(PREFETCH_BYTES_MAX <= COPIED_CHUNK_BYTES_MAX && COMPARE_SORT_MAX >= 2);
const _: () = assert!(
    INTERLEAVED_PREFIXES_MAX > u64::BITS as usize,
    "an entry per bit of a window's masks, and the one that ends them"
);
const _: () = assert!(INTERLEAVED_SOURCES_MAX <= 1 << u8::BITS, "a turn is one byte");
const _: () = assert!(COPIED_CHUNK_BYTES_MIN <= COPIED_CHUNK_BYTES_MAX, "chunks double");
const _: () = assert!(QUANTUM_BYTES < DEFERRED_BYTES_MAX, "a rewrite is paced between syncs");
const _: () = assert!(SMALL_TABLES_MIN >= 2, "a merge of small tables makes fewer");
const _: () = assert!(CUT_TABLES_MAX.is_power_of_two());
