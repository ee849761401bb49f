//! The plan that somebody asked for: a range of keys, merged as deep as it lies.
//!
//! Invariant: whatever moves takes along every table that holds older versions of its keys on the way down, so that no older
//! version ends up above a newer one.

use super::super::plan::{Plan, Reason, Shape, TableShape};
use perigee_base::bug::{self, Bug};
use perigee_base::{FileId, KeyOrder, LevelNo};
use std::cmp::Ordering::{Greater, Less};
use std::collections::BTreeSet;

/// Both ends of a range of keys, inclusive; `None` is open. A wider range than the one asked for is always right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Smallest key.
    pub first: Option<Vec<u8>>,
    /// Largest key.
    pub last: Option<Vec<u8>>,
}

impl Span {
    fn overlaps(&self, order: KeyOrder, t: &TableShape) -> bool {
        self.first.as_ref().is_none_or(|k| order.cmp(&t.last, k) != Less)
            && self.last.as_ref().is_none_or(|k| order.cmp(&t.first, k) != Greater)
    }
    fn widen(&mut self, order: KeyOrder, t: &TableShape) {
        if let Some(first) = self.first.as_mut().filter(|k| order.cmp(&t.first, k) == Less) {
            first.clone_from(&t.first);
        }
        if let Some(last) = self.last.as_mut().filter(|k| order.cmp(&t.last, k) == Greater) {
            last.clone_from(&t.last);
        }
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
fn gather(shape: &Shape, span: &Span, to: usize) -> (Vec<(LevelNo, FileId)>, Span) {
    let mut wide = span.clone();
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
