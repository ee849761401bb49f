//! Compaction: a pure picker proposes a plan, the rewrite road carries it out, an edit comes back.

pub mod plan;
pub mod pick;
mod run;
pub mod settle;
pub mod model;
pub mod simulate;

pub use plan::{Plan, Reason, Shape};
pub use run::compact;
