//! Spooky (Dayan et al., PVLDB 15(11), 2022): capacities that follow the data, and merges one group
//! of overlapping tables at a time, so that little space is needed beside the data at any moment.
//!
//! The last level L is always the deepest one. With N the bytes of a level, T the ratio:
//! - *Dynamic capacity*: C(i) = N(L) / T^(L-i). Levels come into use, and out of use, as N(L) grows
//!   and shrinks. While N(L) is at most `level1_bytes` every level above has capacity 0: there is
//!   level 0 and the last.
//! - *Preemption*: what a level gives (level 0 because of its runs, any other because it is over
//!   its capacity) goes to the first deeper level z that has room for all of it and all of the
//!   levels between, else to L.
//! - *Partitions*: such a merge goes in key order, one [`Group`] at a time. How far it is, is its
//!   [`LevelMerge`]: the rest goes on even when the level is under its capacity again, so that it
//!   begins its next turn empty.
//! - *Dividing*: where level 0 is cut too coarsely for that, it is merged into L-1 first. Tables
//!   above L end at the boundaries of L's tables, which makes groups small.
//! - What overlaps nothing is moved to the deepest level that it can reach, as it is.
//!
//! Invariant: a plan holds every table between its uppermost and its target level that shares keys
//! with it, and of level 0 every run that is older than one of its own.

use super::super::plan::{CompactionPlan, CompactionReason, TableShape, TreeShape};
use super::PickerOptions;
use super::overlap_group::{OverlapGroup, overlap_groups};
use crate::rewrite::split::boundary_stride;
use crate::version::{SPACE_SHARE, is_worth_estimating};
use perigee_base::key_boundary::{KeyBoundary, KeyBoundaryRef};
use perigee_base::{LevelNo, RunId, limits};
use std::cmp::Ordering::{Greater, Less};

/// The last level.
pub const LAST_LEVEL: usize = limits::LEVELS - 1;
/// The last level consists of at least so many tables, unless they would be very small.
const TABLES_MIN: u64 = 32;
/// Tables that are cut at the last level's boundaries are not smaller than one part in so many of
/// the others.
const CUT_TABLES_MAX: u64 = 64;
/// So many small tables beside each other become one.
const SMALL_TABLES_MIN: usize = 4;

/// A merge under way, from one level into a deeper one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelMerge {
    /// Its target.
    pub target_level: usize,
    /// Why it was begun.
    pub reason: CompactionReason,
    /// It is done up to here.
    pub done_up_to: KeyBoundary,
    /// Of level 0 it takes this run and older ones.
    pub newest_run: RunId,
}

/// How far merges are: the state between two plans. Losing it is harmless.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PickerProgress {
    /// With the level that is emptied. Empty for a family at rest: there may be thousands.
    level_merges: Vec<(usize, LevelMerge)>,
    /// Small tables were looked for up to here.
    small_tables_from: Option<KeyBoundary>,
}

/// Capacity of a level, 1 and deeper.
pub fn capacity(shape: &TreeShape, level: usize, l: &PickerOptions) -> u64 {
    match shape.bytes(LAST_LEVEL) {
        _ if level >= LAST_LEVEL => u64::MAX,
        last if last <= l.level1_bytes => 0,
        last => (level..LAST_LEVEL).fold(last, |c, _| c / l.ratio.max(2)),
    }
}

/// How far each level is over its limit; 1.0 and more wants work.
pub fn scores(shape: &TreeShape, l: &PickerOptions) -> Vec<f64> {
    let runs = shape.levels.first().map_or(0, Vec::len) as f64 / l.level0_runs.max(1) as f64;
    let space = if has_excess_garbage(shape) { 1.0 } else { 0.0 };
    let deeper = (1..LAST_LEVEL).map(|i| match (shape.bytes(i), capacity(shape, i, l)) {
        (0, _) => 0.0,
        (_, 0) => 1.0,
        (n, c) => n as f64 / c as f64,
    });
    std::iter::once(runs.max(space)).chain(deeper).collect()
}

