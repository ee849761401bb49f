//! Determines which compactions are due and which of them one job runs: a large one alone, small
//! ones of many column families together, as `task_group` does for flushes. Runs none of them.

use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::limits::{COMPACTION_FAMILIES_MAX, COMPACTION_GROUP_BYTES_MAX};
use crate::resources::Resources;
use crate::resources::write_pressure::LEVEL0_TRIGGER;
use perigee_base::{ExpiryClock, FileId};
use perigee_file::KlogSummary;
use perigee_tree::Version;
use perigee_tree::compact::{
    CompactionPlan, CompactionReason, PickerOptions, PickerProgress, TreeShape, level_scores,
    may_have_garbage, pick, pick_dense_tombstones, pick_expired_entries, pick_parallel,
    pick_range_deleted, pick_skipped_tombstones,
};
use std::collections::HashSet;
use std::sync::Arc;

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
pub fn select_due(catalog: &Catalog) -> Vec<DueCompaction> {
    let families = catalog.families().all();
    let mut all: Vec<DueCompaction> =
        families.iter().filter_map(|f| plan_reclamation(catalog, f)).collect();
    if all.is_empty() {
        all = families.iter().filter_map(|f| next_due(&catalog.resources, f)).collect();
        all.sort_by(|a, b| b.score.total_cmp(&a.score));
    }
    let selected = select_small(all.iter().map(DueCompaction::read_bytes));
    let mut selected = selected.into_iter();
    all.retain(|_| selected.next() == Some(true));
    let threads = thread_count(&catalog.resources, &all);
    if let [alone] = &all[..] {
        let more = disjoint_steps(&catalog.resources, alone, threads - 1);
        all.extend(more);
        let inputs = || all.iter().flat_map(|d| d.plan.inputs.iter().map(|(_, id)| *id));
        check!(
            inputs().collect::<HashSet<FileId>>().len() == inputs().count(),
            "compactions that run in parallel share no table",
            all.len()
        );
    }
    all
}

/// Returns the number of compactions to run in parallel.
pub fn thread_count(resources: &Resources, due: &[DueCompaction]) -> usize {
    let largest =
        due.iter().map(|d| picker_limits(resources, &d.family).table_bytes).max().unwrap_or(0);
    resources.max_parallel_merges(largest)
}

