//! L0: the words that every layer speaks. No I/O, no clocks, no threads.
//!
//! The module order is the dependency order: a module uses only those above it.

pub mod limits;
pub mod ids;
pub mod error;
pub mod codec;
pub mod checksum;
mod cells;
pub mod chunk;
pub mod shared;
pub mod seqno;
pub mod expiry;
pub mod kind;
pub mod order;
pub mod merge;
pub mod cut;
pub mod key_ref;
pub mod key;
pub mod format;
pub mod stripe;
pub mod latency;
pub mod io;
pub mod stats;
pub mod bug;

pub use error::{Error, ErrorKind, Result};
pub use expiry::{Expiry, Now};
pub use ids::{FamilyId, FileId, LevelNo, RunId};
pub use key::{EntryRef, ValueRef};
pub use key_ref::KeyRef;
pub use kind::EntryKind;
pub use merge::{MergeOperator, MergeRule, Merger};
pub use order::KeyOrder;
pub use seqno::SeqNo;
pub use shared::Shared;

#[cfg(test)]
mod chunk_tests;
