//! Which tables must be merged together: those that share keys, directly or through others. A group
//! can be merged, installed and its inputs released alone, whatever becomes of the groups beside
//! it.

use super::super::plan::{TableShape, TreeShape};
use perigee_base::key_boundary::KeyBoundaryRef;
use perigee_base::{FileId, KeyComparator, LevelNo, RunId};
use std::cmp::Ordering::Less;
use std::ops::RangeInclusive;

/// Tables that share keys with each other and with no other table of the same levels.
#[derive(Clone, Debug)]
pub struct OverlapGroup<'a> {
    /// With their levels.
    pub tables: Vec<(usize, &'a TableShape)>,
    /// The place before all of them.
    pub first: KeyBoundaryRef<'a>,
    /// The place behind all of them.
    pub last: KeyBoundaryRef<'a>,
    /// Their bytes.
    pub bytes: u64,
}

impl OverlapGroup<'_> {
    /// Whether all of it lies in this level.
    pub fn is_within(&self, level: usize) -> bool {
        self.tables.iter().all(|(l, _)| *l == level)
    }
    /// As inputs of a plan.
    pub fn inputs(&self) -> impl Iterator<Item = (LevelNo, FileId)> {
        self.tables.iter().map(|(level, t)| (LevelNo(*level as u8), t.id))
    }
}

/// The groups of these levels, in key order. Runs of level 0 that are newer than `newest` are left
/// out.
pub fn overlap_groups(
    shape: &TreeShape,
    levels: RangeInclusive<usize>,
    newest: RunId,
) -> Vec<OverlapGroup<'_>> {
    let order = shape.comparator;
    let mut tables: Vec<(usize, &TableShape)> =
        levels.flat_map(|level| shape.tables(level).map(move |t| (level, t))).collect();
    tables.retain(|(level, t)| *level > 0 || t.run <= newest);
    tables.sort_by(|(_, a), (_, b)| a.first.as_ref().cmp(order, b.first.as_ref()));
    let mut all: Vec<OverlapGroup<'_>> = Vec::new();
    for (level, t) in tables {
        match all.last_mut() {
            Some(g) if t.first.as_ref().cmp(order, g.last) == Less => g.add(order, level, t),
            _ => all.push(OverlapGroup {
                tables: vec![(level, t)],
                first: t.first.as_ref(),
                last: t.last.as_ref(),
                bytes: t.bytes,
            }),
        }
    }
    all
}

impl<'a> OverlapGroup<'a> {
    fn add(&mut self, order: KeyComparator, level: usize, t: &'a TableShape) {
        self.tables.push((level, t));
        self.last = self.last.larger(order, t.last.as_ref());
        self.bytes += t.bytes;
    }
    /// Becomes this group and the next one together.
    pub fn join(&mut self, next: &OverlapGroup<'a>) {
        self.tables.extend_from_slice(&next.tables);
        self.last = next.last;
        self.bytes += next.bytes;
    }
}
