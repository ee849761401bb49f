//! Engine-wide limits. Every loop, queue, buffer or count that a file or a caller can influence is
//! bounded by one of these constants.

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// Longest value that is written in one piece, in bytes (1 GiB).
pub const VALUE_BYTES_MAX: usize = 1 << 30;
/// Longest value that is written in parts, in bytes (4 GiB). Readers accept values up to this.
pub const STREAMED_VALUE_BYTES_MAX: u64 = 1 << 32;
/// Largest write batch, encoded, in bytes: a batch is one log record.
pub const BATCH_BYTES_MAX: usize = (1 << 31) - (1 << 20);
/// Largest batch of a prepared transaction, including the keys it has read and locked, in bytes.
pub const PREPARE_BYTES_MAX: usize = (1 << 31) - (1 << 19);
/// Longest global identifier of a prepared transaction, in bytes.
pub const GID_BYTES_MAX: usize = 255;
/// Maximum number of operations in one batch.
pub const BATCH_OPS_MAX: u32 = 1 << 28;
/// Longest column family name, in bytes of UTF-8.
pub const FAMILY_NAME_BYTES_MAX: usize = 255;
/// Maximum number of column-family events that the manifest keeps for readers of the log.
pub const FAMILY_EVENTS_MAX: usize = 1024;
/// Maximum number of column families that exist at once.
pub const FAMILIES_MAX: usize = 1 << 20;
/// Number of levels in a tree (level 0 holds overlapping runs, each deeper level one sorted run).
pub const LEVELS: usize = 7;
/// Largest raw (uncompressed) data or property block that a reader accepts.
pub const BLOCK_RAW_BYTES_MAX: usize = 16 << 20;
/// Largest raw index, filter or range-tombstone block (one of each per file). A writer starts a new
/// file before an index or filter reaches it.
pub const INDEX_RAW_BYTES_MAX: usize = 256 << 20;
/// A writer starts a new klog when the pending index exceeds this many bytes.
pub const INDEX_BYTES_CUT: usize = 16 << 20;
/// Largest value separation threshold of a column family; values at or above the threshold go to a
/// value log. The cap keeps data blocks below `BLOCK_RAW_BYTES_MAX`.
pub const INLINE_VALUE_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of blocks that a scan reads ahead.
pub const READ_AHEAD_BYTES_MAX: u64 = 64 << 10;
/// Maximum filter bits per key that an option may request.
pub const FILTER_BITS_MAX: u8 = 30;
/// Longest name of a user-defined comparator, in bytes.
pub const COMPARATOR_NAME_BYTES_MAX: usize = 96;
/// Maximum number of user-defined comparators in one process; they are never unregistered.
pub const COMPARATORS_MAX: usize = 1 << 16;
/// Longest name of a user-defined merge operator, and longest separator of the built-in append
/// operator, in bytes.
pub const MERGE_NAME_BYTES_MAX: usize = 64;
/// Raw bytes in one chunk of a value log.
pub const VLOG_CHUNK_BYTES: usize = 1 << 20;
/// LZ4 cannot expand by more than this factor; a larger declared size is corruption.
pub const LZ4_RATIO_MAX: usize = 255;
/// Snappy cannot expand by more than this factor: its longest copy makes 64 bytes from 3.
pub const SNAPPY_RATIO_MAX: usize = 64;
/// Zstandard cannot expand by more than this factor: its smallest block, 4 bytes, makes at most 128
/// KiB.
pub const ZSTD_RATIO_MAX: usize = 32 << 10;
/// Fastest Zstandard level that an option may request.
pub const ZSTD_LEVEL_MIN: i32 = -7;
/// Slowest Zstandard level that an option may request.
pub const ZSTD_LEVEL_MAX: i32 = 22;
/// Largest LZ4 acceleration (the library treats larger values the same).
pub const LZ4_ACCELERATION_MAX: u32 = 65_537;
/// Maximum number of bytes that one group commit collects before it is written (a single larger
/// batch is written alone).
pub const COMMIT_GROUP_BYTES_MAX: usize = 4 << 20;
/// Largest manifest edit, encoded.
pub const EDIT_BYTES_MAX: usize = 256 << 20;
/// Maximum number of log lines queued for a log listener.
pub const LOG_LISTENER_LINES_MAX: usize = 1024;
/// Runs that level 0 may hold before writers are stopped, whatever the options say.
pub const LEVEL0_RUNS_MAX: usize = 64;
// Whatever a batch may contain fits in one log record, whose length is stored in 32 bits.
const _: () = assert!(KEY_BYTES_MAX + VALUE_BYTES_MAX + (1 << 20) <= BATCH_BYTES_MAX);
const _: () =
    assert!(BATCH_BYTES_MAX < PREPARE_BYTES_MAX && PREPARE_BYTES_MAX <= i32::MAX as usize);
const _: () =
    assert!(BATCH_OPS_MAX as usize <= BATCH_BYTES_MAX, "an operation has at least a byte");
const _: () = assert!(COMMIT_GROUP_BYTES_MAX <= BATCH_BYTES_MAX);
// An entry with the longest key and the longest inline value fits in a block, and so do two.
const _: () = assert!(2 * (KEY_BYTES_MAX + INLINE_VALUE_BYTES_MAX) <= BLOCK_RAW_BYTES_MAX);
// A writer starts a new klog before a reader would refuse the index, even if every further
// separator has the longest key.
const _: () = assert!(INDEX_BYTES_CUT + 64 * KEY_BYTES_MAX <= INDEX_RAW_BYTES_MAX);
const _: () =
    assert!(VLOG_CHUNK_BYTES <= BLOCK_RAW_BYTES_MAX && VLOG_CHUNK_BYTES <= VALUE_BYTES_MAX);
const _: () = assert!(READ_AHEAD_BYTES_MAX as usize <= BLOCK_RAW_BYTES_MAX);
// A manifest snapshot names every column family, and an edit holds the events of readers.
const _: () = assert!(FAMILIES_MAX * FAMILY_NAME_BYTES_MAX <= EDIT_BYTES_MAX);
const _: () = assert!(FAMILY_EVENTS_MAX * FAMILY_NAME_BYTES_MAX <= EDIT_BYTES_MAX);
const _: () = assert!(LEVELS >= 2 && LEVELS <= u8::MAX as usize, "level 0 and a last level");
const _: () = assert!(ZSTD_LEVEL_MIN < ZSTD_LEVEL_MAX);
const _: () = assert!(MERGE_NAME_BYTES_MAX < COMPARATOR_NAME_BYTES_MAX);
const _: () = assert!(GID_BYTES_MAX <= u8::MAX as usize, "the length of a gid is one byte");
