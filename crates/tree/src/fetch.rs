//! Separated values: from a pointer to the bytes.

use crate::Version;
use perigee_base::io::Cause;
use perigee_base::key::VlogPointer;
use perigee_base::{Error, Result, Shared};

/// Reads a separated value for a point read.
pub fn fetch(version: &Version, p: &VlogPointer) -> Result<Shared> {
    fetch_for(version, p, Cause::Get)
}

/// Reads a separated value, counted for `cause`.
pub fn fetch_for(version: &Version, p: &VlogPointer, cause: Cause) -> Result<Shared> {
    match version.vlogs.get(&p.file) {
        Some(vlog) => vlog.reader.read_for(p, cause),
        None => {
            Err(Error::corruption(format!("a table references value log {}, which is not there", p.file)))
        }
    }
}
