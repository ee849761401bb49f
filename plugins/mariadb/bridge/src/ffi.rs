//! The C boundary: how a call enters and leaves the library, and how arguments are read.

use crate::engine::Shared;
use crate::status::{Result, Status};
use std::ffi::{c_char, c_void};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes that are passed in either direction, `pgb_slice` in C.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Null: no bytes.
    pub data: *const u8,
    /// Number of bytes.
    pub size: usize,
}

impl Slice {
    /// The null slice: no bytes, or no end of a range.
    pub const NULL: Slice = Slice { data: std::ptr::null(), size: 0 };

    /// Returns a slice of these bytes, without a lifetime.
    #[inline]
    pub fn new(bytes: &[u8]) -> Slice {
        Slice { data: bytes.as_ptr(), size: bytes.len() }
    }
    /// Returns the bytes.
    ///
    /// # Safety
    /// `data` is null or points to `size` bytes that are not modified during `'a`.
    #[inline]
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.data.is_null() {
            return &[];
        }
        // SAFETY: not null, and guaranteed by the caller.
        unsafe { std::slice::from_raw_parts(self.data, self.size) }
    }
}

/// Receives a text, `pgb_text_fn` in C.
pub type TextFn = unsafe extern "C" fn(*mut c_void, *const c_char, usize);
/// Receives a counter, `pgb_counter_fn` in C.
pub type CounterFn = unsafe extern "C" fn(*mut c_void, *const c_char, u64);
/// Receives the identifier of a prepared transaction, `pgb_prepared_fn` in C.
pub type PreparedFn = unsafe extern "C" fn(*mut c_void, *const u8, usize);

/// Bounds of a key range.
pub type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Returns the range `[begin, end)`; a null slice is no bound.
///
/// # Safety
/// As [`Slice::bytes`].
#[inline]
pub unsafe fn range<'a>(begin: Slice, end: Slice) -> KeyRange<'a> {
    // SAFETY: guaranteed by the caller.
    let (from, to) = unsafe { (begin.bytes(), end.bytes()) };
    let lower = if begin.data.is_null() { Bound::Unbounded } else { Bound::Included(from) };
    (lower, if end.data.is_null() { Bound::Unbounded } else { Bound::Excluded(to) })
}

/// Returns the object behind a pointer.
///
/// # Safety
/// `object` is null or points to a live object.
#[inline]
pub unsafe fn object<'a, T>(object: *const T) -> Result<&'a T> {
    // SAFETY: guaranteed by the caller.
    unsafe { object.as_ref() }.ok_or_else(null_pointer)
}

/// Stores a result.
///
/// # Safety
/// `place` is null or valid for writing.
#[inline]
pub unsafe fn store<T>(place: *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Err(null_pointer());
    }
    // SAFETY: not null, and guaranteed by the caller.
    unsafe { place.write(value) };
    Ok(())
}

#[cold]
fn null_pointer() -> Status {
    Status::INVALID.with_message("a pointer argument is null")
}

/// Returns a name passed by C++.
///
/// # Safety
/// `data` is null or points to `size` bytes that are not modified during `'a`.
pub unsafe fn name<'a>(data: *const c_char, size: usize) -> Result<&'a str> {
    // SAFETY: guaranteed by the caller.
    let bytes = unsafe { Slice { data: data.cast(), size }.bytes() };
    std::str::from_utf8(bytes).map_err(|_| Status::INVALID.with_message("the name is not UTF-8"))
}

/// Runs a call on a database. After a panic, this call and all later ones return
/// [`Status::INTERNAL`].
#[inline]
pub fn call(shared: &Shared, work: impl FnOnce() -> Result<()>) -> Status {
    if shared.has_failed() {
        return refuse();
    }
    // What a panic leaves incomplete is not used again, because later calls are refused.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => Status::OK,
        Ok(Err(status)) => status,
        Err(_) => shared.fail(),
    }
}

/// Runs a call that may have no database, such as an open.
pub fn call_without_engine(work: impl FnOnce() -> Result<()>) -> Status {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => Status::OK,
        Ok(Err(status)) => status,
        Err(_) => Status::INTERNAL.with_message(PANICKED),
    }
}

/// Releases an object that C++ owns; does nothing for null. The object is leaked after a panic.
///
/// # Safety
/// `object` is null, or came from [`Box::into_raw`] and is not used again.
pub unsafe fn release<T>(object: *mut T) {
    if object.is_null() {
        return;
    }
    // SAFETY: guaranteed by the caller.
    let release = || drop(unsafe { Box::from_raw(object) });
    let _ = catch_unwind(AssertUnwindSafe(release));
}

/// Message of a panic.
pub const PANICKED: &str = "the call panicked: this is a bug in Perigee; the server's error log \
    has the panic message";

#[cold]
fn refuse() -> Status {
    Status::INTERNAL.with_message(
        "the storage engine stopped after a panic: restart the server; its error log has the \
         panic message",
    )
}
