//! Simulates the cost of compactions: executes the plans of the engine's picker, or of a leveled
//! picker for comparison, on a model of the LSM tree without values.
//!
//! Pure: no files, clocks or threads. A tool for `perigee compaction-sim` and for tests of the
//! picker; the engine does not depend on it. The modules are listed in dependency order.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod leveled;
mod model;
mod simulate;

pub use model::{LsmModel, ModelEntry, PickerKind, SimulationTotals};
pub use perigee_tree::compact::PickerOptions;
pub use simulate::{SimulationSample, SimulationSpec, Workload, simulate, with_previous};

#[cfg(test)]
mod tests;
