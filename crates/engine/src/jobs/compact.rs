//! Carries out compactions that are due, several small ones by one edit, or a manual one.

use super::due::{self, Due};
use super::flush::{Change, bytes, discard, install, setting};
use super::group::{self, Made, Piece};
use super::logs::Logs;
use super::pace::JobPace;
use crate::control::{Job, Kind, Running};
use crate::core::Core;
use crate::events::{self, Event};
use crate::family::Family;
use crate::memory;
use perigee_base::bug::{self, Bug};
use perigee_base::format::HEADER_BYTES;
use perigee_base::io::Cause;
use perigee_base::latency::Operation;
use perigee_base::{Error, ErrorKind, FileId, Result, SeqNo};
use perigee_env::sim::seam;
use perigee_tree::compact::pick::covered;
use perigee_tree::compact::pick::manual::{self, Span};
use perigee_tree::compact::{Plan, Reason, Shape, compact, settle};
use perigee_tree::rewrite::{Created, Filtering, Later, Pace, Setting};
use perigee_tree::{Table, Version};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Does the most urgent plan of any family, and small ones of others with it; false if no family needs one.
pub fn one(core: &Arc<Core>) -> Result<bool> {
    let _alone = core.compacting.lock();
    // A plan made while the gate is closed would be an old one when it opens.
    if core.control.check(Kind::Compaction).is_err() {
        return Ok(false);
    }
    let due = due::together(core);
    if due.is_empty() {
        return Ok(false);
    }
    match carry_out(core, due) {
        // Held back, or cancelled on the way: the bell rings when it may go on, and may have rung already. Only the gate
        // answers a job with `Busy`; asking it again would take a job that was resumed meanwhile for a failed one.
        Err(e) if e.kind() == ErrorKind::Busy => {
            // A canceller that waits for this job goes on here, and may resume before the next line.
            seam();
            let failed = bug::on(Bug::ResumedIsFailure) && core.control.check(Kind::Compaction).is_ok();
            if failed { Err(e) } else { Ok(false) }
        }
        done => done.map(|()| true),
    }
}

/// How much of a family a manual compaction merges.
#[derive(Clone, Debug)]
pub enum Extent {
    /// All of it; `any_garbage`: value logs are emptied for any garbage at all, not only where it is worth while.
    Whole {
        /// See above.
        any_garbage: bool,
    },
    /// The tables that share keys with the span.
    Range(Span),
}

/// Merges what was asked for into the deepest level that it reaches (at least level 1).
pub fn manual(core: &Arc<Core>, family: &Arc<Family>, extent: &Extent) -> Result<()> {
    let _alone = core.compacting.lock();
    let percent = if matches!(extent, Extent::Whole { any_garbage: true }) { 100 } else { 90 };
    merge(core, family, extent, percent)?;
    // What the merge dropped may have been the last to reference a value: only now its log is known to hold garbage.
    if percent == 100 && !garbage(&family.tree.view().version, percent).is_empty() {
        merge(core, family, extent, percent)?;
    }
    core.retire.sweep(&core.shelf)
}

fn merge(core: &Arc<Core>, family: &Arc<Family>, extent: &Extent, percent: u64) -> Result<()> {
    core.health.check_writable()?;
    let version = Arc::clone(&family.tree.view().version);
    let shape = Shape::of(&version);
    let plan = match extent {
        Extent::Whole { .. } => manual::pick(&shape, &Span::default(), &garbage(&version, percent)),
        Extent::Range(span) => manual::pick(&shape, span, &BTreeSet::new()),
    };
    plan.map_or(Ok(()), |plan| carry_out(core, vec![Due::new(family, version, plan)]))
}

/// Value logs of which less than so many percent are referenced.
fn garbage(version: &Version, percent: u64) -> BTreeSet<FileId> {
    let refs = version.vlog_references();
    let wasteful = |v: &Arc<perigee_tree::Vlog>| {
        refs.get(&v.meta.id)
            .is_none_or(|live| live * 100 < v.meta.bytes.saturating_sub(HEADER_BYTES as u64) * percent)
    };
    version.vlogs.values().filter(|v| wasteful(v)).map(|v| v.meta.id).collect()
}

/// A compaction on its way.
#[derive(Debug)]
struct Merge {
    due: Due,
    /// The family's name when the job began.
    name: Arc<str>,
    created: Created,
    made: Option<Made>,
    installed: bool,
}

