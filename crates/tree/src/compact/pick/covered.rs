//! Tables that a range tombstone hides as a whole, from every reader: they go without being read.

use super::super::plan::{Plan, Reason, Shape, TableShape};
use crate::mvcc::Strata;
use perigee_base::bug::{self, Bug};
use perigee_base::{KeyOrder, LevelNo, SeqNo};
use perigee_file::Fragments;
use std::cmp::Ordering::{Greater, Less};

/// All such tables of the first level that has any. Tombstones in memtables do not count: they are not yet as durable as
/// the tables they would remove.
pub fn pick(shape: &Shape, strata: &Strata) -> Option<Plan> {
    let mut newer: Vec<&Fragments> = Vec::new();
    for (number, runs) in shape.levels.iter().enumerate() {
        let level = LevelNo(number as u8);
        let mut inputs = Vec::new();
        for run in runs {
            let dead = |t: &&TableShape| !newer.is_empty() && is_covered(shape.order, t, &newer, strata);
            inputs.extend(run.iter().filter(dead).map(|t| (level, t.id)));
            newer.extend(run.iter().filter_map(|t| t.ranges.as_deref()));
        }
        if !inputs.is_empty() {
            return Some(Plan::merge(Reason::Covered, inputs, level));
        }
    }
    None
}

/// Whether a plan of [`pick`] is right under these readers, too, who were listed later.
pub fn still(plan: &Plan, shape: &Shape, strata: &Strata) -> bool {
    let now = pick(shape, strata);
    now.is_some_and(|now| plan.inputs.iter().all(|input| now.inputs.contains(input)))
}

/// Whether tombstones of newer tables cover the table without a gap, each newer than all of it, with no reader between.
fn is_covered(order: KeyOrder, t: &TableShape, newer: &[&Fragments], strata: &Strata) -> bool {
    let hides = |seq: SeqNo| {
        seq > t.largest && (strata.of(seq) == strata.of(t.smallest) || bug::on(Bug::DropTableIgnoresSnapshot))
    };
    let mut reached = t.first.as_ref();
    loop {
        let next = newer.iter().find_map(|list| {
            let i = list.list().partition_point(|f| f.end.as_ref().cmp(order, reached) != Greater);
            let f = list.list().get(i)?;
            let over = f.begin.as_ref().cmp(order, reached) != Greater;
            (over && f.seqs.iter().any(|s| hides(*s))).then_some(f)
        });
        match next {
            Some(f) if f.end.as_ref().cmp(order, t.last.as_ref()) == Less => reached = f.end.as_ref(),
            found => return found.is_some(),
        }
    }
}
