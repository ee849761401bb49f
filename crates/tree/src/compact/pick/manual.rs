//! The plan that somebody asked for: a range of keys, merged into the last level.
//!
//! Invariant: whatever moves takes along every table that holds older versions of its keys on the way down, so that no older
//! version ends up above a newer one.

use super::super::plan::{Plan, Reason, Shape, TableShape};
use super::spooky::LAST;
use perigee_base::bug::{self, Bug};
use perigee_base::cut::Cut;
use perigee_base::{FileId, KeyOrder, LevelNo};
use std::cmp::Ordering::Less;
use std::collections::BTreeSet;

/// Both ends of a range of keys, inclusive; `None` is open. A wider range than the one asked for is always right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Smallest key.
    pub first: Option<Vec<u8>>,
    /// Largest key.
    pub last: Option<Vec<u8>>,
}

/// The range between two places.
#[derive(Clone)]
struct Reach(Cut, Cut);

impl Reach {
    fn of(span: &Span) -> Reach {
        Reach(
            span.first.clone().map_or(Cut::First, Cut::Before),
            span.last.clone().map_or(Cut::Last, Cut::After),
        )
    }
    fn overlaps(&self, order: KeyOrder, t: &TableShape) -> bool {
        let place = |a: &Cut, b: &Cut| a.as_ref().cmp(order, b.as_ref());
        // A span that lies the wrong way round still overlaps what it lies in.
        place(&self.0, &t.last) == Less && place(&t.first, &self.1) == Less
    }
    fn widen(&mut self, order: KeyOrder, t: &TableShape) {
        self.0 = self.0.as_ref().min(order, t.first.as_ref()).to_cut();
        self.1 = self.1.as_ref().max(order, t.last.as_ref()).to_cut();
    }
}

/// Merges every table that shares keys with the span into the last level; `None` if no table does. `relocate`: value logs to
/// empty on the way.
pub fn pick(shape: &Shape, span: &Span, relocate: &BTreeSet<FileId>) -> Option<Plan> {
    let inputs = gather(shape, span);
    let relocate = relocate.clone();
    (!inputs.is_empty())
        .then(|| Plan { relocate, ..Plan::merge(Reason::Manual, inputs, LevelNo(LAST as u8)) })
}

/// The tables, run by run from the newest, each widening the span for those below it.
fn gather(shape: &Shape, span: &Span) -> Vec<(LevelNo, FileId)> {
    let mut wide = Reach::of(span);
    let mut inputs = Vec::new();
    for (number, level) in shape.levels.iter().enumerate() {
        for run in level {
            let here = wide.clone();
            for table in run.iter().filter(|t| here.overlaps(shape.order, t)) {
                if !bug::on(Bug::NarrowManualRange) {
                    wide.widen(shape.order, table);
                }
                inputs.push((LevelNo(number as u8), table.id));
            }
        }
    }
    inputs
}
