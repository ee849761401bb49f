//! Executes a compaction plan.

use super::plan::{CompactionPlan, CompactionReason};
use crate::rewrite::{CreatedFiles, RewriteContext, RewriteInput, RewriteOutput, run_rewrite};
use crate::scan::{MergeCursor, RunCursor, SourceCursor};
use crate::version::{AddedTable, Run, Table, Version, VersionEdit};
use perigee_base::{Error, FileId, IoActivity, LevelNo, Result, RunId, limits};
use perigee_file::RangeTombstones;
use std::collections::HashSet;
use std::sync::Arc;

/// Merges the plan's inputs. The files are synced, the directory is not.
pub fn run_compaction(
    plan: &CompactionPlan,
    context: RewriteContext<'_>,
    created: &mut CreatedFiles,
) -> Result<(VersionEdit, RewriteOutput)> {
    let version = context.version;
    let inputs = collect_inputs(plan, version)?;
    check!(
        plan.inputs.iter().all(|(level, _)| *level <= plan.target_level)
            && plan.target_level.index() < limits::LEVELS,
        "a compaction moves entries down",
        plan
    );
    check_slow!(
        plan.reason == CompactionReason::RangeDeleted || is_closed(plan, version, &inputs),
        "no older version stays above the target level",
        plan
    );
    check!(
        !plan.trivial_move || plan.relocate_vlogs.is_empty(),
        "a table that is moved keeps its value logs",
        plan
    );
    let removed = plan.inputs.clone();
    if plan.reason == CompactionReason::RangeDeleted {
        return Ok((VersionEdit { removed, ..VersionEdit::default() }, RewriteOutput::default()));
    }
    if plan.trivial_move {
        let added = inputs
            .iter()
            .flat_map(|r| &r.tables)
            .map(|t| added_table(plan, t.meta.clone()))
            .collect();
        return Ok((
            VersionEdit { added, removed, ..VersionEdit::default() },
            RewriteOutput::default(),
        ));
    }
    let bottommost = is_bottommost(plan, version, &inputs);
    let comparator = version.comparator;
    let range_tombstones_of = |r: &Arc<Run>| {
        r.tables.iter().map(|t| Arc::clone(t.reader.range_tombstones())).collect::<Vec<_>>()
    };
    let range_tombstones = inputs
        .iter()
        .flat_map(range_tombstones_of)
        .fold(RangeTombstones::default(), |all, r| all.merge(comparator, &r));
    let is_read_from_memory = are_most_blocks_in_use(&inputs);
    let sources = inputs
        .into_iter()
        .map(|r| {
            SourceCursor::Run(
                RunCursor::new(r, comparator, false).with_cause(IoActivity::Compaction),
            )
        })
        .collect();
    let source = MergeCursor::new(comparator, sources);
    let relocate_vlogs = plan.relocate_vlogs.clone();
    let target_bytes = plan.table_bytes.unwrap_or(context.target_bytes);
    let context = RewriteContext {
        target_bytes,
        cuts: plan.cuts.clone(),
        fill_cache: is_read_from_memory,
        ..context
    };
    // A manual compaction applies the current options to every entry, so no block is copied.
    let pass_through_blocks = plan.reason != CompactionReason::Manual;
    let input = RewriteInput {
        source,
        range_tombstones,
        bottommost,
        relocate_vlogs,
        zero_seqs: false,
        pass_through_blocks,
        rolled_back: Arc::default(),
    };
    let output = run_rewrite(input, context, created)?;
    let follows = |w: &[crate::TableMeta]| {
        let (end, begin) = (w[0].summary.end(comparator), w[1].summary.begin(comparator));
        end.cmp(comparator, begin).is_le()
    };
    check!(
        output.tables.windows(2).all(follows),
        "the tables of a compaction are one run",
        output.tables.len()
    );
    check_slow!(
        output.tables.iter().all(|t| created.0.contains(&t.id))
            && output.vlogs.iter().all(|v| created.0.contains(&v.id)),
        "the outputs of a compaction are among the files that it created",
        created
    );
    let edit = VersionEdit {
        added: output.tables.iter().map(|meta| added_table(plan, meta.clone())).collect(),
        removed,
        vlogs_added: output.vlogs.clone(),
        ..VersionEdit::default()
    };
    Ok((edit, output))
}

/// Returns true if no table outside the plan has older versions of input keys in the levels
/// between an input and the target level.
fn is_closed(plan: &CompactionPlan, version: &Version, inputs: &[Arc<Run>]) -> bool {
    let named: HashSet<FileId> = plan.inputs.iter().map(|(_, id)| *id).collect();
    let level_of = |id: FileId| plan.inputs.iter().find(|(_, i)| *i == id).map(|(level, _)| *level);
    let is_older = |level: LevelNo, run: &Run, input: &Run, input_level: LevelNo| {
        level > input_level || (level == input_level && run.id < input.id)
    };
    let others = version.tables().filter(|(_, _, t)| !named.contains(&t.meta.id));
    others.filter(|(level, ..)| *level <= plan.target_level).all(|(level, run, other)| {
        inputs.iter().all(|input| {
            input.tables.iter().all(|t| {
                !level_of(t.meta.id).is_some_and(|from| is_older(level, run, input, from))
                    || !other.meta.summary.overlaps(version.comparator, &t.meta.summary)
            })
        })
    })
}

/// Returns true if most blocks of the inputs are in the block cache and were read there: readers
/// should find their entries in memory after the merge, too.
fn are_most_blocks_in_use(inputs: &[Arc<Run>]) -> bool {
    let (mut in_use, mut blocks) = (0, 0);
    for table in inputs.iter().flat_map(|run| &run.tables) {
        in_use += table.reader.referenced_block_count();
        blocks += table.reader.block_count();
    }
    in_use * 2 > blocks
}

fn added_table(plan: &CompactionPlan, meta: crate::TableMeta) -> AddedTable {
    AddedTable { level: plan.target_level, run: RunId(0), meta }
}

/// Returns the inputs as runs: the planned tables of each run of the version.
fn collect_inputs(plan: &CompactionPlan, version: &Version) -> Result<Vec<Arc<Run>>> {
    let wanted: HashSet<(LevelNo, FileId)> = plan.inputs.iter().copied().collect();
    let mut found = 0;
    let mut runs = Vec::new();
    for (level, of_level) in version.levels.iter().enumerate() {
        for run in of_level {
            let in_plan = |t: &&Arc<Table>| wanted.contains(&(LevelNo(level as u8), t.meta.id));
            let tables: Vec<_> = run.tables.iter().filter(in_plan).cloned().collect();
            found += tables.len();
            if !tables.is_empty() {
                runs.push(Arc::new(Run::new(run.id, tables, version.comparator)));
            }
        }
    }
    if found != plan.inputs.len() {
        return Err(Error::internal(format!(
            "a compaction plan names {} tables, of which {found} exist",
            plan.inputs.len()
        )));
    }
    Ok(runs)
}

/// Returns true if no table in the target level or deeper, inputs excepted, overlaps an input, so
/// that none can hold an older version of an input's key.
fn is_bottommost(plan: &CompactionPlan, version: &Version, inputs: &[Arc<Run>]) -> bool {
    let comparator = version.comparator;
    let named: HashSet<FileId> = plan.inputs.iter().map(|(_, id)| *id).collect();
    let tables = || inputs.iter().flat_map(|r| &r.tables);
    !version
        .tables()
        .filter(|(level, _, t)| *level >= plan.target_level && !named.contains(&t.meta.id))
        .any(|(_, _, other)| {
            tables().any(|t| other.meta.summary.overlaps(comparator, &t.meta.summary))
        })
}
