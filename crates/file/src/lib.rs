//! On-disk formats: how entries are stored in files, and how they are read back and verified.
//!
//! Layer 2 of the engine. Independent of levels, transactions, paths and clocks, and of what a
//! column family means. Everything read from a file is verified before it is used: damage is an
//! error that names file and offset, never a panic and never a wrong answer. The module order is
//! the dependency order.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

#[macro_use(check, check_slow, seeded)]
extern crate perigee_base;
mod limits;
pub mod filename;
mod compression;
mod table_file_writer;
mod handle_cache;
mod table_file_reader;
mod key_prefix;
mod block;
mod ghost_cache;
mod block_slots;
mod block_cache;
pub mod log;
mod filter;
mod key_sketch;
mod expiry_histogram;
mod index;
mod vlog;
mod range_tombstones;
mod klog;
mod table_cache;
#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod testing;

// The entry point, and the caches that all databases of a process share.
pub use block_cache::BlockCache;
pub use handle_cache::{FileHandleCache, HandleLimit};
pub use table_cache::TableCache;

// Klogs: options, writer, readers, and what a reader returns.
pub use block::{EntryWindowView, TableBlock};
pub use klog::{
    BlockHint, EntryMeta, EntryValue, KlogCursor, KlogLookupTrace, KlogOptions, KlogReader,
    KlogSalvager, KlogSummary, KlogWriter, RangeTombstoneSummary, standalone,
};
pub use range_tombstones::{RangeTombstoneFragment, RangeTombstones, TombstoneSpan};

// Vlogs.
pub use vlog::{
    ChunkReader, StreamedValueWriter, VlogReader, VlogSummary, VlogWriter, WrittenValue,
};

// Summaries of tables, for estimates; sizes and false-positive rates of filters.
pub use expiry_histogram::ExpiryHistogram;
pub use filter::{bits_per_key_for_rate, false_positive_rate};
pub use key_sketch::KeySketch;

// The parts of a table file, for tools that inspect files.
pub use block::{FRAME_HEADER_BYTES, FRAME_OVERHEAD_BYTES, Frame, FrameKind, declared_frame_bytes};
pub use compression::{Codec, Compression};
pub use klog::{FOOTER_BYTES, Footer};

// Compared with each other by the example `index_kinds`.
#[doc(hidden)]
pub use index::{IndexKind, IndexReader, IndexWriter, block_separator};

#[cfg(test)]
mod invariant_tests;
