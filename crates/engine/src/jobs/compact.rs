//! Carries out the most urgent compaction plan, or a manual one.

use super::flush::{Change, bytes, discard, install, setting};
use super::pace::JobPace;
use crate::control::{Job, Kind};
use crate::core::Core;
use crate::events::{self, Event};
use crate::family::Family;
use crate::memory;
use crate::pressure::LEVEL0_TRIGGER;
use perigee_base::format::HEADER_BYTES;
use perigee_base::io::Cause;
use perigee_base::latency::Operation;
use perigee_base::{ErrorKind, FileId, Now, Result};
use perigee_file::KlogSummary;
use perigee_tree::Version;
use perigee_tree::compact::pick::manual::{self, Span};
use perigee_tree::compact::pick::{Limits, Progress, covered, dense, expired, pick, spooky};
use perigee_tree::compact::{Plan, Reason, Shape, compact, settle};
use perigee_tree::mvcc::Strata;
use perigee_tree::rewrite::{Created, Filtering, Output, Pace, Setting};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Does the most urgent plan of any family; false if no family needs one.
pub fn one(core: &Arc<Core>) -> Result<bool> {
    let _alone = core.compacting.lock();
    let all = core.families.all();
    if let Some(due) = all.iter().find_map(|f| unneeded(core, f)) {
        return settle(carry_out(core, &due.family, due.version, &due.plan));
    }
    let most_urgent = |a: &Due, b: &Due| a.score.total_cmp(&b.score);
    let Some(due) = all.iter().filter_map(|f| next(core, f)).max_by(most_urgent) else { return Ok(false) };
    let done = settle(carry_out(core, &due.family, due.version, &due.plan));
    if matches!(done, Ok(true)) {
        due.family.picked.advance(due.progress);
    }
    done
}

/// Whether any family needs a compaction.
pub fn any_due(core: &Core) -> bool {
    core.families.all().iter().any(|f| unneeded(core, f).is_some() || next(core, f).is_some())
}

fn settle(done: Result<()>) -> Result<bool> {
    match done {
        // Held back, or cancelled on the way: the bell rings when it may go on, and may have rung already. Only the gate
        // answers a job with `Busy`; asking it again would take a job that was resumed meanwhile for a failed one.
        Err(e) if e.kind() == ErrorKind::Busy => Ok(false),
        done => done.map(|()| true),
    }
}

/// A plan that a family needs, and what it was made of.
struct Due {
    family: Arc<Family>,
    version: Arc<Version>,
    plan: Plan,
    progress: Progress,
    score: f64,
}

/// The next plan that the shape of a family asks for. A version that asked for nothing is remembered.
fn next(core: &Core, family: &Arc<Family>) -> Option<Due> {
    let version = Arc::clone(&family.tree.view().version);
    let limits = limits(core, family);
    let progress = family.picked.look(&version, limits)?;
    let shape = Shape::of(&version);
    let shape = if spooky::may_waste(&shape) { shape.counted(&version) } else { shape };
    let Some((plan, progress)) = pick(&shape, &limits, &progress) else {
        family.picked.rest(&version, limits);
        return None;
    };
    let score = spooky::scores(&shape, &limits).into_iter().fold(0.0, f64::max);
    Some(Due { family: Arc::clone(family), version, plan, progress, score })
}

/// The tables of a family that range tombstones hide as a whole, from everybody, that are mostly tombstones which everybody
/// sees, or of which much has expired.
fn unneeded(core: &Core, family: &Arc<Family>) -> Option<Due> {
    let version = Arc::clone(&family.tree.view().version);
    // Only where an entry expires somebody asks for the time.
    let now_ms = if version.expires_ms == u64::MAX { 0 } else { core.now.settled_ms() };
    let expired = version.expires_ms <= now_ms;
    if !version.has_ranges && !version.is_dense && !expired {
        return None;
    }
    let (snapshots, present) = core.snapshots.strata(&core.visible);
    let (shape, strata) = (Shape::of(&version), Strata::new(snapshots, present));
    let plan = covered::pick(&shape, &strata).or_else(|| dense::pick(&shape, &strata));
    let plan = plan.or_else(|| expired::pick(&shape, &strata, now_ms).filter(|_| expired))?;
    let progress = Progress::default();
    Some(Due { family: Arc::clone(family), version, plan, progress, score: f64::MAX })
}

/// How long until the next table will be worth a merge for what has expired in it, if there is one; the longest wait if only what
/// is due already, and not worth it or held by a snapshot, is left.
pub fn next_expiry_us(core: &Core) -> Option<u64> {
    let all = core.families.all();
    let times = || all.iter().map(|f| f.tree.pin().version.expires_ms).filter(|ms| *ms < u64::MAX);
    times().next()?;
    let now = core.now.settled_ms();
    let next = times().filter(|ms| *ms > now).min();
    Some(next.map_or(u64::MAX, |ms| (ms - now).saturating_mul(1000)))
}

/// Whether a family has tables that go once a snapshot does.
pub fn waits_for_snapshots(core: &Core) -> bool {
    core.families.all().iter().any(|f| unneeded(core, f).is_some())
}

