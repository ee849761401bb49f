//! Pickers: pure functions from a shape to a plan.

pub mod garbage;
pub mod leveled;
pub mod manual;
pub mod covered;

use super::plan::{Plan, Shape};

/// Settings of the pickers.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Level 0 runs that start a merge.
    pub level0_runs: usize,
    /// Capacity of level 1.
    pub level1_bytes: u64,
    /// How much larger each deeper level is.
    pub ratio: u64,
}

/// The most urgent plan, if any.
pub fn pick(shape: &Shape, limits: &Limits) -> Option<Plan> {
    leveled::pick(shape, limits).or_else(|| garbage::pick(shape))
}

#[cfg(test)]
mod tests;
