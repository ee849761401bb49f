//! Pickers: pure functions from a shape to a plan.

pub mod group;
pub mod spooky;
pub mod leveled;
pub mod garbage;
pub mod manual;
pub mod covered;
pub mod dense;
pub mod passed;
pub mod expired;

use super::plan::{Plan, Shape};
pub use spooky::Progress;

/// Settings of the pickers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
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
pub fn pick(shape: &Shape, limits: &Limits, progress: &Progress) -> Option<(Plan, Progress)> {
    spooky::pick(shape, limits, progress)
        .or_else(|| garbage::pick(shape).map(|plan| (plan, progress.clone())))
}

#[cfg(test)]
mod tests;
