//! The C boundary: how a call enters and leaves the library. Panics never unwind into C, and
//! arguments from C are validated before they are used.
//!
//! Invariant: a panic of the library is returned as [`UNKNOWN`](crate::code::UNKNOWN), and no call
//! enters the engine from inside a comparator.

use crate::code::{Code, INVALID_ARGS, Result, SUCCESS, TOO_LARGE, UNKNOWN};
use crate::log;
use perigee::limits;
pub use perigee_c_boundary::callback::{CallbackScope, check_not_in_comparator, in_hook};
use std::ffi::{CStr, c_char, c_int};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Longest accepted path or name in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Runs a call and returns its error code.
#[inline]
pub fn call(work: impl FnOnce() -> Result<()>) -> c_int {
    match catch_panics(work) {
        Ok(()) => SUCCESS,
        Err(code) => code.0,
    }
}

/// Runs a call that returns another type; returns `otherwise` on an error.
#[inline]
pub fn call_or<T>(otherwise: T, work: impl FnOnce() -> Result<T>) -> T {
    catch_panics(work).unwrap_or(otherwise)
}

#[inline]
fn catch_panics<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // State that a panic leaves incomplete is reachable only through a handle, whose lock is
    // released; the engine handles its own panics.
    catch_unwind(AssertUnwindSafe(|| {
        check_not_in_comparator()?;
        work()
    }))
    .unwrap_or_else(|_| Err(panic_error()))
}

#[cold]
fn panic_error() -> Code {
    log::error(
        "a call panicked: this is a bug in the library; please report it with the panic message \
         on standard error",
    );
    UNKNOWN.with_message("the call panicked: this is a bug in the library")
}

/// Returns bytes passed by C.
///
/// # Safety
/// `data` is null or points to `size` bytes that are not modified during `'a`.
#[inline]
pub unsafe fn bytes<'a>(data: *const u8, size: usize, max: usize) -> Result<&'a [u8]> {
    if data.is_null() {
        return Err(INVALID_ARGS.with_message("the data pointer is null"));
    }
    if size > max {
        return Err(TOO_LARGE.with_text(format!("{size} bytes exceed the maximum of {max}")));
    }
    // SAFETY: not null; the caller guarantees the rest, and the limits are far below `isize::MAX`.
    Ok(unsafe { std::slice::from_raw_parts(data, size) })
}

/// Returns a key, which has at least one byte.
///
/// # Safety
/// As [`bytes`].
#[inline]
pub unsafe fn key<'a>(data: *const u8, size: usize) -> Result<&'a [u8]> {
    if size == 0 {
        return Err(INVALID_ARGS.with_message("a key must have at least one byte"));
    }
    // SAFETY: the caller's guarantees are passed on.
    unsafe { bytes(data, size, limits::KEY_BYTES_MAX) }
}

/// Bounds of a key range.
pub type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Returns the range from `start` (inclusive) to `end` (exclusive); null means unbounded.
///
/// # Safety
/// The keys are null or valid for the given sizes.
pub unsafe fn range<'a>(
    start: *const u8,
    start_size: usize,
    end: *const u8,
    end_size: usize,
) -> Result<KeyRange<'a>> {
    let bound = |p: *const u8, n| {
        if p.is_null() {
            return Ok(None);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { key(p, n) }.map(Some)
    };
    let start = bound(start, start_size)?.map_or(Bound::Unbounded, Bound::Included);
    Ok((start, bound(end, end_size)?.map_or(Bound::Unbounded, Bound::Excluded)))
}

/// Returns a string passed by C: at most 64 KiB of UTF-8.
///
/// # Safety
/// `text` is null or points to a NUL-terminated string that is not modified during `'a`.
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(INVALID_ARGS.with_message("the string is null"));
    }
    // SAFETY: the caller guarantees that the string is NUL-terminated.
    let bytes = unsafe { CStr::from_ptr(text) };
    if bytes.count_bytes() > TEXT_BYTES_MAX {
        return Err(INVALID_ARGS.with_message("the name or path is longer than 64 KiB"));
    }
    bytes.to_str().map_err(|_| INVALID_ARGS.with_message("the name or path is not UTF-8"))
}

/// Returns an output parameter.
///
/// # Safety
/// `place` is null or valid for writing.
#[inline]
pub unsafe fn out_param<'a, T>(place: *mut T) -> Result<&'a mut T> {
    // SAFETY: guaranteed by the caller; result types have no invalid bit patterns (integers,
    // pointers).
    unsafe { place.as_mut() }
        .ok_or_else(|| INVALID_ARGS.with_message("the pointer for the result is null"))
}

/// Returns a structure passed by C.
///
/// # Safety
/// `place` is null or points to a valid structure.
#[inline]
pub unsafe fn struct_param<'a, T>(place: *const T) -> Result<&'a T> {
    // SAFETY: guaranteed by the caller.
    unsafe { place.as_ref() }
        .ok_or_else(|| INVALID_ARGS.with_message("the pointer to the structure is null"))
}

/// Returns the text in a field of fixed size, up to its first NUL.
pub fn read_field(field: &[c_char]) -> Result<String> {
    let bytes: Vec<u8> = field.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
    String::from_utf8(bytes).map_err(|_| INVALID_ARGS.with_message("the name is not UTF-8"))
}

/// Stores text in a field of fixed size; fails if it does not fit with its NUL.
pub fn set_field(field: &mut [c_char], text: &str) -> Result<()> {
    if text.len() >= field.len() || text.contains('\0') {
        return Err(INVALID_ARGS.with_message("the name is too long"));
    }
    field.fill(0);
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from.cast_signed() as c_char;
    }
    Ok(())
}
