//! The door to LMDB (feature `lmdb`).

use super::entry::Source;
use super::orders::Said;
use crate::failure::{Failure, Result};
use std::path::Path;

/// Opens an environment to read.
pub fn open(_dir: &Path, _said: &Said) -> Result<Box<dyn Source>> {
    Err(Failure::usage("this build has no door to LMDB")
        .hint("build the tool with `cargo build --release -p perigee-cli --features lmdb`"))
}
