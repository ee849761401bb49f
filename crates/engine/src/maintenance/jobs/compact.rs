//! Runs compactions: those that are due, several small ones with a single edit, and manual ones.

use super::due_compactions::{self, DueCompaction};
use super::flush::job_changes;
use super::pace::JobPace;
use super::rewrite_stats::{output_bytes, record_rewrite};
use super::task_group::{self, BuildTask, BuiltTables};
use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::catalog::install::{LogChanges, VersionChange, VersionSource, discard_outputs};
use crate::log::Log;
use crate::maintenance::Maintenance;
use crate::resources::job_control::{JobKind, JobRegistration, RunningJob};
use crate::resources::memory_shares;
use crate::runtime::Runtime;
use crate::runtime::events::{self, EngineEvent};
use perigee_base::bug::Bug;
use perigee_base::{
    Bytes, Error, ErrorKind, FileId, HEADER_BYTES, IoActivity, Operation, Result, SeqNo, bug,
};
use perigee_env::sim::yield_point;
use perigee_tree::compact::{
    CompactionPlan, CompactionRange, CompactionReason, TreeShape, common_seq,
    is_still_range_deleted, pick_manual, run_compaction,
};
use perigee_tree::rewrite::{
    CreatedFiles, DeferredSync, RewriteContext, RewriteFilter, RewritePacer,
};
use perigee_tree::{Table, Version};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Runs the most urgent compaction of any column family, together with small ones of others.
/// Returns false if none is due.
pub fn compact_most_urgent(maintenance: &Maintenance) -> Result<bool> {
    let _alone = maintenance.lock_compactions();
    // A plan made while compactions are paused would be outdated when they resume.
    if maintenance.resources.job_control().check_allowed(JobKind::Compaction).is_err() {
        return Ok(false);
    }
    let due = due_compactions::select_due(&maintenance.catalog);
    if due.is_empty() {
        return Ok(false);
    }
    match run_compactions(&maintenance.log, due) {
        // Paused, or cancelled while running: the signal is notified when compactions may resume,
        // perhaps already. Only `job_control` returns `Busy` to a job; checking the state again
        // here would report a job as failed that was resumed in the meantime.
        Err(e) if e.kind() == ErrorKind::Busy => {
            // A thread that waits for this job to be cancelled may run now, and resume compactions
            // before the next statement.
            yield_point();
            let failed = bug::is_active(Bug::ResumedIsFailure)
                && maintenance.resources.job_control().check_allowed(JobKind::Compaction).is_ok();
            if failed { Err(e) } else { Ok(false) }
        }
        done => done.map(|()| true),
    }
}

/// How much of a column family a manual compaction merges.
#[derive(Clone, Debug)]
pub enum CompactionExtent {
    /// All of it.
    Whole {
        /// Collects value logs with any garbage at all, not only where it is worthwhile.
        any_garbage: bool,
    },
    /// The tables that overlap the key range.
    Range(CompactionRange),
}

/// Merges the requested extent into the deepest level that it reaches (at least level 1).
pub fn compact_manually(
    maintenance: &Maintenance,
    family: &Arc<FamilyState>,
    extent: &CompactionExtent,
) -> Result<()> {
    let _alone = maintenance.lock_compactions();
    let percent =
        if matches!(extent, CompactionExtent::Whole { any_garbage: true }) { 100 } else { 90 };
    merge_extent(&maintenance.log, family, extent, percent)?;
    // The merge may have dropped the last reference to a value: only now is its value log known to
    // hold garbage.
    if percent == 100 && !garbage_vlogs(&family.tree.view().version, percent).is_empty() {
        merge_extent(&maintenance.log, family, extent, percent)?;
    }
    maintenance.catalog.delete_unreferenced()
}

fn merge_extent(
    log: &Log,
    family: &Arc<FamilyState>,
    extent: &CompactionExtent,
    percent: u64,
) -> Result<()> {
    log.runtime.health.check_writable()?;
    let version = Arc::clone(&family.tree.view().version);
    let shape = TreeShape::from_version(&version);
    let plan = match extent {
        CompactionExtent::Whole { .. } => {
            pick_manual(&shape, &CompactionRange::default(), &garbage_vlogs(&version, percent))
        }
        CompactionExtent::Range(span) => pick_manual(&shape, span, &BTreeSet::new()),
    };
    plan.map_or(Ok(()), |plan| {
        run_compactions(log, vec![DueCompaction::new(family, version, plan)])
    })
}

/// Returns the value logs of which less than `percent` percent is referenced.
fn garbage_vlogs(version: &Version, percent: u64) -> BTreeSet<FileId> {
    let refs = version.vlog_referenced_bytes();
    let has_garbage = |v: &Arc<perigee_tree::Vlog>| {
        refs.get(&v.meta.id).is_none_or(|live| {
            live * 100 < v.meta.bytes.saturating_sub(HEADER_BYTES as u64) * percent
        })
    };
    version.vlogs.values().filter(|v| has_garbage(v)).map(|v| v.meta.id).collect()
}

