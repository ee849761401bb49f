//! Gives memory that was freed back to the system. The allocator of glibc keeps it, in one arena
//! for each few threads, and hands pages back only from an arena's end: a memtable freed between
//! blocks that live stays resident for ever. Must not know who freed what. With another allocator,
//! or another C library, this does nothing that shows.

/// Hands every whole page of freed memory back. Costs a walk over the free lists, and a page fault
/// where a page is used again.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub(super) fn trim_heap() {
    // SAFETY: `malloc_trim` takes no pointer, may be called from any thread at any time (it takes
    // the allocator's own locks), and touches only memory that no allocation owns.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other allocators decide for themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn trim_heap() {}
