//! Compaction pickers: pure functions from a tree shape to a plan.

mod overlap_group;
mod spooky;
mod vlog_garbage;
mod manual;
mod range_deleted;
mod dense_tombstones;
mod skipped_tombstones;
mod expired_entries;

use super::plan::{CompactionPlan, TreeShape};
pub use dense_tombstones::pick_dense_tombstones;
pub use expired_entries::pick_expired_entries;
pub use manual::{CompactionRange, pick_manual};
#[cfg(test)]
pub(crate) use overlap_group::OverlapGroup;
pub use range_deleted::{is_still_range_deleted, pick_range_deleted};
pub use skipped_tombstones::{is_rewrite_worthwhile, pick_skipped_tombstones};
pub use spooky::{
    LAST_LEVEL, PickerProgress, boundaries, level_scores, may_have_garbage, overlapping,
    pick_parallel,
};

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
    /// Most garbage in value logs, in percent of their live bytes; 0: only value logs that are
    /// mostly garbage are collected.
    pub vlog_garbage_percent: u64,
}

/// Returns the most urgent plan, if any, and the merge progress once it has been executed.
pub fn pick(
    shape: &TreeShape,
    limits: &PickerOptions,
    progress: &PickerProgress,
) -> Option<(CompactionPlan, PickerProgress)> {
    spooky::pick(shape, limits, progress)
        .or_else(|| vlog_garbage::pick(shape, limits).map(|plan| (plan, progress.clone())))
}

#[cfg(test)]
mod tests;
