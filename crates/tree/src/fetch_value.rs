//! Reads separated values from value logs.

use crate::Version;
use perigee_base::{Error, IoActivity, PinnedSlice, Result, VlogPointer};

/// Reads a separated value for a point read.
pub fn fetch_value(version: &Version, p: &VlogPointer) -> Result<PinnedSlice> {
    fetch_value_with_cause(version, p, IoActivity::Get)
}

/// Reads a separated value; the I/O is counted under `cause`.
pub fn fetch_value_with_cause(
    version: &Version,
    p: &VlogPointer,
    cause: IoActivity,
) -> Result<PinnedSlice> {
    match version.vlogs.get(&p.file) {
        Some(vlog) => vlog.reader.read_with_cause(p, cause),
        None => Err(Error::corruption(format!(
            "a table references value log {}, which does not exist",
            p.file
        ))),
    }
}
