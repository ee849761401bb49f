//! Limits of the modules of this crate, grouped by subject, and the relations between them. Limits
//! that the file formats or users see are in [`perigee_base::limits`].

// Files
/// Longest name that common file systems support.
pub const FILE_NAME_BYTES_MAX: usize = 255;
/// Most retries of an open that failed with too many open files: other threads may take the freed
/// slots first.
pub const OPEN_RETRIES_MAX: usize = 64;
/// Most slices that one system call writes (Linux and macOS: `IOV_MAX`).
#[cfg(unix)]
pub const IOV_SLICES_MAX: usize = 1024;

/// Most bytes of an append of several parts that are joined in memory into one write (Windows).
#[cfg(windows)]
pub const JOINED_APPEND_BYTES_MAX: usize = 1 << 20;
/// Longest delay before a call is repeated that failed because another program has the file open
/// (Windows), in milliseconds. Delays double from 1 on.
#[cfg(windows)]
pub const IN_USE_DELAY_MS_MAX: u64 = 256;

/// Zeros that an append to allocated space writes after its bytes if it is synced. With records of
/// 100 bytes to 10 KB 16, 64 and 256 KiB made no difference.
#[cfg(unix)]
pub const ZEROS_AHEAD_BYTES: usize = 64 << 10;

/// Most bytes of the first append to a log, which a crash may keep although it loses the header of
/// an encrypted file in front of them.
pub const FIRST_APPEND_BYTES_MAX: u64 = 512;
/// Bytes read at a time when the end of a file is searched for zeros.
pub const ZERO_SCAN_WINDOW_BYTES: usize = 1 << 20;

// Threads that sync files
/// Most threads that sync files.
pub const SYNC_THREADS_MAX: usize = 16;
/// Fewest files that each of them syncs.
pub const FILES_PER_SYNC_THREAD_MIN: usize = 2;

// Clocks
/// Longest sleep that ends precisely, in microseconds: longer ones may be late by the timer slack
/// of the Linux kernel, a twentieth of them.
pub const PRECISE_SLEEP_US_MAX: u64 = 1_000;

const _: () = assert!(SYNC_THREADS_MAX >= 1 && FILES_PER_SYNC_THREAD_MIN >= 1);
