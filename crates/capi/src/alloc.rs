//! Memory that crosses the border: values, names and statistics are taken from the allocator that
//! the program has named (`tidesdb_init`), or from C's. What stays inside is Rust's.

use crate::code::{MEMORY, Result};
use std::ffi::c_void;
use std::mem::transmute;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering::*};

/// Takes memory.
pub type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
/// Takes memory, zeroed.
pub type Calloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;
/// Makes memory larger or smaller.
pub type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
/// Gives memory back.
pub type Free = unsafe extern "C" fn(*mut c_void);

/// The functions in force, as TidesDB's `tidesdb.h` shows them: programs that were compiled with
/// that header take and give back through this, and the loader may have moved it into the program.
#[repr(C)]
pub struct Allocator {
    malloc: AtomicPtr<c_void>,
    calloc: AtomicPtr<c_void>,
    realloc: AtomicPtr<c_void>,
    free: AtomicPtr<c_void>,
}

/// The functions in force.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static tidesdb_allocator: Allocator = Allocator {
    malloc: AtomicPtr::new(libc::malloc as *const () as *mut c_void),
    calloc: AtomicPtr::new(libc::calloc as *const () as *mut c_void),
    realloc: AtomicPtr::new(libc::realloc as *const () as *mut c_void),
    free: AtomicPtr::new(libc::free as *const () as *mut c_void),
};

/// 1 once an allocator was named, or taken for granted by an open.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static tidesdb_initialized: AtomicI32 = AtomicI32::new(0);

static ALLOCATOR_LOCK: Mutex<()> = Mutex::new(());

fn set_allocator(
    malloc: Option<Malloc>,
    calloc: Option<Calloc>,
    realloc: Option<Realloc>,
    free: Option<Free>,
) {
    let all = &tidesdb_allocator;
    all.malloc.store(malloc.unwrap_or(libc::malloc) as *mut c_void, Release);
    all.calloc.store(calloc.unwrap_or(libc::calloc) as *mut c_void, Release);
    all.realloc.store(realloc.unwrap_or(libc::realloc) as *mut c_void, Release);
    all.free.store(free.unwrap_or(libc::free) as *mut c_void, Release);
}

/// Names the allocator; false if that was done before. Here nothing grows, so only taking and
/// giving back is used.
pub fn init(
    malloc: Option<Malloc>,
    calloc: Option<Calloc>,
    realloc: Option<Realloc>,
    free: Option<Free>,
) -> bool {
    let _one = ALLOCATOR_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    if tidesdb_initialized.swap(1, AcqRel) != 0 {
        return false;
    }
    set_allocator(malloc, calloc, realloc, free);
    true
}

/// C's, if nobody has named one.
pub fn ensure_initialized() {
    if tidesdb_initialized.load(Acquire) == 0 {
        init(None, None, None, None);
    }
}

/// Back to C's.
pub fn finalize() {
    let _one = ALLOCATOR_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    set_allocator(None, None, None, None);
    tidesdb_initialized.store(0, Release);
}

/// So many bytes (one at least).
pub fn allocate(bytes: usize) -> Result<*mut c_void> {
    // SAFETY: it is a function of this type from the start, and `set` puts nothing else there.
    let malloc =
        unsafe { transmute::<*mut c_void, Malloc>(tidesdb_allocator.malloc.load(Acquire)) };
    // SAFETY: C's allocator may be asked for any size, and the program has said that its own takes
    // memory.
    let place = unsafe { malloc(bytes.max(1)) };
    if place.is_null() { Err(MEMORY.with_message("no memory for the answer")) } else { Ok(place) }
}

/// Gives back what [`take`] gave; nothing for null.
///
/// # Safety
/// `place` is null or came from the allocator that holds now, and nobody uses it any more.
pub unsafe fn release(place: *mut c_void) {
    if place.is_null() {
        return;
    }
    // SAFETY: as in `take`.
    let free = unsafe { transmute::<*mut c_void, Free>(tidesdb_allocator.free.load(Acquire)) };
    // SAFETY: says the caller.
    unsafe { free(place) }
}

/// A copy for C.
#[inline]
pub fn copy_bytes(bytes: &[u8]) -> Result<*mut u8> {
    let place = allocate(bytes.len())?.cast::<u8>();
    // SAFETY: fresh memory of that size.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    Ok(place)
}

/// A copy for C, ended by NUL.
pub fn copy_text(text: &str) -> Result<*mut u8> {
    let place = allocate(text.len() + 1)?.cast::<u8>();
    // SAFETY: fresh memory of that size.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), place, text.len());
        place.add(text.len()).write(0);
    }
    Ok(place)
}
