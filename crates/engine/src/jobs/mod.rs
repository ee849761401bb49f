//! Background jobs: flushes, compactions, log syncs and the scrub, with the threads that run and
//! cancel them.

pub mod pace;
mod task_group;
mod obsolete_logs;
pub mod flush;
pub mod due_compactions;
pub mod compact;
mod scrub;
mod watermark;
mod worker;

pub use perigee_tree::compact::pick::manual::CompactionRange;
pub use worker::{Workers, start_workers};
