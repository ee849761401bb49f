//! Installs loaded tables: all of them, of all families, by one edit, under one sequence number.
//!
//! Why it is right beside writers, readers, flushes and compactions:
//! 1. *One number.* The load's number G is taken in the commit section, which is held until the load is visible: every write
//!    acknowledged before has a smaller number, every later one a larger.
//! 2. *Nothing older lies above it.* Reads ask memtables first, so no memtable may hold a key of the load when it is
//!    installed. Those that do are flushed first; what writers add meanwhile is flushed with the section held. Tables go above
//!    every table that shares keys with them (`bulk::level`). Levels do not change under us: `compacting` and `flushing` are
//!    held, so that no job is between its inputs and its edit.
//! 3. *Nobody sees half of it.* Until the watermark reaches G no reader has a number that shows it. A reader whose view
//!    is older than the load may get a number of G or more; it must then not see writes behind G either. So the
//!    active memtables are replaced: later writes are not in that view. Such a reader answers as of just before the load.
//! 4. *All or nothing after a crash.* Files and their names are durable, and the log is durable up to G, before the edit is
//!    written. Without the edit the files are orphans, and G is a number that nothing has.
//! 5. *Snapshots* have numbers below G or were taken after the watermark moved.
//! 6. *One event, one number.* The entries of all families have number G; the events that tell of them have G, G + 1, ..., one for
//!    each family. The watermark moves past all of them at once.
//!
//! A transaction larger than memory goes the same way. Its tables hold tombstones too: they hide what lies beneath them, and by 2
//! everything older does. Its range tombstones have number G - 1, which nobody reads at; what they hid of the transaction's own
//! writes was dropped when the tables were made. Whether it may commit is asked before anything is locked, once more when
//! the memtables have been flushed, and for the rest in the commit section, before its number is taken.

use crate::commit::{number, publish_up_to, rotate};
use crate::control::{Job, Kind};
use crate::core::Core;
use crate::family::Family;
use crate::footprint::Target;
use crate::hooks::{Due, Event, this_thread};
use crate::jobs::flush;
use crate::manifest::{Befell, Edit, FamilyEvent};
use crate::txn::validate::{self, Conditions, Spilled};
use crate::wal::Appender;
use perigee_base::bug::{self, Bug};
use perigee_base::cut::CutRef;
use perigee_base::{LevelNo, Result, RunId, SeqNo};
use perigee_tree::bulk::target;
use perigee_tree::compact::Shape;
use perigee_tree::version::{AddedTable, Opener};
use perigee_tree::{Table, TableMeta, VersionEdit, View, Vlog, VlogMeta};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// What one family gets: tables in key order whose entries are stored under number 0, and their value logs.
#[derive(Clone, Debug)]
pub struct Part {
    /// The family.
    pub family: Arc<Family>,
    /// Tables.
    pub tables: Vec<TableMeta>,
    /// Value logs.
    pub vlogs: Vec<VlogMeta>,
    /// Those of them that are open, and must not be opened once more.
    pub open: Vec<Arc<Vlog>>,
}

impl Part {
    fn has_ranges(&self) -> bool {
        self.tables.iter().any(|t| t.summary.ranges.is_some())
    }
    fn entries(&self) -> u64 {
        self.tables.iter().map(|t| t.summary.entries).sum()
    }
    /// Bytes of the keys and values in its tables.
    pub fn user_bytes(&self) -> u64 {
        self.tables.iter().map(|t| t.summary.raw_key_bytes + t.summary.raw_value_bytes).sum()
    }
}

/// What a transaction asks of its publication.
#[derive(Debug)]
pub struct Asked<'a> {
    /// What must hold, if anything.
    pub conditions: Option<&'a mut Conditions>,
    /// Its tables.
    pub spilled: &'a Spilled,
}

impl Asked<'_> {
    /// Whether it may be, as far as one can say now.
    ///
    /// # Errors
    /// `Conflict`.
    pub fn check(&mut self, core: &Core) -> Result<()> {
        self.conditions.as_mut().map_or(Ok(()), |c| c.check_spilled(core, self.spilled))
    }
    /// The last word before its number is taken.
    fn enter(&self, core: &Core) -> Result<()> {
        self.conditions.as_ref().map_or(Ok(()), |c| c.enter_spilled(core, self.spilled))
    }
}

