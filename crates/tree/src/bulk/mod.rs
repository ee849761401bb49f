//! Bulk load: entries in any order become tables of which each key has one entry. Gathered in memory, sorted, written as
//! runs, merged. It knows nothing of the log, sequence numbers or who will name the tables.
//!
//! Runs are ordinary tables under ordinary file ids that no manifest names: every byte of them is checksummed, and after
//! a crash they are orphans like the outputs of any job that did not finish.

pub mod chunk;
pub mod level;
pub mod pile;
pub mod spill;

pub use chunk::Chunk;
pub use level::target;
pub use pile::Pile;
pub use spill::Spill;
