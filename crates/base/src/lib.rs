//! L0: basic types, codecs and limits that all other crates use. No I/O, no clocks, no threads.
//!
//! The modules are listed in dependency order: a module uses only modules declared above it.

pub mod limits;
pub mod ids;
pub mod error;
pub mod codec;
pub mod checksum;
mod raw_bytes;
pub mod append_buffer;
pub mod pinned_slice;
pub mod seqno;
mod units;
pub mod expiry;
pub mod entry_kind;
pub mod comparator;
pub mod merge;
pub mod key_boundary;
pub mod key_ref;
pub mod entry;
pub mod file_header;
pub mod thread_stripe;
pub mod latency;
pub mod io_stats;
pub mod stats;
pub mod bug;

pub use comparator::KeyComparator;
pub use entry::{EntryRef, ValueRef};
pub use entry_kind::EntryKind;
pub use error::{Error, ErrorKind, Result};
pub use expiry::{Expiry, ExpiryClock};
pub use ids::{BlockHandle, FamilyId, FileId, LevelNo, RunId};
pub use key_ref::KeyRef;
pub use merge::{MergeOperator, MergeRule, OperandMerger};
pub use pinned_slice::PinnedSlice;
pub use seqno::{AtomicSeqNo, OpIndex, SeqNo};
pub use units::{Bytes, Micros, Tombstones};

#[cfg(test)]
mod append_buffer_tests;
