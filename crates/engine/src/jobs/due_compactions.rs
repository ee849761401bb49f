//! Which compactions are due, and which of them one job carries out: a large one alone, small ones
//! of many families together, as `group` does for flushes. Must not carry anything out.

use super::flush::snapshot_stripes;
use crate::core::EngineCore;
use crate::family::FamilyState;
use crate::memory_budget;
use crate::write_pressure::LEVEL0_TRIGGER;
use perigee_base::{ExpiryClock, FileId};
use perigee_file::KlogSummary;
use perigee_tree::Version;
use perigee_tree::compact::pick::{
    PickerOptions, PickerProgress, dense_tombstones, expired_entries, pick, range_deleted,
    skipped_tombstones, spooky,
};
use perigee_tree::compact::{CompactionPlan, CompactionReason, TreeShape};
use std::collections::HashSet;
use std::sync::Arc;

/// Most families of one job: so many merges are done in vain if its edit fails.
const JOB_FAMILIES_MAX: usize = 512;
/// Most bytes that they read together, unless the first is larger: then it goes alone. They lie
/// beside their outputs until the job is over.
const JOB_BYTES_MAX: u64 = 8 << 20;

/// A plan that a family needs, and what it was made of.
#[derive(Debug)]
pub struct DueCompaction {
    /// The family.
    pub family: Arc<FamilyState>,
    /// The version that the plan was made for.
    pub version: Arc<Version>,
    /// The plan.
    pub plan: CompactionPlan,
    /// How far the family's merges are once it is carried out, if it is a step of one.
    pub progress: Option<PickerProgress>,
    score: f64,
}

impl DueCompaction {
    /// A plan that is no step of anything.
    pub fn new(
        family: &Arc<FamilyState>,
        version: Arc<Version>,
        plan: CompactionPlan,
    ) -> DueCompaction {
        DueCompaction { family: Arc::clone(family), version, plan, progress: None, score: f64::MAX }
    }
    /// What its inputs say of themselves.
    pub fn input_summaries(&self) -> impl Iterator<Item = &KlogSummary> {
        let named: HashSet<FileId> = self.plan.inputs.iter().map(|(_, id)| *id).collect();
        self.version
            .tables()
            .filter(move |(_, _, t)| named.contains(&t.meta.id))
            .map(|(_, _, t)| &t.meta.summary)
    }
    /// Whether its tables are written anew.
    pub fn rewrites_tables(&self) -> bool {
        !self.plan.trivial_move && self.plan.reason != CompactionReason::RangeDeleted
    }
    /// Bytes that it reads.
    pub fn read_bytes(&self) -> u64 {
        if self.rewrites_tables() { self.input_summaries().map(|s| s.bytes).sum() } else { 0 }
    }
}

/// The most urgent plan of any family, and of other families those that are small together with it;
/// none if no family needs one.
pub fn select_due(core: &EngineCore) -> Vec<DueCompaction> {
    let families = core.families.all();
    let mut all: Vec<DueCompaction> =
        families.iter().filter_map(|f| plan_reclamation(core, f)).collect();
    if all.is_empty() {
        all = families.iter().filter_map(|f| next_due(core, f)).collect();
        all.sort_by(|a, b| b.score.total_cmp(&a.score));
    }
    let chosen = select_small(all.iter().map(DueCompaction::read_bytes));
    let mut chosen = chosen.into_iter();
    all.retain(|_| chosen.next() == Some(true));
    let threads = thread_count(core, &all);
    if let [alone] = &all[..] {
        let more = disjoint_steps(core, alone, threads - 1);
        all.extend(more);
    }
    all
}

/// How many of them are carried out at once.
pub fn thread_count(core: &EngineCore, due: &[DueCompaction]) -> usize {
    let largest = due.iter().map(|d| picker_limits(core, &d.family).table_bytes).max().unwrap_or(0);
    memory_budget::max_parallel_merges(core.memory_budget.limit, largest, core.env.spawn.cores())
}

/// So many plans at most that follow in the same merge, and share no keys with it or each other.
fn disjoint_steps(core: &EngineCore, due: &DueCompaction, most: usize) -> Vec<DueCompaction> {
    let mut all: Vec<DueCompaction> = Vec::new();
    if most == 0 || !due.rewrites_tables() || !due.plan.reason.is_level_merge() {
        return all;
    }
    let (shape, limits) = (counted_shape(&due.version), picker_limits(core, &due.family));
    while all.len() < most {
        let last = all.last().unwrap_or(due);
        let Some((plan, progress)) =
            last.progress.as_ref().and_then(|p| spooky::pick_parallel(&shape, &limits, p))
        else {
            break;
        };
        let version = Arc::clone(&due.version);
        all.push(DueCompaction {
            progress: Some(progress),
            ..DueCompaction::new(&due.family, version, plan)
        });
    }
    all
}

/// The shape of a version, with what pickers want to know of it counted.
fn counted_shape(version: &Version) -> TreeShape {
    let shape = TreeShape::from_version(version);
    if spooky::may_have_garbage(&shape) { shape.with_distinct_keys(version) } else { shape }
}

