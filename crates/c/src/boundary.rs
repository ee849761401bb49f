//! The C boundary: the types of parameters, and how a call enters and leaves the library. Panics
//! never unwind into C, and arguments are checked before they are used.
//!
//! Only C callers create values of the parameter types here, and a C caller guarantees what
//! `perigee.h` requires: a pointer is null or valid for what the function does with it, for the
//! duration of the call.
//!
//! Invariant: a panic is returned as an `Internal` error, and no call enters the engine from inside
//! a comparator or merge operator.

use crate::error::{ErrorObject, OK, code_of};
use perigee::{Durability, Error, ErrorKind, Result, limits};
use perigee_c_boundary::callback::check_not_in_comparator;
use perigee_c_boundary::handle::HandleTable;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

/// Longest accepted path, name or text in bytes; texts of options files may be longer.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The last parameter of every function that can fail.
#[repr(transparent)]
pub struct ErrorOut(*mut *mut ErrorObject);

/// Runs a call; returns its code, and its error in `details`.
#[inline]
pub fn call(details: ErrorOut, work: impl FnOnce() -> Result<()>) -> c_int {
    if !details.0.is_null() {
        // SAFETY: the caller guarantees that a pointer that is not null is valid for writing.
        unsafe { details.0.write(null_mut()) };
    }
    // State that a panic leaves incomplete is reachable only through a handle, whose lock is
    // released; the engine handles its own panics.
    let result = catch_unwind(AssertUnwindSafe(|| {
        check_not_in_comparator()?;
        work()
    }));
    match result {
        Ok(Ok(())) => OK,
        Ok(Err(e)) => report_error(&details, e),
        Err(_) => report_error(
            &details,
            Error::internal(
                "the call panicked: this is a bug in the library; please report it with the \
                 message on standard error",
            ),
        ),
    }
}

#[cold]
fn report_error(details: &ErrorOut, error: Error) -> c_int {
    let code = code_of(error.kind());
    if !details.0.is_null() {
        let object = Box::into_raw(Box::new(ErrorObject::new(error)));
        // SAFETY: as in `call`.
        unsafe { details.0.write(object) };
    }
    code
}

/// Runs a call that cannot report an error: a panic is ignored.
pub fn call_void(work: impl FnOnce()) {
    // The result says only whether the call panicked; the panic hook has printed that.
    let _ = catch_unwind(AssertUnwindSafe(work));
}

/// An output parameter.
#[repr(transparent)]
pub struct Out<T: Copy>(*mut T);

impl<T: Copy> Out<T> {
    /// Stores a result, unless the pointer is null.
    #[inline]
    pub fn set(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the caller guarantees that a pointer that is not null is valid for writing.
            unsafe { self.0.write(value) };
        }
    }
    /// Refuses a null pointer.
    #[inline]
    pub fn require(&self) -> Result<()> {
        if self.0.is_null() { Err(null_result()) } else { Ok(()) }
    }
    /// Returns the places of `count` results, all of them set to `initial`; for a count of 0 the
    /// pointer may be null.
    pub fn array(&mut self, count: usize, initial: T) -> Result<&mut [T]> {
        if count == 0 {
            return Ok(&mut []);
        }
        self.require()?;
        check_count::<T>(count)?;
        for i in 0..count {
            // SAFETY: the caller guarantees space for `count` results.
            unsafe { self.0.add(i).write(initial) };
        }
        // SAFETY: all elements were just initialized, and only this call uses them.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0, count) })
    }
}

#[cold]
fn null_result() -> Error {
    Error::invalid("the pointer for the result is NULL")
}

fn check_count<T>(count: usize) -> Result<()> {
    match count.checked_mul(size_of::<T>()) {
        Some(bytes) if isize::try_from(bytes).is_ok() => Ok(()),
        _ => Err(Error::invalid(format!("{count} elements are too many"))),
    }
}

/// A handle: a number, never dereferenced.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Handle(pub *mut c_void);

impl Handle {
    /// No handle.
    pub const NULL: Handle = Handle(null_mut());
    /// Inserts a value into a table and returns its handle.
    pub fn insert<T: Send + Sync, S: Default + Sync>(
        table: &HandleTable<T, S>,
        value: T,
    ) -> Result<Handle> {
        Ok(Handle(table.insert(value)? as *mut c_void))
    }
    /// Returns the number of the handle.
    #[inline]
    pub fn raw(self) -> usize {
        self.0 as usize
    }
    /// Returns true for no handle.
    #[inline]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
    /// Removes the value from a table and drops it. Null and invalid handles are ignored.
    pub fn release<T: Send + Sync, S: Default + Sync>(self, table: &HandleTable<T, S>) {
        if !self.is_null() {
            call_void(|| drop(table.remove(self.raw())));
        }
    }
}

/// Bytes that the caller reads or that it provides as a buffer; the size is another parameter.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Bytes(pub *const c_void);

