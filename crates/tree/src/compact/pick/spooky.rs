//! Spooky compaction (Dayan et al., PVLDB 15(11), 2022): level capacities follow the data size, and
//! merges take one group of overlapping tables at a time, so that transient space use stays small.
//!
//! The last level L is always the deepest one. With N the bytes of a level and T the size ratio:
//! - *Dynamic capacity*: C(i) = N(L) / T^(L-i). Levels come into and go out of use as N(L) grows
//!   and shrinks. While N(L) is at most `level1_bytes`, every level in between has capacity 0: only
//!   level 0 and the last level are in use.
//! - *Preemption*: the data of a level that is due (level 0 by its number of runs, any other level
//!   by exceeding its capacity) goes to the first deeper level z with capacity for that data and
//!   all levels down to z, else to L.
//! - *Partial merges*: such a merge proceeds in key order, one [`OverlapGroup`] at a time, with its
//!   progress in a [`LevelMerge`]. It runs to its end even if the level drops below its capacity,
//!   so that the level is empty when it becomes due again.
//! - *Dividing*: if the level 0 groups are too coarse for that, level 0 is merged into L-1 first.
//!   Tables above L end at the boundaries of L's tables, which keeps groups small.
//! - Tables that overlap nothing are moved, without a rewrite, to the deepest level possible.
//!
//! Invariant: a plan contains every table between its uppermost and its target level that overlaps
//! one of its tables, and of level 0 every run that is older than one of its own.

use super::super::plan::{CompactionPlan, CompactionReason, TableShape, TreeShape};
use super::PickerOptions;
use super::overlap_group::{OverlapGroup, overlap_groups};
use crate::limits::{CUT_TABLES_MAX, LAST_LEVEL_TABLES_MIN, SMALL_TABLES_MIN};
use crate::rewrite::boundary_stride;
use crate::version::{EntriesByLevel, SPACE_SHARE, is_worth_estimating};
use perigee_base::{Bytes, KeyBoundary, KeyBoundaryRef, LevelNo, RunId, limits};
use std::cmp::Ordering::{Greater, Less};
use std::ops::Range;

/// Number of the last level.
pub const LAST_LEVEL: usize = limits::LEVELS - 1;

/// A merge in progress, from one level into a deeper one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelMerge {
    /// Target level.
    pub target_level: usize,
    /// Reason for which the merge was started.
    pub reason: CompactionReason,
    /// Boundary up to which the merge is done.
    pub done_up_to: KeyBoundary,
    /// Newest level 0 run that takes part in the merge.
    pub newest_run: RunId,
}

/// Progress of merges: the state between two plans. Losing it is harmless.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PickerProgress {
    /// Merges in progress, each with its source level. Empty for an idle column family, as there
    /// may be thousands of them.
    level_merges: Vec<(usize, LevelMerge)>,
    /// Boundary from which the search for small tables continues.
    small_tables_from: Option<KeyBoundary>,
}

/// Capacity in bytes of a level (1 and deeper).
pub fn capacity(shape: &TreeShape, level: usize, l: &PickerOptions) -> u64 {
    match shape.bytes(LAST_LEVEL) {
        _ if level >= LAST_LEVEL => u64::MAX,
        last if last <= l.level1_bytes => 0,
        last => (level..LAST_LEVEL).fold(last, |c, _| c / l.ratio.max(2)),
    }
}

/// Returns the ratio of each level's size to its limit; a level is due for compaction at 1.0.
pub fn level_scores(shape: &TreeShape, l: &PickerOptions) -> Vec<f64> {
    let runs = shape.levels.first().map_or(0, Vec::len) as f64 / l.level0_runs.max(1) as f64;
    let space = if has_excess_garbage(shape) { 1.0 } else { 0.0 };
    let deeper = (1..LAST_LEVEL).map(|i| match (shape.bytes(i), capacity(shape, i, l)) {
        (0, _) => 0.0,
        (_, 0) => 1.0,
        (n, c) => n as f64 / c as f64,
    });
    std::iter::once(runs.max(space)).chain(deeper).collect()
}

