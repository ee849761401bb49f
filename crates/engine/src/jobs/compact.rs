//! Carries out the most urgent compaction plan, or a manual one.

use super::flush::{bytes, discard, install, setting};
use crate::core::Core;
use crate::family::Family;
use crate::pressure::LEVEL0_TRIGGER;
use perigee_base::{LevelNo, Result};
use perigee_tree::Version;
use perigee_tree::compact::pick::{Limits, leveled, pick};
use perigee_tree::compact::{Plan, Reason, Shape, compact};
use perigee_tree::rewrite::Created;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Does the most urgent plan of any family; false if no family needs one.
pub fn one(core: &Arc<Core>) -> Result<bool> {
    let _alone = core.compacting.lock();
    let mut best: Option<(f64, Arc<Family>)> = None;
    for family in core.families.all() {
        let shape = Shape::of(&family.tree.view().version);
        let limits = limits(&family);
        let score = leveled::scores(&shape, &limits).into_iter().fold(0.0, f64::max);
        if pick(&shape, &limits).is_some() && best.as_ref().is_none_or(|(s, _)| score > *s) {
            best = Some((score, family));
        }
    }
    let Some((_, family)) = best else { return Ok(false) };
    let version = Arc::clone(&family.tree.view().version);
    let Some(plan) = pick(&Shape::of(&version), &limits(&family)) else { return Ok(false) };
    carry_out(core, &family, &version, &plan)?;
    Ok(true)
}

/// The pickers' settings of a family.
pub fn limits(family: &Family) -> Limits {
    Limits {
        level0_runs: LEVEL0_TRIGGER,
        level1_bytes: family.settings().level1_bytes,
        ratio: u64::from(family.settings().level_ratio),
    }
}

/// Merges all tables of a family into its deepest level (at least level 1).
pub fn everything(core: &Arc<Core>, family: &Arc<Family>) -> Result<()> {
    let _alone = core.compacting.lock();
    core.health.check_writable()?;
    let version = Arc::clone(&family.tree.view().version);
    let Some(deepest) = version.deepest() else { return Ok(()) };
    let to = deepest.max(LevelNo(1));
    let plan = Plan {
        reason: Reason::Manual,
        inputs: version.tables().map(|(level, _, t)| (level, t.meta.id)).collect(),
        to,
        trivial: false,
        relocate: garbage(&version),
    };
    carry_out(core, family, &version, &plan)?;
    drop(version);
    core.retire.sweep(&core.shelf)
}

/// Value logs with any garbage: a manual compaction empties them.
fn garbage(version: &Version) -> BTreeSet<perigee_base::FileId> {
    let refs = version.vlog_references();
    let wasteful =
        |v: &Arc<perigee_tree::Vlog>| refs.get(&v.meta.id).is_none_or(|live| live * 10 < v.meta.bytes * 9);
    version.vlogs.values().filter(|v| wasteful(v)).map(|v| v.meta.id).collect()
}

fn carry_out(core: &Arc<Core>, family: &Arc<Family>, version: &Arc<Version>, plan: &Plan) -> Result<()> {
    core.busy.fetch_add(1, SeqCst);
    let mut created = Created::default();
    let done = run(core, family, version, plan, &mut created);
    if done.is_err() {
        discard(core, &created);
    }
    core.busy.fetch_sub(1, SeqCst);
    if family.is_dropped() && core.health.poisoned().is_none() {
        return Ok(());
    }
    done
}

fn run(
    core: &Core,
    family: &Arc<Family>,
    version: &Arc<Version>,
    plan: &Plan,
    created: &mut Created,
) -> Result<()> {
    let read: u64 = inputs(version, plan);
    let (edit, output) = compact(plan, setting(core, family, version), created)?;
    core.sync_dir()?;
    install(core, family, edit, &[], None)?;
    core.counters.compactions.add(1);
    if !plan.trivial {
        core.counters.compaction_bytes_read.add(read);
    }
    core.counters.compaction_bytes_written.add(bytes(&output));
    core.counters.dropped_shadowed.add(output.counts.shadowed);
    core.counters.dropped_tombstones.add(output.counts.tombstones);
    Ok(())
}

fn inputs(version: &Version, plan: &Plan) -> u64 {
    let named = |id| plan.inputs.iter().any(|(_, input)| *input == id);
    version.tables().filter(|(_, _, t)| named(t.meta.id)).map(|(_, _, t)| t.meta.summary.bytes).sum()
}