impl Piece for Merge {
    fn made(&self) -> Option<&Made> {
        self.made.as_ref()
    }
    fn set_made(&mut self, made: Option<Made>) {
        self.made = made;
    }
}

impl Merge {
    fn new(due: Due) -> Merge {
        let name = due.family.name();
        Merge { due, name, created: Created::default(), made: None, installed: false }
    }
    /// Whether there is nothing to merge any more: the family was dropped, or cleared. (Compactions run one at a time, so nobody
    /// else takes its tables.)
    fn is_gone(&self) -> bool {
        let there = self.due.family.tree.view().version.files();
        self.due.family.is_dropped() || self.due.plan.inputs.iter().any(|(_, id)| !there.contains(id))
    }
}

/// Compactions as they are listed while they run.
fn job(core: &Core, due: &[Due], threads: usize) -> Job {
    let first = due.first().map_or(String::new(), |d| d.family.name().to_string());
    let families = due.iter().map(|d| d.family.id).collect::<BTreeSet<_>>().len();
    let summaries = || due.iter().flat_map(Due::inputs);
    let held = |d: &Due| {
        let bytes = d.inputs().map(|s| s.bytes).sum();
        memory::input_bytes(sources(&d.plan), d.family.settings().block_bytes, bytes)
    };
    Job {
        kind: Kind::Compaction,
        family: if families > 1 { format!("{first} and {} more", families - 1) } else { first },
        families: due.iter().map(|d| d.family.id).collect(),
        reason: due.first().map_or("", |d| d.plan.reason.name()),
        from: levels(due.iter().map(|d| &d.plan)),
        to: due.iter().map(|d| d.plan.to.0).max().unwrap_or(0),
        files: due.iter().map(|d| d.plan.inputs.len()).sum(),
        bytes: summaries().map(|s| s.bytes).sum(),
        entries: summaries().map(|s| s.entries).sum(),
        started_us: core.env.clock.monotonic_us(),
        entries_done: AtomicU64::new(0),
        written: AtomicU64::new(0),
        // So many at a time are read.
        inputs_held: due.iter().map(held).max().unwrap_or(0) * threads.min(due.len()) as u64,
        held: AtomicU64::new(0),
    }
}

/// The levels that plans read, ascending.
fn levels<'a>(plans: impl Iterator<Item = &'a Plan>) -> Vec<u8> {
    let all: BTreeSet<u8> = plans.flat_map(|p| p.inputs.iter().map(|(level, _)| level.0)).collect();
    all.into_iter().collect()
}

/// Sources that are read side by side: each run of level 0, of a deeper level one table at a time.
fn sources(plan: &Plan) -> usize {
    if plan.trivial {
        return 0;
    }
    let above = plan.inputs.iter().filter(|(level, _)| level.0 == 0).count();
    above + levels(std::iter::once(plan)).iter().filter(|level| **level > 0).count()
}

/// Merges, and installs what came of it by one edit. What was made before something failed is installed all the same.
fn carry_out(core: &Arc<Core>, due: Vec<Due>) -> Result<()> {
    let threads = due::threads(core, &due);
    let running = core.control.begin(&core.signal, job(core, &due, threads))?;
    core.tell(&running.job.begun());
    let mut merges: Vec<Merge> = due.into_iter().map(Merge::new).collect();
    let started = core.start(Operation::Compaction, 0);
    let done = run(core, &mut merges, threads, &running);
    if done.is_ok() {
        core.stop(Operation::Compaction, started);
    }
    let left = || merges.iter().filter(|m| !m.installed);
    left().for_each(|m| discard(core, &m.created));
    let over = left().all(Merge::is_gone) && core.health.poisoned().is_none();
    // Whoever waits for the end of the job may remove its inputs.
    drop(merges);
    drop(running);
    if over { Ok(()) } else { done }
}

fn run(core: &Core, merges: &mut [Merge], threads: usize, running: &Running<'_>) -> Result<()> {
    let _span = events::span("compaction", merges.first().map_or("", |m| &m.name));
    let make = |m: &mut Merge, later: &Later| build(core, m, &JobPace::new(core, running), later);
    let built = group::build(core, merges, threads, make);
    built.and(install_all(core, merges))
}

/// The newest operation of which a merge may drop something: whoever reads at an older number may miss what it dropped.
fn newest(m: &Merge) -> SeqNo {
    if m.due.plan.trivial {
        return SeqNo::ZERO;
    }
    let named: BTreeSet<FileId> = m.due.plan.inputs.iter().map(|(_, id)| *id).collect();
    let covering = |t: &Arc<Table>| m.due.plan.reason == Reason::Covered && t.meta.summary.ranges.is_some();
    let tables = m.due.version.tables().map(|(_, _, t)| t);
    let counts = tables.filter(|t| named.contains(&t.meta.id) || covering(t));
    counts.map(|t| t.meta.seqs().1).max().unwrap_or_default()
}

