//! Rewrites, the only way in which entries move into tables: a compaction iterator reads the
//! sources and applies the rules, and a sink writes what is left. Flush, compaction, value-log
//! garbage collection and bulk load differ only in their source and context.

mod split;
mod value_separation;
mod output_verification;
mod deferred_sync;
mod pacer;
mod output_writer;
mod filter;
mod counts;
mod context;
mod reduce;
mod pending_operands;
mod range_tombstone_cursor;
mod version_classifier;
mod block_pass_through;
mod sink;
mod compaction_iterator;
mod run_rewrite;

pub use context::{RewriteContext, RewriteInput, RewriteOutput};
pub use counts::RewriteCounts;
pub use deferred_sync::DeferredSync;
pub use filter::{CompactionFilter, FilterDecision, FilterEntry, RewriteFilter};
pub use output_writer::CreatedFiles;
pub use pacer::{NoPacing, RewritePacer, RewriteProgress};
pub use run_rewrite::run_rewrite;
pub(crate) use run_rewrite::write_sorted;
pub use split::TableSplitter;
pub(crate) use split::boundary_stride;

#[cfg(test)]
mod reduce_tests;
#[cfg(test)]
mod tests;
