//! The rewrite pipeline, the only way by which entries move into tables: source, collapse, value
//! separation, split, output. Flush, compaction, value-log garbage collection and bulk load differ
//! only in their source and context.

pub mod collapse;
pub mod split;
pub mod value_separation;
mod output_verification;
mod deferred_sync;
pub mod pacer;
pub mod output_writer;
mod block_pass_through;
pub mod filter;
mod pending_operands;
pub mod pipeline;

pub use deferred_sync::DeferredSync;
pub use filter::{CompactionFilter, FilterDecision, FilterEntry, RewriteFilter};
pub use output_writer::CreatedFiles;
pub use pacer::{NoPacing, RewritePacer, RewriteProgress};
pub use pipeline::{
    RewriteContext, RewriteCounts, RewriteInput, RewriteOutput, run_rewrite, write_sorted,
};

#[cfg(test)]
mod tests;
