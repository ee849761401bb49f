//! Flushes: turns sealed memtables into level-0 runs, a large one alone, small ones of many column
//! families together with a single manifest edit. Steps: write tables, sync them, sync the log,
//! append and sync the edit, install versions, delete obsolete files.

use super::obsolete_logs;
use super::pace::JobPace;
use super::rewrite_stats::{output_bytes, record_rewrite};
use super::task_group::{self, BuiltTables, FlushTask};
use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::catalog::install::{
    CatalogChanges, LogChanges, VersionChange, VersionSource, discard_outputs,
};
use crate::log::Log;
use crate::log::commit::{rotate, segment};
use crate::log::wal::Appender;
use crate::maintenance::Maintenance;
use crate::resources::job_control::{JobKind, RunningJob};
use crate::resources::memtable_selection::ScannedMemtable;
use crate::runtime::Runtime;
use crate::runtime::events::{self, EngineEvent};
use perigee_base::bug::Bug;
use perigee_base::{
    Bytes, ErrorKind, IoActivity, KeyBoundaryRef, Operation, Result, Tombstones, bug,
};
use perigee_tree::compact::{TreeShape, boundaries, is_rewrite_worthwhile};
use perigee_tree::rewrite::{DeferredSync, NoPacing, RewriteContext, RewritePacer};
use perigee_tree::{Memtable, flush};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Flushes the oldest sealed memtable, together with small ones of other column families. Returns
/// false if there is none. Called by one thread only, so that the memtables of a column family are
/// installed oldest first.
pub fn flush_oldest(maintenance: &Maintenance) -> Result<bool> {
    match flush_once(maintenance) {
        // The preallocated log space is the first to be released.
        Err(e)
            if e.kind() == ErrorKind::NoSpace
                && segment::release_preallocated(&maintenance.log) =>
        {
            flush_once(maintenance)
        }
        done => done,
    }
}

fn flush_once(maintenance: &Maintenance) -> Result<bool> {
    let _alone = maintenance.lock_flushes();
    seal_scanned_memtables(&maintenance.log);
    let mut group = task_group::select_oldest(&maintenance.catalog);
    if group.is_empty() {
        return drop_obsolete_log(&maintenance.log);
    }
    let Ok(running) = maintenance
        .resources
        .job_control()
        .start_job(&maintenance.runtime.signal, describe_job(&maintenance.runtime, &group))
    else {
        return Ok(false);
    };
    let pace = JobPace::new(&maintenance.resources, &running);
    maintenance.runtime.report_event(&running.job.started_event());
    let started = maintenance.runtime.start_timer(Operation::Flush, 0);
    let done = flush_tasks(&maintenance.log, &mut group, &pace, &mut None);
    maintenance.resources.set_flush_progress(0);
    if done.is_ok() {
        maintenance.runtime.stop_timer(Operation::Flush, started);
    }
    drop(pace);
    running.finish(maintenance.runtime.env.clock.monotonic_us(), done.is_ok());
    if !group.iter().any(FlushTask::is_pending) && maintenance.runtime.health.poisoned().is_none() {
        return Ok(true);
    }
    done.map(|()| true)
}

/// Drops obsolete log segments that no flush will drop, if a commit has requested it.
fn drop_obsolete_log(log: &Log) -> Result<bool> {
    if !log.is_drop_requested() {
        return Ok(false);
    }
    let job = RunningJob { reason: "obsolete log segments", ..describe_job(&log.runtime, &[]) };
    let Ok(_running) = log.resources.job_control().start_job(&log.runtime.signal, job) else {
        return Ok(false);
    };
    log.set_drop_requested(false);
    // On failure the request stays set and is retried: waiting for an idle database includes this
    // job.
    install_log_drop(log).inspect_err(|_| log.set_drop_requested(true))?;
    Ok(true)
}

/// The final steps of a flush, without flushed memtables.
fn install_log_drop(log: &Log) -> Result<()> {
    log.sync_before_edit()?;
    let logs = obsolete_logs::find_obsolete_logs(log, &mut log.commit_section(), &HashSet::new());
    if logs.needs_sync {
        log.sync_before_edit()?;
    }
    if logs.changes.obsolete.is_empty() {
        return Ok(());
    }
    let obsolete = logs.changes.obsolete.clone();
    let installed = log.catalog.install(job_changes(log, Vec::new(), logs.changes))?;
    log.commit_section().remove_segments(&obsolete);
    obsolete_logs::remove_installed(&log.catalog, &installed);
    Ok(())
}

