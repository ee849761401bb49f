//! Memory handed to C: values, names and statistics are allocated with the allocator that the
//! program passed to `tidesdb_init`, or with C's. Memory used inside the library comes from Rust's
//! allocator.

use crate::code::{MEMORY, Result};
use std::ffi::c_void;
use std::mem::transmute;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering::*};

/// Allocates memory.
pub type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
/// Allocates zeroed memory.
pub type Calloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;
/// Resizes an allocation.
pub type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
/// Frees memory.
pub type Free = unsafe extern "C" fn(*mut c_void);

/// Allocator functions in use, in the layout of TidesDB's `tidesdb.h`: programs compiled with that
/// header allocate and free through this structure, and the loader may have copied it into the
/// program.
#[repr(C)]
pub struct Allocator {
    malloc: AtomicPtr<c_void>,
    calloc: AtomicPtr<c_void>,
    realloc: AtomicPtr<c_void>,
    free: AtomicPtr<c_void>,
}

/// The allocator functions in use.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static tidesdb_allocator: Allocator = Allocator {
    malloc: AtomicPtr::new(libc::malloc as *const () as *mut c_void),
    calloc: AtomicPtr::new(libc::calloc as *const () as *mut c_void),
    realloc: AtomicPtr::new(libc::realloc as *const () as *mut c_void),
    free: AtomicPtr::new(libc::free as *const () as *mut c_void),
};

/// 1 once an allocator was set by a program, or C's was chosen by an open.
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

/// Sets the allocator. Returns false if one was set before. The library never resizes memory, so it
/// uses `malloc` and `free` only.
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

/// Chooses C's allocator if none was set.
pub fn ensure_initialized() {
    if tidesdb_initialized.load(Acquire) == 0 {
        init(None, None, None, None);
    }
}

/// Resets the allocator to C's.
pub fn finalize() {
    let _one = ALLOCATOR_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    set_allocator(None, None, None, None);
    tidesdb_initialized.store(0, Release);
}

/// Allocates `bytes` bytes, at least one.
pub fn allocate(bytes: usize) -> Result<*mut c_void> {
    // SAFETY: the pointer is initialized with a function of this type, and `set_allocator` stores
    // only such functions.
    let malloc =
        unsafe { transmute::<*mut c_void, Malloc>(tidesdb_allocator.malloc.load(Acquire)) };
    // SAFETY: C's allocator accepts any size, and the program guarantees the same of its own.
    let memory = unsafe { malloc(bytes.max(1)) };
    if memory.is_null() {
        Err(MEMORY.with_message("out of memory for the result"))
    } else {
        Ok(memory)
    }
}

/// Frees memory returned by [`allocate`]. Does nothing for null.
///
/// # Safety
/// `memory` is null or was allocated by the current allocator, and is not used afterwards.
pub unsafe fn release(memory: *mut c_void) {
    if memory.is_null() {
        return;
    }
    // SAFETY: as in `allocate`.
    let free = unsafe { transmute::<*mut c_void, Free>(tidesdb_allocator.free.load(Acquire)) };
    // SAFETY: guaranteed by the caller.
    unsafe { free(memory) }
}

/// Copies bytes into memory for C.
#[inline]
pub fn copy_bytes(bytes: &[u8]) -> Result<*mut u8> {
    let memory = allocate(bytes.len())?.cast::<u8>();
    // SAFETY: newly allocated memory of that size.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len()) };
    Ok(memory)
}

/// Copies a string into memory for C and appends a NUL.
pub fn copy_text(text: &str) -> Result<*mut u8> {
    let memory = allocate(text.len() + 1)?.cast::<u8>();
    // SAFETY: newly allocated memory of that size.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), memory, text.len());
        memory.add(text.len()).write(0);
    }
    Ok(memory)
}
