//! Databases of other engines, as `import` reads them: what a door to one gives, and what is done
//! with it.
//!
//! Rooms: `entry` (what every door gives), `tally` (counts and checksums that forgive what expires
//! meanwhile), `orders` (key orders by the names that others give them), `scratch` (a copy of a
//! source, a look at its lock, room on a disk), `transfer` (load, compare, rename), then the doors:
//! `tidesdb`, `lmdb`, `rocksdb`. Invariant: a source is only read, and unless it was asked for
//! otherwise what is opened is a copy of it.

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
