//! Engine-wide limits. Every loop, queue, buffer or count that a file or a caller can influence is
//! bounded by one of these constants.

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// Longest value, in bytes (1 GiB).
pub const VALUE_BYTES_MAX: usize = 1 << 30;
/// Largest write batch, encoded, in bytes: a batch is one log record.
pub const BATCH_BYTES_MAX: usize = (1 << 31) - (1 << 20);
/// Largest batch of a prepared transaction, including the keys it has read and locked, in bytes.
pub const PREPARE_BYTES_MAX: usize = (1 << 31) - (1 << 19);
/// Longest global identifier of a prepared transaction, in bytes.
pub const GID_BYTES_MAX: usize = 255;
/// Most operations in one batch.
pub const BATCH_OPS_MAX: u32 = 1 << 28;
/// Longest column family name, in bytes of UTF-8.
pub const FAMILY_NAME_BYTES_MAX: usize = 255;
/// Most column-family events that the manifest keeps for readers of the log.
pub const FAMILY_EVENTS_MAX: usize = 1024;
/// Most column families that exist at once.
pub const FAMILIES_MAX: usize = 1 << 20;
/// Number of levels in a tree (level 0 holds overlapping runs, each deeper level one sorted run).
pub const LEVELS: usize = 7;
/// Largest raw (uncompressed) block that a reader accepts, for data, filter and property blocks.
pub const BLOCK_RAW_BYTES_MAX: usize = 16 << 20;
/// Largest raw index or filter block (one per file). A writer starts a new file before reaching it.
pub const INDEX_RAW_BYTES_MAX: usize = 256 << 20;
/// A writer starts a new klog when the pending index exceeds this many bytes.
pub const INDEX_BYTES_CUT: usize = 16 << 20;
/// Largest value separation threshold of a column family; values at or above the threshold go to a
/// value log. The cap keeps data blocks below `BLOCK_RAW_BYTES_MAX`.
pub const INLINE_VALUE_BYTES_MAX: usize = 1 << 20;
/// Most bytes of blocks that a scan reads ahead.
pub const READ_AHEAD_BYTES_MAX: u64 = 64 << 10;
/// Most filter bits per key that an option may request.
pub const FILTER_BITS_MAX: u8 = 30;
/// Longest name of a user-defined comparator, in bytes.
pub const COMPARATOR_NAME_BYTES_MAX: usize = 96;
/// Most user-defined comparators in one process; they are never unregistered.
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
/// Most bytes that one group commit collects before it is written (a single larger batch is written
/// alone).
pub const COMMIT_GROUP_BYTES_MAX: usize = 4 << 20;
/// Largest manifest edit, encoded.
pub const EDIT_BYTES_MAX: usize = 256 << 20;
/// Most log lines queued for a log listener.
pub const LOG_LISTENER_LINES_MAX: usize = 1024;
/// Runs that level 0 may hold before writers are stopped, whatever the options say.
pub const LEVEL0_RUNS_MAX: usize = 64;
