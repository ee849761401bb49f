//! The one road by which entries move into tables: source, collapse, place, split, sink. Flush, compaction,
//! value-log collection and (later) ingest differ only in their source and their settings.

pub mod collapse;
pub mod split;
pub mod place;
mod again;
mod later;
pub mod sink;
mod whole;
pub mod pace;
pub mod filter;
mod chain;
pub mod pipeline;

pub use filter::{CompactionFilter, FilterDecision, FilterEntry, Filtering};
pub use later::Later;
pub use pace::{Moved, Pace, Unhindered};
pub use pipeline::{Counts, Input, Output, Setting, run, write_sorted};
pub use sink::Created;

#[cfg(test)]
mod tests;
