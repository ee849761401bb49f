//! Carries out compactions that are due, several small ones by one edit, or a manual one.

use super::due_compactions::{self, DueCompaction};
use super::flush::{
    VersionInstall, discard_outputs, install_versions, output_bytes, rewrite_setting,
};
use super::obsolete_logs::ObsoleteLogs;
use super::pace::JobPace;
use super::task_group::{self, BuildTask, BuiltTables};
use crate::core::EngineCore;
use crate::events::{self, EngineEvent};
use crate::family::FamilyState;
use crate::job_control::{JobKind, JobRegistration, RunningJob};
use crate::memory_budget;
use perigee_base::bug::{self, Bug};
use perigee_base::file_header::HEADER_BYTES;
use perigee_base::io_stats::IoActivity;
use perigee_base::latency::Operation;
use perigee_base::{Error, ErrorKind, FileId, Result, SeqNo};
use perigee_env::sim::yield_point;
use perigee_tree::compact::pick::manual::{self, CompactionRange};
use perigee_tree::compact::pick::range_deleted;
use perigee_tree::compact::{
    CompactionPlan, CompactionReason, TreeShape, bottom_seq, run_compaction,
};
use perigee_tree::rewrite::{
    CreatedFiles, DeferredSync, RewriteContext, RewriteFilter, RewritePacer,
};
use perigee_tree::{Table, Version};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Does the most urgent plan of any family, and small ones of others with it; false if no family
/// needs one.
pub fn compact_most_urgent(core: &Arc<EngineCore>) -> Result<bool> {
    let _alone = core.compaction_lock.lock();
    // A plan made while the gate is closed would be an old one when it opens.
    if core.job_control.check_allowed(JobKind::Compaction).is_err() {
        return Ok(false);
    }
    let due = due_compactions::select_due(core);
    if due.is_empty() {
        return Ok(false);
    }
    match run_compactions(core, due) {
        // Held back, or cancelled on the way: the bell rings when it may go on, and may have rung
        // already. Only the gate answers a job with `Busy`; asking it again would take a job that
        // was resumed meanwhile for a failed one.
        Err(e) if e.kind() == ErrorKind::Busy => {
            // A canceller that waits for this job goes on here, and may resume before the next
            // line.
            yield_point();
            let failed = bug::is_active(Bug::ResumedIsFailure)
                && core.job_control.check_allowed(JobKind::Compaction).is_ok();
            if failed { Err(e) } else { Ok(false) }
        }
        done => done.map(|()| true),
    }
}

/// How much of a family a manual compaction merges.
#[derive(Clone, Debug)]
pub enum CompactionExtent {
    /// All of it; `any_garbage`: value logs are emptied for any garbage at all, not only where it
    /// is worth while.
    Whole {
        /// See above.
        any_garbage: bool,
    },
    /// The tables that share keys with the span.
    Range(CompactionRange),
}

/// Merges what was asked for into the deepest level that it reaches (at least level 1).
pub fn compact_manually(
    core: &Arc<EngineCore>,
    family: &Arc<FamilyState>,
    extent: &CompactionExtent,
) -> Result<()> {
    let _alone = core.compaction_lock.lock();
    let percent =
        if matches!(extent, CompactionExtent::Whole { any_garbage: true }) { 100 } else { 90 };
    merge_extent(core, family, extent, percent)?;
    // What the merge dropped may have been the last to reference a value: only now its log is known
    // to hold garbage.
    if percent == 100 && !garbage_vlogs(&family.tree.view().version, percent).is_empty() {
        merge_extent(core, family, extent, percent)?;
    }
    core.obsolete_files.delete_unreferenced(&core.table_cache)
}