/// Which of merges that read so many bytes, the most urgent first, go together.
fn select_small(bytes: impl Iterator<Item = u64>) -> Vec<bool> {
    let (mut sum, mut taken) = (0, 0);
    bytes
        .map(|bytes| {
            let fits = taken == 0 || (taken < JOB_FAMILIES_MAX && sum + bytes <= JOB_BYTES_MAX);
            if fits {
                (sum, taken) = (sum + bytes, taken + 1);
            }
            fits
        })
        .collect()
}

/// Whether any family needs a compaction.
pub fn is_any_due(core: &EngineCore) -> bool {
    core.families.all().iter().any(|f| is_due(core, f))
}

/// Whether a family needs one.
pub fn is_due(core: &EngineCore, family: &Arc<FamilyState>) -> bool {
    plan_reclamation(core, family).is_some() || next_due(core, family).is_some()
}

/// The next plan that the shape of a family asks for. A version that asked for nothing is
/// remembered.
fn next_due(core: &EngineCore, family: &Arc<FamilyState>) -> Option<DueCompaction> {
    let version = Arc::clone(&family.tree.view().version);
    let limits = picker_limits(core, family);
    let progress = family.compaction_cursor.pending_progress(&version, limits)?;
    let shape = counted_shape(&version);
    let Some((plan, progress)) = pick(&shape, &limits, &progress) else {
        family.compaction_cursor.mark_idle(&version, limits);
        return None;
    };
    let score = spooky::scores(&shape, &limits).into_iter().fold(0.0, f64::max);
    Some(DueCompaction {
        progress: Some(progress),
        score,
        ..DueCompaction::new(family, version, plan)
    })
}

/// The tables of a family that range tombstones hide as a whole, from everybody, that are mostly
/// tombstones which everybody sees, or whose tombstones are in the way of scans, or of which much
/// has expired.
fn plan_reclamation(core: &EngineCore, family: &Arc<FamilyState>) -> Option<DueCompaction> {
    let version = Arc::clone(&family.tree.view().version);
    // Only where an entry expires somebody asks for the time.
    let now_ms = if version.expiry_compaction_ms == u64::MAX {
        0
    } else {
        core.logical_clock.confirmed_ms()
    };
    let expired = version.expiry_compaction_ms <= now_ms;
    let look = core.skipped_tombstones.threshold_crossings();
    let passed = family.compaction_cursor.needs_tombstone_check(look);
    if !version.has_range_tombstones && !version.has_dense_tombstones && !expired && !passed {
        return None;
    }
    let (shape, strata) =
        (TreeShape::from_version(&version), snapshot_stripes(core.live_snapshots(None)));
    let plan =
        range_deleted::pick(&shape, &strata).or_else(|| dense_tombstones::pick(&shape, &strata));
    let plan = plan.or_else(|| {
        let plan = skipped_tombstones::pick(&shape, &strata).filter(|_| passed);
        if plan.is_none() {
            family.compaction_cursor.mark_tombstone_check_done(look);
        }
        plan
    });
    let plan =
        plan.or_else(|| expired_entries::pick(&shape, &strata, now_ms).filter(|_| expired))?;
    Some(DueCompaction::new(family, version, plan))
}

/// How long until the next table will be worth a merge for what has expired in it, if there is one;
/// the longest wait if only what is due already, and not worth it or held by a snapshot, is left.
pub fn next_expiry_us(core: &EngineCore) -> Option<u64> {
    let all = core.families.all();
    let times = || {
        all.iter().map(|f| f.tree.pin().version.expiry_compaction_ms).filter(|ms| *ms < u64::MAX)
    };
    times().next()?;
    let now = core.logical_clock.confirmed_ms();
    let next = times().filter(|ms| *ms > now).min();
    Some(next.map_or(u64::MAX, |ms| (ms - now).saturating_mul(1000)))
}

/// Whether a family has tables that go once a snapshot does.
pub fn has_reclaimable_tables(core: &EngineCore) -> bool {
    core.families.all().iter().any(|f| plan_reclamation(core, f).is_some())
}

/// The pickers' settings of a family.
fn picker_limits(core: &EngineCore, family: &FamilyState) -> PickerOptions {
    PickerOptions {
        level0_runs: LEVEL0_TRIGGER,
        level1_bytes: family.settings().level1_bytes,
        ratio: u64::from(family.settings().level_ratio),
        table_bytes: memory_budget::target_table_bytes(
            core.memory_budget.limit,
            family.settings().target_file_bytes,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_small_compactions_and_isolates_large() {
        let n = |bytes: &[u64]| select_small(bytes.iter().copied());
        assert_eq!(n(&[]), []);
        assert_eq!(n(&[JOB_BYTES_MAX * 9, 1]), [true, false]);
        assert_eq!(
            n(&[1, JOB_BYTES_MAX, 2]),
            [true, false, true],
            "small ones do not wait for a large one"
        );
        assert_eq!(n(&[JOB_BYTES_MAX - 1, 1, 0, 1]), [true, true, true, false]);
        assert_eq!(n(&vec![0; 5000]).iter().filter(|taken| **taken).count(), JOB_FAMILIES_MAX);
    }
}