/// Installs the parts; returns the last of their numbers.
///
/// # Errors
/// `Busy` while background work is paused, `Conflict` where a prepared transaction is in the way: nothing happened, try again. `OutcomeUnknown`: it may or may not be there after
/// reopen, wholly. Anything else: nothing of it is there.
pub fn publish(core: &Arc<Core>, parts: &[Part]) -> Result<SeqNo> {
    publish_if(core, parts, None)
}

/// The same, if it is what a transaction has written and nothing speaks against it.
///
/// # Errors
/// Those of [`publish`]; `Conflict`.
pub fn publish_if(core: &Arc<Core>, parts: &[Part], mut asked: Option<Asked<'_>>) -> Result<SeqNo> {
    let mut check = || match &mut asked {
        Some(asked) if !bug::on(Bug::SpilledUnchecked) => asked.check(core),
        _ => Ok(()),
    };
    if !bug::on(Bug::LoadBeforeDirSync) {
        core.sync_dir()?;
    }
    let _compacting = core.compacting.lock();
    let _listed = core.control.begin(&core.signal, job(core, parts))?;
    let _flushing = core.flushing.lock();
    leave_prepared_alone(core, parts)?;
    if parts.iter().any(in_memtables) {
        // Most of it without stopping writers.
        rotate::seal(core, &mut core.wal.appender(), &families(parts))?;
        for p in parts.iter().filter(|p| in_memtables(p)) {
            flush::drain(core, &p.family, &mut None)?;
        }
    }
    check()?;
    let mut appender = core.wal.appender();
    core.health.check_writable()?;
    parts.iter().try_for_each(|p| p.family.check())?;
    check()?;
    leave_prepared_alone(core, parts)?;
    empty_memtables(core, &mut appender, parts)?;
    asked.as_ref().map_or(Ok(()), |a| a.enter(core))?;
    let ranges = u64::from(parts.iter().any(Part::has_ranges));
    let first = number::take(core, &mut appender, ranges + parts.len() as u64)?;
    let seq = first.plus(ranges);
    let last = event_number(seq, parts.len().saturating_sub(1));
    let installed = install(core, parts, seq);
    // Also after a failure: then the numbers are ones that nothing has.
    let mut told = Vec::new();
    if installed.is_ok() && asked.is_some() {
        // The thread that commits the transaction is this one.
        let due = |p: &Part| {
            let event = Arc::new(Event::loaded(last, p.entries()));
            Some(Due { owner: this_thread(), family: p.family.id, hook: p.family.hook()?, event })
        };
        told.extend(parts.iter().filter_map(due));
    }
    publish_up_to(core, last, told);
    installed.map(|()| last)
}

/// Sequence number of the event of the n-th family. Each has one of its own, so that a position of the feed lies between any two;
/// the entries of all families have the first, so that a snapshot at any of these numbers shows the whole load.
fn event_number(seq: SeqNo, n: usize) -> SeqNo {
    seq.plus(n as u64)
}

/// Refuses a load whose tables reach over what a prepared transaction wrote, or read where that counts.
fn leave_prepared_alone(core: &Core, parts: &[Part]) -> Result<()> {
    if !core.prepared.any() {
        return Ok(());
    }
    for p in parts {
        for t in &p.tables {
            let order = p.family.tree.order();
            let reach = Target::Range(t.summary.begin(order), t.summary.end(order));
            validate::check_undecided(core, p.family.id, reach)?;
        }
    }
    Ok(())
}

fn families(parts: &[Part]) -> Vec<Arc<Family>> {
    parts.iter().map(|p| Arc::clone(&p.family)).collect()
}

fn job(core: &Core, parts: &[Part]) -> Job {
    let tables = || parts.iter().flat_map(|p| &p.tables);
    Job {
        kind: Kind::Flush,
        family: parts.first().map_or(String::new(), |p| p.family.name().to_string()),
        families: parts.iter().map(|p| p.family.id).collect(),
        reason: "bulk load",
        from: Vec::new(),
        to: 0,
        files: tables().count(),
        bytes: tables().map(|t| t.summary.bytes).sum(),
        entries: parts.iter().map(Part::entries).sum(),
        started_us: core.env.clock.monotonic_us(),
        entries_done: AtomicU64::new(0),
        written: AtomicU64::new(0),
        inputs_held: 0,
        held: AtomicU64::new(0),
    }
}

