//! Flushes: turns sealed memtables into level-0 runs, a large one alone, small ones of many column
//! families together with a single manifest edit. Steps: write tables, sync them, sync the log,
//! append and sync the edit, install versions, delete obsolete files.

use super::obsolete_logs::{self, ObsoleteLogs};
use super::pace::JobPace;
use super::task_group::{self, BuiltTables, FlushTask};
use crate::commit::{rotate, segment};
use crate::core::EngineCore;
use crate::events::{self, EngineEvent};
use crate::family::FamilyState;
use crate::job_control::{JobKind, RunningJob};
use crate::manifest::{ManifestEdit, NextIdsEdit};
use crate::memory_budget;
use crate::snapshot::LiveSnapshots;
use crate::wal::Appender;
use perigee_base::bug::{self, Bug};
use perigee_base::file_header::FileKind;
use perigee_base::io_stats::IoActivity;
use perigee_base::key_boundary::KeyBoundaryRef;
use perigee_base::latency::Operation;
use perigee_base::{Bytes, Error, ErrorKind, FamilyId, Result, RunId, SeqNo, Tombstones};
use perigee_file::filename;
use perigee_tree::compact::TreeShape;
use perigee_tree::compact::pick::skipped_tombstones::is_rewrite_worthwhile;
use perigee_tree::compact::pick::spooky::boundaries;
use perigee_tree::flush::flush;
use perigee_tree::mvcc::SnapshotStripes;
use perigee_tree::rewrite::{
    CreatedFiles, DeferredSync, NoPacing, RewriteContext, RewriteOutput, RewritePacer,
};
use perigee_tree::{Memtable, Version, VersionEdit};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// Flushes the oldest sealed memtable, together with small ones of other column families. Returns
/// false if there is none. Called by one thread only, so that the memtables of a column family are
/// installed oldest first.
pub fn flush_oldest(core: &Arc<EngineCore>) -> Result<bool> {
    match flush_once(core) {
        // The preallocated log space is the first to be released.
        Err(e) if e.kind() == ErrorKind::NoSpace && segment::release_preallocated(core) => {
            flush_once(core)
        }
        done => done,
    }
}

fn flush_once(core: &Arc<EngineCore>) -> Result<bool> {
    let _alone = core.flush_lock.lock();
    seal_tombstone_heavy(core);
    let mut group = task_group::select_oldest(core);
    if group.is_empty() {
        return drop_obsolete_log(core);
    }
    let Ok(running) = core.job_control.start_job(&core.signal, describe_job(core, &group)) else {
        return Ok(false);
    };
    let pace = JobPace::new(core, &running);
    core.report_event(&running.job.started_event());
    let started = core.start_timer(Operation::Flush, 0);
    let done = flush_tasks(core, &mut group, &pace, &mut None);
    core.flush_progress.store(0, Relaxed);
    if done.is_ok() {
        core.stop_timer(Operation::Flush, started);
    }
    drop(pace);
    drop(running);
    if !group.iter().any(FlushTask::is_pending) && core.health.poisoned().is_none() {
        return Ok(true);
    }
    done.map(|()| true)
}

/// Drops obsolete log segments that no flush will drop, if a commit has requested it.
fn drop_obsolete_log(core: &Arc<EngineCore>) -> Result<bool> {
    if !core.wal.is_drop_requested() {
        return Ok(false);
    }
    let job = RunningJob { reason: "obsolete log segments", ..describe_job(core, &[]) };
    let Ok(_running) = core.job_control.start_job(&core.signal, job) else {
        return Ok(false);
    };
    core.wal.set_drop_requested(false);
    // On failure the request stays set and is retried: waiting for an idle database includes this
    // job.
    install_log_drop(core).inspect_err(|_| core.wal.set_drop_requested(true))?;
    Ok(true)
}

/// The final steps of a flush, without flushed memtables.
fn install_log_drop(core: &EngineCore) -> Result<()> {
    core.wal.sync(&core.health)?;
    let mut logs =
        obsolete_logs::find_obsolete_logs(core, &mut core.wal.appender(), &HashSet::new());
    if logs.needs_sync {
        core.wal.sync(&core.health)?;
    }
    if logs.obsolete.is_empty() {
        return Ok(());
    }
    install_versions(core, Vec::new(), &mut logs)?;
    core.wal.appender().remove_segments(&logs.obsolete);
    obsolete_logs::remove_segments(core, &logs.deleted);
    obsolete_logs::trim_segments(core, &logs.retained);
    Ok(())
}

