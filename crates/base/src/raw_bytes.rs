//! Uninitialized memory shared between threads: the storage of `append_buffer`, and the atomic type
//! it uses. The loom test (`tests/append_buffer_loom.rs`) replaces this module. Callers guarantee
//! that accesses do not conflict; nothing is checked here.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr::{NonNull, slice_from_raw_parts_mut};

pub use std::sync::atomic::AtomicUsize;

/// A fixed-size block of memory.
#[derive(Debug)]
pub struct RawBytes {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: this value owns the bytes. They are accessed only by `write` and `read`, whose callers
// guarantee that no thread accesses a byte while another thread writes it.
unsafe impl Send for RawBytes {}
// SAFETY: as above.
unsafe impl Sync for RawBytes {}

impl RawBytes {
    /// Allocates `len` bytes, not initialized.
    pub fn new(len: usize) -> RawBytes {
        let boxed: Box<[MaybeUninit<u8>]> = Box::new_uninit_slice(len);
        let start = NonNull::from(Box::leak(boxed)).cast::<u8>();
        RawBytes { start, len }
    }
    /// Returns the length, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }
    /// Writes `bytes` at offset `at`.
    ///
    /// # Safety
    /// `at + bytes.len()` must not exceed the length, and no other thread may read or write these
    /// bytes until this call returns.
    #[inline]
    pub unsafe fn write(&self, at: usize, bytes: &[u8]) {
        check_slow!(
            at + bytes.len() <= self.len,
            "a write ends inside the buffer",
            at,
            bytes.len(),
            self.len
        );
        // SAFETY: the caller guarantees that the destination lies inside the allocation and is not
        // accessed concurrently. `bytes` cannot overlap it, because a reference to the destination
        // would be such an access.
        unsafe { self.start.as_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }
    /// Returns the first `len` bytes.
    ///
    /// # Safety
    /// All of them must have been written before this call (with a happens-before relation if by
    /// another thread), and none may be written again.
    #[inline]
    pub unsafe fn read(&self, len: usize) -> &[u8] {
        check_slow!(len <= self.len, "readers see only bytes of the buffer", len, self.len);
        // SAFETY: the caller guarantees that the bytes are initialized (so they lie inside the
        // allocation) and never change.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), len) }
    }
}

impl Drop for RawBytes {
    fn drop(&mut self) {
        let all = slice_from_raw_parts_mut(self.start.as_ptr().cast::<MaybeUninit<u8>>(), self.len);
        // SAFETY: `new` leaked a box of exactly this slice, and no reference into it can exist any
        // more.
        drop(unsafe { Box::from_raw(all) });
    }
}