/// The next plan, and the progress once it is carried out.
pub fn pick(
    shape: &TreeShape,
    l: &PickerOptions,
    progress: &PickerProgress,
) -> Option<(CompactionPlan, PickerProgress)> {
    let mut p = progress.clone();
    for from in 0..LAST_LEVEL {
        // A merge under way goes on; one that has come to its end may be due again.
        let at = p.level_merges.iter().position(|(level, _)| *level == from);
        let running = at.map(|at| p.level_merges.swap_remove(at).1).into_iter();
        for drain in running.chain(std::iter::once_with(|| due_merge(shape, l, from)).flatten()) {
            if let Some((plan, behind)) = next_step(shape, l, from, &drain) {
                p.level_merges.push((from, LevelMerge { done_up_to: behind, ..drain }));
                p.small_tables_from = None;
                return Some((plan, p));
            }
        }
    }
    let (plan, behind) = pick_small_tables(shape, l, p.small_tables_from.as_ref())?;
    p.small_tables_from = Some(behind);
    Some((plan, p))
}

/// The plan that follows one that led to `progress`, in the same merge and for the same shape: its
/// tables share no keys with those of the plans before, so that they can be carried out side by
/// side.
pub fn pick_parallel(
    shape: &TreeShape,
    l: &PickerOptions,
    progress: &PickerProgress,
) -> Option<(CompactionPlan, PickerProgress)> {
    let mut p = progress.clone();
    let (from, drain) = p.level_merges.pop()?;
    let (plan, behind) = next_step(shape, l, from, &drain)?;
    p.level_merges.push((from, LevelMerge { done_up_to: behind, ..drain }));
    Some((plan, p))
}

/// The merge that a level is due for.
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
        level_with_room(shape, l, from)
    };
    let drain =
        LevelMerge { target_level: to, reason, done_up_to: KeyBoundary::First, newest_run: newest };
    let between = capacity(shape, LAST_LEVEL - 1, l);
    let coarse = |g: &OverlapGroup<'_>| {
        estimate_kept_bytes(shape, g.bytes) > coarse_group_bytes(shape, l)
            && !g.is_within(LAST_LEVEL)
    };
    if from > 0
        || to < LAST_LEVEL
        || between == 0
        || !overlap_groups(shape, 0..=LAST_LEVEL, newest).iter().any(coarse)
    {
        return Some(drain);
    }
    // What lies between makes groups coarse as well: it goes on first, or all that is written would
    // gather there.
    (shape.bytes(LAST_LEVEL - 1) <= between)
        .then_some(LevelMerge { target_level: LAST_LEVEL - 1, ..drain })
}

/// Of so many bytes those that a merge would keep, if that was counted.
fn estimate_kept_bytes(shape: &TreeShape, bytes: u64) -> u64 {
    let (above, last) = entry_counts(shape);
    let share =
        |keys: u64| u128::from(bytes) * u128::from(keys) / u128::from((above + last).max(1));
    shape
        .distinct_keys
        .map_or(bytes, |keys| u64::try_from(share(keys)).map_or(bytes, |b| b.min(bytes)))
}

/// Bytes at which tables are cut: smaller than the family's while there is little data, so that a
/// group is a small part of it.
pub fn table_bytes(shape: &TreeShape, l: &PickerOptions) -> u64 {
    (shape.bytes(LAST_LEVEL) / TABLES_MIN).clamp(l.table_bytes / 8, l.table_bytes).max(1)
}

/// A group of so many bytes is not merged into the last level at once.
fn coarse_group_bytes(shape: &TreeShape, l: &PickerOptions) -> u64 {
    (4 * table_bytes(shape, l)).max(shape.bytes(LAST_LEVEL) / l.ratio.max(2))
}

