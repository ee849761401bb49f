//! Scans: cursors over single sources, merged in entry order, and reduced to the entries visible to
//! a reader.

mod bounds;
mod cursor;
mod interleaving;
mod merge;
mod range_del_aggregator;
mod seek_probe;
mod tombstone_run;
mod visible;

pub use bounds::ScanBounds;
pub use cursor::{RunCursor, SourceCursor};
pub use merge::MergeCursor;
pub use visible::VisibleCursor;

#[cfg(test)]
mod tests;
