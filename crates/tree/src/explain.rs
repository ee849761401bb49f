//! A point read that tells what it asked, and what each question cost. The tables are asked by the very walk of
//! [`get`](crate::get::get); the memtables before it are asked once more to tell which of them answered.

use crate::View;
use crate::get;
use perigee_base::expiry::Kept;
use perigee_base::{Result, SeqNo, Shared};
use perigee_file::Found;
use perigee_file::klog::Trace;
use std::sync::Arc;

/// What was found at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No version of the key that the reader may see.
    Nothing,
    /// A value.
    Value(SeqNo),
    /// A pointer into a value log.
    Pointer(SeqNo),
    /// A tombstone: the key is deleted, older places are not asked.
    Tombstone(SeqNo),
    /// A value whose time has passed: as a tombstone.
    Expired(SeqNo),
    /// An operand: what is below matters too, and is read once more, not told here.
    Operand(SeqNo),
    /// The place could not be read.
    Failed,
}

/// A place that was asked, or passed over, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A memtable: 0 takes the inserts, the others wait for their flush.
    Memtable(usize),
    /// A run of which no table covers the key: level and run.
    Outside(u8, u64),
    /// A table: level, run, file.
    Table(u8, u64, perigee_base::FileId, Trace),
    /// A value log: file and stored bytes.
    Vlog(perigee_base::FileId, u64),
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Who was asked.
    pub place: Place,
    /// The answer.
    pub outcome: Outcome,
    /// How long it took.
    pub ns: u64,
}

/// The value, and every step on the way to it. `clock` reads the time in nanoseconds.
pub fn explain(
    view: &View,
    key: &[u8],
    at: SeqNo,
    clock: &dyn Fn() -> u64,
) -> (Result<Option<Shared>>, Vec<Step>) {
    // The outcome that is told and the answer that is given are about one moment.
    let view = &View { now: Arc::new(Kept::of(&view.now)), ..view.clone() };
    let mut steps = Vec::new();
    let timed = |since: u64| clock().saturating_sub(since);
    for (number, memtable) in view.memtables().enumerate() {
        let since = clock();
        let found = get::newer(memtable.get(key, at), memtable.cover(key, at));
        let outcome = outcome(view, &Ok(found));
        steps.push(Step { place: Place::Memtable(number), outcome, ns: timed(since) });
        if outcome != Outcome::Nothing {
            break;
        }
    }
    let mut asked = Vec::new();
    let answer = get::look(view, key, at, |run, table, hash| {
        let since = clock();
        let (answer, trace) = table.reader.get_traced(key, hash, at);
        let told = answer.clone().map(|point| get::newer(point, get::cover(table, view, key, at)));
        asked.push((run, table.meta.id, trace, outcome(view, &told), timed(since)));
        answer
    });
    let in_memory = steps.last().is_some_and(|s| s.outcome != Outcome::Nothing);
    if !in_memory {
        steps.extend(tables(view, &asked));
    }
    let value = answer.and_then(|found| {
        let since = clock();
        let found = found.map(|(_, found)| found);
        let pointer = found.as_ref().and_then(Found::apart);
        let value = get::value_of(view, key, at, found);
        if let Some(p) = pointer.filter(|_| !matches!(value, Ok(None))) {
            let outcome = if value.is_ok() { Outcome::Value(SeqNo::ZERO) } else { Outcome::Failed };
            steps.push(Step { place: Place::Vlog(p.file, p.stored_bytes), outcome, ns: timed(since) });
        }
        value
    });
    (value, steps)
}

/// The runs in order: those that were asked, and before the last of them those that do not cover the key.
fn tables(view: &View, asked: &[(usize, perigee_base::FileId, Trace, Outcome, u64)]) -> Vec<Step> {
    let ended = asked.iter().find(|(_, _, _, outcome, _)| *outcome != Outcome::Nothing).map(|(run, ..)| *run);
    let levels = view.version.levels.iter().enumerate();
    let runs = levels.flat_map(|(level, runs)| runs.iter().map(move |r| (level as u8, r.id.0)));
    let mut steps = Vec::new();
    for (number, (level, run)) in runs.enumerate() {
        if ended.is_some_and(|last| number > last) {
            break;
        }
        match asked.iter().find(|(n, ..)| *n == number) {
            Some((_, file, trace, outcome, ns)) => {
                let place = Place::Table(level, run, *file, *trace);
                steps.push(Step { place, outcome: *outcome, ns: *ns });
            }
            None => steps.push(Step { place: Place::Outside(level, run), outcome: Outcome::Nothing, ns: 0 }),
        }
    }
    steps
}

fn outcome(view: &View, answer: &Result<Option<(SeqNo, Found)>>) -> Outcome {
    match answer {
        Err(_) => Outcome::Failed,
        Ok(None) => Outcome::Nothing,
        Ok(Some((seq, Found::Tombstone))) => Outcome::Tombstone(*seq),
        Ok(Some((seq, found))) if !get::is_live(found, &*view.now) => Outcome::Expired(*seq),
        Ok(Some((seq, Found::Pointer(_) | Found::PointerUntil(_, _)))) => Outcome::Pointer(*seq),
        Ok(Some((seq, Found::Operand(_) | Found::OperandPointer(_)))) => Outcome::Operand(*seq),
        Ok(Some((seq, _))) => Outcome::Value(*seq),
    }
}
