//! Unix systems other than Linux and macOS: what those two have beyond POSIX is not available. Each
//! function says what its caller does then.

use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;

/// Returns `None`: each open assumes that the system may have been restarted.
pub(in crate::fs) fn boot_id() -> Option<u64> {
    None
}

/// Returns `None`: the default memory budget is a constant.
pub(in crate::fs) fn memory_limit_bytes() -> Option<u64> {
    None
}

/// Returns `None`: the statistics do not contain the resident set size.
pub(in crate::fs) fn resident_bytes() -> Option<u64> {
    None
}

/// Returns false: appends extend the file.
pub(super) fn allocate(_: &File, _: Range<u64>) -> Result<bool, Errno> {
    Ok(false)
}

/// Does nothing: reads wait for the disk.
pub(super) fn prefetch(_: &File, _: Range<u64>) {}
