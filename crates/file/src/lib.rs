//! On-disk formats: how entries are stored in files, and how they are read back and verified.
//!
//! Layer 2 of the engine. Independent of levels, transactions, paths and clocks, and of what a
//! column family means. Everything read from a file is verified before it is used: damage is an
//! error that names file and offset, never a panic and never a wrong answer. The module order is
//! the dependency order.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod filename;
pub mod compression;
mod table_file_writer;
pub mod handle_cache;
mod table_file_reader;
pub mod key_prefix;
pub mod block;
mod ghost_cache;
mod block_slots;
pub mod block_cache;
pub mod log;
pub mod filter;
pub mod key_sketch;
pub mod expiry_histogram;
pub mod learned_index;
pub mod index;
pub mod vlog;
pub mod range_tombstones;
pub mod klog;
pub mod table_cache;
#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod testing;

pub use block::TableBlock;
pub use block::entry_window::EntryWindowView;
pub use block_cache::BlockCache;
pub use compression::{Codec, CompressionMethod};
pub use expiry_histogram::ExpiryHistogram;
pub use handle_cache::{FileHandleCache, HandleLimit};
pub use key_sketch::KeySketch;
pub use klog::{
    BlockHint, EntryMeta, EntryValue, KlogCursor, KlogOptions, KlogReader, KlogSummary, KlogWriter,
    RangeTombstoneSummary,
};
pub use range_tombstones::{RangeTombstoneFragment, RangeTombstones};
pub use table_cache::TableCache;
pub use vlog::{VlogReader, VlogSummary, VlogWriter};