impl Bytes {
    /// Returns the bytes. Null is accepted for no bytes.
    #[inline]
    pub fn get<'a>(self, size: usize, max: usize) -> Result<&'a [u8]> {
        if size == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() || size > max {
            return Err(invalid_bytes(self.0.is_null(), size, max));
        }
        // SAFETY: not null; the caller guarantees `size` bytes that are not modified during the
        // call, and the limits are below `isize::MAX`.
        Ok(unsafe { std::slice::from_raw_parts(self.0.cast(), size) })
    }
    /// Returns a key.
    #[inline]
    pub fn key<'a>(self, size: usize) -> Result<&'a [u8]> {
        self.get(size, limits::KEY_BYTES_MAX)
    }
    /// Returns a value.
    #[inline]
    pub fn value<'a>(self, size: usize) -> Result<&'a [u8]> {
        self.get(size, VALUE_BYTES_MAX)
    }
    /// Returns bytes, or `None` for null.
    pub fn optional<'a>(self, size: usize, max: usize) -> Result<Option<&'a [u8]>> {
        if self.0.is_null() && size == 0 { Ok(None) } else { self.get(size, max).map(Some) }
    }
}

/// Longest value that a call accepts.
pub const VALUE_BYTES_MAX: usize = limits::STREAMED_VALUE_BYTES_MAX as usize;

#[cold]
fn invalid_bytes(is_null: bool, size: usize, max: usize) -> Error {
    Error::invalid(match is_null {
        true => format!("the pointer to {size} bytes is NULL"),
        false => format!("{size} bytes exceed the maximum of {max}"),
    })
}

/// A buffer of the caller.
#[repr(transparent)]
pub struct Buffer(*mut c_void);

impl Buffer {
    /// Copies bytes to the beginning of the buffer, as many as fit.
    pub fn copy_from(&self, bytes: &[u8], capacity: usize) -> Result<()> {
        let count = bytes.len().min(capacity);
        if count > 0 {
            if self.0.is_null() {
                return Err(Error::invalid("the buffer is NULL"));
            }
            // SAFETY: the caller guarantees space for `capacity` bytes, which do not overlap
            // memory of the library.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast(), count) };
        }
        Ok(())
    }
    /// Returns the buffer, zeroed.
    pub fn zeroed(&mut self, capacity: usize) -> Result<&mut [u8]> {
        if capacity == 0 {
            return Ok(&mut []);
        }
        if self.0.is_null() {
            return Err(Error::invalid("the buffer is NULL"));
        }
        check_count::<u8>(capacity)?;
        // SAFETY: the caller guarantees space for `capacity` bytes, which only this call uses. They
        // may be uninitialized, so they are zeroed first.
        Ok(unsafe {
            std::ptr::write_bytes(self.0.cast::<u8>(), 0, capacity);
            std::slice::from_raw_parts_mut(self.0.cast(), capacity)
        })
    }
}

/// A text: a path, a name, or the contents of an options file.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    /// Returns a path or name.
    pub fn get<'a>(self) -> Result<&'a str> {
        self.get_long(TEXT_BYTES_MAX)
    }
    /// Returns a text of at most `max` bytes.
    pub fn get_long<'a>(self, max: usize) -> Result<&'a str> {
        if self.0.is_null() {
            return Err(Error::invalid("the text is NULL"));
        }
        // SAFETY: not null; the caller guarantees that the text is NUL-terminated and not modified
        // during the call.
        let bytes = unsafe { CStr::from_ptr(self.0) };
        if bytes.count_bytes() > max {
            return Err(Error::invalid(format!("the text is longer than {max} bytes")));
        }
        bytes.to_str().map_err(|_| Error::invalid("the text is not UTF-8"))
    }
}

/// A structure that the caller passes by reference.
#[repr(transparent)]
pub struct Struct<T>(*const T);

impl<T> Struct<T> {
    /// Returns the structure, or `None` for null.
    pub fn get(&self) -> Option<&T> {
        // SAFETY: the caller guarantees that a pointer that is not null is valid. The structures
        // consist of integers and pointers, for which every bit pattern is valid.
        unsafe { self.0.as_ref() }
    }
    /// Returns `count` structures; for a count of 0 the pointer may be null.
    pub fn array(&self, count: usize) -> Result<&[T]> {
        if count == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(Error::invalid("the pointer to an array is NULL"));
        }
        check_count::<T>(count)?;
        // SAFETY: not null; the caller guarantees `count` structures.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) })
    }
}

/// Returns a durability; `None` is that of the database.
pub fn durability(value: c_int) -> Result<Option<Durability>> {
    match value {
        0 => Ok(None),
        1 => Ok(Some(Durability::Full)),
        2 => Ok(Some(Durability::None)),
        _ => Err(Error::invalid(format!("{value} is not a perigee_durability"))),
    }
}

/// Returns the error for an object that an earlier call has used up.
#[cold]
pub fn used_up(what: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("the {what} has ended: release it"))
}
