//! Ordered structures that search with learned models. No I/O, no clocks, no threads; independent
//! of the engine.
//!
//! A model predicts where a search starts; key comparisons decide the result. A bad model costs
//! time, never correctness. The modules are listed in dependency order.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod key;
mod linear_model;
mod search;
mod segments;

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