/// Seals the memtables whose tombstones scans have skipped so often that a flush and the following
/// compaction are worthwhile.
fn seal_tombstone_heavy(core: &EngineCore) {
    if !core.skipped_tombstones.take_memtable_check()
        || core.job_control.check_allowed(JobKind::Flush).is_err()
    {
        return;
    }
    let stripes = snapshot_stripes(core.live_snapshots(None));
    let due = |f: &Arc<FamilyState>| {
        let m = f.tree.active();
        is_rewrite_worthwhile(Tombstones(m.skipped_tombstones()), m.entries())
            && stripes.is_in_oldest_stripe(m.last_seq())
    };
    let families: Vec<Arc<FamilyState>> = core.families.all().into_iter().filter(due).collect();
    if !families.is_empty() {
        // Optional: a failure loses nothing, and the writer that needs the next segment gets the
        // error.
        let _ = rotate::seal_memtables(core, &mut core.wal.appender(), &families);
    }
}

/// Converts the live readers to the snapshot stripes that rewrites use.
pub fn snapshot_stripes(readers: LiveSnapshots) -> SnapshotStripes {
    SnapshotStripes::new(readers.snapshots, readers.visible_seq).with_history_from(readers.horizon)
}

/// Describes the flush for the list of running jobs.
fn describe_job(core: &EngineCore, group: &[FlushTask]) -> RunningJob {
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
        started_us: core.env.clock.monotonic_us(),
        entries_done: AtomicU64::new(0),
        bytes_written: AtomicU64::new(0),
        input_memory_bytes: 0,
        output_memory_bytes: AtomicU64::new(0),
    }
}

/// Flushes all sealed memtables of a column family on the caller's thread. The caller holds
/// `flush_lock`, and the commit section if `held_appender` is set.
pub fn flush_sealed(
    core: &EngineCore,
    family: &Arc<FamilyState>,
    held_appender: &mut Option<&mut Appender>,
) -> Result<()> {
    while let Some(memtable) = family.tree.view().immutables.last().cloned() {
        let mut alone = [FlushTask::new(Arc::clone(family), memtable)];
        let done = flush_tasks(core, &mut alone, &NoPacing, held_appender);
        // If the memtable is not pending any more, the column family was cleared or dropped
        // meanwhile and nothing is left to flush.
        if alone[0].is_pending() || core.health.poisoned().is_some() {
            done?;
        }
    }
    Ok(())
}

/// Runs `act` in the commit section, which the caller may already hold (`held_appender`).
fn in_commit_section<T>(
    core: &EngineCore,
    held_appender: &mut Option<&mut Appender>,
    act: impl FnOnce(&mut Appender) -> T,
) -> T {
    match held_appender {
        Some(appender) => act(appender),
        None => act(&mut core.wal.appender()),
    }
}

/// Flushes memtables of different column families. Tables that were built before a failure are
/// installed nevertheless: a full disk may have space for a few tables, and for the log they
/// release.
fn flush_tasks(
    core: &EngineCore,
    group: &mut [FlushTask],
    pace: &(dyn RewritePacer + Sync),
    held_appender: &mut Option<&mut Appender>,
) -> Result<()> {
    let _span = events::enter_span("flush", group.first().map_or("", |m| &m.name));
    let built =
        task_group::build_all(core, group, 1, |m, deferred| build_task(core, m, pace, deferred));
    let installed = install_tasks(core, group, held_appender);
    for m in group.iter().filter(|m| !m.installed) {
        discard_outputs(core, &m.created);
    }
    built.and(installed)
}

/// Writes the tables of one memtable.
fn build_task(
    core: &EngineCore,
    m: &mut FlushTask,
    pace: &(dyn RewritePacer + Sync),
    deferred: &DeferredSync,
) -> Result<BuiltTables> {
    let since = core.env.clock.monotonic_us();
    let view = m.family.tree.view();
    let run = RunId(core.next_run_id.fetch_add(1, SeqCst));
    // Cutting at the table boundaries of the last level lets later compactions merge table by
    // table. Half of the memtable size, because tables are compressed.
    let everywhere = KeyBoundaryRef::First..KeyBoundaryRef::Last;
    let setting = rewrite_setting(core, &m.family, &view.version, pace, m.memtable.last_seq());
    let shape = TreeShape::from_version(&view.version);
    let cuts = boundaries(&shape, everywhere, Bytes(m.memtable.bytes() / 2), setting.target_bytes);
    let setting = RewriteContext { cuts, deferred_sync: Some(deferred), ..setting };
    let (edit, output) = flush(&m.memtable, run, setting, &mut m.created)?;
    Ok(BuiltTables {
        edit,
        output,
        elapsed_us: core.env.clock.monotonic_us().saturating_sub(since),
    })
}

