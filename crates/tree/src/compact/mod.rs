//! Compaction: a pure picker returns a plan, the rewrite pipeline executes it, the result is a
//! version edit.

pub mod plan;
pub mod pick;
mod execute;
pub mod bottom_seq;
pub mod model;
pub mod simulate;

pub use execute::run_compaction;
pub use plan::{CompactionPlan, CompactionReason, TreeShape};