/// Writes the tables of a merge.
fn build(core: &Core, m: &mut Merge, pace: &dyn Pace, later: &Later) -> Result<Made> {
    let since = core.env.clock.monotonic_us();
    let Due { family, version, plan, .. } = &m.due;
    let filter = family.filter();
    let filter = filter.as_deref().map(|filter| Filtering { filter, level: plan.to });
    let mut setting =
        Setting { filter, later: Some(later), ..setting(core, family, version, pace, newest(m)) };
    if plan.reason == Reason::Covered && !covered::still(plan, &Shape::of(version), &setting.strata) {
        // A reader of the past has come between: another plan will know it.
        return Err(Error::new(ErrorKind::Busy, "a reader needs what was to be dropped"));
    }
    setting.settle = settle::number(plan, &family.tree.view(), &setting.strata);
    let (edit, output) = compact(plan, setting, &mut m.created)?;
    Ok(Made { edit, output, us: core.env.clock.monotonic_us().saturating_sub(since) })
}

fn install_all(core: &Core, merges: &mut [Merge]) -> Result<()> {
    let mut changes: Vec<Change> = Vec::new();
    for m in merges.iter_mut() {
        let Some(edit) = m.made.as_mut().map(|made| std::mem::take(&mut made.edit)) else { continue };
        // Several merges of one family are neighbours, and share no table.
        match changes.last_mut().filter(|c| Arc::ptr_eq(&c.family, &m.due.family)) {
            Some(same) => same.edit.join(edit),
            None => changes.push(Change { family: Arc::clone(&m.due.family), edit, flushed: None }),
        }
    }
    if changes.is_empty() {
        return Ok(());
    }
    core.sync_dir()?;
    let installed = install(core, changes, &mut Logs::default())?;
    let whole = |m: &&mut Merge| m.made.is_some() && installed.contains(&m.due.family.id);
    for m in merges.iter_mut().filter(whole) {
        m.installed = true;
        if let Some(progress) = m.due.progress.take() {
            m.due.family.picked.advance(progress);
        }
        m.made.iter().for_each(|made| count(core, m, made));
    }
    Ok(())
}

fn count(core: &Core, m: &Merge, made: &Made) {
    let output = &made.output;
    core.counters.compactions.add(1);
    core.counters.compaction_bytes_read.add(m.due.read_bytes());
    core.counters.compaction_bytes_written.add(bytes(output));
    let figures = &m.due.family.figures;
    figures.compaction_tables.add(output.tables.len() as u64);
    figures.compaction_bytes_read.add(m.due.read_bytes());
    figures.compaction_bytes_written.add(bytes(output));
    core.counters.io.wrote(Cause::Compaction, output.write_calls, bytes(output));
    tell(core, m, made);
    core.counters.dropped_shadowed.add(output.counts.shadowed);
    core.counters.dropped_tombstones.add(output.counts.tombstones);
    core.counters.dropped_covered.add(output.counts.covered);
    core.counters.dropped_cancelled.add(output.counts.cancelled);
    core.counters.operands_merged.add(output.counts.merged);
    core.counters.operands_unmerged.add(output.counts.unmerged);
    core.counters.dropped_ranges.add(output.counts.ranges.shadowed + output.counts.ranges.spent);
    if m.due.plan.reason == Reason::Covered {
        core.counters.dropped_tables.add(m.due.plan.inputs.len() as u64);
    }
    core.counters.dropped_expired.add(output.counts.expired + output.counts.buried);
}

fn tell(core: &Core, m: &Merge, Made { output, us, .. }: &Made) {
    let plan = &m.due.plan;
    let files = if plan.trivial { plan.inputs.len() } else { output.tables.len() };
    let read: u64 = m.due.inputs().map(|s| s.bytes).sum();
    core.tell(&Event::Compacted {
        family: &m.name,
        reason: if plan.trivial { "moved" } else { plan.reason.name() },
        from: &levels(std::iter::once(plan)),
        to: plan.to.0,
        files: (plan.inputs.len(), files),
        bytes: (read, if plan.trivial { read } else { bytes(output) }),
        entries: (output.counts.read, output.counts.written),
        us: *us,
    });
}
