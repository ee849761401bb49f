//! Sealed memtables become runs of level 0: a large one alone, small ones of many families together, by one edit. Files, sync,
//! log sync, edit, sync, install, delete.

use super::group::{self, Made, Member};
use super::logs::{self, Logs};
use super::pace::JobPace;
use crate::commit::{rotate, segment};
use crate::control::{Job, Kind};
use crate::core::Core;
use crate::events::{self, Event};
use crate::family::Family;
use crate::manifest::Edit;
use crate::memory;
use crate::snapshot::Readers;
use crate::wal::Appender;
use perigee_base::bug::{self, Bug};
use perigee_base::cut::CutRef;
use perigee_base::format::FileKind;
use perigee_base::io::Cause;
use perigee_base::latency::Operation;
use perigee_base::{Error, ErrorKind, FamilyId, Result, RunId, SeqNo};
use perigee_file::name;
use perigee_tree::compact::Shape;
use perigee_tree::compact::pick::passed::is_paid;
use perigee_tree::compact::pick::spooky::boundaries;
use perigee_tree::flush::flush;
use perigee_tree::mvcc::Strata;
use perigee_tree::rewrite::{Created, Later, Output, Pace, Setting, Unhindered};
use perigee_tree::{Memtable, Version, VersionEdit};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// Flushes the oldest sealed memtable there is, and small ones with it; false if there is none. Called by one thread only,
/// so that a family's memtables are installed oldest first.
pub fn one(core: &Arc<Core>) -> Result<bool> {
    match once(core) {
        // The log's own space ahead is the first to go.
        Err(e) if e.kind() == ErrorKind::NoSpace && segment::give_back(core) => once(core),
        done => done,
    }
}

fn once(core: &Arc<Core>) -> Result<bool> {
    let _alone = core.flushing.lock();
    seal_passed(core);
    let mut group = group::oldest(core);
    if group.is_empty() {
        return drop_log(core);
    }
    let Ok(running) = core.control.begin(&core.signal, job(core, &group)) else {
        return Ok(false);
    };
    let pace = JobPace::new(core, &running);
    core.tell(&running.job.begun());
    let started = core.start(Operation::Flush, 0);
    let done = flush_group(core, &mut group, &pace, &mut None);
    core.flushed.store(0, Relaxed);
    if done.is_ok() {
        core.stop(Operation::Flush, started);
    }
    drop(pace);
    drop(running);
    if !group.iter().any(Member::waits) && core.health.poisoned().is_none() {
        return Ok(true);
    }
    done.map(|()| true)
}

/// Drops log that nobody needs, and that no flush will drop: a commit has asked for it.
fn drop_log(core: &Arc<Core>) -> Result<bool> {
    if !core.wal.is_drop_due() {
        return Ok(false);
    }
    let job = Job { reason: "log that nobody needs", ..job(core, &[]) };
    let Ok(_running) = core.control.begin(&core.signal, job) else {
        return Ok(false);
    };
    core.wal.set_drop_due(false);
    // Tried again until it is done: who waits for an idle database waits for this, too.
    install_without_tables(core).inspect_err(|_| core.wal.set_drop_due(true))?;
    Ok(true)
}

/// The end of a flush that has flushed nothing.
fn install_without_tables(core: &Core) -> Result<()> {
    core.wal.sync(&core.health)?;
    let mut logs = logs::removable(core, &mut core.wal.appender(), &HashSet::new());
    if logs.carried {
        core.wal.sync(&core.health)?;
    }
    if logs.removable.is_empty() {
        return Ok(());
    }
    install(core, Vec::new(), &mut logs)?;
    core.wal.appender().forget(&logs.removable);
    logs::remove(core, &logs.gone);
    logs::trim(core, &logs.kept);
    Ok(())
}

/// Seals the memtables whose tombstones scans have passed so often that a flush, and the merge that follows, is worth it.
fn seal_passed(core: &Core) {
    if !core.passed.look_at_memtables() || core.control.check(Kind::Flush).is_err() {
        return;
    }
    let strata = strata(core.readers(None));
    let due = |f: &Arc<Family>| {
        let m = f.tree.active();
        is_paid(m.passed(), m.entries()) && strata.oldest(m.last_seq())
    };
    let families: Vec<Arc<Family>> = core.families.all().into_iter().filter(due).collect();
    if !families.is_empty() {
        // It was not needed: if it fails, nothing is lost, and whoever needs the next segment will hear why.
        let _ = rotate::seal(core, &mut core.wal.appender(), &families);
    }
}

/// The readers as rewrites see them.
pub fn strata(readers: Readers) -> Strata {
    Strata::new(readers.snapshots, readers.present).keeping(readers.horizon)
}

