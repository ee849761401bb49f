//! Compaction: a pure picker returns a plan, a rewrite executes it, the result is a version edit.

mod plan;
mod pick;
mod execute;
mod bottom_seq;

pub use crate::limits::SKIPPED_MIN;
pub use bottom_seq::common_seq;
pub use execute::run_compaction;
pub(crate) use pick::LAST_LEVEL;
#[cfg(test)]
pub(crate) use pick::OverlapGroup;
pub use pick::{
    CompactionRange, PickerOptions, PickerProgress, boundaries, is_rewrite_worthwhile,
    is_still_range_deleted, level_scores, may_have_garbage, overlapping, pick,
    pick_dense_tombstones, pick_expired_entries, pick_manual, pick_parallel, pick_range_deleted,
    pick_skipped_tombstones,
};
pub use plan::{CompactionPlan, CompactionReason, TableShape, TreeShape};
