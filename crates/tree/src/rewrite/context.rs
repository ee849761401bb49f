//! Input, settings and output of a rewrite.

use super::counts::RewriteCounts;
use super::deferred_sync::DeferredSync;
use super::filter::RewriteFilter;
use super::pacer::RewritePacer;
use crate::mvcc::SnapshotStripes;
use crate::scan::MergeCursor;
use crate::version::{TableMeta, Version, VlogMeta};
use perigee_base::{ExpiryClock, FileId, KeyBoundary, OperandMerger, SeqNo};
use perigee_file::{KlogOptions, RangeTombstones, TableCache};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Inputs and settings common to all rewrites, for flush and compaction alike.
#[derive(Clone)]
pub struct RewriteContext<'a> {
    /// Current version of the column family; separated values of the source are read from its value
    /// logs.
    pub version: &'a Version,
    /// Readers to respect.
    pub stripes: SnapshotStripes,
    /// Format of the outputs.
    pub options: KlogOptions,
    /// Values of this length and up are separated.
    pub separation_threshold: usize,
    /// Target size of output tables in bytes.
    pub target_bytes: u64,
    /// Boundaries, ascending, at which tables are cut if they are large enough.
    pub cuts: Vec<KeyBoundary>,
    /// True to verify outputs before they are installed.
    pub verify_outputs: bool,
    /// True to insert blocks of verified outputs into the block cache, as long as it has room.
    pub fill_cache: bool,
    /// Opens and creates files.
    pub table_cache: &'a TableCache,
    /// Source of file ids.
    pub next_file_id: &'a AtomicU64,
    /// Delays or cancels the rewrite.
    pub pacer: &'a dyn RewritePacer,
    /// Clock, read if an entry has an expiry.
    pub now: &'a dyn ExpiryClock,
    /// Merges operands; without it they stay unmerged.
    pub merge_operator: Option<Arc<OperandMerger>>,
    /// The user's compaction filter.
    pub filter: Option<RewriteFilter<'a>>,
    /// Sequence number for values that every reader sees and that have no older versions below, if
    /// they may share one.
    pub bottom_seq: Option<SeqNo>,
    /// Syncs and verifies the outputs instead of the rewrite, if set.
    pub deferred_sync: Option<&'a DeferredSync>,
}

/// Entries that a rewrite moves.
pub struct RewriteInput {
    /// Merged source, not positioned.
    pub source: MergeCursor,
    /// True if no older version of any source key exists below the output.
    pub bottommost: bool,
    /// Range tombstones of all sources.
    pub range_tombstones: RangeTombstones,
    /// Value logs whose values are moved to a new one.
    pub relocate_vlogs: BTreeSet<FileId>,
    /// True to write every entry with sequence number 0: the table will get a global sequence
    /// number.
    pub zero_seqs: bool,
    /// True if blocks in which nothing changes may be copied as they are stored.
    pub pass_through_blocks: bool,
    /// Sequence numbers that the entries' transaction has rolled back, ascending and disjoint.
    pub rolled_back: Arc<[Range<SeqNo>]>,
}

/// Outputs of a rewrite.
#[derive(Debug, Default)]
pub struct RewriteOutput {
    /// Tables in key order, synced.
    pub tables: Vec<TableMeta>,
    /// Value logs, synced.
    pub vlogs: Vec<VlogMeta>,
    /// Entry counts.
    pub counts: RewriteCounts,
    /// Number of write calls for the files.
    pub write_calls: u64,
    /// True if blocks of the tables are cached when they are verified.
    pub fill_cache: bool,
}
