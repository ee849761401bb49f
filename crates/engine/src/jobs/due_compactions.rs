//! Determines which compactions are due and which of them one job runs: a large one alone, small
//! ones of many column families together, as `task_group` does for flushes. Runs none of them.

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

/// Maximum number of column families per job: if its edit fails, all merges were done in vain.
const JOB_FAMILIES_MAX: usize = 512;
/// Maximum input bytes of a job, unless its first compaction is larger: then it runs alone. Inputs
/// and outputs exist side by side until the job ends.
const JOB_BYTES_MAX: u64 = 8 << 20;

/// A compaction plan for a column family, with the version it applies to.
#[derive(Debug)]
pub struct DueCompaction {
    /// The column family.
    pub family: Arc<FamilyState>,
    /// The version that the plan was made for.
    pub version: Arc<Version>,
    /// The plan.
    pub plan: CompactionPlan,
    /// The picker's progress after this plan, if the plan is a step of a level merge.
    pub progress: Option<PickerProgress>,
    score: f64,
}

impl DueCompaction {
    /// Creates a plan that is not a step of a level merge.
    pub fn new(
        family: &Arc<FamilyState>,
        version: Arc<Version>,
        plan: CompactionPlan,
    ) -> DueCompaction {
        DueCompaction { family: Arc::clone(family), version, plan, progress: None, score: f64::MAX }
    }
    /// Returns the summaries of the input tables.
    pub fn input_summaries(&self) -> impl Iterator<Item = &KlogSummary> {
        let input_ids: HashSet<FileId> = self.plan.inputs.iter().map(|(_, id)| *id).collect();
        self.version
            .tables()
            .filter(move |(_, _, t)| input_ids.contains(&t.meta.id))
            .map(|(_, _, t)| &*t.meta.summary)
    }
    /// Returns true if the input tables are rewritten.
    pub fn rewrites_tables(&self) -> bool {
        !self.plan.trivial_move && self.plan.reason != CompactionReason::RangeDeleted
    }
    /// Returns the bytes that the compaction reads.
    pub fn read_bytes(&self) -> u64 {
        if self.rewrites_tables() { self.input_summaries().map(|s| s.bytes).sum() } else { 0 }
    }
}

/// Selects the most urgent plan of all column families, and those of other column families that are
/// small together with it. Empty if no compaction is due.
pub fn select_due(core: &EngineCore) -> Vec<DueCompaction> {
    let families = core.families.all();
    let mut all: Vec<DueCompaction> =
        families.iter().filter_map(|f| plan_reclamation(core, f)).collect();
    if all.is_empty() {
        all = families.iter().filter_map(|f| next_due(core, f)).collect();
        all.sort_by(|a, b| b.score.total_cmp(&a.score));
    }
    let selected = select_small(all.iter().map(DueCompaction::read_bytes));
    let mut selected = selected.into_iter();
    all.retain(|_| selected.next() == Some(true));
    let threads = thread_count(core, &all);
    if let [alone] = &all[..] {
        let more = disjoint_steps(core, alone, threads - 1);
        all.extend(more);
    }
    all
}

/// Returns the number of compactions to run in parallel.
pub fn thread_count(core: &EngineCore, due: &[DueCompaction]) -> usize {
    let largest = due.iter().map(|d| picker_limits(core, &d.family).table_bytes).max().unwrap_or(0);
    memory_budget::max_parallel_merges(core.memory_budget.limit, largest, core.env.spawn.cores())
}

/// Returns up to `most` further steps of the same merge that share no keys with `due` or each
/// other.
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

/// Returns the shape of a version, with distinct keys counted if a picker needs that.
fn counted_shape(version: &Version) -> TreeShape {
    let shape = TreeShape::from_version(version);
    if spooky::may_have_garbage(&shape) { shape.with_distinct_keys(version) } else { shape }
}

/// Selects which of several merges, given by their input bytes and most urgent first, run together.
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

/// Returns true if any column family needs a compaction.
pub fn is_any_due(core: &EngineCore) -> bool {
    core.families.all().iter().any(|f| is_due(core, f))
}

/// Returns true if the column family needs a compaction.
pub fn is_due(core: &EngineCore, family: &Arc<FamilyState>) -> bool {
    plan_reclamation(core, family).is_some() || next_due(core, family).is_some()
}

/// Returns the next plan that the shape of the column family requires. Remembers a version that
/// needs none.
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

/// Plans the reclamation of tables that range tombstones hide completely from all readers, that
/// consist mostly of tombstones visible to all readers, whose tombstones slow down scans, or that
/// hold many expired entries.
fn plan_reclamation(core: &EngineCore, family: &Arc<FamilyState>) -> Option<DueCompaction> {
    let version = Arc::clone(&family.tree.view().version);
    // The clock is read only if the version has entries that expire.
    let now_ms = if version.expiry_compaction_ms == u64::MAX {
        0
    } else {
        core.logical_clock.confirmed_ms()
    };
    let expired = version.expiry_compaction_ms <= now_ms;
    let crossings = core.skipped_tombstones.threshold_crossings();
    let skipped = family.compaction_cursor.needs_tombstone_check(crossings);
    if !version.has_range_tombstones && !version.has_dense_tombstones && !expired && !skipped {
        return None;
    }
    let (shape, stripes) =
        (TreeShape::from_version(&version), snapshot_stripes(core.live_snapshots(None)));
    let plan =
        range_deleted::pick(&shape, &stripes).or_else(|| dense_tombstones::pick(&shape, &stripes));
    let plan = plan.or_else(|| {
        let plan = skipped_tombstones::pick(&shape, &stripes).filter(|_| skipped);
        if plan.is_none() {
            family.compaction_cursor.mark_tombstone_check_done(crossings);
        }
        plan
    });
    let plan =
        plan.or_else(|| expired_entries::pick(&shape, &stripes, now_ms).filter(|_| expired))?;
    Some(DueCompaction::new(family, version, plan))
}

/// Returns the time until another table is worth a merge because of expired entries, in
/// microseconds, or `None` if nothing expires. `u64::MAX` if all expiry is past and the tables are
/// not worth a merge or are held by a snapshot.
pub fn next_expiry_us(core: &EngineCore) -> Option<u64> {
    let all = core.families.all();
    let times = || {
        all.iter()
            .map(|f| f.tree.with_view(|v| v.version.expiry_compaction_ms))
            .filter(|ms| *ms < u64::MAX)
    };
    times().next()?;
    let now = core.logical_clock.confirmed_ms();
    let next = times().filter(|ms| *ms > now).min();
    Some(next.map_or(u64::MAX, |ms| (ms - now).saturating_mul(1000)))
}

/// Returns true if a column family has tables that can be reclaimed once a snapshot is released.
pub fn has_reclaimable_tables(core: &EngineCore) -> bool {
    core.families.all().iter().any(|f| plan_reclamation(core, f).is_some())
}

/// Returns the picker options of a column family.
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
            "small ones do not wait for the large one"
        );
        assert_eq!(n(&[JOB_BYTES_MAX - 1, 1, 0, 1]), [true, true, true, false]);
        assert_eq!(n(&vec![0; 5000]).iter().filter(|taken| **taken).count(), JOB_FAMILIES_MAX);
    }
}
