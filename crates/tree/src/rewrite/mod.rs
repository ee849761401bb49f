//! The one road by which entries move into tables: source, collapse, place, split, sink. Flush,
//! compaction, value-log collection and (later) ingest differ only in their source and their
//! settings.

pub mod collapse;
pub mod split;
pub mod value_separation;
mod output_verification;
mod deferred_sync;
pub mod output_writer;
mod block_pass_through;
pub mod pacer;
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
