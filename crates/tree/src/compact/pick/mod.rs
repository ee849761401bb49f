//! Compaction pickers: pure functions from a tree shape to a plan.

pub mod overlap_group;
pub mod spooky;
pub mod leveled;
pub mod vlog_garbage;
pub mod manual;
pub mod range_deleted;
pub mod dense_tombstones;
pub mod skipped_tombstones;
pub mod expired_entries;

use super::plan::{CompactionPlan, TreeShape};
pub use spooky::PickerProgress;

/// Options of the pickers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PickerOptions {
    /// Number of level 0 runs that triggers a merge.
    pub level0_runs: usize,
    /// Bytes of data up to which there is only one level below level 0.
    pub level1_bytes: u64,
    /// Size ratio between adjacent levels.
    pub ratio: u64,
    /// Target size of a table in bytes.
    pub table_bytes: u64,
}

/// Returns the most urgent plan, if any, and the merge progress once it has been executed.
pub fn pick(
    shape: &TreeShape,
    limits: &PickerOptions,
    progress: &PickerProgress,
) -> Option<(CompactionPlan, PickerProgress)> {
    spooky::pick(shape, limits, progress)
        .or_else(|| vlog_garbage::pick(shape).map(|plan| (plan, progress.clone())))
}

#[cfg(test)]
mod tests;