/// Returns the next plan, and the progress once it has been executed.
pub fn pick(
    shape: &TreeShape,
    l: &PickerOptions,
    progress: &PickerProgress,
) -> Option<(CompactionPlan, PickerProgress)> {
    let mut p = progress.clone();
    for from in 0..LAST_LEVEL {
        // A merge in progress continues; one that has finished may be due again.
        let index = p.level_merges.iter().position(|(level, _)| *level == from);
        let running = index.map(|index| p.level_merges.swap_remove(index).1).into_iter();
        for merge in running.chain(std::iter::once_with(|| due_merge(shape, l, from)).flatten()) {
            if let Some((plan, done_up_to)) = next_step(shape, l, from, &merge) {
                p.level_merges.push((from, LevelMerge { done_up_to, ..merge }));
                p.small_tables_from = None;
                return Some((plan, p));
            }
        }
    }
    let (plan, done_up_to) = pick_small_tables(shape, l, p.small_tables_from.as_ref())?;
    p.small_tables_from = Some(done_up_to);
    Some((plan, p))
}

/// Returns the plan that follows the one that led to `progress`, in the same merge and for the same
/// shape. Its tables do not overlap those of the previous plans, so that they can run in parallel.
pub fn pick_parallel(
    shape: &TreeShape,
    l: &PickerOptions,
    progress: &PickerProgress,
) -> Option<(CompactionPlan, PickerProgress)> {
    let mut p = progress.clone();
    let (from, merge) = p.level_merges.pop()?;
    let (plan, done_up_to) = next_step(shape, l, from, &merge)?;
    p.level_merges.push((from, LevelMerge { done_up_to, ..merge }));
    Some((plan, p))
}

/// Returns the merge that is due for level `from`, if any.
fn due_merge(shape: &TreeShape, l: &PickerOptions, from: usize) -> Option<LevelMerge> {
    let runs = shape.levels[from].len();
    let reason = match from {
        0 if runs >= l.level0_runs.max(1) => CompactionReason::Level0Runs,
        0 if has_excess_garbage(shape) => CompactionReason::OverwrittenEntries,
        0 => return None,
        _ if runs > 0 && shape.bytes(from) > capacity(shape, from, l) => {
            CompactionReason::LevelBytes
        }
        _ => return None,
    };
    let newest = shape.tables(0).map(|t| t.run).max().unwrap_or(RunId(0));
    let to = if reason == CompactionReason::OverwrittenEntries {
        LAST_LEVEL
    } else {
        level_with_capacity(shape, l, from)
    };
    let merge =
        LevelMerge { target_level: to, reason, done_up_to: KeyBoundary::First, newest_run: newest };
    let upper_capacity = capacity(shape, LAST_LEVEL - 1, l);
    let coarse = |g: &OverlapGroup<'_>| {
        estimate_kept_bytes(shape, g.bytes) > coarse_group_bytes(shape, l)
            && !g.is_within(LAST_LEVEL)
    };
    if from > 0
        || to < LAST_LEVEL
        || upper_capacity == 0
        || !overlap_groups(shape, 0..=LAST_LEVEL, newest).iter().any(coarse)
    {
        return Some(merge);
    }
    // Level L-1 makes groups coarse as well: when it is over its capacity it is merged first, or
    // all new data would accumulate in it.
    (shape.bytes(LAST_LEVEL - 1) <= upper_capacity)
        .then_some(LevelMerge { target_level: LAST_LEVEL - 1, ..merge })
}

/// Estimates how many of `bytes` bytes a merge keeps; returns `bytes` if distinct keys were not
/// counted.
fn estimate_kept_bytes(shape: &TreeShape, bytes: u64) -> u64 {
    let (above, last) = entry_counts(shape);
    let share =
        |keys: u64| u128::from(bytes) * u128::from(keys) / u128::from((above + last).max(1));
    shape
        .distinct_keys
        .map_or(bytes, |keys| u64::try_from(share(keys)).map_or(bytes, |b| b.min(bytes)))
}

/// Returns the target table size: smaller than the column family's while there is little data, so
/// that a group is a small part of it.
pub fn table_bytes(shape: &TreeShape, l: &PickerOptions) -> u64 {
    (shape.bytes(LAST_LEVEL) / LAST_LEVEL_TABLES_MIN).clamp(l.table_bytes / 8, l.table_bytes).max(1)
}

/// Returns the size from which a group is too coarse to be merged into the last level at once.
fn coarse_group_bytes(shape: &TreeShape, l: &PickerOptions) -> u64 {
    (4 * table_bytes(shape, l)).max(shape.bytes(LAST_LEVEL) / l.ratio.max(2))
}

/// Returns the first deeper level with capacity for all data from level `from` down to it.
fn level_with_capacity(shape: &TreeShape, l: &PickerOptions, from: usize) -> usize {
    let mut sum = shape.bytes(from);
    let fits = |z: &usize| {
        sum = sum.saturating_add(shape.bytes(*z));
        sum <= capacity(shape, *z, l)
    };
    (from + 1..LAST_LEVEL).find(fits).unwrap_or(LAST_LEVEL)
}

