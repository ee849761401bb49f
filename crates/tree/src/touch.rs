//! Touches memory that is read soon. Loads of several entries that are touched together run in
//! parallel, whereas reading one entry after the other would wait for each in turn.

use crate::limits::{CACHE_LINE_BYTES, PREFETCH_BYTES_MAX};

/// Reads a byte of each cache line of `bytes`, up to [`PREFETCH_BYTES_MAX`]. The caller passes the
/// results to `black_box`, so that the reads are not optimized away.
#[inline]
pub fn touch(bytes: &[u8]) -> u8 {
    let bytes = &bytes[..bytes.len().min(PREFETCH_BYTES_MAX)];
    bytes.iter().step_by(CACHE_LINE_BYTES).chain(bytes.last()).fold(0, |all, byte| all | byte)
}