/// The flush as it is listed while it runs.
fn job(core: &Core, group: &[Member]) -> Job {
    let first = group.first().map_or(String::new(), |m| m.family.name().to_string());
    Job {
        kind: Kind::Flush,
        family: if group.len() > 1 { format!("{first} and {} more", group.len() - 1) } else { first },
        families: group.iter().map(|m| m.family.id).collect(),
        reason: "sealed memtable",
        from: Vec::new(),
        to: 0,
        files: 0,
        bytes: group.iter().map(|m| m.memtable.bytes()).sum(),
        entries: group.iter().map(|m| m.memtable.entries()).sum(),
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
        let mut alone = [Member::new(Arc::clone(family), memtable)];
        let done = flush_group(core, &mut alone, &Unhindered, held);
        // If it waits no more, the family was cleared or dropped meanwhile: nothing is left to flush.
        if alone[0].waits() || core.health.poisoned().is_some() {
            done?;
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

/// Flushes memtables of different families. What was made before something failed is installed all the same: a full disk may
/// have room for a few tables, and the log that they free.
fn flush_group(
    core: &Core,
    group: &mut [Member],
    pace: &(dyn Pace + Sync),
    held: &mut Option<&mut Appender>,
) -> Result<()> {
    let _span = events::span("flush", group.first().map_or("", |m| &m.name));
    let built = group::build(core, group, 1, |m, later| build(core, m, pace, later));
    let installed = install_group(core, group, held);
    for m in group.iter().filter(|m| !m.installed) {
        discard(core, &m.created);
    }
    built.and(installed)
}

/// Writes the tables of a memtable.
fn build(core: &Core, m: &mut Member, pace: &(dyn Pace + Sync), later: &Later) -> Result<Made> {
    let since = core.env.clock.monotonic_us();
    let view = m.family.tree.view();
    let run = RunId(core.runs.fetch_add(1, SeqCst));
    // Cut at the last level's boundaries, it can be merged piece by piece. (Half of it: tables are compressed.)
    let everywhere = (CutRef::First, CutRef::Last);
    let setting = setting(core, &m.family, &view.version, pace, m.memtable.last_seq());
    let shape = Shape::of(&view.version);
    let cuts = boundaries(&shape, everywhere, m.memtable.bytes() / 2, setting.target_bytes);
    let setting = Setting { cuts, later: Some(later), ..setting };
    let (edit, output) = flush(&m.memtable, run, setting, &mut m.created)?;
    Ok(Made { edit, output, us: core.env.clock.monotonic_us().saturating_sub(since) })
}

/// Installs what was made, by one edit, and drops the log that nobody needs any more.
fn install_group(core: &Core, group: &mut [Member], held: &mut Option<&mut Appender>) -> Result<()> {
    let made = || group.iter().filter_map(|m| Some((m, m.made.as_ref()?)));
    if made().next().is_none() {
        return Ok(());
    }
    core.sync_dir()?;
    // Families must not disagree after a power cut: what goes into tables is durable in the log first.
    if !bug::on(Bug::FlushBeforeLogSync) {
        core.wal.sync(&core.health)?;
    }
    let flushing: HashSet<*const Memtable> = made().map(|(m, _)| Arc::as_ptr(&m.memtable)).collect();
    let mut logs = in_section(core, held, |appender| logs::removable(core, appender, &flushing));
    if logs.carried {
        core.wal.sync(&core.health)?;
    }
    if bug::on(Bug::RemoveLogEarly) {
        logs::remove(core, &logs.removable);
    }
    let change = |m: &mut Member| {
        let edit = std::mem::take(&mut m.made.as_mut()?.edit);
        Some(Change { family: Arc::clone(&m.family), edit, flushed: Some(Arc::clone(&m.memtable)) })
    };
    let installed = install(core, group.iter_mut().filter_map(change).collect(), &mut logs);
    core.flushed.store(0, Relaxed);
    let installed = installed?;
    in_section(core, held, |appender| appender.forget(&logs.removable));
    logs::remove(core, &logs.gone);
    logs::trim(core, &logs.kept);
    core.now.flushed();
    for m in group.iter_mut().filter(|m| installed.contains(&m.family.id)) {
        m.installed = true;
        m.made.iter().for_each(|made| count(core, m, made));
    }
    Ok(())
}

fn count(core: &Core, m: &Member, made: &Made) {
    let (output, us) = (&made.output, made.us);
    core.counters.flushes.add(1);
    core.counters.flush_bytes_written.add(bytes(output));
    core.tell(&Event::Flushed {
        family: &m.name,
        entries: output.counts.read,
        files: output.tables.len(),
        bytes: bytes(output),
        us,
    });
    core.counters.io.wrote(Cause::Flush, output.write_calls, bytes(output));
    core.counters.dropped_shadowed.add(output.counts.shadowed);
    core.counters.dropped_covered.add(output.counts.covered);
    core.counters.dropped_cancelled.add(output.counts.cancelled);
    core.counters.operands_merged.add(output.counts.merged);
    core.counters.operands_unmerged.add(output.counts.unmerged);
    core.counters.dropped_expired.add(output.counts.expired + output.counts.buried);
}

/// What a rewrite of `family` needs to know, whose newest operation is `newest` (0: readers see nothing of it). The readers are
/// listed now, after the inputs were fixed.
pub fn setting<'a>(
    core: &'a Core,
    family: &Family,
    version: &'a Version,
    pace: &'a dyn Pace,
    newest: SeqNo,
) -> Setting<'a> {
    let readers = core.readers(Some(newest));
    let readers = if bug::on(Bug::IgnoreSnapshots) { readers.forgotten() } else { readers };
    Setting {
        version,
        strata: strata(readers),
        options: family.klog_options(core.database),
        threshold: family.settings().value_threshold as usize,
        target_bytes: memory::table_bytes(core.memory.budget, family.settings().target_file_bytes),
        cuts: Vec::new(),
        verify: core.settings.verify_outputs,
        shelf: &core.shelf,
        ids: &core.ids,
        pace,
        now: &*core.now,
        merger: family.tree.view().merger.get().cloned(),
        filter: None,
        settle: None,
        later: None,
    }
}

/// What a job does to one family.
#[derive(Debug)]
pub struct Change {
    /// The family.
    pub family: Arc<Family>,
    /// Its tables.
    pub edit: VersionEdit,
    /// The memtable that they replace.
    pub flushed: Option<Arc<Memtable>>,
}

impl Change {
    /// Whether it still has somebody to change.
    fn check(&self) -> Result<()> {
        self.family.check()?;
        if self.flushed.as_ref().is_some_and(|m| !self.family.awaits_flush(m)) {
            return Err(Error::new(ErrorKind::NotFound, "the family was cleared while it was flushed"));
        }
        if self.flushed.is_none() && !self.edit.removed.is_empty() {
            // Compactions run one at a time: nobody else takes their tables.
            let there = self.family.tree.view().version.files();
            if self.edit.removed.iter().any(|(_, id)| !there.contains(id)) {
                return Err(Error::new(ErrorKind::NotFound, "the family was cleared while it was compacted"));
            }
        }
        Ok(())
    }
}

/// The end of every job: edit appended and synced, versions installed, files retired. Families that were dropped or cleared
/// meanwhile are left out; returns the others.
///
/// # Errors
/// Nothing was installed; also if no family is left.
pub fn install(core: &Core, mut changes: Vec<Change>, logs: &mut Logs) -> Result<HashSet<FamilyId>> {
    let mut installed = HashSet::new();
    core.manifest.commit(
        &core.health,
        &core.ids,
        |catalog| {
            let mut refused = Ok(());
            changes.retain(|c| c.check().map_err(|e| refused = Err(e)).is_ok());
            if changes.is_empty() {
                refused?;
            }
            let mut prepared = Vec::with_capacity(changes.len());
            let mut whole = Edit {
                next: Some((0, 0, core.runs.load(SeqCst))),
                logs_added: catalog.logs_begun(&logs.known),
                floor: Some(core.snapshots.floor()).filter(|floor| *floor > catalog.floor),
                durable: Some(core.wal.durable()),
                ..Edit::default()
            };
            logs::retain(logs, &catalog.retained, core.settings.log_retention, &mut whole);
            for c in changes {
                let (family, mut edit) = (c.family, c.edit);
                let made = made(&edit);
                let mut version = family.tree.prepare(&edit, &core.opener())?;
                edit.vlogs_removed = version.drop_unreferenced_vlogs();
                whole.versions.push((family.id, edit));
                prepared.push((family, version, c.flushed, made));
            }
            Ok((whole, prepared))
        },
        |prepared| {
            for (family, version, flushed, (tables, bytes)) in prepared {
                let old = family.tree.view();
                if flushed.is_some() {
                    // Before: who waits for the flush finds it counted.
                    family.figures.flush_tables.add(tables);
                    family.figures.flush_bytes.add(bytes);
                }
                family.tree.install(version, flushed.as_ref());
                core.retire.difference(&old.version, &family.tree.view().version);
                installed.insert(family.id);
            }
        },
    )?;
    core.refresh_load();
    core.signal.ring();
    Ok(installed)
}

/// Tables that an edit adds, and bytes of all that it adds.
fn made(edit: &VersionEdit) -> (u64, u64) {
    let tables: u64 = edit.added.iter().map(|t| t.meta.summary.bytes).sum();
    (edit.added.len() as u64, tables + edit.vlogs_added.iter().map(|v| v.bytes).sum::<u64>())
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
pub fn bytes(output: &Output) -> u64 {
    output.tables.iter().map(|t| t.summary.bytes).sum::<u64>()
        + output.vlogs.iter().map(|v| v.bytes).sum::<u64>()
}