/// Installs the built tables with one edit and drops the log that is obsolete then.
fn install_tasks(
    core: &EngineCore,
    group: &mut [FlushTask],
    held_appender: &mut Option<&mut Appender>,
) -> Result<()> {
    let built = || group.iter().filter_map(|m| Some((m, m.built.as_ref()?)));
    if built().next().is_none() {
        return Ok(());
    }
    core.sync_dir()?;
    // Column families must be consistent with each other after a power failure: what goes into
    // tables must first be durable in the log.
    if !bug::is_active(Bug::FlushBeforeLogSync) {
        core.wal.sync(&core.health)?;
    }
    let flushing: HashSet<*const Memtable> =
        built().map(|(m, _)| Arc::as_ptr(&m.memtable)).collect();
    let mut logs = in_commit_section(core, held_appender, |appender| {
        obsolete_logs::find_obsolete_logs(core, appender, &flushing)
    });
    if logs.needs_sync {
        core.wal.sync(&core.health)?;
    }
    if bug::is_active(Bug::RemoveLogEarly) {
        obsolete_logs::remove_segments(core, &logs.obsolete);
    }
    let change = |m: &mut FlushTask| {
        let edit = std::mem::take(&mut m.built.as_mut()?.edit);
        Some(VersionInstall {
            family: Arc::clone(&m.family),
            edit,
            flushed_memtable: Some(Arc::clone(&m.memtable)),
        })
    };
    let installed =
        install_versions(core, group.iter_mut().filter_map(change).collect(), &mut logs);
    core.flush_progress.store(0, Relaxed);
    let installed = installed?;
    in_commit_section(core, held_appender, |appender| appender.remove_segments(&logs.obsolete));
    obsolete_logs::remove_segments(core, &logs.deleted);
    obsolete_logs::trim_segments(core, &logs.retained);
    core.logical_clock.record_flush();
    for m in group.iter_mut().filter(|m| installed.contains(&m.family.id)) {
        m.installed = true;
        m.built.iter().for_each(|built| record_stats(core, m, built));
    }
    Ok(())
}

fn record_stats(core: &EngineCore, m: &FlushTask, built: &BuiltTables) {
    let (output, us) = (&built.output, built.elapsed_us);
    core.counters.flushes.add(1);
    core.counters.flush_bytes_written.add(output_bytes(output));
    core.report_event(&EngineEvent::Flushed {
        family: &m.name,
        entries: output.counts.read,
        files: output.tables.len(),
        bytes: output_bytes(output),
        us,
    });
    let bytes = Bytes(output_bytes(output));
    core.counters.io.record_writes(IoActivity::Flush, output.write_calls, bytes);
    core.counters.dropped_shadowed.add(output.counts.shadowed);
    core.counters.dropped_covered.add(output.counts.covered);
    core.counters.dropped_cancelled.add(output.counts.cancelled);
    core.counters.operands_merged.add(output.counts.merged);
    core.counters.operands_unmerged.add(output.counts.unmerged);
    core.counters.dropped_expired.add(output.counts.expired + output.counts.expired_to_tombstones);
}

/// Returns the context for a rewrite of `family` whose newest operation is `newest` (0: it changes
/// nothing that readers see). The live readers are listed now, after the inputs were fixed.
pub fn rewrite_setting<'a>(
    core: &'a EngineCore,
    family: &FamilyState,
    version: &'a Version,
    pace: &'a dyn RewritePacer,
    newest: SeqNo,
) -> RewriteContext<'a> {
    let readers = core.live_snapshots(Some(newest));
    let readers =
        if bug::is_active(Bug::IgnoreSnapshots) { readers.without_snapshots() } else { readers };
    RewriteContext {
        version,
        stripes: snapshot_stripes(readers),
        options: family.klog_options(core.database_id),
        separation_threshold: family.settings().value_threshold as usize,
        target_bytes: memory_budget::target_table_bytes(
            core.memory_budget.limit,
            family.settings().target_file_bytes,
        ),
        cuts: Vec::new(),
        verify_outputs: core.settings.verify_outputs,
        table_cache: &core.table_cache,
        next_file_id: &core.next_file_id,
        pacer: pace,
        now: &*core.logical_clock,
        merge_operator: family.tree.view().merge_operator.get().cloned(),
        filter: None,
        bottom_seq: None,
        deferred_sync: None,
    }
}

