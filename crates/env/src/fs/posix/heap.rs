//! Returns freed memory to the system. The allocator of glibc keeps freed memory, in one arena per
//! few threads, and returns pages only from the end of an arena: a memtable freed between live
//! allocations stays resident forever. With another allocator or C library this has no effect.

/// Returns every whole page of freed memory. Costs a traversal of the free lists, and a page fault
/// when a page is used again.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub(in crate::fs) fn trim_heap() {
    // SAFETY: `malloc_trim` takes no pointer, may be called from any thread at any time (it takes
    // the locks of the allocator), and touches only memory that no allocation owns.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Does nothing: other allocators return memory by their own rules.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(in crate::fs) fn trim_heap() {}
