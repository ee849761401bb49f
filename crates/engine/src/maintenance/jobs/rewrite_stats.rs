//! What flushes and compactions count in the same way.

use perigee_base::Counters;
use perigee_tree::rewrite::{RewriteCounts, RewriteOutput};

/// Returns the total bytes of a job's outputs.
pub fn output_bytes(output: &RewriteOutput) -> u64 {
    output.tables.iter().map(|t| t.summary.bytes).sum::<u64>()
        + output.vlogs.iter().map(|v| v.bytes).sum::<u64>()
}

/// Adds what a rewrite dropped and merged to the counters of the database. Tombstones and range
/// tombstones are dropped only by compactions, which count them.
pub fn record_rewrite(counters: &Counters, counts: &RewriteCounts) {
    counters.dropped_shadowed.add(counts.shadowed);
    counters.dropped_covered.add(counts.covered);
    counters.dropped_cancelled.add(counts.cancelled);
    counters.dropped_expired.add(counts.expired + counts.expired_to_tombstones);
    counters.operands_merged.add(counts.merged);
    counters.operands_unmerged.add(counts.unmerged);
}
