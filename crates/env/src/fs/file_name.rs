//! Validation of file names, the same for every file system.

use crate::limits::FILE_NAME_BYTES_MAX;
use perigee_base::{Error, Result};

/// Accepts only plain file names.
pub(crate) fn check_file_name(name: &str) -> Result<()> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name == "." || name == ".." {
        "it names a directory"
    } else if name.contains('/') {
        "it contains a slash"
    } else if name.contains('\0') {
        "it contains a NUL byte"
    } else if name.len() > FILE_NAME_BYTES_MAX {
        "it is longer than 255 bytes"
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!("{:?} is not a file name: {why}", shorten(name))))
}

fn shorten(name: &str) -> &str {
    let end = (0..=name.len().min(80)).rev().find(|&i| name.is_char_boundary(i)).unwrap_or(0);
    &name[..end]
}
