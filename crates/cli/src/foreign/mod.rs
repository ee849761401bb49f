//! Import of databases of other engines.
//!
//! Submodules: `source` (the trait that every engine implements), `entry_digest` (counts and
//! checksums that tolerate entries expiring during the import), `comparators` (comparators by their
//! TidesDB names), `scratch` (copy of a source, its lock, free space), `transfer` (load, compare,
//! rename), and one module per engine: `tidesdb`, `lmdb`, `rocksdb`. Invariant: a source is only
//! read; an engine that would write when it opens a database gets a copy, unless the user asks for
//! an in-place import.

pub mod source;
mod entry_digest;
pub mod comparators;
pub mod scratch;
pub mod transfer;
pub mod tidesdb;
#[cfg(feature = "lmdb")]
#[allow(unsafe_code)]
pub mod lmdb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