fn merge_extent(
    core: &Arc<EngineCore>,
    family: &Arc<FamilyState>,
    extent: &CompactionExtent,
    percent: u64,
) -> Result<()> {
    core.health.check_writable()?;
    let version = Arc::clone(&family.tree.view().version);
    let shape = TreeShape::from_version(&version);
    let plan = match extent {
        CompactionExtent::Whole { .. } => {
            manual::pick(&shape, &CompactionRange::default(), &garbage_vlogs(&version, percent))
        }
        CompactionExtent::Range(span) => manual::pick(&shape, span, &BTreeSet::new()),
    };
    plan.map_or(Ok(()), |plan| {
        run_compactions(core, vec![DueCompaction::new(family, version, plan)])
    })
}

/// Value logs of which less than so many percent are referenced.
fn garbage_vlogs(version: &Version, percent: u64) -> BTreeSet<FileId> {
    let refs = version.vlog_referenced_bytes();
    let wasteful = |v: &Arc<perigee_tree::Vlog>| {
        refs.get(&v.meta.id).is_none_or(|live| {
            live * 100 < v.meta.bytes.saturating_sub(HEADER_BYTES as u64) * percent
        })
    };
    version.vlogs.values().filter(|v| wasteful(v)).map(|v| v.meta.id).collect()
}

/// A compaction on its way.
#[derive(Debug)]
struct CompactionTask {
    due: DueCompaction,
    /// The family's name when the job began.
    name: Arc<str>,
    created: CreatedFiles,
    built: Option<BuiltTables>,
    installed: bool,
}

impl BuildTask for CompactionTask {
    fn built(&self) -> Option<&BuiltTables> {
        self.built.as_ref()
    }
    fn set_built(&mut self, made: Option<BuiltTables>) {
        self.built = made;
    }
}

impl CompactionTask {
    fn new(due: DueCompaction) -> CompactionTask {
        let name = due.family.name();
        CompactionTask {
            due,
            name,
            created: CreatedFiles::default(),
            built: None,
            installed: false,
        }
    }
    /// Whether there is nothing to merge any more: the family was dropped, or cleared. (Compactions
    /// run one at a time, so nobody else takes its tables.)
    fn has_lost_inputs(&self) -> bool {
        let there = self.due.family.tree.view().version.file_ids();
        self.due.family.is_dropped()
            || self.due.plan.inputs.iter().any(|(_, id)| !there.contains(id))
    }
}

/// Compactions as they are listed while they run.
fn describe_job(core: &EngineCore, due: &[DueCompaction], threads: usize) -> RunningJob {
    let first = due.first().map_or(String::new(), |d| d.family.name().to_string());
    let families = due.iter().map(|d| d.family.id).collect::<BTreeSet<_>>().len();
    let summaries = || due.iter().flat_map(DueCompaction::input_summaries);
    let held = |d: &DueCompaction| {
        let bytes = d.input_summaries().map(|s| s.bytes).sum();
        memory_budget::job_input_bytes(
            source_count(&d.plan),
            d.family.settings().block_bytes,
            bytes,
        )
    };
    RunningJob {
        kind: JobKind::Compaction,
        family: if families > 1 { format!("{first} and {} more", families - 1) } else { first },
        families: due.iter().map(|d| d.family.id).collect(),
        reason: due.first().map_or("", |d| d.plan.reason.name()),
        input_levels: input_levels(due.iter().map(|d| &d.plan)),
        output_level: due.iter().map(|d| d.plan.target_level.0).max().unwrap_or(0),
        input_tables: due.iter().map(|d| d.plan.inputs.len()).sum(),
        input_bytes: summaries().map(|s| s.bytes).sum(),
        input_entries: summaries().map(|s| s.entries).sum(),
        started_us: core.env.clock.monotonic_us(),
        entries_done: AtomicU64::new(0),
        bytes_written: AtomicU64::new(0),
        // So many at a time are read.
        input_memory_bytes: due.iter().map(held).max().unwrap_or(0) * threads.min(due.len()) as u64,
        output_memory_bytes: AtomicU64::new(0),
    }
}

