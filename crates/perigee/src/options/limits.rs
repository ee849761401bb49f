//! Limits of the options file.

use crate::limits::FAMILY_NAME_BYTES_MAX;

/// Largest options file, in bytes: one with thousands of column families is smaller.
pub const OPTIONS_FILE_BYTES_MAX: u64 = 1 << 20;

const _: () = assert!(OPTIONS_FILE_BYTES_MAX > 256 * FAMILY_NAME_BYTES_MAX as u64);
