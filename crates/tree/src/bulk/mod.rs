//! Bulk load: turns entries in any order into tables with one entry per key. Entries are buffered
//! in memory, sorted, written as runs, and merged. Independent of the log, of sequence numbers, and
//! of how the tables are added to a version.
//!
//! Runs are ordinary tables with ordinary file ids that are not in the manifest: every byte is
//! checksummed, and after a crash they are orphans, like the outputs of any unfinished job.

mod load_buffer;
mod target_level;
mod load_runs;
mod spill_runs;

pub use load_buffer::LoadBuffer;
pub use load_runs::LoadRunSet;
pub use spill_runs::{ObsoleteSpillFiles, SpillOutput, SpillRunSet, TxnSeqInfo};
pub use target_level::target_level;
