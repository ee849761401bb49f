//! The door to RocksDB (feature `rocksdb`).

use super::entry::Source;
use super::orders::Said;
use super::scratch::Scratch;
use crate::failure::{Failure, Result};
use std::path::Path;

/// Opens a database to read.
pub fn open(
    _dir: &Path,
    _said: &Said,
    _scratch: impl FnOnce() -> Result<Scratch>,
) -> Result<Box<dyn Source>> {
    Err(Failure::usage("this build has no door to RocksDB")
        .hint("build the tool with `cargo build --release -p perigee-cli --features rocksdb`"))
}