/// The levels that plans read, ascending.
fn input_levels<'a>(plans: impl Iterator<Item = &'a CompactionPlan>) -> Vec<u8> {
    let all: BTreeSet<u8> = plans.flat_map(|p| p.inputs.iter().map(|(level, _)| level.0)).collect();
    all.into_iter().collect()
}

/// Sources that are read side by side: each run of level 0, of a deeper level one table at a time.
fn source_count(plan: &CompactionPlan) -> usize {
    if plan.trivial_move {
        return 0;
    }
    let above = plan.inputs.iter().filter(|(level, _)| level.0 == 0).count();
    above + input_levels(std::iter::once(plan)).iter().filter(|level| **level > 0).count()
}

/// Merges, and installs what came of it by one edit. What was made before something failed is
/// installed all the same.
fn run_compactions(core: &Arc<EngineCore>, due: Vec<DueCompaction>) -> Result<()> {
    let threads = due_compactions::thread_count(core, &due);
    let running = core.job_control.start_job(&core.signal, describe_job(core, &due, threads))?;
    core.report_event(&running.job.started_event());
    let mut merges: Vec<CompactionTask> = due.into_iter().map(CompactionTask::new).collect();
    let started = core.start_timer(Operation::Compaction, 0);
    let done = build_and_install(core, &mut merges, threads, &running);
    if done.is_ok() {
        core.stop_timer(Operation::Compaction, started);
    }
    let left = || merges.iter().filter(|m| !m.installed);
    left().for_each(|m| discard_outputs(core, &m.created));
    let over = left().all(CompactionTask::has_lost_inputs) && core.health.poisoned().is_none();
    // Whoever waits for the end of the job may remove its inputs.
    drop(merges);
    drop(running);
    if over { Ok(()) } else { done }
}

fn build_and_install(
    core: &EngineCore,
    merges: &mut [CompactionTask],
    threads: usize,
    running: &JobRegistration<'_>,
) -> Result<()> {
    let _span = events::enter_span("compaction", merges.first().map_or("", |m| &m.name));
    let make = |m: &mut CompactionTask, later: &DeferredSync| {
        build_task(core, m, &JobPace::new(core, running), later)
    };
    let built = task_group::build_all(core, merges, threads, make);
    built.and(install_tasks(core, merges))
}

/// The newest operation of which a merge may drop something: whoever reads at an older number may
/// miss what it dropped.
fn newest_input_seq(m: &CompactionTask) -> SeqNo {
    if m.due.plan.trivial_move {
        return SeqNo::ZERO;
    }
    let named: BTreeSet<FileId> = m.due.plan.inputs.iter().map(|(_, id)| *id).collect();
    let covering = |t: &Arc<Table>| {
        m.due.plan.reason == CompactionReason::RangeDeleted && t.meta.summary.ranges.is_some()
    };
    let tables = m.due.version.tables().map(|(_, _, t)| t);
    let counts = tables.filter(|t| named.contains(&t.meta.id) || covering(t));
    counts.map(|t| t.meta.seq_range().1).max().unwrap_or_default()
}

/// Writes the tables of a merge.
fn build_task(
    core: &EngineCore,
    m: &mut CompactionTask,
    pace: &dyn RewritePacer,
    later: &DeferredSync,
) -> Result<BuiltTables> {
    let since = core.env.clock.monotonic_us();
    let DueCompaction { family, version, plan, .. } = &m.due;
    let filter = family.filter();
    let filter = filter.as_deref().map(|filter| RewriteFilter { filter, level: plan.target_level });
    let mut setting = RewriteContext {
        filter,
        deferred_sync: Some(later),
        ..rewrite_setting(core, family, version, pace, newest_input_seq(m))
    };
    if plan.reason == CompactionReason::RangeDeleted
        && !range_deleted::is_still_valid(plan, &TreeShape::from_version(version), &setting.stripes)
    {
        // A reader of the past has come between: another plan will know it.
        return Err(Error::new(ErrorKind::Busy, "a reader needs what was to be dropped"));
    }
    setting.bottom_seq = bottom_seq::common_seq(plan, &family.tree.view(), &setting.stripes);
    let (edit, output) = run_compaction(plan, setting, &mut m.created)?;
    Ok(BuiltTables {
        edit,
        output,
        elapsed_us: core.env.clock.monotonic_us().saturating_sub(since),
    })
}

