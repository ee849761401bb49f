//! Flush of a memtable to level 0: a rewrite with a memtable as its source.

use crate::memtable::Memtable;
use crate::rewrite::{CreatedFiles, RewriteContext, RewriteInput, RewriteOutput, run_rewrite};
use crate::scan::{MergeCursor, SourceCursor};
use crate::version::{AddedTable, VersionEdit};
use perigee_base::{LevelNo, Result, RunId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Writes an immutable memtable as run `run_id` of level 0. The files are synced, the directory is
/// not.
pub fn flush(
    memtable: &Arc<Memtable>,
    run_id: RunId,
    context: RewriteContext<'_>,
    created: &mut CreatedFiles,
) -> Result<(VersionEdit, RewriteOutput)> {
    let comparator = context.options.comparator;
    // Scans should find the entries in memory after the flush, too.
    let fill_cache = context.fill_cache || memtable.scan_steps() >= memtable.entries();
    let context = RewriteContext { fill_cache, ..context };
    memtable.sort_completely();
    let source =
        MergeCursor::new(comparator, vec![SourceCursor::from(memtable.cursor().with_prefetch())]);
    let range_tombstones = memtable.range_tombstones().fragments(&context.stripes);
    let input = RewriteInput {
        source,
        range_tombstones,
        bottommost: false,
        relocate_vlogs: BTreeSet::new(),
        zero_seqs: false,
        pass_through_blocks: false,
        rolled_back: Arc::default(),
    };
    let output = run_rewrite(input, context, created)?;
    check!(
        output.tables.iter().all(|t| {
            let (oldest, newest) = t.seq_range();
            memtable.first_seq() <= oldest && newest <= memtable.last_seq()
        }),
        "a flush writes the sequence numbers of its memtable",
        memtable.first_seq(),
        memtable.last_seq()
    );
    let added =
        |meta: &crate::TableMeta| AddedTable { level: LevelNo(0), run: run_id, meta: meta.clone() };
    let edit = VersionEdit {
        added: output.tables.iter().map(added).collect(),
        vlogs_added: output.vlogs.clone(),
        flushed_up_to: Some(memtable.last_seq()),
        ..VersionEdit::default()
    };
    Ok((edit, output))
}
