//! Scans: cursors over single sources, merged in entry order, and reduced to the entries visible to
//! a reader.

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
