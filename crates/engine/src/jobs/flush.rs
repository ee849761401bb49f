//! A sealed memtable becomes a run of level 0. Files, sync, log sync, edit, sync, install, delete.

use super::pace::JobPace;
use crate::control::{Job, Kind};
use crate::core::Core;
use crate::events::{self, Event};
use crate::family::Family;
use crate::manifest::Edit;
use crate::memory;
use crate::wal::Appender;
use perigee_base::bug::{self, Bug};
use perigee_base::cut::CutRef;
use perigee_base::format::FileKind;
use perigee_base::io::Cause;
use perigee_base::latency::Operation;
use perigee_base::{Error, ErrorKind, FileId, Result, RunId};
use perigee_file::name;
use perigee_tree::compact::Shape;
use perigee_tree::compact::pick::spooky::boundaries;
use perigee_tree::flush::flush;
use perigee_tree::mvcc::Strata;
use perigee_tree::rewrite::{Created, Pace, Setting, Unhindered};
use perigee_tree::{Memtable, Version, VersionEdit};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// Flushes the oldest sealed memtable there is; false if there is none. Called by one thread only, so that a family's
/// memtables are installed oldest first.
pub fn one(core: &Arc<Core>) -> Result<bool> {
    let _alone = core.flushing.lock();
    let sealed = |f: Arc<Family>| f.tree.view().sealed.last().map(|m| (m.first_seq(), Arc::clone(m), f));
    let oldest = core.families.all().into_iter().filter_map(sealed).min_by_key(|(seq, _, _)| *seq);
    let Some((_, memtable, family)) = oldest else { return Ok(false) };
    let Ok(running) = core.control.begin(&core.signal, job(core, &family, &memtable)) else {
        return Ok(false);
    };
    let mut created = Created::default();
    let pace = JobPace::new(core, &running);
    let started = core.start(Operation::Flush, 0);
    let done = flush_one(core, &family, &memtable, &pace, &mut created, &mut None);
    core.flushed.store(0, Relaxed);
    if done.is_ok() {
        core.stop(Operation::Flush, started);
    } else {
        discard(core, &created);
    }
    drop(running);
    if (family.is_dropped() || !waits(&family, &memtable)) && core.health.poisoned().is_none() {
        return Ok(true);
    }
    done.map(|()| true)
}

/// Whether the memtable still waits for its flush: it does not if the family was cleared.
fn waits(family: &Family, memtable: &Arc<Memtable>) -> bool {
    family.tree.view().sealed.iter().any(|m| Arc::ptr_eq(m, memtable))
}

/// The flush as it is listed while it runs.
fn job(core: &Core, family: &Family, memtable: &Memtable) -> Job {
    Job {
        kind: Kind::Flush,
        family: family.name().to_string(),
        reason: "sealed memtable",
        from: Vec::new(),
        to: 0,
        files: 0,
        bytes: memtable.bytes(),
        entries: memtable.entries(),
        started_us: core.env.clock.monotonic_us(),
        entries_done: AtomicU64::new(0),
        written: AtomicU64::new(0),
        inputs_held: 0,
        held: AtomicU64::new(0),
    }
}

/// Flushes every sealed memtable of a family, on the thread of a caller that holds `flushing`, and perhaps (`held`) the commit
/// section.
pub fn drain(core: &Core, family: &Arc<Family>, held: &mut Option<&mut Appender>) -> Result<()> {
    while let Some(memtable) = family.tree.view().sealed.last().cloned() {
        let mut created = Created::default();
        let done = flush_one(core, family, &memtable, &Unhindered, &mut created, held);
        if let Err(e) = done {
            discard(core, &created);
            // The family was cleared or dropped meanwhile: nothing is left to flush.
            if waits(family, &memtable) || core.health.poisoned().is_some() {
                return Err(e);
            }
        }
    }
    Ok(())
}

/// Does something in the commit section, which may be held already.
fn in_section<T>(core: &Core, held: &mut Option<&mut Appender>, act: impl FnOnce(&mut Appender) -> T) -> T {
    match held {
        Some(appender) => act(appender),
        None => act(&mut core.wal.appender()),
    }
}