/// A cut as a place between entries; either end is no place.
fn place(cut: CutRef<'_>) -> Option<(&[u8], SeqNo)> {
    match cut {
        CutRef::Before(key) => Some((key, SeqNo::MAX)),
        CutRef::After(key) => Some((key, SeqNo::ZERO)),
        CutRef::First | CutRef::Last => None,
    }
}

/// Whether a memtable of the family may hold a key of the part.
fn in_memtables(part: &Part) -> bool {
    let order = part.family.tree.order();
    let holds = |view: &View, t: &TableMeta| {
        let (from, to) = (place(t.summary.begin(order)), place(t.summary.end(order)));
        // A range tombstone may reach over any key.
        view.memtables().any(|m| m.ranges().any() || m.count(from, to) > 0)
    };
    let view = part.family.tree.view();
    !bug::on(Bug::LoadUnderMemtables) && part.tables.iter().any(|t| holds(&view, t))
}

/// Replaces the active memtables, and flushes those that would hide the load.
fn empty_memtables(core: &Core, appender: &mut Appender, parts: &[Part]) -> Result<()> {
    let full: Vec<_> = families(parts).into_iter().filter(|f| !f.tree.view().active.is_empty()).collect();
    if !full.is_empty() {
        rotate::seal(core, appender, &full)?;
    }
    for p in parts {
        p.family.tree.renew();
        if in_memtables(p) {
            flush::drain(core, &p.family, &mut Some(appender))?;
        }
    }
    Ok(())
}

fn install(core: &Core, parts: &[Part], seq: SeqNo) -> Result<()> {
    let run = RunId(core.runs.fetch_add(1, SeqCst));
    let installed = core.manifest.commit(
        &core.health,
        &core.ids,
        |_| {
            let mut prepared = Vec::new();
            let mut edit = Edit {
                next: Some((0, 0, core.runs.load(SeqCst))),
                durable: Some(core.wal.durable()),
                ..Edit::default()
            };
            for (n, p) in parts.iter().enumerate() {
                let at = if bug::on(Bug::LoadEventsShareNumber) { seq } else { event_number(seq, n) };
                edit.events.push(FamilyEvent { at, family: p.family.id, what: Befell::Loaded });
                p.family.check()?;
                let change = version_edit(p, seq, run);
                let opener = PartOpener { core, open: &p.open };
                prepared.push((p, p.family.tree.prepare(&change, &opener)?));
                edit.versions.push((p.family.id, change));
            }
            Ok((edit, prepared))
        },
        |prepared| prepared.into_iter().for_each(|(p, version)| p.family.tree.install(version, None)),
    );
    if installed.is_err() {
        // Their readers carry a number that will not be theirs.
        parts.iter().flat_map(|p| &p.tables).for_each(|t| core.shelf.forget(t.id));
    }
    installed?;
    core.refresh_load();
    core.signal.ring();
    Ok(())
}

/// Opens what is not open: a file has one object in the process.
struct PartOpener<'a> {
    core: &'a Core,
    open: &'a [Arc<Vlog>],
}

impl Opener for PartOpener<'_> {
    fn table(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        self.core.opener().table(meta)
    }
    fn vlog(&self, meta: &VlogMeta) -> Result<Arc<Vlog>> {
        let open = self.open.iter().find(|v| v.meta.id == meta.id);
        open.map_or_else(|| self.core.opener().vlog(meta), |v| Ok(Arc::clone(v)))
    }
}

fn version_edit(part: &Part, seq: SeqNo, run: RunId) -> VersionEdit {
    let shape = Shape::of(&part.family.tree.view().version);
    let added = |t: &TableMeta| {
        let order = part.family.tree.order();
        let level = target(&shape, (t.summary.begin(order), t.summary.end(order)));
        let stamp = (!bug::on(Bug::LoadWithoutNumber)).then_some(seq);
        let run = if level == LevelNo(0) { run } else { RunId(0) };
        AddedTable { level, run, meta: TableMeta { stamp, ..t.clone() } }
    };
    VersionEdit {
        added: part.tables.iter().map(added).collect(),
        vlogs_added: part.vlogs.clone(),
        ..VersionEdit::default()
    }
}