/// The first level below that has room for everything down to it.
fn level_with_room(shape: &TreeShape, l: &PickerOptions, from: usize) -> usize {
    let mut sum = shape.bytes(from);
    let fits = |z: &usize| {
        sum = sum.saturating_add(shape.bytes(*z));
        sum <= capacity(shape, *z, l)
    };
    (from + 1..LAST_LEVEL).find(fits).unwrap_or(LAST_LEVEL)
}

/// Entries above the last level and in it, tombstones twice: each hides another one, and goes
/// itself.
fn entry_counts(shape: &TreeShape) -> (u64, u64) {
    let of = |level| shape.tables(level).map(|t| t.entries + t.tombstones).sum::<u64>();
    ((0..LAST_LEVEL).map(of).sum(), of(LAST_LEVEL))
}

/// Whether it is worth counting how many different keys there are.
pub fn may_have_garbage(shape: &TreeShape) -> bool {
    let (above, last) = entry_counts(shape);
    is_worth_estimating(above, last)
}

/// Whether overwritten entries take up more than their share, and a merge would remove them.
fn has_excess_garbage(shape: &TreeShape) -> bool {
    let (above, last) = entry_counts(shape);
    let hidden = |keys: u64| (above + last).saturating_sub(keys);
    may_have_garbage(shape)
        && shape.distinct_keys.is_some_and(|d| hidden(d).saturating_mul(SPACE_SHARE) > d)
}

/// The next plan of a merge under way, and the place that it is done up to then.
fn next_step(
    shape: &TreeShape,
    l: &PickerOptions,
    from: usize,
    d: &LevelMerge,
) -> Option<(CompactionPlan, KeyBoundary)> {
    let order = shape.comparator;
    let all = overlap_groups(shape, from..=d.target_level, d.newest_run);
    let done = all.partition_point(|g| g.last.cmp(order, d.done_up_to.as_ref()) != Greater);
    let rest = &all[done..];
    let at = rest.iter().position(|g| !g.is_within(d.target_level))?;
    let mut group = rest[at].clone();
    if let Some(depth) = trivial_move_depth(shape, l, d.target_level, &group) {
        for next in rest[at + 1..].iter().filter(|g| !g.is_within(d.target_level)) {
            match self::trivial_move_depth(shape, l, d.target_level, next) {
                Some(same) if same == depth => group.join(next),
                _ => break,
            }
        }
        let behind = group.last.to_boundary();
        let moved = CompactionPlan::merge(d.reason, group.inputs().collect(), LevelNo(depth as u8));
        return Some((CompactionPlan { trivial_move: true, ..moved }, behind));
    }
    let table_bytes = self::table_bytes(shape, l);
    for next in &rest[at + 1..] {
        let small = next.bytes < table_bytes / 16 && group.bytes < table_bytes / 2;
        let wanted = small
            || !next.is_within(d.target_level)
                && self::trivial_move_depth(shape, l, d.target_level, next).is_none();
        if !wanted || group.bytes + next.bytes > table_bytes {
            break;
        }
        group.join(next);
    }
    let plan =
        CompactionPlan::merge(d.reason, group.inputs().collect(), LevelNo(d.target_level as u8));
    let behind = group.last.to_boundary();
    if d.target_level == LAST_LEVEL {
        return Some((
            CompactionPlan {
                table_bytes: Some(even_table_bytes(group.bytes, table_bytes)),
                ..plan
            },
            behind,
        ));
    }
    let cuts = boundaries(shape, (group.first, group.last), group.bytes, table_bytes);
    Some((CompactionPlan { cuts, table_bytes: Some(table_bytes), ..plan }, behind))
}

