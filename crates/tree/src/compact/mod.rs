//! Compaction: a pure picker proposes a plan, the rewrite road carries it out, an edit comes back.

pub mod plan;
pub mod pick;
mod execute;
pub mod bottom_seq;
pub mod model;
pub mod simulate;

pub use execute::run_compaction;
pub use plan::{CompactionPlan, CompactionReason, TreeShape};
