//! Bytes that are not initialised, shared between threads: the raw memory under `chunk`, and its
//! atomics by one name. The model test (`tests/chunk_loom.rs`) puts loom's in their place. Knows
//! nothing of who may write when: that is its callers' promise.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr::{NonNull, slice_from_raw_parts_mut};

pub use std::sync::atomic::AtomicUsize;

/// So many bytes.
#[derive(Debug)]
pub struct RawBytes {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the bytes belong to this value alone; it hands out no access to them but by `write` and
// `read`, whose callers promise that no two threads meet at a byte of which one is being written.
unsafe impl Send for RawBytes {}
// SAFETY: as above.
unsafe impl Sync for RawBytes {}

impl RawBytes {
    /// So many bytes, not initialised.
    pub fn new(len: usize) -> RawBytes {
        let boxed: Box<[MaybeUninit<u8>]> = Box::new_uninit_slice(len);
        let start = NonNull::from(Box::leak(boxed)).cast::<u8>();
        RawBytes { start, len }
    }
    /// How many.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }
    /// Writes `bytes` at `at`.
    ///
    /// # Safety
    /// `at + bytes.len()` is at most the length, and until this returns nobody else reads or writes
    /// these bytes.
    #[inline]
    pub unsafe fn write(&self, at: usize, bytes: &[u8]) {
        // SAFETY: the caller promises that the place lies inside the allocation and that nobody
        // else looks at it; `bytes` is other memory, because a reference to these bytes would be
        // somebody else's look.
        unsafe { self.start.as_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }
    /// The first `len` bytes.
    ///
    /// # Safety
    /// All of them were written before this call (happened before, where another thread wrote), and
    /// none is written again.
    #[inline]
    pub unsafe fn read(&self, len: usize) -> &[u8] {
        // SAFETY: the caller promises that they are initialised (so they lie inside the allocation)
        // and never change.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), len) }
    }
}

impl Drop for RawBytes {
    fn drop(&mut self) {
        let all = slice_from_raw_parts_mut(self.start.as_ptr().cast::<MaybeUninit<u8>>(), self.len);
        // SAFETY: `new` leaked a box of exactly this slice, and nobody can hold a reference into it
        // any more.
        drop(unsafe { Box::from_raw(all) });
    }
}
