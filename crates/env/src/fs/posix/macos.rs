//! What only macOS has: the id of the boot session, the sizes of memory, and read-ahead by ranges.
//! Space is not allocated ahead: `F_PREALLOCATE` reserves space without extending the file, and
//! blocks of APFS are never overwritten in place, so it would make no sync faster.

#![allow(unsafe_code)]

use perigee_base::checksum;
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::ops::Range;

/// Returns a number derived from the id of the boot session, if it can be read.
pub(in crate::fs) fn boot_id() -> Option<u64> {
    // A UUID as text, with a NUL byte.
    let mut text = [0; 64];
    let len = read_system_value(c"kern.bootsessionuuid", &mut text)?;
    let id = text.get(..len).filter(|id| id.iter().any(|b| *b != 0))?;
    Some(checksum::key_hash(id))
}

/// Returns the physical memory, in bytes. macOS has no limits for groups of processes.
pub(in crate::fs) fn memory_limit_bytes() -> Option<u64> {
    let mut bytes = [0; size_of::<u64>()];
    let len = read_system_value(c"hw.memsize", &mut bytes)?;
    (len == bytes.len()).then(|| u64::from_ne_bytes(bytes)).filter(|n| *n > 0)
}

/// Returns the resident set size, in bytes.
pub(in crate::fs) fn resident_bytes() -> Option<u64> {
    // SAFETY: the structure consists of integers, for which zero is a value.
    let mut info: libc::proc_taskinfo = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::proc_taskinfo>() as libc::c_int;
    // SAFETY: the call writes at most `size` bytes to `info`, which is that large and not used
    // otherwise; the id of this process is always valid.
    let written = unsafe {
        libc::proc_pidinfo(libc::getpid(), libc::PROC_PIDTASKINFO, 0, (&raw mut info).cast(), size)
    };
    (written == size).then_some(info.pti_resident_size)
}

/// Returns false: appends extend the file (see above).
pub(super) fn allocate(_: &File, _: Range<u64>) -> Result<bool, Errno> {
    Ok(false)
}

/// Lets the kernel read a range into the page cache (`F_RDADVISE`).
pub(super) fn prefetch(file: &File, range: Range<u64>) {
    let _ = rustix::fs::fcntl_rdadvise(file, range.start, range.end - range.start);
}

/// Reads a value of the kernel into `buf`; returns its length. `None` if there is no such value, or
/// if it is longer than `buf`.
fn read_system_value(name: &CStr, buf: &mut [u8]) -> Option<usize> {
    let mut len = buf.len();
    // SAFETY: the name ends in a NUL byte; the call writes at most `len` bytes, the length of
    // `buf`, and the length that it wrote to `len`; it changes no value, because the new one is
    // null.
    let done = unsafe {
        libc::sysctlbyname(
            name.as_ptr(),
            buf.as_mut_ptr().cast(),
            &raw mut len,
            std::ptr::null_mut(),
            0,
        )
    };
    check!(len <= buf.len(), "a value of the kernel fits into its buffer", len);
    (done == 0 && len > 0).then_some(len)
}
