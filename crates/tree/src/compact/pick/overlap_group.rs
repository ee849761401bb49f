//! Groups tables that must be merged together because they overlap, directly or through others. A
//! group can be merged and installed, and its inputs released, independently of the other groups.

use super::super::plan::{TableShape, TreeShape};
use perigee_base::{FileId, KeyBoundaryRef, KeyComparator, LevelNo, RunId};
use std::cmp::Ordering::{Greater, Less};
use std::ops::RangeInclusive;

/// Tables that overlap each other and no other table of the same levels.
#[derive(Clone, Debug)]
pub struct OverlapGroup<'a> {
    /// Tables with their levels.
    pub tables: Vec<(usize, &'a TableShape)>,
    /// Boundary before all of the tables.
    pub first: KeyBoundaryRef<'a>,
    /// Boundary after all of the tables.
    pub last: KeyBoundaryRef<'a>,
    /// Total bytes of the tables.
    pub bytes: u64,
}

impl OverlapGroup<'_> {
    /// Returns true if all tables lie in `level`.
    pub fn is_within(&self, level: usize) -> bool {
        self.tables.iter().all(|(l, _)| *l == level)
    }
    /// Returns the tables as inputs of a plan.
    pub fn inputs(&self) -> impl Iterator<Item = (LevelNo, FileId)> {
        self.tables.iter().map(|(level, t)| (LevelNo(*level as u8), t.id))
    }
}

/// Returns the groups of these levels in key order, without the level 0 runs newer than `newest`.
pub fn overlap_groups(
    shape: &TreeShape,
    levels: RangeInclusive<usize>,
    newest: RunId,
) -> Vec<OverlapGroup<'_>> {
    let comparator = shape.comparator;
    let mut tables: Vec<(usize, &TableShape)> =
        levels.flat_map(|level| shape.tables(level).map(move |t| (level, t))).collect();
    tables.retain(|(level, t)| *level > 0 || t.run <= newest);
    tables.sort_by(|(_, a), (_, b)| a.first.as_ref().cmp(comparator, b.first.as_ref()));
    let mut all: Vec<OverlapGroup<'_>> = Vec::new();
    for (level, t) in tables {
        match all.last_mut() {
            Some(g) if t.first.as_ref().cmp(comparator, g.last) == Less => {
                g.add(comparator, level, t)
            }
            _ => all.push(OverlapGroup {
                tables: vec![(level, t)],
                first: t.first.as_ref(),
                last: t.last.as_ref(),
                bytes: t.bytes,
            }),
        }
    }
    check_slow!(
        all.windows(2).all(|w| w[0].last.cmp(comparator, w[1].first) != Greater),
        "groups do not overlap",
        all.len()
    );
    check_slow!(
        all.iter().all(|g| g.bytes == g.tables.iter().map(|(_, t)| t.bytes).sum::<u64>()),
        "the bytes of a group are those of its tables"
    );
    all
}

impl<'a> OverlapGroup<'a> {
    fn add(&mut self, comparator: KeyComparator, level: usize, t: &'a TableShape) {
        check_slow!(
            self.first.cmp(comparator, t.first.as_ref()) != Greater,
            "a group begins with its first table",
            self.first,
            t.first
        );
        self.tables.push((level, t));
        self.last = self.last.larger(comparator, t.last.as_ref());
        self.bytes += t.bytes;
    }
    /// Merges the next group into this one.
    pub fn join(&mut self, next: &OverlapGroup<'a>) {
        check!(!next.tables.is_empty(), "a group has at least one table");
        self.tables.extend_from_slice(&next.tables);
        self.last = next.last;
        self.bytes += next.bytes;
    }
}