fn flush_one(
    core: &Core,
    family: &Arc<Family>,
    memtable: &Arc<Memtable>,
    pace: &dyn Pace,
    created: &mut Created,
    held: &mut Option<&mut Appender>,
) -> Result<()> {
    let _span = events::span("flush", &family.name());
    let since = core.env.clock.monotonic_us();
    let view = family.tree.view();
    let run = RunId(core.runs.fetch_add(1, SeqCst));
    // Cut at the last level's boundaries, it can be merged piece by piece. (Half of it: tables are compressed.)
    let everywhere = (CutRef::First, CutRef::Last);
    let setting = setting(core, family, &view.version, pace);
    let shape = Shape::of(&view.version);
    let cuts = boundaries(&shape, everywhere, memtable.bytes() / 2, setting.target_bytes);
    let setting = Setting { cuts, ..setting };
    let (edit, output) = flush(memtable, run, setting, created)?;
    core.sync_dir()?;
    // Families must not disagree after a power cut: what goes into tables is durable in the log first.
    if !bug::on(Bug::FlushBeforeLogSync) {
        core.wal.sync(&core.health)?;
    }
    let removable = in_section(core, held, |appender| removable_logs(core, appender, memtable));
    if bug::on(Bug::RemoveLogEarly) {
        remove_logs(core, &removable);
    }
    let installed = install(core, family, edit, &removable, Some(memtable));
    core.flushed.store(0, Relaxed);
    installed?;
    in_section(core, held, |appender| appender.forget(&removable));
    remove_logs(core, &removable);
    core.now.flushed();
    core.counters.flushes.add(1);
    core.counters.flush_bytes_written.add(bytes(&output));
    core.tell(&Event::Flushed {
        family: &family.name(),
        entries: output.counts.read,
        files: output.tables.len(),
        bytes: bytes(&output),
        us: core.env.clock.monotonic_us().saturating_sub(since),
    });
    core.counters.io.wrote(Cause::Flush, output.write_calls, bytes(&output));
    core.counters.dropped_shadowed.add(output.counts.shadowed);
    core.counters.dropped_covered.add(output.counts.covered);
    core.counters.dropped_cancelled.add(output.counts.cancelled);
    core.counters.dropped_expired.add(output.counts.expired + output.counts.buried);
    Ok(())
}

/// What a rewrite of `family` needs to know. The readers are listed now, after the inputs were fixed.
pub fn setting<'a>(core: &'a Core, family: &Family, version: &'a Version, pace: &'a dyn Pace) -> Setting<'a> {
    let (snapshots, present) = core.snapshots.strata(&core.visible);
    let snapshots = if bug::on(Bug::IgnoreSnapshots) { Vec::new() } else { snapshots };
    Setting {
        version,
        strata: Strata::new(snapshots, present),
        options: family.klog_options(core.database),
        threshold: family.settings().value_threshold as usize,
        target_bytes: memory::table_bytes(core.memory.budget, family.settings().target_file_bytes),
        cuts: Vec::new(),
        verify: core.settings.verify_outputs,
        shelf: &core.shelf,
        ids: &core.ids,
        pace,
        now: &*core.now,
        filter: None,
    }
}

/// The segments that nobody needs once `flushing` is in tables. In the commit section, so that no operation is between
/// log and memtable.
fn removable_logs(core: &Core, appender: &Appender, flushing: &Arc<Memtable>) -> Vec<FileId> {
    let mut floor = appender.next_lsn;
    for f in core.families.all() {
        for m in f.tree.view().memtables() {
            if !Arc::ptr_eq(m, flushing) && !m.is_empty() {
                floor = floor.min(m.first_seq().0);
            }
        }
    }
    appender.below(floor)
}

fn remove_logs(core: &Core, ids: &[FileId]) {
    for id in ids {
        // What cannot be removed now is an orphan of the next open.
        let _ = core.dir.remove(&name::file_name(*id, FileKind::Wal));
    }
}

/// The end of every job: edit appended and synced, version installed, files retired.
pub fn install(
    core: &Core,
    family: &Arc<Family>,
    mut edit: VersionEdit,
    logs: &[FileId],
    flushed: Option<&Arc<Memtable>>,
) -> Result<()> {
    let old = family.tree.view().version.clone();
    core.manifest.commit(
        &core.health,
        &core.ids,
        |_| {
            family.check()?;
            if flushed.is_some_and(|m| !waits(family, m)) {
                return Err(Error::new(ErrorKind::NotFound, "the family was cleared while it was flushed"));
            }
            let mut version = family.tree.prepare(&edit, &core.opener())?;
            edit.vlogs_removed = version.drop_unreferenced_vlogs();
            let whole = Edit {
                next: Some((0, 0, core.runs.load(SeqCst))),
                versions: vec![(family.id, edit)],
                logs_removed: logs.to_vec(),
                durable: Some(core.wal.durable()),
                ..Edit::default()
            };
            Ok((whole, version))
        },
        |version| family.tree.install(version, flushed),
    )?;
    core.retire.difference(&old, &family.tree.view().version);
    core.refresh_load();
    core.signal.ring();
    Ok(())
}

/// Removes the outputs of a job that failed before its edit was written. If the database is poisoned, the edit may have
/// been: then nothing is removed.
pub fn discard(core: &Core, created: &Created) {
    if core.health.poisoned().is_some() {
        return;
    }
    for id in &created.0 {
        core.shelf.forget(*id);
        for kind in [FileKind::Klog, FileKind::Vlog] {
            let _ = core.dir.remove(&name::file_name(*id, kind));
        }
    }
}

/// Bytes of a job's outputs.
pub fn bytes(output: &perigee_tree::rewrite::Output) -> u64 {
    output.tables.iter().map(|t| t.summary.bytes).sum::<u64>()
        + output.vlogs.iter().map(|v| v.bytes).sum::<u64>()
}