/// How deep a group can be moved as it is: a single table of an upper level with nothing to clear
/// away.
fn trivial_move_depth(
    shape: &TreeShape,
    l: &PickerOptions,
    to: usize,
    group: &OverlapGroup<'_>,
) -> Option<usize> {
    let [(level, t)] = group.tables[..] else { return None };
    // Range tombstones, and tombstones above the last level, are written anew, so that those with
    // nothing left to hide go.
    if level == to || t.range_tombstones.is_some() || t.tombstones.saturating_mul(4) > t.entries {
        return None;
    }
    let beneath = |z: usize| overlapping(shape, z, group.first, group.last);
    let depth =
        (to + 1..=LAST_LEVEL).find(|z| beneath(*z).next().is_some()).unwrap_or(LAST_LEVEL + 1) - 1;
    // A table over many of the last level would make one large group of them: it is cut instead.
    let coarse = depth < LAST_LEVEL
        && beneath(LAST_LEVEL).map(|t| t.bytes).sum::<u64>() > coarse_group_bytes(shape, l);
    (!coarse).then_some(depth)
}

/// The places between the tables of the last level that lie between two others; of many only every
/// so many-th, so that tables of `bytes` bytes in all, cut there, are not smaller than a part of
/// `table_bytes`.
pub fn boundaries(
    shape: &TreeShape,
    (first, last): (KeyBoundaryRef<'_>, KeyBoundaryRef<'_>),
    bytes: u64,
    table_bytes: u64,
) -> Vec<KeyBoundary> {
    let order = shape.comparator;
    let inside =
        |c: &KeyBoundaryRef<'_>| c.cmp(order, first) == Greater && c.cmp(order, last) == Less;
    let starts: Vec<(usize, KeyBoundaryRef<'_>)> = shape
        .tables(LAST_LEVEL)
        .map(|t| t.first.as_ref())
        .enumerate()
        .filter(|(_, c)| inside(c))
        .collect();
    // By their place among all, so that every run is cut at the same places.
    let stride = boundary_stride(starts.len(), bytes, table_bytes / CUT_TABLES_MAX);
    starts.into_iter().filter(|(i, _)| i % stride == 0).map(|(_, c)| c.to_boundary()).collect()
}

/// Tables of about equal size, none far from the family's.
fn even_table_bytes(bytes: u64, table_bytes: u64) -> u64 {
    let target = table_bytes.max(1);
    let tables = bytes.div_ceil(target + target / 2).max(1);
    (bytes / tables + bytes / tables / 16).max(target / 2)
}

/// Small tables of the last level beside each other, from a place on, and the place behind them.
fn pick_small_tables(
    shape: &TreeShape,
    l: &PickerOptions,
    from: Option<&KeyBoundary>,
) -> Option<(CompactionPlan, KeyBoundary)> {
    let (order, table_bytes) = (shape.comparator, self::table_bytes(shape, l));
    let mut row: Vec<&TableShape> = Vec::new();
    let mut bytes = 0;
    let full = |row: &[&TableShape]| row.len() >= SMALL_TABLES_MIN;
    for t in shape
        .tables(LAST_LEVEL)
        .filter(|t| from.is_none_or(|f| t.first.as_ref().cmp(order, f.as_ref()) != Less))
    {
        if t.bytes >= table_bytes / 4 || bytes + t.bytes > table_bytes {
            if full(&row) {
                break;
            }
            (row, bytes) = (Vec::new(), 0);
        }
        if t.bytes < table_bytes / 4 {
            row.push(t);
            bytes += t.bytes;
        }
    }
    let behind = row.last().filter(|_| full(&row))?.last.clone();
    let inputs = row.iter().map(|t| (LevelNo(LAST_LEVEL as u8), t.id)).collect();
    Some((
        CompactionPlan::merge(CompactionReason::SmallTables, inputs, LevelNo(LAST_LEVEL as u8)),
        behind,
    ))
}

/// Tables of `level` that reach into the range between two places.
pub fn overlapping<'a>(
    shape: &'a TreeShape,
    level: usize,
    first: KeyBoundaryRef<'a>,
    last: KeyBoundaryRef<'a>,
) -> impl Iterator<Item = &'a TableShape> {
    let order = shape.comparator;
    shape.tables(level).filter(move |t| {
        KeyBoundaryRef::ranges_overlap(order, (t.first.as_ref(), t.last.as_ref()), (first, last))
    })
}
