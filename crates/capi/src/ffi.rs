//! The border itself: how a call enters and leaves. Nothing unwinds into C; what C gives is looked
//! at before it is used.
//!
//! Invariant: a panic of ours ends as [`UNKNOWN`](crate::code::UNKNOWN), and no call enters the
//! engine from inside a comparator.

use crate::code::{Code, INVALID_ARGS, Result, SUCCESS, TOO_LARGE, UNKNOWN};
use crate::log;
use perigee::limits;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Longest path or name that is looked at.
const TEXT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Inside how many of the user's functions this thread is.
    static CALLBACK_DEPTH: Cell<CallbackDepth> = const { Cell::new(CallbackDepth { comparators: 0, hooks: 0 }) };
}

#[derive(Clone, Copy, Default)]
struct CallbackDepth {
    comparators: u32,
    hooks: u32,
}

/// A user's function that runs.
pub struct CallbackScope {
    previous: CallbackDepth,
}

impl CallbackScope {
    fn enter_callback(change: impl FnOnce(&mut CallbackDepth)) -> CallbackScope {
        let before = CALLBACK_DEPTH.try_with(Cell::get).unwrap_or_default();
        let mut now = before;
        change(&mut now);
        let _ = CALLBACK_DEPTH.try_with(|i| i.set(now));
        CallbackScope { previous: before }
    }
    /// A comparator runs: the engine may hold any of its locks.
    pub fn comparator() -> CallbackScope {
        CallbackScope::enter_callback(|i| i.comparators += 1)
    }
    /// A commit hook runs: no lock is held.
    pub fn hook() -> CallbackScope {
        CallbackScope::enter_callback(|i| i.hooks += 1)
    }
}

impl Drop for CallbackScope {
    fn drop(&mut self) {
        let _ = CALLBACK_DEPTH.try_with(|i| i.set(self.previous));
    }
}

/// Whether this thread runs a hook.
pub fn in_hook() -> bool {
    CALLBACK_DEPTH.try_with(Cell::get).is_ok_and(|i| i.hooks > 0)
}

#[inline]
fn check_not_in_comparator() -> Result<()> {
    match CALLBACK_DEPTH.try_with(Cell::get) {
        Ok(i) if i.comparators > 0 => Err(INVALID_ARGS.with_message(
            "a comparator may not call the library: the engine is in the middle of something",
        )),
        _ => Ok(()),
    }
}

/// Runs a call: its code.
#[inline]
pub fn call(work: impl FnOnce() -> Result<()>) -> c_int {
    match catch_panics(work) {
        Ok(()) => SUCCESS,
        Err(code) => code.0,
    }
}

/// Runs a call that answers something else; `otherwise` after an error.
#[inline]
pub fn call_or<T>(otherwise: T, work: impl FnOnce() -> Result<T>) -> T {
    catch_panics(work).unwrap_or(otherwise)
}

#[inline]
fn catch_panics<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // Everything that a panic leaves half done is behind a handle, whose lock is let go; the engine
    // looks after itself.
    catch_unwind(AssertUnwindSafe(|| {
        check_not_in_comparator()?;
        work()
    }))
    .unwrap_or_else(|_| Err(panic_error()))
}

#[cold]
fn panic_error() -> Code {
    log::error(
        "a bug of the library: a call has panicked; please report what standard error says above",
    );
    UNKNOWN.with_message("a bug of the library: the call has panicked")
}

/// Bytes that C gives.
///
/// # Safety
/// `data` is null or points to `size` bytes that stay as they are for `'a`.
#[inline]
pub unsafe fn bytes<'a>(data: *const u8, size: usize, max: usize) -> Result<&'a [u8]> {
    if data.is_null() {
        return Err(INVALID_ARGS.with_message("a null pointer where bytes are needed"));
    }
    if size > max {
        return Err(TOO_LARGE.with_text(format!("{size} bytes, where {max} are the most")));
    }
    // SAFETY: not null; the caller vouches for the rest, and the limits are far below `isize::MAX`.
    Ok(unsafe { std::slice::from_raw_parts(data, size) })
}

/// A key: of one byte at least.
///
/// # Safety
/// As [`bytes`].
#[inline]
pub unsafe fn key<'a>(data: *const u8, size: usize) -> Result<&'a [u8]> {
    if size == 0 {
        return Err(INVALID_ARGS.with_message("a key has at least one byte"));
    }
    // SAFETY: passed on.
    unsafe { bytes(data, size, limits::KEY_BYTES_MAX) }
}

/// A range of keys.
pub type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// From `start` to before `end`; null is no bound.
///
/// # Safety
/// The keys are as long as is said, or null.
pub unsafe fn range<'a>(
    start: *const u8,
    start_size: usize,
    end: *const u8,
    end_size: usize,
) -> Result<KeyRange<'a>> {
    // SAFETY: says the caller.
    let bound =
        |p: *const u8, n| if p.is_null() { Ok(None) } else { unsafe { key(p, n) }.map(Some) };
    let start = bound(start, start_size)?.map_or(Bound::Unbounded, Bound::Included);
    Ok((start, bound(end, end_size)?.map_or(Bound::Unbounded, Bound::Excluded)))
}

/// Text that C gives: at most 64 KiB of UTF-8.
///
/// # Safety
/// `text` is null or points to a string that ends with NUL and stays as it is for `'a`.
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(INVALID_ARGS.with_message("a null pointer where text is needed"));
    }
    // SAFETY: the string ends, says the caller.
    let bytes = unsafe { CStr::from_ptr(text) };
    if bytes.count_bytes() > TEXT_BYTES_MAX {
        return Err(INVALID_ARGS.with_message("a name or path of more than 64 KiB"));
    }
    bytes.to_str().map_err(|_| INVALID_ARGS.with_message("a name or path that is not UTF-8"))
}

/// A place for an answer.
///
/// # Safety
/// `place` is null or may be written to.
#[inline]
pub unsafe fn out_param<'a, T>(place: *mut T) -> Result<&'a mut T> {
    // SAFETY: says the caller; types of answers have no invalid bytes (integers, pointers).
    unsafe { place.as_mut() }
        .ok_or_else(|| INVALID_ARGS.with_message("a null pointer where an answer is to be put"))
}

/// A structure that C gives.
///
/// # Safety
/// `place` is null or points to a whole one.
#[inline]
pub unsafe fn struct_param<'a, T>(place: *const T) -> Result<&'a T> {
    // SAFETY: says the caller.
    unsafe { place.as_ref() }
        .ok_or_else(|| INVALID_ARGS.with_message("a null pointer where a structure is needed"))
}

/// The text in a field of fixed size: up to its first NUL.
pub fn read_field(field: &[c_char]) -> Result<String> {
    let bytes: Vec<u8> = field.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
    String::from_utf8(bytes).map_err(|_| INVALID_ARGS.with_message("a name that is not UTF-8"))
}

/// Text into a field of fixed size; what does not fit, and its NUL, is an error.
pub fn set_field(field: &mut [c_char], text: &str) -> Result<()> {
    if text.len() >= field.len() || text.contains('\0') {
        return Err(INVALID_ARGS.with_message("a name that is too long"));
    }
    field.fill(0);
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from.cast_signed() as c_char;
    }
    Ok(())
}