/// Seals the memtables whose flush and the following compaction cost less than what scans have lost
/// in them, by skipping tombstones or by steps.
fn seal_scanned_memtables(log: &Log) {
    if log.resources.job_control().check_allowed(JobKind::Flush).is_err() {
        return;
    }
    let tombstones = log.resources.take_skipped_tombstones_check();
    let steps = log.resources.take_scanned_check();
    if !(tombstones || steps) {
        return;
    }
    let stripes = log.catalog.snapshot_stripes();
    let is_scanned = |f: &Arc<FamilyState>| steps && scanned_memtable(f).is_flush_due();
    let is_due = |f: &Arc<FamilyState>| {
        let m = f.tree.active();
        is_scanned(f)
            || tombstones
                && is_rewrite_worthwhile(Tombstones(m.skipped_tombstones()), m.entries())
                && stripes.is_in_oldest_stripe(m.last_seq())
    };
    let mut families: Vec<Arc<FamilyState>> =
        log.catalog.families().all().into_iter().filter(is_due).collect();
    if families.is_empty() {
        return;
    }
    let mut section = log.commit_section();
    // A writer may have sealed one of them before this thread was in the section.
    families.retain(is_due);
    let scanned = families.iter().filter(|f| is_scanned(f)).count() as u64;
    // Optional: a failure loses nothing, and the writer that needs the next segment gets the error.
    if !families.is_empty() && rotate::seal_memtables(log, &mut section, &families).is_ok() {
        log.runtime.counters.scanned_memtables.add(scanned);
    }
}

/// Returns what decides whether the active memtable is flushed because of scans.
fn scanned_memtable(family: &FamilyState) -> ScannedMemtable {
    let full_bytes = family.settings().memtable_bytes;
    family.tree.with_view(|v| ScannedMemtable {
        steps: v.active.scan_steps(),
        entries: v.active.entries(),
        bytes: v.active.bytes(),
        full_bytes,
        table_entries: v.version.entries(),
        level0_runs: v.version.levels[0].len(),
    })
}

/// Describes the flush for the list of running jobs.
fn describe_job(runtime: &Runtime, group: &[FlushTask]) -> RunningJob {
    let first = group.first().map_or(String::new(), |m| m.family.name().to_string());
    RunningJob {
        kind: JobKind::Flush,
        family: if group.len() > 1 {
            format!("{first} and {} more", group.len() - 1)
        } else {
            first
        },
        families: group.iter().map(|m| m.family.id).collect(),
        reason: "immutable memtable",
        input_levels: Vec::new(),
        output_level: 0,
        input_tables: 0,
        input_bytes: group.iter().map(|m| m.memtable.bytes()).sum(),
        input_entries: group.iter().map(|m| m.memtable.entries()).sum(),
        started_us: runtime.env.clock.monotonic_us(),
        entries_done: AtomicU64::new(0),
        bytes_written: AtomicU64::new(0),
        input_memory_bytes: 0,
        output_memory_bytes: AtomicU64::new(0),
    }
}

/// Flushes all sealed memtables of a column family on the caller's thread. The caller holds
/// `flush_lock`, and the commit section if `held_appender` is set.
pub fn flush_sealed(
    log: &Log,
    family: &Arc<FamilyState>,
    held_appender: &mut Option<&mut Appender>,
) -> Result<()> {
    while let Some(memtable) = family.tree.view().immutables.last().cloned() {
        let mut alone = [FlushTask::new(Arc::clone(family), memtable)];
        let done = flush_tasks(log, &mut alone, &NoPacing, held_appender);
        check!(
            done.is_err() || !alone[0].is_pending(),
            "a flush that succeeds installs its memtable",
            family
        );
        // If the memtable is not pending any more, the column family was cleared or dropped
        // meanwhile and nothing is left to flush.
        if alone[0].is_pending() || log.runtime.health.poisoned().is_some() {
            done?;
        }
    }
    Ok(())
}

/// Runs `act` in the commit section, which the caller may already hold (`held_appender`).
fn in_commit_section<T>(
    log: &Log,
    held_appender: &mut Option<&mut Appender>,
    act: impl FnOnce(&mut Appender) -> T,
) -> T {
    match held_appender {
        Some(appender) => act(appender),
        None => act(&mut log.commit_section()),
    }
}

/// Flushes memtables of different column families. Tables that were built before a failure are
/// installed nevertheless: a full disk may have space for a few tables, and for the log they
/// release.
fn flush_tasks(
    log: &Log,
    group: &mut [FlushTask],
    pace: &(dyn RewritePacer + Sync),
    held_appender: &mut Option<&mut Appender>,
) -> Result<()> {
    let _span = events::enter_span("flush", group.first().map_or("", |m| &m.name));
    check_slow!(
        group.iter().map(|m| m.family.id).collect::<HashSet<_>>().len() == group.len(),
        "a job flushes one memtable of each column family",
        group.len()
    );
    let built = task_group::build_all(&log.resources, group, 1, |m, deferred| {
        build_task(&log.catalog, m, pace, deferred)
    });
    let installed = install_tasks(log, group, held_appender);
    for m in group.iter().filter(|m| !m.installed) {
        discard_outputs(&log.catalog, &m.created);
    }
    built.and(installed)
}