/// Returns up to `most` further steps of the same merge that share no keys with `due` or each
/// other.
fn disjoint_steps(resources: &Resources, due: &DueCompaction, most: usize) -> Vec<DueCompaction> {
    let mut all: Vec<DueCompaction> = Vec::new();
    if most == 0 || !due.rewrites_tables() || !due.plan.reason.is_level_merge() {
        return all;
    }
    let (shape, limits) = (counted_shape(&due.version), picker_limits(resources, &due.family));
    while all.len() < most {
        let last = all.last().unwrap_or(due);
        let Some((plan, progress)) =
            last.progress.as_ref().and_then(|p| pick_parallel(&shape, &limits, p))
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
    if may_have_garbage(&shape) { shape.with_distinct_keys(version) } else { shape }
}

/// Selects which of several merges, given by their input bytes and most urgent first, run together.
fn select_small(bytes: impl Iterator<Item = u64>) -> Vec<bool> {
    let (mut sum, mut taken) = (0, 0);
    bytes
        .map(|bytes| {
            let fits = taken == 0
                || (taken < COMPACTION_FAMILIES_MAX && sum + bytes <= COMPACTION_GROUP_BYTES_MAX);
            if fits {
                (sum, taken) = (sum + bytes, taken + 1);
            }
            fits
        })
        .collect()
}

/// Returns true if any column family needs a compaction.
pub fn is_any_due(catalog: &Catalog) -> bool {
    catalog.families().all().iter().any(|f| is_due(catalog, f))
}

/// Returns true if the column family needs a compaction.
pub fn is_due(catalog: &Catalog, family: &Arc<FamilyState>) -> bool {
    plan_reclamation(catalog, family).is_some() || next_due(&catalog.resources, family).is_some()
}

/// Returns the next plan that the shape of the column family requires. Remembers a version that
/// needs none.
fn next_due(resources: &Resources, family: &Arc<FamilyState>) -> Option<DueCompaction> {
    let version = Arc::clone(&family.tree.view().version);
    let limits = picker_limits(resources, family);
    let progress = family.compaction_cursor.pending_progress(&version, limits)?;
    let shape = counted_shape(&version);
    let Some((plan, progress)) = pick(&shape, &limits, &progress) else {
        family.compaction_cursor.mark_idle(&version, limits);
        return None;
    };
    let score = level_scores(&shape, &limits).into_iter().fold(0.0, f64::max);
    Some(DueCompaction {
        progress: Some(progress),
        score,
        ..DueCompaction::new(family, version, plan)
    })
}

/// Plans the reclamation of tables that range tombstones hide completely from all readers, that
/// consist mostly of tombstones visible to all readers, whose tombstones slow down scans, or that
/// hold many expired entries.
fn plan_reclamation(catalog: &Catalog, family: &Arc<FamilyState>) -> Option<DueCompaction> {
    let version = Arc::clone(&family.tree.view().version);
    // The clock is read only if the version has entries that expire.
    let now_ms = if version.expiry_compaction_ms == u64::MAX {
        0
    } else {
        catalog.runtime.logical_clock.confirmed_ms()
    };
    let expired = version.expiry_compaction_ms <= now_ms;
    let crossings = catalog.resources.skipped_tombstones_crossings();
    let skipped = family.compaction_cursor.needs_tombstone_check(crossings);
    if !version.has_range_tombstones && !version.has_dense_tombstones && !expired && !skipped {
        return None;
    }
    let (shape, stripes) = (TreeShape::from_version(&version), catalog.snapshot_stripes());
    let plan =
        pick_range_deleted(&shape, &stripes).or_else(|| pick_dense_tombstones(&shape, &stripes));
    let plan = plan.or_else(|| {
        let plan = pick_skipped_tombstones(&shape, &stripes).filter(|_| skipped);
        if plan.is_none() {
            family.compaction_cursor.mark_tombstone_check_done(crossings);
        }
        plan
    });
    let plan =
        plan.or_else(|| pick_expired_entries(&shape, &stripes, now_ms).filter(|_| expired))?;
    Some(DueCompaction::new(family, version, plan))
}

/// Returns the time until another table is worth a merge because of expired entries, in
/// microseconds, or `None` if nothing expires. `u64::MAX` if all expiry is past and the tables are
/// not worth a merge or are held by a snapshot.
pub fn next_expiry_us(catalog: &Catalog) -> Option<u64> {
    let all = catalog.families().all();
    let times = || {
        all.iter()
            .map(|f| f.tree.with_view(|v| v.version.expiry_compaction_ms))
            .filter(|ms| *ms < u64::MAX)
    };
    times().next()?;
    let now = catalog.runtime.logical_clock.confirmed_ms();
    let next = times().filter(|ms| *ms > now).min();
    Some(next.map_or(u64::MAX, |ms| (ms - now).saturating_mul(1000)))
}

/// Returns true if a column family has tables that can be reclaimed once a snapshot is released.
pub fn has_reclaimable_tables(catalog: &Catalog) -> bool {
    catalog.families().all().iter().any(|f| plan_reclamation(catalog, f).is_some())
}

/// Returns the picker options of a column family.
fn picker_limits(resources: &Resources, family: &FamilyState) -> PickerOptions {
    PickerOptions {
        level0_runs: LEVEL0_TRIGGER,
        level1_bytes: family.settings().level1_bytes,
        ratio: u64::from(family.settings().level_ratio),
        table_bytes: resources.target_table_bytes(family.settings().target_file_bytes),
        vlog_garbage_percent: resources.vlog_garbage_percent(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_small_compactions_and_isolates_large() {
        let n = |bytes: &[u64]| select_small(bytes.iter().copied());
        assert_eq!(n(&[]), []);
        assert_eq!(n(&[COMPACTION_GROUP_BYTES_MAX * 9, 1]), [true, false]);
        assert_eq!(
            n(&[1, COMPACTION_GROUP_BYTES_MAX, 2]),
            [true, false, true],
            "small ones do not wait for the large one"
        );
        assert_eq!(n(&[COMPACTION_GROUP_BYTES_MAX - 1, 1, 0, 1]), [true, true, true, false]);
        assert_eq!(
            n(&vec![0; 5000]).iter().filter(|taken| **taken).count(),
            COMPACTION_FAMILIES_MAX
        );
    }
}