/// A running compaction.
#[derive(Debug)]
struct CompactionTask {
    due: DueCompaction,
    /// The name of the column family when the job started.
    name: Arc<str>,
    created: CreatedFiles,
    built: Option<BuiltTables>,
    installed: bool,
}

impl BuildTask for CompactionTask {
    fn built(&self) -> Option<&BuiltTables> {
        self.built.as_ref()
    }
    fn set_built(&mut self, built: Option<BuiltTables>) {
        self.built = built;
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
    /// Returns true if there is nothing left to merge: the column family was dropped or cleared.
    /// (Compactions run one at a time, so no other job removes its tables.)
    fn has_lost_inputs(&self) -> bool {
        let live_files = self.due.family.tree.view().version.file_ids();
        self.due.family.is_dropped()
            || self.due.plan.inputs.iter().any(|(_, id)| !live_files.contains(id))
    }
}

/// Describes the compactions for the list of running jobs.
fn describe_job(runtime: &Runtime, due: &[DueCompaction], threads: usize) -> RunningJob {
    let first = due.first().map_or(String::new(), |d| d.family.name().to_string());
    let families = due.iter().map(|d| d.family.id).collect::<BTreeSet<_>>().len();
    let summaries = || due.iter().flat_map(DueCompaction::input_summaries);
    let input_memory = |d: &DueCompaction| {
        let bytes = d.input_summaries().map(|s| s.bytes).sum();
        memory_shares::job_input_bytes(
            source_count(&d.plan),
            d.family.settings().block_bytes as u64,
            Bytes(bytes),
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
        started_us: runtime.env.clock.monotonic_us(),
        entries_done: AtomicU64::new(0),
        bytes_written: AtomicU64::new(0),
        // This many are read in parallel.
        input_memory_bytes: due.iter().map(input_memory).max().unwrap_or(0)
            * threads.min(due.len()) as u64,
        output_memory_bytes: AtomicU64::new(0),
    }
}

/// Returns the levels that the plans read, ascending.
fn input_levels<'a>(plans: impl Iterator<Item = &'a CompactionPlan>) -> Vec<u8> {
    let all: BTreeSet<u8> = plans.flat_map(|p| p.inputs.iter().map(|(level, _)| level.0)).collect();
    all.into_iter().collect()
}

/// Returns the number of sources read in parallel: each level-0 run, and one table at a time of
/// each deeper level.
fn source_count(plan: &CompactionPlan) -> usize {
    if plan.trivial_move {
        return 0;
    }
    let above = plan.inputs.iter().filter(|(level, _)| level.0 == 0).count();
    above + input_levels(std::iter::once(plan)).iter().filter(|level| **level > 0).count()
}

/// Merges, and installs the results with one edit. Tables built before a failure are installed
/// nevertheless.
fn run_compactions(log: &Log, due: Vec<DueCompaction>) -> Result<()> {
    let threads = due_compactions::thread_count(&log.resources, &due);
    let running = log
        .resources
        .job_control()
        .start_job(&log.runtime.signal, describe_job(&log.runtime, &due, threads))?;
    log.runtime.report_event(&running.job.started_event());
    let mut merges: Vec<CompactionTask> = due.into_iter().map(CompactionTask::new).collect();
    let started = log.runtime.start_timer(Operation::Compaction, 0);
    let done = build_and_install(log, &mut merges, threads, &running);
    if done.is_ok() {
        log.runtime.stop_timer(Operation::Compaction, started);
    }
    let unfinished = || merges.iter().filter(|m| !m.installed);
    unfinished().for_each(|m| discard_outputs(&log.catalog, &m.created));
    let inputs_gone = unfinished().all(CompactionTask::has_lost_inputs)
        && log.runtime.health.poisoned().is_none();
    // A thread that waits for the end of the job may remove its inputs.
    drop(merges);
    running.finish(log.runtime.env.clock.monotonic_us(), done.is_ok());
    if inputs_gone { Ok(()) } else { done }
}

fn build_and_install(
    log: &Log,
    merges: &mut [CompactionTask],
    threads: usize,
    running: &JobRegistration<'_>,
) -> Result<()> {
    let _span = events::enter_span("compaction", merges.first().map_or("", |m| &m.name));
    let make = |m: &mut CompactionTask, deferred: &DeferredSync| {
        build_task(&log.catalog, m, &JobPace::new(&log.resources, running), deferred)
    };
    let built = task_group::build_all(&log.resources, merges, threads, make);
    built.and(install_tasks(log, merges))
}

/// Returns the newest operation of which a merge may drop something: a reader at an older sequence
/// number may miss what it dropped.
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

/// Writes the tables of one merge.
fn build_task(
    catalog: &Catalog,
    m: &mut CompactionTask,
    pace: &dyn RewritePacer,
    deferred: &DeferredSync,
) -> Result<BuiltTables> {
    let since = catalog.runtime.env.clock.monotonic_us();
    let DueCompaction { family, version, plan, .. } = &m.due;
    check_slow!(
        m.due.input_summaries().count() == plan.inputs.len(),
        "the inputs of a compaction are tables of the version that it was planned for",
        plan.inputs
    );
    let filter = family.filter();
    let filter = filter.as_deref().map(|filter| RewriteFilter { filter, level: plan.target_level });
    let mut setting = RewriteContext {
        filter,
        deferred_sync: Some(deferred),
        ..catalog.rewrite_context(family, version, pace, newest_input_seq(m))
    };
    if plan.reason == CompactionReason::RangeDeleted
        && !is_still_range_deleted(plan, &TreeShape::from_version(version), &setting.stripes)
    {
        // A reader of an older state has appeared; the next plan will take it into account.
        return Err(Error::new(
            ErrorKind::Busy,
            "a new reader needs the tables that were to be dropped",
        ));
    }
    setting.bottom_seq = common_seq(plan, &family.tree.view(), &setting.stripes);
    let (edit, output) = run_compaction(plan, setting, &mut m.created)?;
    check_slow!(
        plan.trivial_move
            || output.tables.iter().all(|t| m.created.0.contains(&t.id))
                && output.vlogs.iter().all(|v| m.created.0.contains(&v.id)),
        "a compaction that is not installed removes all of its files",
        m.created
    );
    Ok(BuiltTables {
        edit,
        output,
        elapsed_us: catalog.runtime.env.clock.monotonic_us().saturating_sub(since),
    })
}

fn install_tasks(log: &Log, merges: &mut [CompactionTask]) -> Result<()> {
    let mut changes: Vec<VersionChange> = Vec::new();
    for m in merges.iter_mut() {
        let Some(edit) = m.built.as_mut().map(|built| std::mem::take(&mut built.edit)) else {
            continue;
        };
        // Merges of the same column family are adjacent and share no table.
        match changes.last_mut().filter(|c| Arc::ptr_eq(&c.family, &m.due.family)) {
            Some(same) => same.edit.join(edit),
            None => changes.push(VersionChange {
                family: Arc::clone(&m.due.family),
                edit,
                source: VersionSource::Compaction,
            }),
        }
    }
    if changes.is_empty() {
        return Ok(());
    }
    check_slow!(
        changes.iter().map(|c| c.family.id).collect::<BTreeSet<_>>().len() == changes.len(),
        "the merges of a column family are installed as one change",
        changes.len()
    );
    log.runtime.sync_dir()?;
    let installed = log.catalog.install(job_changes(log, changes, LogChanges::default()))?;
    let is_complete = |m: &&mut CompactionTask| {
        m.built.is_some() && installed.families.contains(&m.due.family.id)
    };
    for m in merges.iter_mut().filter(is_complete) {
        check_slow!(
            m.due.plan.trivial_move || m.has_lost_inputs(),
            "the outputs of a compaction replace its inputs",
            m.due.plan.inputs
        );
        m.installed = true;
        if let Some(progress) = m.due.progress.take() {
            m.due.family.compaction_cursor.set_progress(progress);
        }
        m.built.iter().for_each(|built| record_stats(&log.runtime, m, built));
    }
    Ok(())
}

fn record_stats(runtime: &Runtime, m: &CompactionTask, built: &BuiltTables) {
    let output = &built.output;
    runtime.counters.compactions.add(1);
    runtime.counters.compaction_bytes_read.add(m.due.read_bytes());
    runtime.counters.compaction_bytes_written.add(output_bytes(output));
    let counters = &m.due.family.counters;
    counters.compaction_tables.add(output.tables.len() as u64);
    counters.compaction_bytes_read.add(m.due.read_bytes());
    counters.compaction_bytes_written.add(output_bytes(output));
    runtime.counters.io.record_writes(
        IoActivity::Compaction,
        output.write_calls,
        Bytes(output_bytes(output)),
    );
    report_compaction(runtime, m, built);
    record_rewrite(&runtime.counters, &output.counts);
    runtime.counters.dropped_tombstones.add(output.counts.obsolete_tombstones);
    runtime
        .counters
        .dropped_ranges
        .add(output.counts.range_tombstones.shadowed + output.counts.range_tombstones.obsolete);
    if m.due.plan.reason == CompactionReason::RangeDeleted {
        runtime.counters.dropped_tables.add(m.due.plan.inputs.len() as u64);
    }
}

fn report_compaction(
    runtime: &Runtime,
    m: &CompactionTask,
    BuiltTables { output, elapsed_us: us, .. }: &BuiltTables,
) {
    let plan = &m.due.plan;
    let files = if plan.trivial_move { plan.inputs.len() } else { output.tables.len() };
    let read: u64 = m.due.input_summaries().map(|s| s.bytes).sum();
    runtime.report_event(&EngineEvent::Compacted {
        family: &m.name,
        reason: if plan.trivial_move { "trivial move" } else { plan.reason.name() },
        from: &input_levels(std::iter::once(plan)),
        to: plan.target_level.0,
        files: (plan.inputs.len(), files),
        bytes: (read, if plan.trivial_move { read } else { output_bytes(output) }),
        entries: (output.counts.read, output.counts.written),
        us: *us,
    });
}
