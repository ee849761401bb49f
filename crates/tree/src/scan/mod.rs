//! Reads over many entries: cursors over one source, merged in entry order, reduced to what a reader may see.

pub mod bounds;
pub mod cursor;
pub mod turns;
pub mod merge;
pub mod cover;
pub mod probe;
pub mod visible;

pub use bounds::Bounds;
pub use cursor::{RunCursor, Source};
pub use merge::MergeCursor;
pub use visible::VisibleCursor;

#[cfg(test)]
mod tests;
