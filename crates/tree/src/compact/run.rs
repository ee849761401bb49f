//! Carries a plan out.

use super::plan::{Plan, Reason};
use crate::rewrite::{Created, Input, Output, Setting, run};
use crate::scan::{MergeCursor, RunCursor, Source};
use crate::version::{AddedTable, Run, Table, Version, VersionEdit};
use perigee_base::io::Cause;
use perigee_base::{Error, FileId, LevelNo, Result, RunId};
use perigee_file::Fragments;
use std::collections::HashSet;
use std::sync::Arc;

/// Merges the plan's inputs. Files are synced, the directory is not.
pub fn compact(plan: &Plan, setting: Setting<'_>, created: &mut Created) -> Result<(VersionEdit, Output)> {
    let version = setting.version;
    let inputs = gather(plan, version)?;
    let removed = plan.inputs.clone();
    if plan.reason == Reason::Covered {
        return Ok((VersionEdit { removed, ..VersionEdit::default() }, Output::default()));
    }
    if plan.trivial {
        let added = inputs.iter().flat_map(|r| &r.tables).map(|t| added(plan, t.meta.clone())).collect();
        return Ok((VersionEdit { added, removed, ..VersionEdit::default() }, Output::default()));
    }
    let bottom = is_bottom(plan, version, &inputs);
    let order = version.order;
    let of = |r: &Arc<Run>| r.tables.iter().map(|t| Arc::clone(t.reader.ranges())).collect::<Vec<_>>();
    let ranges = inputs.iter().flat_map(of).fold(Fragments::default(), |all, r| all.merge(order, &r));
    let sources = inputs
        .into_iter()
        .map(|r| Source::Run(RunCursor::new(r, order, false).caused_by(Cause::Compaction)))
        .collect();
    let source = MergeCursor::new(order, sources);
    let relocate = plan.relocate.clone();
    let target_bytes = plan.table_bytes.unwrap_or(setting.target_bytes);
    let setting = Setting { target_bytes, cuts: plan.cuts.clone(), ..setting };
    // Who asks for it wants everything written as the settings are now.
    let whole = plan.reason != Reason::Manual;
    let input =
        Input { source, ranges, bottom, relocate, renumber: false, whole, taken_back: Arc::default() };
    let output = run(input, setting, created)?;
    let edit = VersionEdit {
        added: output.tables.iter().map(|meta| added(plan, meta.clone())).collect(),
        removed,
        vlogs_added: output.vlogs.clone(),
        ..VersionEdit::default()
    };
    Ok((edit, output))
}

fn added(plan: &Plan, meta: crate::TableMeta) -> AddedTable {
    AddedTable { level: plan.to, run: RunId(0), meta }
}

/// The inputs as runs: the planned tables of each run of the version.
fn gather(plan: &Plan, version: &Version) -> Result<Vec<Arc<Run>>> {
    let wanted: HashSet<(LevelNo, FileId)> = plan.inputs.iter().copied().collect();
    let mut found = 0;
    let mut runs = Vec::new();
    for (level, of_level) in version.levels.iter().enumerate() {
        for run in of_level {
            let in_plan = |t: &&Arc<Table>| wanted.contains(&(LevelNo(level as u8), t.meta.id));
            let tables: Vec<_> = run.tables.iter().filter(in_plan).cloned().collect();
            found += tables.len();
            if !tables.is_empty() {
                runs.push(Arc::new(Run::new(run.id, tables, version.order)));
            }
        }
    }
    if found != plan.inputs.len() {
        return Err(Error::internal(format!("a plan names {} tables, {found} exist", plan.inputs.len())));
    }
    Ok(runs)
}

/// Whether no table that is not an input, in the target level or deeper, could hold an older version of an input's key.
fn is_bottom(plan: &Plan, version: &Version, inputs: &[Arc<Run>]) -> bool {
    let order = version.order;
    let named: HashSet<FileId> = plan.inputs.iter().map(|(_, id)| *id).collect();
    let tables = || inputs.iter().flat_map(|r| &r.tables);
    !version
        .tables()
        .filter(|(level, _, t)| *level >= plan.to && !named.contains(&t.meta.id))
        .any(|(_, _, other)| tables().any(|t| other.meta.summary.overlaps(order, &t.meta.summary)))
}
