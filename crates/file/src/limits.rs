//! Limits of the modules of this crate, grouped by subject, and the relations between them. Limits
//! that the file formats or users see are in [`perigee_base::limits`].

use perigee_base::limits::{BLOCK_RAW_BYTES_MAX, READ_AHEAD_BYTES_MAX};

// Logs
/// Bytes of a log that are scanned at a time for records after a damaged one.
pub const LOG_SCAN_WINDOW_BYTES: usize = 1 << 20;
/// Least space that is preallocated for a log; otherwise as much as the log already takes.
pub const LOG_PREALLOCATE_BYTES_MIN: u64 = 4 << 10;
/// Most space that is preallocated for a log.
pub const LOG_PREALLOCATE_BYTES_MAX: u64 = 8 << 20;

// Reading and writing of table files
/// Default number of bytes to buffer before an append to a table file.
pub const TABLE_BUFFER_BYTES: usize = 512 << 10;
/// Each time this many bytes were appended to a table file, the system begins to write them to the
/// disk, and those before are waited for: the final sync has to write at most twice as many.
pub const TABLE_SYNC_INTERVAL_BYTES: u64 = 8 << 20;
/// Read size of a sequential scan of a table file, unless one part is longer.
pub const TABLE_SCAN_READ_BYTES: u64 = 128 << 10;
/// Minimum and maximum size of a read-ahead: it starts with the minimum and doubles with each read.
pub const READ_AHEAD_BYTES: (u64, u64) = (4 << 10, READ_AHEAD_BYTES_MAX);
/// A scan with a read-ahead of this size is a long one: its blocks are cached only if there is free
/// space.
pub const LONG_SCAN_BYTES: u64 = 32 << 10;
/// Bytes of a damaged table that are searched at once for the next frame.
pub const SALVAGE_WINDOW_BYTES: u64 = 1 << 20;

// Blocks
/// Maximum configurable block size, and maximum bytes buffered for a block: with one more entry and
/// the columns the block still satisfies the readers' limit.
pub const BLOCK_BYTES_MAX: usize = BLOCK_RAW_BYTES_MAX / 2;
/// Upper limit for the blocks that adaptive compression enlarges.
pub const LARGE_BLOCK_BYTES_MAX: usize = 64 << 10;
/// Maximum number of entries that a scan decodes together; a block of the default size holds fewer.
pub const WINDOW_ENTRIES_MAX: usize = 64;
/// Number of entries that it decodes together first; it doubles each time.
pub const WINDOW_ENTRIES_MIN: usize = 16;
/// Up to this many fingerprints of a cached block are stored inline, more on the heap.
pub const INLINE_FINGERPRINTS_MAX: usize = 64;
/// Maximum number of versions of a key that a lookup by fingerprint scans before the regular search
/// is cheaper.
pub const VERSIONS_SCANNED_MAX: usize = 8;

// Block cache and pooled buffers
/// Maximum number of shards of the block cache; a small budget has fewer, so that each shard can
/// hold a few blocks.
pub const CACHE_SHARDS_MAX: u64 = 16;
/// Minimum budget of a shard of the block cache, in bytes.
pub const CACHE_SHARD_BYTES_MIN: u64 = 256 << 10;
/// The clock ring of a shard is not compacted while it has fewer entries.
pub const CACHE_RING_COMPACT_MIN: usize = 256;
/// Minimum length of a block buffer, so that a recycled one fits the next block.
pub const BLOCK_BUFFER_BYTES_MIN: usize = 5 << 10;
/// Maximum length of a pooled buffer.
pub const POOLED_BUFFER_BYTES_MAX: usize = 64 << 10;
/// Maximum length of a pooled scan buffer.
pub const SCAN_BUFFER_BYTES_MAX: usize = 8 << 10;
/// Maximum number of block buffers, and of scan buffers, in the pool of a thread: a scan returns
/// one for each that it takes.
pub const POOLED_BUFFERS_MAX: usize = 4;

// Properties of tables
/// Maximum number of buckets of an expiry histogram.
pub const EXPIRY_BUCKETS_MAX: usize = 32;
/// Maximum shift of an expiry histogram: a larger one would leave fewer than 32 buckets for the
/// whole 64-bit range.
pub const EXPIRY_SHIFT_MAX: u64 = 59;

/// A table with fewer keys has no sketch: it is small enough to be scanned.
pub const SKETCHED_KEYS_MIN: u64 = 2048;
/// Data counts as regular if LZ4 reduces it to a quarter, and Zstandard to an eighth and to at most
/// three quarters of the LZ4 size.
pub const LZ4_RATIO_MIN: usize = 4;
/// See [`LZ4_RATIO_MIN`].
pub const ZSTD_RATIO_MIN: usize = 8;

const _: () = assert!(LZ4_RATIO_MIN < ZSTD_RATIO_MIN, "a switch to Zstandard does not switch back");
const _: () = assert!(LOG_PREALLOCATE_BYTES_MIN.is_power_of_two());
const _: () = assert!(LOG_PREALLOCATE_BYTES_MIN < LOG_PREALLOCATE_BYTES_MAX);
const _: () = assert!(TABLE_BUFFER_BYTES as u64 <= TABLE_SYNC_INTERVAL_BYTES);
const _: () =
    assert!(LARGE_BLOCK_BYTES_MAX <= BLOCK_BYTES_MAX && BLOCK_BYTES_MAX <= BLOCK_RAW_BYTES_MAX);
const _: () = assert!(INLINE_FINGERPRINTS_MAX <= u32::MAX as usize && POOLED_BUFFERS_MAX >= 1);