fn install_tasks(core: &EngineCore, merges: &mut [CompactionTask]) -> Result<()> {
    let mut changes: Vec<VersionInstall> = Vec::new();
    for m in merges.iter_mut() {
        let Some(edit) = m.built.as_mut().map(|made| std::mem::take(&mut made.edit)) else {
            continue;
        };
        // Several merges of one family are neighbours, and share no table.
        match changes.last_mut().filter(|c| Arc::ptr_eq(&c.family, &m.due.family)) {
            Some(same) => same.edit.join(edit),
            None => changes.push(VersionInstall {
                family: Arc::clone(&m.due.family),
                edit,
                flushed_memtable: None,
            }),
        }
    }
    if changes.is_empty() {
        return Ok(());
    }
    core.sync_dir()?;
    let installed = install_versions(core, changes, &mut ObsoleteLogs::default())?;
    let whole = |m: &&mut CompactionTask| m.built.is_some() && installed.contains(&m.due.family.id);
    for m in merges.iter_mut().filter(whole) {
        m.installed = true;
        if let Some(progress) = m.due.progress.take() {
            m.due.family.compaction_cursor.set_progress(progress);
        }
        m.built.iter().for_each(|made| record_stats(core, m, made));
    }
    Ok(())
}

fn record_stats(core: &EngineCore, m: &CompactionTask, made: &BuiltTables) {
    let output = &made.output;
    core.counters.compactions.add(1);
    core.counters.compaction_bytes_read.add(m.due.read_bytes());
    core.counters.compaction_bytes_written.add(output_bytes(output));
    let figures = &m.due.family.counters;
    figures.compaction_tables.add(output.tables.len() as u64);
    figures.compaction_bytes_read.add(m.due.read_bytes());
    figures.compaction_bytes_written.add(output_bytes(output));
    core.counters.io.record_writes(
        IoActivity::Compaction,
        output.write_calls,
        output_bytes(output),
    );
    report_compaction(core, m, made);
    core.counters.dropped_shadowed.add(output.counts.shadowed);
    core.counters.dropped_tombstones.add(output.counts.obsolete_tombstones);
    core.counters.dropped_covered.add(output.counts.covered);
    core.counters.dropped_cancelled.add(output.counts.cancelled);
    core.counters.operands_merged.add(output.counts.merged);
    core.counters.operands_unmerged.add(output.counts.unmerged);
    core.counters
        .dropped_ranges
        .add(output.counts.range_tombstones.shadowed + output.counts.range_tombstones.obsolete);
    if m.due.plan.reason == CompactionReason::RangeDeleted {
        core.counters.dropped_tables.add(m.due.plan.inputs.len() as u64);
    }
    core.counters.dropped_expired.add(output.counts.expired + output.counts.expired_to_tombstones);
}

fn report_compaction(
    core: &EngineCore,
    m: &CompactionTask,
    BuiltTables { output, elapsed_us: us, .. }: &BuiltTables,
) {
    let plan = &m.due.plan;
    let files = if plan.trivial_move { plan.inputs.len() } else { output.tables.len() };
    let read: u64 = m.due.input_summaries().map(|s| s.bytes).sum();
    core.report_event(&EngineEvent::Compacted {
        family: &m.name,
        reason: if plan.trivial_move { "moved" } else { plan.reason.name() },
        from: &input_levels(std::iter::once(plan)),
        to: plan.target_level.0,
        files: (plan.inputs.len(), files),
        bytes: (read, if plan.trivial_move { read } else { output_bytes(output) }),
        entries: (output.counts.read, output.counts.written),
        us: *us,
    });
}
