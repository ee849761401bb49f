//! Memory that crosses the border: values, names and statistics are taken from the allocator that the program has named
//! (`tidesdb_init`), or from C's. What stays inside is Rust's.

use crate::code::{MEMORY, Result};
use std::ffi::c_void;
use std::mem::transmute;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

/// Takes memory.
pub type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
/// Takes memory, zeroed.
pub type Calloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;
/// Makes memory larger or smaller.
pub type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
/// Gives memory back.
pub type Free = unsafe extern "C" fn(*mut c_void);

static SET: Mutex<()> = Mutex::new(());
static INITIALIZED: AtomicBool = AtomicBool::new(false);
/// Null: C's.
static MALLOC: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static FREE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Names the allocator; false if that was done before. Only taking and giving back is needed: nothing grows.
pub fn init(malloc: Option<Malloc>, free: Option<Free>) -> bool {
    let _one = SET.lock().unwrap_or_else(PoisonError::into_inner);
    if INITIALIZED.swap(true, AcqRel) {
        return false;
    }
    MALLOC.store(malloc.map_or(std::ptr::null_mut(), |f| f as *mut c_void), Release);
    FREE.store(free.map_or(std::ptr::null_mut(), |f| f as *mut c_void), Release);
    true
}

/// Back to C's.
pub fn finalize() {
    let _one = SET.lock().unwrap_or_else(PoisonError::into_inner);
    MALLOC.store(std::ptr::null_mut(), Release);
    FREE.store(std::ptr::null_mut(), Release);
    INITIALIZED.store(false, Release);
}

/// So many bytes (one at least).
pub fn take(bytes: usize) -> Result<*mut c_void> {
    let own = MALLOC.load(Acquire);
    let place = if own.is_null() {
        // SAFETY: C's allocator may be asked for any size.
        unsafe { libc::malloc(bytes.max(1)) }
    } else {
        // SAFETY: stored by `init` from a function of this type.
        let malloc = unsafe { transmute::<*mut c_void, Malloc>(own) };
        // SAFETY: the program has said that this takes memory.
        unsafe { malloc(bytes.max(1)) }
    };
    if place.is_null() { Err(MEMORY.because("no memory for the answer")) } else { Ok(place) }
}

/// Gives back what [`take`] gave; nothing for null.
///
/// # Safety
/// `place` is null or came from the allocator that holds now, and nobody uses it any more.
pub unsafe fn give_back(place: *mut c_void) {
    let own = FREE.load(Acquire);
    if own.is_null() {
        // SAFETY: says the caller.
        unsafe { libc::free(place) }
    } else if !place.is_null() {
        // SAFETY: stored by `init` from a function of this type.
        let free = unsafe { transmute::<*mut c_void, Free>(own) };
        // SAFETY: says the caller.
        unsafe { free(place) }
    }
}

/// A copy for C.
#[inline]
pub fn copy(bytes: &[u8]) -> Result<*mut u8> {
    let place = take(bytes.len())?.cast::<u8>();
    // SAFETY: fresh memory of that size.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    Ok(place)
}

/// A copy for C, ended by NUL.
pub fn copy_text(text: &str) -> Result<*mut u8> {
    let place = take(text.len() + 1)?.cast::<u8>();
    // SAFETY: fresh memory of that size.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), place, text.len());
        place.add(text.len()).write(0);
    }
    Ok(place)
}
