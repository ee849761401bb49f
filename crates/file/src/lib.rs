//! L2: bytes at rest. How entries lie in files, and how they are read back and checked.
//!
//! Knows nothing of levels, transactions, paths or clocks; what a family means is not its business either.
//! Everything that comes from a file is verified before it is used: damage is an error with a place, never a
//! panic and never a wrong answer. The module order is the dependency order.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod name;
pub mod compress;
mod output;
pub mod handles;
mod input;
pub mod heads;
pub mod block;
mod ghost;
mod slots;
pub mod cache;
pub mod log;
pub mod filter;
pub mod sketch;
pub mod expiries;
pub mod learned;
pub mod index;
pub mod vlog;
pub mod ranges;
pub mod klog;
pub mod shelf;
#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod testing;

pub use block::Block;
pub use block::window::Strand;
pub use cache::BlockCache;
pub use compress::{Codec, Compression};
pub use expiries::Expiries;
pub use handles::{Handles, Limit};
pub use klog::{
    Found, KlogCursor, KlogOptions, KlogReader, KlogSummary, KlogWriter, Near, RangeSummary, Spot,
};
pub use ranges::{Fragment, Fragments};
pub use shelf::Shelf;
pub use sketch::Sketch;
pub use vlog::{VlogReader, VlogSummary, VlogWriter};
