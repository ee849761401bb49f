//! Background jobs: flushes, compactions, log syncs and the scrub, with the threads that run and
//! cancel them.

pub mod scrub_progress;
pub mod pace;
mod rewrite_stats;
mod task_group;
mod obsolete_logs;
pub mod flush;
pub mod due_compactions;
pub mod compact;
mod scrub;
mod worker;

pub use perigee_tree::compact::CompactionRange;
pub use worker::{Workers, start_workers};
