//! Pickers: pure functions from a shape to a plan.

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

/// Settings of the pickers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PickerOptions {
    /// Level 0 runs that start a merge.
    pub level0_runs: usize,
    /// Up to this much data there is one level below level 0.
    pub level1_bytes: u64,
    /// How much larger each deeper level is.
    pub ratio: u64,
    /// Bytes at which tables are cut.
    pub table_bytes: u64,
}

/// The most urgent plan, if any, and the progress of merges once it is carried out.
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