/// Writes the tables of one memtable.
fn build_task(
    catalog: &Catalog,
    m: &mut FlushTask,
    pace: &(dyn RewritePacer + Sync),
    deferred: &DeferredSync,
) -> Result<BuiltTables> {
    let since = catalog.runtime.env.clock.monotonic_us();
    let view = m.family.tree.view();
    let run = catalog.allocate_run_id();
    check_slow!(
        view.version.levels[0].iter().all(|older| older.id < run),
        "a flush adds the newest run of level 0",
        run
    );
    // Cutting at the table boundaries of the last level lets later compactions merge table by
    // table. Half of the memtable size, because tables are compressed.
    let everywhere = KeyBoundaryRef::First..KeyBoundaryRef::Last;
    let setting = catalog.rewrite_context(&m.family, &view.version, pace, m.memtable.last_seq());
    let shape = TreeShape::from_version(&view.version);
    let cuts = boundaries(&shape, everywhere, Bytes(m.memtable.bytes() / 2), setting.target_bytes);
    let setting = RewriteContext { cuts, deferred_sync: Some(deferred), ..setting };
    let (edit, output) = flush(&m.memtable, run, setting, &mut m.created)?;
    check_slow!(
        output.tables.iter().all(|t| m.created.0.contains(&t.id))
            && output.vlogs.iter().all(|v| m.created.0.contains(&v.id)),
        "a flush that is not installed removes all of its files",
        m.created
    );
    Ok(BuiltTables {
        edit,
        output,
        elapsed_us: catalog.runtime.env.clock.monotonic_us().saturating_sub(since),
    })
}

/// Installs the built tables with one edit and drops the log that is obsolete then.
fn install_tasks(
    log: &Log,
    group: &mut [FlushTask],
    held_appender: &mut Option<&mut Appender>,
) -> Result<()> {
    let built = || group.iter().filter_map(|m| Some((m, m.built.as_ref()?)));
    if built().next().is_none() {
        return Ok(());
    }
    log.runtime.sync_dir()?;
    // Column families must be consistent with each other after a power failure: what goes into
    // tables must first be durable in the log.
    if !bug::is_active(Bug::FlushBeforeLogSync) {
        log.sync_before_edit()?;
    }
    check!(
        built().all(|(m, _)| m.memtable.last_seq() <= log.durable_seq()),
        "what goes into tables is durable in the log",
        log.durable_seq()
    );
    let flushing: HashSet<*const Memtable> =
        built().map(|(m, _)| Arc::as_ptr(&m.memtable)).collect();
    let logs = in_commit_section(log, held_appender, |appender| {
        obsolete_logs::find_obsolete_logs(log, appender, &flushing)
    });
    if logs.needs_sync {
        log.sync_before_edit()?;
    }
    if bug::is_active(Bug::RemoveLogEarly) {
        obsolete_logs::remove_segments(&log.runtime, &logs.changes.obsolete);
    }
    let change = |m: &mut FlushTask| {
        let edit = std::mem::take(&mut m.built.as_mut()?.edit);
        let source = VersionSource::Flush(Arc::clone(&m.memtable));
        Some(VersionChange { family: Arc::clone(&m.family), edit, source })
    };
    let versions = group.iter_mut().filter_map(change).collect();
    let obsolete = logs.changes.obsolete.clone();
    let installed = log.catalog.install(job_changes(log, versions, logs.changes));
    log.resources.set_flush_progress(0);
    let installed = installed?;
    in_commit_section(log, held_appender, |appender| appender.remove_segments(&obsolete));
    obsolete_logs::remove_installed(&log.catalog, &installed);
    log.runtime.logical_clock.record_flush();
    for m in group.iter_mut().filter(|m| installed.families.contains(&m.family.id)) {
        check_slow!(!m.is_pending(), "an installed memtable does not await its flush", m.name);
        m.installed = true;
        m.built.iter().for_each(|built| record_stats(&log.runtime, m, built));
    }
    Ok(())
}

fn record_stats(runtime: &Runtime, m: &FlushTask, built: &BuiltTables) {
    let (output, us) = (&built.output, built.elapsed_us);
    runtime.counters.flushes.add(1);
    runtime.counters.flush_bytes_written.add(output_bytes(output));
    runtime.report_event(&EngineEvent::Flushed {
        family: &m.name,
        entries: output.counts.read,
        files: output.tables.len(),
        bytes: output_bytes(output),
        us,
    });
    let bytes = Bytes(output_bytes(output));
    runtime.counters.io.record_writes(IoActivity::Flush, output.write_calls, bytes);
    record_rewrite(&runtime.counters, &output.counts);
}

/// Returns the changes with which a flush or a compaction ends.
pub fn job_changes(log: &Log, versions: Vec<VersionChange>, logs: LogChanges) -> CatalogChanges {
    CatalogChanges {
        versions,
        logs,
        next_run: Some(log.catalog.next_run_id()),
        // The rewrites of this job have raised it already.
        oldest_readable: Some(log.catalog.oldest_readable()),
        durable_seq: Some(log.durable_seq()),
        ..CatalogChanges::default()
    }
}