/// The change that a job makes to one column family.
#[derive(Debug)]
pub struct VersionInstall {
    /// The column family.
    pub family: Arc<FamilyState>,
    /// The tables added and removed.
    pub edit: VersionEdit,
    /// The memtable that the tables replace.
    pub flushed_memtable: Option<Arc<Memtable>>,
}

impl VersionInstall {
    /// Fails if the column family was dropped or cleared in the meantime.
    fn check_installable(&self) -> Result<()> {
        self.family.check_not_dropped()?;
        if self.flushed_memtable.as_ref().is_some_and(|m| !self.family.awaits_flush(m)) {
            return Err(Error::new(
                ErrorKind::NotFound,
                "the column family was cleared during the flush",
            ));
        }
        if self.flushed_memtable.is_none() && !self.edit.removed.is_empty() {
            // Compactions run one at a time: no other job removes their inputs.
            let live_files = self.family.tree.view().version.file_ids();
            if self.edit.removed.iter().any(|(_, id)| !live_files.contains(id)) {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    "the column family was cleared during the compaction",
                ));
            }
        }
        Ok(())
    }
}

/// The final steps of every job: appends and syncs the edit, installs the versions and retires
/// replaced files. Skips column families that were dropped or cleared meanwhile; returns the
/// others.
///
/// # Errors
/// On an error nothing was installed. Also fails if no column family is left.
pub fn install_versions(
    core: &EngineCore,
    mut changes: Vec<VersionInstall>,
    logs: &mut ObsoleteLogs,
) -> Result<HashSet<FamilyId>> {
    let mut installed = HashSet::new();
    core.manifest.commit_edit(
        &core.health,
        &core.next_file_id,
        |catalog| {
            let mut rejected = Ok(());
            changes.retain(|c| c.check_installable().map_err(|e| rejected = Err(e)).is_ok());
            if changes.is_empty() {
                rejected?;
            }
            let mut prepared = Vec::with_capacity(changes.len());
            let mut combined = ManifestEdit {
                next_ids: Some(NextIdsEdit {
                    run: Some(RunId(core.next_run_id.load(SeqCst))),
                    ..NextIdsEdit::default()
                }),
                logs_added: catalog.missing_log_starts(&logs.segment_starts),
                oldest_readable: Some(core.snapshots.oldest_readable())
                    .filter(|oldest| *oldest > catalog.oldest_readable),
                durable_seq: Some(core.wal.durable()),
                ..ManifestEdit::default()
            };
            obsolete_logs::retain_segments(
                logs,
                &catalog.retained,
                core.settings.log_retention,
                &mut combined,
            );
            for c in changes {
                let (family, mut edit) = (c.family, c.edit);
                let added = added_size(&edit);
                let mut version = family.tree.apply_edit(&edit, &core.table_opener())?;
                edit.vlogs_removed = version.drop_unreferenced_vlogs();
                combined.versions.push((family.id, edit));
                prepared.push((family, version, c.flushed_memtable, added));
            }
            Ok((combined, prepared))
        },
        |prepared| {
            for (family, version, flushed, (tables, bytes)) in prepared {
                let old = family.tree.view();
                if flushed.is_some() {
                    // Before the install: a thread that waits for the flush finds it counted.
                    family.counters.flush_tables.add(tables);
                    family.counters.flush_bytes.add(bytes);
                }
                family.tree.install_version(version, flushed.as_ref());
                core.obsolete_files.add_replaced(&old.version, &family.tree.view().version);
                installed.insert(family.id);
            }
        },
    )?;
    core.refresh_load();
    core.signal.notify();
    Ok(installed)
}

/// Returns the number of tables that an edit adds, and the bytes of all files that it adds.
fn added_size(edit: &VersionEdit) -> (u64, u64) {
    let tables: u64 = edit.added.iter().map(|t| t.meta.summary.bytes).sum();
    (edit.added.len() as u64, tables + edit.vlogs_added.iter().map(|v| v.bytes).sum::<u64>())
}

/// Removes the outputs of a job that failed before its edit was written. If the database is
/// poisoned, the edit may have been written, so nothing is removed.
pub fn discard_outputs(core: &EngineCore, created: &CreatedFiles) {
    if core.health.poisoned().is_some() {
        return;
    }
    for id in &created.0 {
        core.table_cache.evict(*id);
        for kind in [FileKind::Klog, FileKind::Vlog] {
            let _ = core.dir.remove(&filename::file_name(*id, kind));
        }
    }
}

/// Returns the total bytes of a job's outputs.
pub fn output_bytes(output: &RewriteOutput) -> u64 {
    output.tables.iter().map(|t| t.summary.bytes).sum::<u64>()
        + output.vlogs.iter().map(|v| v.bytes).sum::<u64>()
}
