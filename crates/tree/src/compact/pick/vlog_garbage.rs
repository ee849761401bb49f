//! Value-log garbage collection. Two rules:
//! - A value log that is mostly unreferenced is emptied by rewriting the tables that reference it,
//!   one at a time, each within its level.
//! - Tables whose newer entries may hide separated values of older ones, far larger than the tables
//!   themselves, are merged: only that ends the references to these values. The sizes of the tables
//!   alone, by which levels are merged, do not show such garbage.

use super::super::plan::{CompactionPlan, CompactionReason, TableShape, TreeShape, VlogShape};
use super::overlap_group::{OverlapGroup, overlap_groups};
use super::spooky::LAST_LEVEL;
use crate::limits::{COLLECTED_VLOG_BYTES_MIN, HIDDEN_VLOG_BYTES_MIN, HIDDEN_VLOG_SHARE_MIN};
use perigee_base::{LevelNo, RunId};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Returns the plan of either rule.
pub fn pick(shape: &TreeShape) -> Option<CompactionPlan> {
    if shape.vlogs.is_empty() {
        return None;
    }
    pick_unreferenced(shape).or_else(|| pick_hidden(shape))
}

/// Returns a plan for the value log with the most garbage, among those that are more than half
/// garbage and that a table below level 0 references. Level 0 runs are ordered by age: they are
/// left to the merge into a deeper level, which is soon due.
fn pick_unreferenced(shape: &TreeShape) -> Option<CompactionPlan> {
    let mostly_garbage = |v: &VlogShape| {
        let live = v.referenced_bytes;
        v.bytes >= COLLECTED_VLOG_BYTES_MIN && live > 0 && live.saturating_mul(2) < v.bytes
    };
    let mut candidates: Vec<_> = shape.vlogs.iter().filter(|(_, v)| mostly_garbage(v)).collect();
    candidates.sort_by_key(|(_, v)| std::cmp::Reverse(v.bytes - v.referenced_bytes));
    candidates.into_iter().find_map(|(vlog, _)| {
        let (level, table) = (1..shape.levels.len()).rev().find_map(|level| {
            let table = shape.tables(level).find(|t| t.vlogs.contains(vlog))?;
            Some((LevelNo(level as u8), table.id))
        })?;
        let relocate_vlogs = BTreeSet::from([*vlog]);
        Some(CompactionPlan {
            relocate_vlogs,
            ..CompactionPlan::merge(CompactionReason::VlogGarbage, vec![(level, table)], level)
        })
    })
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
