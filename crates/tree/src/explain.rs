//! Explains a point read: the sources that a get reads, with the outcome and the time of each. The
//! tables are read by the same function as in [`get`](crate::get::get); the memtables before them
//! are read once more to report which of them holds the key.

use crate::View;
use crate::get;
use perigee_base::{CachedClock, PinnedSlice, Result, SeqNo};
use perigee_file::{EntryValue, KlogLookupTrace};
use std::sync::Arc;

/// Outcome of the lookup in one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupOutcome {
    /// No version of the key is visible to the reader.
    NotFound,
    /// A value.
    Value(SeqNo),
    /// A pointer into a value log.
    Pointer(SeqNo),
    /// A tombstone: the key is deleted, older sources are not read.
    Tombstone(SeqNo),
    /// A value that has expired; equivalent to a tombstone.
    Expired(SeqNo),
    /// A merge operand: older sources are read as well, but not reported here.
    Operand(SeqNo),
    /// The source could not be read.
    Failed,
}

/// A source of a point read, or a run that it skipped. Steps list them newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupSource {
    /// A memtable: 0 is the active one, the others are immutable and wait for their flush.
    Memtable(usize),
    /// A run without a table that covers the key: level and run.
    UncoveredRun(u8, u64),
    /// A table: level, run and file, with the steps inside it.
    Table(u8, u64, perigee_base::FileId, KlogLookupTrace),
    /// A value log: file and stored bytes.
    Vlog(perigee_base::FileId, u64),
}

/// One step of a point read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupStep {
    /// Source that was read.
    pub source: LookupSource,
    /// Outcome in that source.
    pub outcome: LookupOutcome,
    /// Duration in nanoseconds.
    pub ns: u64,
}

/// Returns the value of `key` for a reader at `at`, and every step of the lookup. `clock` returns
/// the time in nanoseconds.
pub fn explain(
    view: &View,
    key: &[u8],
    at: SeqNo,
    clock: &dyn Fn() -> u64,
) -> (Result<Option<PinnedSlice>>, Vec<LookupStep>) {
    // Expiry is evaluated at one time, for the reported outcomes and for the value.
    let view = &View { now: Arc::new(CachedClock::new(&view.now)), ..view.clone() };
    let mut steps = Vec::new();
    let elapsed = |started: u64| clock().saturating_sub(started);
    for (number, memtable) in view.memtables().enumerate() {
        let started = clock();
        let found = get::newest_of(memtable.get(key, at), memtable.covering_tombstone(key, at));
        let outcome = classify_outcome(view, &Ok(found));
        steps.push(LookupStep {
            source: LookupSource::Memtable(number),
            outcome,
            ns: elapsed(started),
        });
        if outcome != LookupOutcome::NotFound {
            break;
        }
    }
    let mut table_lookups = Vec::new();
    let answer = get::lookup_in_sources(view, key, at, |run, table, hash| {
        let started = clock();
        let (answer, trace) = table.reader.get_traced(key, hash, at);
        let lookup = answer
            .clone()
            .map(|point| get::newest_of(point, get::covering_tombstone(table, view, key, at)));
        table_lookups.push((
            run,
            table.meta.id,
            trace,
            classify_outcome(view, &lookup),
            elapsed(started),
        ));
        answer
    });
    let in_memory = steps.last().is_some_and(|s| s.outcome != LookupOutcome::NotFound);
    if !in_memory {
        steps.extend(table_steps(view, &table_lookups));
    }
    let value = answer.and_then(|found| {
        let started = clock();
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
                ns: elapsed(started),
            });
        }
        value
    });
    (value, steps)
}

/// Returns the steps of the runs, newest first: the runs that were read, and those before the last
/// of them that do not cover the key.
fn table_steps(
    view: &View,
    table_lookups: &[(usize, perigee_base::FileId, KlogLookupTrace, LookupOutcome, u64)],
) -> Vec<LookupStep> {
    let last_run = table_lookups
        .iter()
        .find(|(_, _, _, outcome, _)| *outcome != LookupOutcome::NotFound)
        .map(|(run, ..)| *run);
    let levels = view.version.levels.iter().enumerate();
    let runs = levels.flat_map(|(level, runs)| runs.iter().map(move |r| (level as u8, r.id.0)));
    let mut steps = Vec::new();
    for (number, (level, run)) in runs.enumerate() {
        if last_run.is_some_and(|last| number > last) {
            break;
        }
        match table_lookups.iter().find(|(n, ..)| *n == number) {
            Some((_, file, trace, outcome, ns)) => {
                let source = LookupSource::Table(level, run, *file, *trace);
                steps.push(LookupStep { source, outcome: *outcome, ns: *ns });
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
