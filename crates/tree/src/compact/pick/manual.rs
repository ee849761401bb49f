//! The plan that somebody asked for: a range of keys, merged as deep as it lies.
//!
//! Invariant: whatever moves takes along every table that holds older versions of its keys on the way down, so that no older
//! version ends up above a newer one.

use super::super::plan::{Plan, Reason, Shape, TableShape};
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

/// Merges every table that shares keys with the span into the deepest level that does (at least level 1); `None` if no table
/// does. `relocate`: value logs to empty on the way.
pub fn pick(shape: &Shape, span: &Span, relocate: &BTreeSet<FileId>) -> Option<Plan> {
    let mut to = 1;
    loop {
        let (inputs, wide) = gather(shape, span, to);
        let mut deeper = (to + 1..shape.levels.len()).rev();
        match deeper.find(|level| shape.tables(*level).any(|t| wide.overlaps(shape.order, t))) {
            Some(level) => to = level,
            None if inputs.is_empty() => return None,
            None => {
                let (to, relocate) = (LevelNo(to as u8), relocate.clone());
                return Some(Plan { reason: Reason::Manual, inputs, to, trivial: false, relocate });
            }
        }
    }
}

/// The tables down to level `to`, run by run from the newest, each widening the span for those below it.
fn gather(shape: &Shape, span: &Span, to: usize) -> (Vec<(LevelNo, FileId)>, Reach) {
    let mut wide = Reach::of(span);
    let mut inputs = Vec::new();
    for (number, level) in shape.levels.iter().enumerate().take(to + 1) {
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
    (inputs, wide)
}
