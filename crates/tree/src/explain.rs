//! A point read that tells what it asked, and what each question cost. The tables are asked by the
//! very walk of [`get`](crate::get::get); the memtables before it are asked once more to tell which
//! of them answered.

use crate::View;
use crate::get;
use perigee_base::expiry::CachedClock;
use perigee_base::{PinnedSlice, Result, SeqNo};
use perigee_file::EntryValue;
use perigee_file::klog::KlogLookupTrace;
use std::sync::Arc;

/// What was found at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupOutcome {
    /// No version of the key that the reader may see.
    NotFound,
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
pub enum LookupSource {
    /// A memtable: 0 takes the inserts, the others wait for their flush.
    Memtable(usize),
    /// A run of which no table covers the key: level and run.
    UncoveredRun(u8, u64),
    /// A table: level, run, file.
    Table(u8, u64, perigee_base::FileId, KlogLookupTrace),
    /// A value log: file and stored bytes.
    Vlog(perigee_base::FileId, u64),
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupStep {
    /// Who was asked.
    pub source: LookupSource,
    /// The answer.
    pub outcome: LookupOutcome,
    /// How long it took.
    pub ns: u64,
}

/// The value, and every step on the way to it. `clock` reads the time in nanoseconds.
pub fn explain(
    view: &View,
    key: &[u8],
    at: SeqNo,
    clock: &dyn Fn() -> u64,
) -> (Result<Option<PinnedSlice>>, Vec<LookupStep>) {
    // The outcome that is told and the answer that is given are about one moment.
    let view = &View { now: Arc::new(CachedClock::new(&view.now)), ..view.clone() };
    let mut steps = Vec::new();
    let timed = |since: u64| clock().saturating_sub(since);
    for (number, memtable) in view.memtables().enumerate() {
        let since = clock();
        let found = get::newest_of(memtable.get(key, at), memtable.covering_tombstone(key, at));
        let outcome = classify_outcome(view, &Ok(found));
        steps.push(LookupStep {
            source: LookupSource::Memtable(number),
            outcome,
            ns: timed(since),
        });
        if outcome != LookupOutcome::NotFound {
            break;
        }
    }
    let mut asked = Vec::new();
    let answer = get::lookup_in_sources(view, key, at, |run, table, hash| {
        let since = clock();
        let (answer, trace) = table.reader.get_traced(key, hash, at);
        let told = answer
            .clone()
            .map(|point| get::newest_of(point, get::covering_tombstone(table, view, key, at)));
        asked.push((run, table.meta.id, trace, classify_outcome(view, &told), timed(since)));
        answer
    });
    let in_memory = steps.last().is_some_and(|s| s.outcome != LookupOutcome::NotFound);
    if !in_memory {
        steps.extend(table_steps(view, &asked));
    }
    let value = answer.and_then(|found| {
        let since = clock();
        let found = found.map(|(_, found)| found);
        let pointer = found.as_ref().and_then(EntryValue::vlog_pointer);
        let value = get::read_live_value(view, key, at, found);
        if let Some(p) = pointer.filter(|_| !matches!(value, Ok(None))) {
            let outcome = if value.is_ok() {
                LookupOutcome::Value(SeqNo::ZERO)
            } else {
                LookupOutcome::Failed
            };
            steps.push(LookupStep {
                source: LookupSource::Vlog(p.file, p.stored_bytes),
                outcome,
                ns: timed(since),
            });
        }
        value
    });
    (value, steps)
}

/// The runs in order: those that were asked, and before the last of them those that do not cover
/// the key.
fn table_steps(
    view: &View,
    asked: &[(usize, perigee_base::FileId, KlogLookupTrace, LookupOutcome, u64)],
) -> Vec<LookupStep> {
    let ended = asked
        .iter()
        .find(|(_, _, _, outcome, _)| *outcome != LookupOutcome::NotFound)
        .map(|(run, ..)| *run);
    let levels = view.version.levels.iter().enumerate();
    let runs = levels.flat_map(|(level, runs)| runs.iter().map(move |r| (level as u8, r.id.0)));
    let mut steps = Vec::new();
    for (number, (level, run)) in runs.enumerate() {
        if ended.is_some_and(|last| number > last) {
            break;
        }
        match asked.iter().find(|(n, ..)| *n == number) {
            Some((_, file, trace, outcome, ns)) => {
                let place = LookupSource::Table(level, run, *file, *trace);
                steps.push(LookupStep { source: place, outcome: *outcome, ns: *ns });
            }
            None => steps.push(LookupStep {
                source: LookupSource::UncoveredRun(level, run),
                outcome: LookupOutcome::NotFound,
                ns: 0,
            }),
        }
    }
    steps
}

fn classify_outcome(view: &View, answer: &Result<Option<(SeqNo, EntryValue)>>) -> LookupOutcome {
    match answer {
        Err(_) => LookupOutcome::Failed,
        Ok(None) => LookupOutcome::NotFound,
        Ok(Some((seq, EntryValue::Tombstone))) => LookupOutcome::Tombstone(*seq),
        Ok(Some((seq, found))) if !get::is_live(found, &*view.now) => LookupOutcome::Expired(*seq),
        Ok(Some((seq, EntryValue::Pointer(_) | EntryValue::PointerExpiring(_, _)))) => {
            LookupOutcome::Pointer(*seq)
        }
        Ok(Some((seq, EntryValue::Operand(_) | EntryValue::OperandPointer(_)))) => {
            LookupOutcome::Operand(*seq)
        }
        Ok(Some((seq, _))) => LookupOutcome::Value(*seq),
    }
}
