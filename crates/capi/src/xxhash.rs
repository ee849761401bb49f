//! The hash functions that `tidesdb/xxhash.h` declares: TidesDB installs the xxHash header beside
//! its own, and clients use it (TideSQL: `XXH3_64bits`). Only functions that take all bytes at
//! once. The values are those of xxHash.

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

/// The bytes; none if there are none, wherever `data` points then.
///
/// # Safety
/// `data` points to `size` bytes that stay as they are for `'a`, or `size` is 0.
unsafe fn input_bytes<'a>(data: *const c_void, size: usize) -> &'a [u8] {
    if data.is_null() || size == 0 || size > isize::MAX as usize {
        return &[];
    }
    // SAFETY: says the caller.
    unsafe { std::slice::from_raw_parts(data.cast(), size) }
}

/// XXH32.
///
/// # Safety
/// `data` points to `size` bytes, or `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_xxh32(data: *const c_void, size: usize, seed: u32) -> u32 {
    // SAFETY: says the caller.
    XxHash32::oneshot(seed, unsafe { input_bytes(data, size) })
}

/// XXH64.
///
/// # Safety
/// `data` points to `size` bytes, or `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_xxh64(data: *const c_void, size: usize, seed: u64) -> u64 {
    // SAFETY: says the caller.
    XxHash64::oneshot(seed, unsafe { input_bytes(data, size) })
}

/// XXH3 with 64 bits.
///
/// # Safety
/// `data` points to `size` bytes, or `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_xxh3_64(data: *const c_void, size: usize, seed: u64) -> u64 {
    // SAFETY: says the caller.
    XxHash3_64::oneshot_with_seed(seed, unsafe { input_bytes(data, size) })
}

/// XXH3 with 128 bits.
///
/// # Safety
/// `data` points to `size` bytes, or `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_xxh3_128(data: *const c_void, size: usize, seed: u64) -> Hash128 {
    // SAFETY: says the caller.
    let hash = XxHash3_128::oneshot_with_seed(seed, unsafe { input_bytes(data, size) });
    Hash128 { low64: hash as u64, high64: (hash >> 64) as u64 }
}
