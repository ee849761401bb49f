//! Value-log garbage collection. Two rules:
//! - A value log is emptied by rewriting the tables that reference it, one at a time, each within
//!   its level: one that is mostly garbage, or, while there is too much garbage in all value logs
//!   together, the one with the largest share of it, which frees most for the bytes that are moved.
//! - Tables whose newer entries may hide separated values of older ones, far larger than the tables
//!   themselves, are merged: only that ends the references to these values. The sizes of the tables
//!   alone, by which levels are merged, do not show such garbage.

use super::super::plan::{CompactionPlan, CompactionReason, TableShape, TreeShape, VlogShape};
use super::PickerOptions;
use super::overlap_group::{OverlapGroup, overlap_groups};
use super::spooky::LAST_LEVEL;
use crate::limits::{
    COLLECTED_VLOG_BYTES_MIN, COLLECTED_VLOG_SHARE_MIN, HIDDEN_VLOG_BYTES_MIN,
    HIDDEN_VLOG_SHARE_MIN,
};
use perigee_base::{FileId, LevelNo, RunId};
use std::cmp::Reverse;

/// Returns the plan of either rule.
pub fn pick(shape: &TreeShape, limits: &PickerOptions) -> Option<CompactionPlan> {
    if shape.vlogs.is_empty() {
        return None;
    }
    pick_unreferenced(shape, limits.vlog_garbage_percent).or_else(|| pick_hidden(shape))
}

/// Returns a plan that empties, in one table below level 0, the value log with the largest share of
/// garbage that is due, and others that are due and that the table references. Level 0 runs are
/// ordered by age: they are left to the merge into a deeper level, which is soon due.
fn pick_unreferenced(shape: &TreeShape, garbage_percent: u64) -> Option<CompactionPlan> {
    let due = due_vlogs(shape, garbage_percent);
    due.iter().find_map(|vlog| {
        let (level, table) = (1..shape.levels.len()).rev().find_map(|level| {
            Some((level, shape.tables(level).find(|t| t.vlogs.contains(vlog))?))
        })?;
        let level = LevelNo(level as u8);
        let relocate_vlogs = due.iter().filter(|id| table.vlogs.contains(id)).copied().collect();
        let (reason, inputs) = (CompactionReason::VlogGarbage, vec![(level, table.id)]);
        Some(CompactionPlan { relocate_vlogs, ..CompactionPlan::merge(reason, inputs, level) })
    })
}

/// Returns the value logs to be collected, those with the largest share of garbage first: all that
/// are mostly garbage, and if the garbage of all exceeds `garbage_percent` of the live bytes, as
/// many others as hold a quarter of what is allowed in addition to the excess, so that the tables
/// are not rewritten for each of them. Those without live bytes are not collected but deleted.
fn due_vlogs(shape: &TreeShape, garbage_percent: u64) -> Vec<FileId> {
    let mut used: Vec<_> = shape.vlogs.iter().filter(|(_, v)| v.referenced_bytes > 0).collect();
    used.sort_by_key(|(_, v)| Reverse(v.garbage_permille()));
    let sum = |bytes: fn(&VlogShape) -> u64| {
        used.iter().fold(0u64, |sum, (_, v)| sum.saturating_add(bytes(v)))
    };
    let (live, garbage) = (sum(|v| v.referenced_bytes), sum(VlogShape::garbage_bytes));
    let allowed =
        u64::try_from(u128::from(live) * u128::from(garbage_percent) / 100).unwrap_or(u64::MAX);
    let is_excessive = garbage_percent > 0 && garbage > allowed;
    let mut rest = garbage;
    let is_due = |(id, v): (&FileId, &VlogShape)| {
        let is_dense = v.garbage_bytes().saturating_mul(COLLECTED_VLOG_SHARE_MIN) >= v.bytes;
        let is_next = is_excessive && is_dense && rest > allowed / 4 * 3;
        let is_due = v.bytes >= COLLECTED_VLOG_BYTES_MIN
            && (v.garbage_bytes() > v.referenced_bytes || is_next);
        rest -= if is_due { v.garbage_bytes() } else { 0 };
        is_due.then_some(*id)
    };
    used.into_iter().filter_map(is_due).collect()
}

/// Returns a merge, into the last level, of overlapping tables that may hide enough separated
/// values. Afterwards they are in one level, so they are not picked again.
fn pick_hidden(shape: &TreeShape) -> Option<CompactionPlan> {
    let groups = overlap_groups(shape, 0..=LAST_LEVEL, RunId(u64::MAX));
    let group = groups.into_iter().find(|group| {
        let hidden = estimate_hidden_bytes(group);
        hidden >= HIDDEN_VLOG_BYTES_MIN
            && hidden >= group.bytes.saturating_mul(HIDDEN_VLOG_SHARE_MIN)
    })?;
    let (reason, inputs) = (CompactionReason::VlogGarbage, group.inputs().collect());
    Some(CompactionPlan::merge(reason, inputs, LevelNo(LAST_LEVEL as u8)))
}

/// Tables of a group, summed up.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    entries: u64,
    tombstones: u64,
    vlog_bytes: u64,
    long_values: u64,
    long_value_bytes: u64,
}

impl Sums {
    fn add(&mut self, table: &TableShape) {
        self.entries = self.entries.saturating_add(table.entries);
        self.tombstones = self.tombstones.saturating_add(table.tombstones);
        self.vlog_bytes = self.vlog_bytes.saturating_add(table.vlog_bytes);
        self.long_values = self.long_values.saturating_add(table.long_values);
        self.long_value_bytes = self.long_value_bytes.saturating_add(table.long_value_bytes);
    }
    /// Estimates how many bytes of the separated values of `older` these tables hide.
    fn estimate_hidden_in(&self, older: &Sums) -> u64 {
        let mostly_deletes =
            self.tombstones > 0 && self.tombstones.saturating_mul(2) >= self.entries;
        let deleted = match mostly_deletes {
            true => Sums::share(older.long_value_bytes, self.tombstones, older.long_values)
                .max(Sums::share(older.vlog_bytes, self.tombstones, older.entries)),
            false => 0,
        };
        self.vlog_bytes.saturating_add(deleted).min(older.vlog_bytes)
    }
    /// Returns the share of `bytes` that belongs to `some` of `all`.
    fn share(bytes: u64, some: u64, all: u64) -> u64 {
        (u128::from(bytes) * u128::from(some.min(all)) / u128::from(all.max(1))) as u64
    }
}

/// Estimates how many bytes of separated values the merge of a group frees: newer values of some
/// size have replaced older ones of that size, and the tombstones of tables that consist of them
/// delete separated values, long ones first.
fn estimate_hidden_bytes(group: &OverlapGroup<'_>) -> u64 {
    let mut tables: Vec<_> =
        group.tables.iter().map(|(level, table)| ((*level, Reverse(table.run)), *table)).collect();
    tables.sort_by_key(|(age, _)| *age);
    let (mut newer, mut hidden) = (Sums::default(), 0u64);
    for same_age in tables.chunk_by(|a, b| a.0 == b.0) {
        let mut these = Sums::default();
        same_age.iter().for_each(|(_, table)| these.add(table));
        hidden = hidden.saturating_add(newer.estimate_hidden_in(&these));
        same_age.iter().for_each(|(_, table)| newer.add(table));
    }
    check!(
        hidden <= newer.vlog_bytes,
        "no more values are hidden than there are",
        hidden,
        newer.vlog_bytes
    );
    hidden
}
