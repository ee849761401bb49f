//! Bulk load: entries in any order become tables of which each key has one entry. Gathered in
//! memory, sorted, written as runs, merged. It knows nothing of the log, sequence numbers or who
//! will name the tables.
//!
//! Runs are ordinary tables under ordinary file ids that no manifest names: every byte of them is
//! checksummed, and after a crash they are orphans like the outputs of any job that did not finish.

pub mod load_buffer;
pub mod target_level;
pub mod load_runs;
pub mod spill_runs;

pub use load_buffer::LoadBuffer;
pub use load_runs::LoadRunSet;
pub use spill_runs::SpillRunSet;
pub use target_level::target_level;