/// The pickers' settings of a family.
fn limits(core: &Core, family: &Family) -> Limits {
    Limits {
        level0_runs: LEVEL0_TRIGGER,
        level1_bytes: family.settings().level1_bytes,
        ratio: u64::from(family.settings().level_ratio),
        table_bytes: memory::table_bytes(core.memory.budget, family.settings().target_file_bytes),
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
    plan.map_or(Ok(()), |plan| carry_out(core, family, version, &plan))
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

/// A compaction as it is listed while it runs.
fn job(core: &Core, family: &Family, version: &Version, plan: &Plan) -> Job {
    let mut from: Vec<u8> = plan.inputs.iter().map(|(level, _)| level.0).collect();
    from.sort_unstable();
    from.dedup();
    let summaries = || inputs(version, plan);
    let bytes = summaries().map(|s| s.bytes).sum();
    Job {
        kind: Kind::Compaction,
        family: family.name().to_string(),
        reason: plan.reason.name(),
        from,
        to: plan.to.0,
        files: plan.inputs.len(),
        bytes,
        entries: summaries().map(|s| s.entries).sum(),
        started_us: core.env.clock.monotonic_us(),
        entries_done: AtomicU64::new(0),
        written: AtomicU64::new(0),
        inputs_held: memory::input_bytes(sources(plan), family.settings().block_bytes, bytes),
        held: AtomicU64::new(0),
    }
}

/// Sources that are read side by side: each run of level 0, of a deeper level one table at a time.
fn sources(plan: &Plan) -> usize {
    if plan.trivial {
        return 0;
    }
    let above = plan.inputs.iter().filter(|(level, _)| level.0 == 0).count();
    let mut deeper: Vec<u8> = plan.inputs.iter().map(|(level, _)| level.0).filter(|l| *l > 0).collect();
    deeper.sort_unstable();
    deeper.dedup();
    above + deeper.len()
}

fn carry_out(core: &Arc<Core>, family: &Arc<Family>, version: Arc<Version>, plan: &Plan) -> Result<()> {
    let running = core.control.begin(&core.signal, job(core, family, &version, plan))?;
    let mut created = Created::default();
    let pace = JobPace::new(core, &running);
    let started = core.start(Operation::Compaction, 0);
    let done = run(core, family, &version, plan, &pace, &mut created);
    if done.is_ok() {
        core.stop(Operation::Compaction, started);
    } else {
        discard(core, &created);
    }
    // Whoever waits for the end of the job may remove its inputs.
    drop(version);
    drop(running);
    if (family.is_dropped() || cleared(family, plan)) && core.health.poisoned().is_none() {
        return Ok(());
    }
    done
}

/// Whether the plan's tables are gone: compactions run one at a time, so only a clear takes them.
fn cleared(family: &Family, plan: &Plan) -> bool {
    let there = family.tree.view().version.files();
    plan.inputs.iter().any(|(_, id)| !there.contains(id))
}

fn run(
    core: &Core,
    family: &Arc<Family>,
    version: &Arc<Version>,
    plan: &Plan,
    pace: &dyn Pace,
    created: &mut Created,
) -> Result<()> {
    let _span = events::span("compaction", &family.name());
    let since = core.env.clock.monotonic_us();
    let read: u64 = inputs(version, plan).map(|s| s.bytes).sum();
    let filter = family.filter();
    let filter = filter.as_deref().map(|filter| Filtering { filter, level: plan.to });
    let mut setting = Setting { filter, ..setting(core, family, version, pace) };
    setting.settle = settle::number(plan, &family.tree.view(), &setting.strata);
    let (edit, output) = compact(plan, setting, created)?;
    core.sync_dir()?;
    install(core, vec![Change { family: Arc::clone(family), edit, flushed: None }], &[])?;
    core.counters.compactions.add(1);
    if !plan.trivial && plan.reason != Reason::Covered {
        core.counters.compaction_bytes_read.add(read);
    }
    core.counters.compaction_bytes_written.add(bytes(&output));
    core.counters.io.wrote(Cause::Compaction, output.write_calls, bytes(&output));
    tell(core, family, version, plan, &output, since);
    core.counters.dropped_shadowed.add(output.counts.shadowed);
    core.counters.dropped_tombstones.add(output.counts.tombstones);
    core.counters.dropped_covered.add(output.counts.covered);
    core.counters.dropped_cancelled.add(output.counts.cancelled);
    core.counters.dropped_ranges.add(output.counts.ranges.shadowed + output.counts.ranges.spent);
    if plan.reason == Reason::Covered {
        core.counters.dropped_tables.add(plan.inputs.len() as u64);
    }
    core.counters.dropped_expired.add(output.counts.expired + output.counts.buried);
    Ok(())
}

fn tell(core: &Core, family: &Family, version: &Version, plan: &Plan, output: &Output, since: u64) {
    let mut from: Vec<u8> = plan.inputs.iter().map(|(level, _)| level.0).collect();
    from.sort_unstable();
    from.dedup();
    let files = if plan.trivial { plan.inputs.len() } else { output.tables.len() };
    let read: u64 = inputs(version, plan).map(|s| s.bytes).sum();
    core.tell(&Event::Compacted {
        family: &family.name(),
        reason: if plan.trivial { "moved" } else { plan.reason.name() },
        from: &from,
        to: plan.to.0,
        files: (plan.inputs.len(), files),
        bytes: (read, if plan.trivial { read } else { bytes(output) }),
        entries: (output.counts.read, output.counts.written),
        us: core.env.clock.monotonic_us().saturating_sub(since),
    });
}

fn inputs<'a>(version: &'a Version, plan: &Plan) -> impl Iterator<Item = &'a KlogSummary> {
    let named: HashSet<FileId> = plan.inputs.iter().map(|(_, id)| *id).collect();
    version.tables().filter(move |(_, _, t)| named.contains(&t.meta.id)).map(|(_, _, t)| &t.meta.summary)
}
