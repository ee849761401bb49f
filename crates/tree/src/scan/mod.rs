//! Reads over many entries: cursors over one source, merged in entry order, reduced to what a
//! reader may see.

pub mod bounds;
pub mod cursor;
pub mod interleaving;
pub mod merge;
pub mod range_del_aggregator;
pub mod seek_probe;
pub mod visible;

pub use bounds::ScanBounds;
pub use cursor::{RunCursor, SourceCursor};
pub use merge::MergeCursor;
pub use visible::VisibleCursor;

#[cfg(test)]
mod tests;
