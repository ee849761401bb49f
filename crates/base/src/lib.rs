//! L0: basic types, codecs and limits that all other crates use. No I/O, no clocks, no threads.
//!
//! The modules are listed in dependency order: a module uses only modules declared above it.

#[macro_use]
mod invariant;
pub mod limits;
mod ids;
mod error;
pub mod codec;
pub mod checksum;
mod raw_bytes;
mod append_buffer;
mod pinned_slice;
mod seqno;
mod units;
mod expiry;
mod entry_kind;
mod comparator;
mod merge;
#[cfg(feature = "serde")]
mod serialize;
mod key_boundary;
mod key_ref;
mod entry;
mod file_header;
mod thread_stripe;
mod latency;
mod io_stats;
mod stats;
pub mod bug;

// Errors and identifiers.
pub use error::{Error, ErrorKind, Result};
pub use ids::{BlockHandle, FamilyId, FileId, LevelNo, RunId};

// Quantities: sequence numbers, times, and types for units.
pub use expiry::{CachedClock, Expiry, ExpiryClock, FixedClock};
pub use seqno::{AtomicSeqNo, OpIndex, SeqNo};
pub use units::{Bytes, Micros, Tombstones};

// Keys and their order.
pub use comparator::{BUILT_IN_COMPARATORS, KeyComparator, REGISTERED_COMPARATOR};
pub use key_boundary::{KeyBoundary, KeyBoundaryRef};
pub use key_ref::KeyRef;

// Entries, their values, and merge operators.
pub use entry::{EntryRef, ValueRef, VlogPointer, cmp_entry};
pub use entry_kind::EntryKind;
pub use merge::{MergeOperator, MergeOperators, MergeRule, OperandMerger};
pub use pinned_slice::{BytesPreview, PinnedSlice, SharedBuffer};

// The header of every file.
pub use file_header::{ENCRYPTED_MAGIC, FileHeader, FileKind, HEADER_BYTES};

// Structures that threads share, and counters.
pub use append_buffer::AppendBuffer;
pub use io_stats::{IoActivity, IoTotals};
pub use latency::{HistogramSummary, Operation};
pub use stats::{Counter, Counters};
pub use thread_stripe::{StripedCounter, THREAD_STRIPES, thread_stripe};

// Used by the macros `check!` and `check_slow!`, and by the tests of assertions.
#[doc(hidden)]
pub use invariant::{invariant_failed, violation};

#[cfg(test)]
mod append_buffer_tests;

#[cfg(test)]
mod invariant_tests;
