//! The hash functions declared in `tidesdb/xxhash.h`: TidesDB installs the xxHash header with its
//! own, and clients use it (TideSQL: `XXH3_64bits`). One-shot functions only. The results are those
//! of xxHash.

use std::ffi::c_void;
use twox_hash::{XxHash3_64, XxHash3_128, XxHash32, XxHash64};

/// The two halves of a 128-bit hash.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Hash128 {
    pub low64: u64,
    pub high64: u64,
}

/// Returns the bytes; an empty slice if `size` is 0, whatever `data` is.
///
/// # Safety
/// `data` points to `size` bytes that are not modified during `'a`, or `size` is 0.
unsafe fn input_bytes<'a>(data: *const c_void, size: usize) -> &'a [u8] {
    if data.is_null() || size == 0 || size > isize::MAX as usize {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(data.cast(), size) }
}

/// Returns the XXH32 hash.
///
/// # Safety
/// `data` points to `size` bytes, or `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_xxh32(data: *const c_void, size: usize, seed: u32) -> u32 {
    // SAFETY: guaranteed by the caller.
    XxHash32::oneshot(seed, unsafe { input_bytes(data, size) })
}

/// Returns the XXH64 hash.
///
/// # Safety
/// `data` points to `size` bytes, or `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_xxh64(data: *const c_void, size: usize, seed: u64) -> u64 {
    // SAFETY: guaranteed by the caller.
    XxHash64::oneshot(seed, unsafe { input_bytes(data, size) })
}

/// Returns the 64-bit XXH3 hash.
///
/// # Safety
/// `data` points to `size` bytes, or `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_xxh3_64(data: *const c_void, size: usize, seed: u64) -> u64 {
    // SAFETY: guaranteed by the caller.
    XxHash3_64::oneshot_with_seed(seed, unsafe { input_bytes(data, size) })
}

/// Returns the 128-bit XXH3 hash.
///
/// # Safety
/// `data` points to `size` bytes, or `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_xxh3_128(data: *const c_void, size: usize, seed: u64) -> Hash128 {
    // SAFETY: guaranteed by the caller.
    let hash = XxHash3_128::oneshot_with_seed(seed, unsafe { input_bytes(data, size) });
    Hash128 { low64: hash as u64, high64: (hash >> 64) as u64 }
}