/// Returns the entries above the last level and in it. Tombstones count twice: each removes another
/// entry, and itself.
fn entry_counts(shape: &TreeShape) -> (u64, u64) {
    let count = |level| shape.tables(level).map(|t| t.entries + t.tombstones).sum::<u64>();
    ((0..LAST_LEVEL).map(count).sum(), count(LAST_LEVEL))
}

/// Returns true if counting the distinct keys is worthwhile.
pub fn may_have_garbage(shape: &TreeShape) -> bool {
    let (above, last) = entry_counts(shape);
    is_worth_estimating(EntriesByLevel { above, last })
}

/// Returns true if overwritten entries exceed their share of the space and a merge would remove
/// them.
fn has_excess_garbage(shape: &TreeShape) -> bool {
    let (above, last) = entry_counts(shape);
    let hidden = |keys: u64| (above + last).saturating_sub(keys);
    may_have_garbage(shape)
        && shape.distinct_keys.is_some_and(|d| hidden(d).saturating_mul(SPACE_SHARE) > d)
}

/// Returns the next plan of a merge in progress, and the boundary up to which it is then done.
fn next_step(
    shape: &TreeShape,
    l: &PickerOptions,
    from: usize,
    d: &LevelMerge,
) -> Option<(CompactionPlan, KeyBoundary)> {
    let comparator = shape.comparator;
    let all = overlap_groups(shape, from..=d.target_level, d.newest_run);
    let done = all.partition_point(|g| g.last.cmp(comparator, d.done_up_to.as_ref()) != Greater);
    let rest = &all[done..];
    let index = rest.iter().position(|g| !g.is_within(d.target_level))?;
    let mut group = rest[index].clone();
    check!(
        from < d.target_level && d.target_level <= LAST_LEVEL,
        "a merge moves entries down",
        from,
        d.target_level
    );
    check!(
        group.last.cmp(comparator, d.done_up_to.as_ref()) == Greater,
        "each step of a merge advances",
        d.done_up_to
    );
    if let Some(depth) = trivial_move_depth(shape, l, d.target_level, &group) {
        for next in rest[index + 1..].iter().filter(|g| !g.is_within(d.target_level)) {
            match self::trivial_move_depth(shape, l, d.target_level, next) {
                Some(same) if same == depth => group.join(next),
                _ => break,
            }
        }
        let done_up_to = group.last.to_boundary();
        let moved = CompactionPlan::merge(d.reason, group.inputs().collect(), LevelNo(depth as u8));
        return Some((CompactionPlan { trivial_move: true, ..moved }, done_up_to));
    }
    let table_bytes = self::table_bytes(shape, l);
    for next in &rest[index + 1..] {
        let is_small = next.bytes < table_bytes / 16 && group.bytes < table_bytes / 2;
        let joins = is_small
            || !next.is_within(d.target_level)
                && self::trivial_move_depth(shape, l, d.target_level, next).is_none();
        if !joins || group.bytes + next.bytes > table_bytes {
            break;
        }
        group.join(next);
    }
    let plan =
        CompactionPlan::merge(d.reason, group.inputs().collect(), LevelNo(d.target_level as u8));
    let done_up_to = group.last.to_boundary();
    if d.target_level == LAST_LEVEL {
        return Some((
            CompactionPlan {
                table_bytes: Some(even_table_bytes(group.bytes, table_bytes)),
                ..plan
            },
            done_up_to,
        ));
    }
    let cuts = boundaries(shape, group.first..group.last, Bytes(group.bytes), table_bytes);
    Some((CompactionPlan { cuts, table_bytes: Some(table_bytes), ..plan }, done_up_to))
}

/// Returns the deepest level to which a group can be moved without a rewrite, if it is a single
/// table of an upper level with nothing to drop.
fn trivial_move_depth(
    shape: &TreeShape,
    l: &PickerOptions,
    to: usize,
    group: &OverlapGroup<'_>,
) -> Option<usize> {
    let [(level, t)] = group.tables[..] else { return None };
    // Tables with range tombstones, or with many tombstones above the last level, are rewritten,
    // which drops tombstones that no longer hide anything.
    if level == to || t.range_tombstones.is_some() || t.tombstones.saturating_mul(4) > t.entries {
        return None;
    }
    let overlapping_at = |z: usize| overlapping(shape, z, group.first, group.last);
    let depth = (to + 1..=LAST_LEVEL)
        .find(|z| overlapping_at(*z).next().is_some())
        .unwrap_or(LAST_LEVEL + 1)
        - 1;
    // A table that overlaps many tables of the last level would form one large group with them: it
    // is rewritten and cut instead.
    let coarse = depth < LAST_LEVEL
        && overlapping_at(LAST_LEVEL).map(|t| t.bytes).sum::<u64>() > coarse_group_bytes(shape, l);
    (!coarse).then_some(depth)
}

