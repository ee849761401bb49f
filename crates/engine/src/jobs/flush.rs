//! Sealed memtables become runs of level 0: a large one alone, small ones of many families
//! together, by one edit. Files, sync, log sync, edit, sync, install, delete.

use super::obsolete_logs::{self, ObsoleteLogs};
use super::pace::JobPace;
use super::task_group::{self, BuiltTables, FlushTask};
use crate::commit::{rotate, segment};
use crate::core::EngineCore;
use crate::events::{self, EngineEvent};
use crate::family::FamilyState;
use crate::job_control::{JobKind, RunningJob};
use crate::manifest::ManifestEdit;
use crate::memory_budget;
use crate::snapshot::LiveSnapshots;
use crate::wal::Appender;
use perigee_base::bug::{self, Bug};
use perigee_base::file_header::FileKind;
use perigee_base::io_stats::IoActivity;
use perigee_base::key_boundary::KeyBoundaryRef;
use perigee_base::latency::Operation;
use perigee_base::{Error, ErrorKind, FamilyId, Result, RunId, SeqNo};
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

/// Flushes the oldest sealed memtable there is, and small ones with it; false if there is none.
/// Called by one thread only, so that a family's memtables are installed oldest first.
pub fn flush_oldest(core: &Arc<EngineCore>) -> Result<bool> {
    match flush_once(core) {
        // The log's own space ahead is the first to go.
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

/// Drops log that nobody needs, and that no flush will drop: a commit has asked for it.
fn drop_obsolete_log(core: &Arc<EngineCore>) -> Result<bool> {
    if !core.wal.is_drop_requested() {
        return Ok(false);
    }
    let job = RunningJob { reason: "log that nobody needs", ..describe_job(core, &[]) };
    let Ok(_running) = core.job_control.start_job(&core.signal, job) else {
        return Ok(false);
    };
    core.wal.set_drop_requested(false);
    // Tried again until it is done: who waits for an idle database waits for this, too.
    install_log_drop(core).inspect_err(|_| core.wal.set_drop_requested(true))?;
    Ok(true)
}

/// The end of a flush that has flushed nothing.
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

/// Seals the memtables whose tombstones scans have passed so often that a flush, and the merge that
/// follows, is worth it.
fn seal_tombstone_heavy(core: &EngineCore) {
    if !core.skipped_tombstones.take_memtable_check()
        || core.job_control.check_allowed(JobKind::Flush).is_err()
    {
        return;
    }
    let strata = snapshot_stripes(core.live_snapshots(None));
    let due = |f: &Arc<FamilyState>| {
        let m = f.tree.active();
        is_rewrite_worthwhile(m.skipped_tombstones(), m.entries())
            && strata.is_in_oldest_stripe(m.last_seq())
    };
    let families: Vec<Arc<FamilyState>> = core.families.all().into_iter().filter(due).collect();
    if !families.is_empty() {
        // It was not needed: if it fails, nothing is lost, and whoever needs the next segment will
        // hear why.
        let _ = rotate::seal_memtables(core, &mut core.wal.appender(), &families);
    }
}

/// The readers as rewrites see them.
pub fn snapshot_stripes(readers: LiveSnapshots) -> SnapshotStripes {
    SnapshotStripes::new(readers.snapshots, readers.visible_seq).with_history_from(readers.horizon)
}

/// The flush as it is listed while it runs.
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
        reason: "sealed memtable",
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

/// Flushes every sealed memtable of a family, on the thread of a caller that holds `flushing`, and
/// perhaps (`held`) the commit section.
pub fn flush_sealed(
    core: &EngineCore,
    family: &Arc<FamilyState>,
    held: &mut Option<&mut Appender>,
) -> Result<()> {
    while let Some(memtable) = family.tree.view().immutables.last().cloned() {
        let mut alone = [FlushTask::new(Arc::clone(family), memtable)];
        let done = flush_tasks(core, &mut alone, &NoPacing, held);
        // If it waits no more, the family was cleared or dropped meanwhile: nothing is left to
        // flush.
        if alone[0].is_pending() || core.health.poisoned().is_some() {
            done?;
        }
    }
    Ok(())
}

/// Does something in the commit section, which may be held already.
fn in_commit_section<T>(
    core: &EngineCore,
    held: &mut Option<&mut Appender>,
    act: impl FnOnce(&mut Appender) -> T,
) -> T {
    match held {
        Some(appender) => act(appender),
        None => act(&mut core.wal.appender()),
    }
}

/// Flushes memtables of different families. What was made before something failed is installed all
/// the same: a full disk may have room for a few tables, and the log that they free.
fn flush_tasks(
    core: &EngineCore,
    group: &mut [FlushTask],
    pace: &(dyn RewritePacer + Sync),
    held: &mut Option<&mut Appender>,
) -> Result<()> {
    let _span = events::enter_span("flush", group.first().map_or("", |m| &m.name));
    let built = task_group::build_all(core, group, 1, |m, later| build_task(core, m, pace, later));
    let installed = install_tasks(core, group, held);
    for m in group.iter().filter(|m| !m.installed) {
        discard_outputs(core, &m.created);
    }
    built.and(installed)
}

/// Writes the tables of a memtable.
fn build_task(
    core: &EngineCore,
    m: &mut FlushTask,
    pace: &(dyn RewritePacer + Sync),
    later: &DeferredSync,
) -> Result<BuiltTables> {
    let since = core.env.clock.monotonic_us();
    let view = m.family.tree.view();
    let run = RunId(core.next_run_id.fetch_add(1, SeqCst));
    // Cut at the last level's boundaries, it can be merged piece by piece. (Half of it: tables are
    // compressed.)
    let everywhere = (KeyBoundaryRef::First, KeyBoundaryRef::Last);
    let setting = rewrite_setting(core, &m.family, &view.version, pace, m.memtable.last_seq());
    let shape = TreeShape::from_version(&view.version);
    let cuts = boundaries(&shape, everywhere, m.memtable.bytes() / 2, setting.target_bytes);
    let setting = RewriteContext { cuts, deferred_sync: Some(later), ..setting };
    let (edit, output) = flush(&m.memtable, run, setting, &mut m.created)?;
    Ok(BuiltTables {
        edit,
        output,
        elapsed_us: core.env.clock.monotonic_us().saturating_sub(since),
    })
}

/// Installs what was made, by one edit, and drops the log that nobody needs any more.
fn install_tasks(
    core: &EngineCore,
    group: &mut [FlushTask],
    held: &mut Option<&mut Appender>,
) -> Result<()> {
    let made = || group.iter().filter_map(|m| Some((m, m.built.as_ref()?)));
    if made().next().is_none() {
        return Ok(());
    }
    core.sync_dir()?;
    // Families must not disagree after a power cut: what goes into tables is durable in the log
    // first.
    if !bug::is_active(Bug::FlushBeforeLogSync) {
        core.wal.sync(&core.health)?;
    }
    let flushing: HashSet<*const Memtable> =
        made().map(|(m, _)| Arc::as_ptr(&m.memtable)).collect();
    let mut logs = in_commit_section(core, held, |appender| {
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
    in_commit_section(core, held, |appender| appender.remove_segments(&logs.obsolete));
    obsolete_logs::remove_segments(core, &logs.deleted);
    obsolete_logs::trim_segments(core, &logs.retained);
    core.logical_clock.record_flush();
    for m in group.iter_mut().filter(|m| installed.contains(&m.family.id)) {
        m.installed = true;
        m.built.iter().for_each(|made| record_stats(core, m, made));
    }
    Ok(())
}

fn record_stats(core: &EngineCore, m: &FlushTask, made: &BuiltTables) {
    let (output, us) = (&made.output, made.elapsed_us);
    core.counters.flushes.add(1);
    core.counters.flush_bytes_written.add(output_bytes(output));
    core.report_event(&EngineEvent::Flushed {
        family: &m.name,
        entries: output.counts.read,
        files: output.tables.len(),
        bytes: output_bytes(output),
        us,
    });
    core.counters.io.record_writes(IoActivity::Flush, output.write_calls, output_bytes(output));
    core.counters.dropped_shadowed.add(output.counts.shadowed);
    core.counters.dropped_covered.add(output.counts.covered);
    core.counters.dropped_cancelled.add(output.counts.cancelled);
    core.counters.operands_merged.add(output.counts.merged);
    core.counters.operands_unmerged.add(output.counts.unmerged);
    core.counters.dropped_expired.add(output.counts.expired + output.counts.expired_to_tombstones);
}

/// What a rewrite of `family` needs to know, whose newest operation is `newest` (0: readers see
/// nothing of it). The readers are listed now, after the inputs were fixed.
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

/// What a job does to one family.
#[derive(Debug)]
pub struct VersionInstall {
    /// The family.
    pub family: Arc<FamilyState>,
    /// Its tables.
    pub edit: VersionEdit,
    /// The memtable that they replace.
    pub flushed_memtable: Option<Arc<Memtable>>,
}

impl VersionInstall {
    /// Whether it still has somebody to change.
    fn check_installable(&self) -> Result<()> {
        self.family.check_not_dropped()?;
        if self.flushed_memtable.as_ref().is_some_and(|m| !self.family.awaits_flush(m)) {
            return Err(Error::new(
                ErrorKind::NotFound,
                "the family was cleared while it was flushed",
            ));
        }
        if self.flushed_memtable.is_none() && !self.edit.removed.is_empty() {
            // Compactions run one at a time: nobody else takes their tables.
            let there = self.family.tree.view().version.file_ids();
            if self.edit.removed.iter().any(|(_, id)| !there.contains(id)) {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    "the family was cleared while it was compacted",
                ));
            }
        }
        Ok(())
    }
}

/// The end of every job: edit appended and synced, versions installed, files retired. Families that
/// were dropped or cleared meanwhile are left out; returns the others.
///
/// # Errors
/// Nothing was installed; also if no family is left.
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
            let mut refused = Ok(());
            changes.retain(|c| c.check_installable().map_err(|e| refused = Err(e)).is_ok());
            if changes.is_empty() {
                refused?;
            }
            let mut prepared = Vec::with_capacity(changes.len());
            let mut whole = ManifestEdit {
                next_ids: Some((0, 0, core.next_run_id.load(SeqCst))),
                logs_added: catalog.missing_log_starts(&logs.segment_starts),
                oldest_readable: Some(core.snapshots.oldest_readable())
                    .filter(|floor| *floor > catalog.oldest_readable),
                durable_seq: Some(core.wal.durable()),
                ..ManifestEdit::default()
            };
            obsolete_logs::retain_segments(
                logs,
                &catalog.retained,
                core.settings.log_retention,
                &mut whole,
            );
            for c in changes {
                let (family, mut edit) = (c.family, c.edit);
                let made = added_size(&edit);
                let mut version = family.tree.apply_edit(&edit, &core.table_opener())?;
                edit.vlogs_removed = version.drop_unreferenced_vlogs();
                whole.versions.push((family.id, edit));
                prepared.push((family, version, c.flushed_memtable, made));
            }
            Ok((whole, prepared))
        },
        |prepared| {
            for (family, version, flushed, (tables, bytes)) in prepared {
                let old = family.tree.view();
                if flushed.is_some() {
                    // Before: who waits for the flush finds it counted.
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

/// Tables that an edit adds, and bytes of all that it adds.
fn added_size(edit: &VersionEdit) -> (u64, u64) {
    let tables: u64 = edit.added.iter().map(|t| t.meta.summary.bytes).sum();
    (edit.added.len() as u64, tables + edit.vlogs_added.iter().map(|v| v.bytes).sum::<u64>())
}

/// Removes the outputs of a job that failed before its edit was written. If the database is
/// poisoned, the edit may have been: then nothing is removed.
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

/// Bytes of a job's outputs.
pub fn output_bytes(output: &RewriteOutput) -> u64 {
    output.tables.iter().map(|t| t.summary.bytes).sum::<u64>()
        + output.vlogs.iter().map(|v| v.bytes).sum::<u64>()
}
