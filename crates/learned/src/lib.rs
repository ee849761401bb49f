//! Learned structures, beside `base`: no I/O, no clocks, no threads, nothing of the engine.
//!
//! A model only ever says where to begin to look; what is found is decided by comparisons of keys.
//! So a bad model costs time and never an answer. The module order is the dependency order.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod key;
mod linear_model;
mod search;
pub mod segments;

mod leaf;
mod learned_bounds;
mod directory;
mod map;
#[cfg(test)]
mod testing;

pub use key::Key;
pub use map::Map;
pub use map::entry::MapEntry;
pub use map::iter::{MapIntoIter, MapIter};
pub use segments::Segments;