/// Returns the boundaries between tables of the last level that lie between the ends of `keys`.
/// Leaves out enough of them, at a regular stride, that tables of `bytes` in total, cut
/// there, are not smaller than a fraction of `table_bytes`.
pub fn boundaries(
    shape: &TreeShape,
    keys: Range<KeyBoundaryRef<'_>>,
    bytes: Bytes,
    table_bytes: u64,
) -> Vec<KeyBoundary> {
    let comparator = shape.comparator;
    let inside = |c: &KeyBoundaryRef<'_>| {
        c.cmp(comparator, keys.start) == Greater && c.cmp(comparator, keys.end) == Less
    };
    let starts: Vec<(usize, KeyBoundaryRef<'_>)> = shape
        .tables(LAST_LEVEL)
        .map(|t| t.first.as_ref())
        .enumerate()
        .filter(|(_, c)| inside(c))
        .collect();
    // Selected by their index among all boundaries, so that every run is cut at the same keys.
    let stride = boundary_stride(starts.len(), bytes, table_bytes / CUT_TABLES_MAX);
    check_slow!(
        starts.windows(2).all(|w| w[0].1.cmp(comparator, w[1].1) == Less),
        "the tables of the last level ascend",
        starts.len()
    );
    starts.into_iter().filter(|(i, _)| i % stride == 0).map(|(_, c)| c.to_boundary()).collect()
}

/// Returns a table size that divides `bytes` into tables of about equal size, close to the column
/// family's.
fn even_table_bytes(bytes: u64, table_bytes: u64) -> u64 {
    let target = table_bytes.max(1);
    let tables = bytes.div_ceil(target + target / 2).max(1);
    check!(tables <= bytes.max(1), "an even cut does not make empty tables", tables, bytes);
    (bytes / tables + bytes / tables / 16).max(target / 2)
}

/// Picks adjacent small tables of the last level, starting at `from`; also returns the boundary
/// after them.
fn pick_small_tables(
    shape: &TreeShape,
    l: &PickerOptions,
    from: Option<&KeyBoundary>,
) -> Option<(CompactionPlan, KeyBoundary)> {
    let (comparator, table_bytes) = (shape.comparator, self::table_bytes(shape, l));
    let mut group: Vec<&TableShape> = Vec::new();
    let mut bytes = 0;
    let is_full = |group: &[&TableShape]| group.len() >= SMALL_TABLES_MIN;
    for t in shape
        .tables(LAST_LEVEL)
        .filter(|t| from.is_none_or(|f| t.first.as_ref().cmp(comparator, f.as_ref()) != Less))
    {
        if t.bytes >= table_bytes / 4 || bytes + t.bytes > table_bytes {
            if is_full(&group) {
                break;
            }
            (group, bytes) = (Vec::new(), 0);
        }
        if t.bytes < table_bytes / 4 {
            group.push(t);
            bytes += t.bytes;
        }
    }
    check!(bytes <= table_bytes, "small tables are merged into one", bytes, table_bytes);
    let end = group.last().filter(|_| is_full(&group))?.last.clone();
    let inputs = group.iter().map(|t| (LevelNo(LAST_LEVEL as u8), t.id)).collect();
    Some((
        CompactionPlan::merge(CompactionReason::SmallTables, inputs, LevelNo(LAST_LEVEL as u8)),
        end,
    ))
}

/// Returns the tables of `level` that overlap the range between two boundaries.
pub fn overlapping<'a>(
    shape: &'a TreeShape,
    level: usize,
    first: KeyBoundaryRef<'a>,
    last: KeyBoundaryRef<'a>,
) -> impl Iterator<Item = &'a TableShape> {
    let comparator = shape.comparator;
    shape.tables(level).filter(move |t| {
        KeyBoundaryRef::ranges_overlap(
            comparator,
            (t.first.as_ref(), t.last.as_ref()),
            (first, last),
        )
    })
}
