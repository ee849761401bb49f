//! Memory for the caller, from C's allocator, and values that are pinned instead of copied.

use crate::boundary::{ErrorOut, Out, call};
use perigee::{Error, ErrorKind, Result, Slice};
use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{copy_nonoverlapping, null, null_mut};

/// Allocates memory, at least one byte, which the caller frees.
pub fn allocate(bytes: usize) -> Result<*mut c_void> {
    // SAFETY: C's allocator accepts any size.
    let memory = unsafe { libc::malloc(bytes.max(1)) };
    if memory.is_null() {
        return Err(Error::new(
            ErrorKind::NoMemory,
            format!("no memory for a result of {bytes} bytes"),
        ));
    }
    Ok(memory)
}

/// Copies bytes into memory for the caller.
pub fn copy_bytes(bytes: &[u8]) -> Result<*mut c_void> {
    let memory = allocate(bytes.len())?;
    // SAFETY: newly allocated memory of at least that size.
    unsafe { copy_nonoverlapping(bytes.as_ptr(), memory.cast(), bytes.len()) };
    Ok(memory)
}

/// Copies text, with a NUL at its end, into memory for the caller.
pub fn copy_text(text: &str) -> Result<*mut c_char> {
    let memory = allocate(text.len() + 1)?.cast::<u8>();
    // SAFETY: newly allocated memory of that size.
    unsafe {
        copy_nonoverlapping(text.as_ptr(), memory, text.len());
        memory.add(text.len()).write(0);
    }
    Ok(memory.cast())
}

/// Runs a call that returns a text, which the caller frees.
pub fn return_text(
    place: &Out<*mut c_char>,
    error: ErrorOut,
    get: impl FnOnce() -> Result<String>,
) -> c_int {
    place.set(null_mut());
    call(error, || {
        place.require()?;
        place.set(copy_text(&get()?)?);
        Ok(())
    })
}

/// Copies names into one allocation: an array of pointers, and behind it the texts.
pub fn copy_names(names: &[String]) -> Result<*mut *mut c_char> {
    let head = names.len() * size_of::<*mut c_char>();
    let bytes: usize = names.iter().map(|name| name.len() + 1).sum();
    let array = allocate(head + bytes)?.cast::<*mut c_char>();
    let mut text = array.cast::<u8>().wrapping_add(head);
    for (i, name) in names.iter().enumerate() {
        // SAFETY: the allocation has space for each pointer, and behind them for each text.
        unsafe {
            copy_nonoverlapping(name.as_ptr(), text, name.len());
            text.add(name.len()).write(0);
            array.add(i).write(text.cast());
            text = text.add(name.len() + 1);
        }
    }
    Ok(array)
}

/// Frees memory that this module has allocated.
///
/// # Safety
/// The pointer is null or was returned by this library, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_free(memory: *mut c_void) {
    // SAFETY: allocated by `libc::malloc`, or null; the caller guarantees the rest.
    unsafe { libc::free(memory) }
}

#[unsafe(no_mangle)]
pub extern "C" fn perigee_library_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// `perigee_pinned`: a value that is not copied. `reserved` holds the [`Slice`] while `data` is not
/// null.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pinned {
    data: *const c_void,
    size: usize,
    reserved: [MaybeUninit<*mut c_void>; 6],
}

const _: () = assert!(size_of::<Slice>() <= size_of::<[*mut c_void; 6]>());
const _: () = assert!(align_of::<Slice>() <= align_of::<*mut c_void>());

impl Pinned {
    /// No value.
    pub const NONE: Pinned =
        Pinned { data: null(), size: 0, reserved: [MaybeUninit::new(null_mut()); 6] };

    /// Pins a value.
    pub fn new(value: Slice) -> Pinned {
        let mut pinned = Pinned::NONE;
        (pinned.data, pinned.size) = (value.as_ptr().cast(), value.len());
        // SAFETY: `reserved` has the size and alignment of a `Slice` (checked above). The bytes
        // that `data` refers to belong to a reference-counted buffer, and do not move with it.
        unsafe { pinned.reserved.as_mut_ptr().cast::<Slice>().write(value) };
        pinned
    }
    /// Unpins the value, if there is one.
    pub fn release(&mut self) {
        if !self.data.is_null() {
            self.data = null();
            self.size = 0;
            // SAFETY: `data` was not null, so `reserved` holds a `Slice`, which is not used again.
            drop(unsafe { self.reserved.as_mut_ptr().cast::<Slice>().read() });
        }
    }
}

/// Sets pinned values to results in the same order; after an error none is pinned.
pub fn set_pinned(places: &mut [Pinned], values: Vec<Result<Option<Slice>>>) -> Result<()> {
    for (place, value) in places.iter_mut().zip(values) {
        match value {
            Ok(value) => *place = value.map_or(Pinned::NONE, Pinned::new),
            Err(e) => {
                places.iter_mut().for_each(Pinned::release);
                return Err(e);
            }
        }
    }
    Ok(())
}

/// Sets the parameters that receive a copy of a value; null if there is none.
pub fn set_copy(value: Option<&Slice>, place: &Out<*mut c_void>, size: &Out<usize>) -> Result<()> {
    if let Some(bytes) = value {
        place.set(copy_bytes(bytes)?);
        size.set(bytes.len());
    }
    Ok(())
}

/// Unpins a value.
///
/// # Safety
/// The pointer is null or refers to a structure that this library has filled, or that is zeroed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perigee_pinned_release(pinned: *mut Pinned) {
    // SAFETY: guaranteed by the caller.
    if let Some(pinned) = unsafe { pinned.as_mut() } {
        crate::boundary::call_void(|| pinned.release());
    }
}
