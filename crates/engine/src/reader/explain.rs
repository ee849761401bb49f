//! Explains a point read: every source that it consults, with outcome and cost.

use perigee_base::{Error, FileKind, SeqNo};
use perigee_file::filename;
use perigee_tree::View;
use perigee_tree::read::{LookupOutcome, LookupSource, LookupStep, explain};

/// Trace of a point read of one key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// Length of the value in bytes; `None` if the key does not exist.
    pub value_bytes: Option<u64>,
    /// The error that the read returns, if any.
    pub error: Option<Error>,
    /// Every source consulted or skipped, newest first.
    pub steps: Vec<ExplainStep>,
    /// Total time in nanoseconds, including the cost of tracing.
    pub elapsed_ns: u64,
}

/// A data block that a point read searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExplainedBlock {
    /// Number of the block in its table, from 0.
    pub index: u64,
    /// Offset in the file in bytes.
    pub offset: u64,
    /// Stored bytes.
    pub bytes: u64,
}

/// One source of a point read with its outcome.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExplainStep {
    /// Kind of source: `memtable`, `table`, `run` (no table of this sorted run covers the key) or
    /// `value log`.
    pub source: &'static str,
    /// Name of the source: `active`, `sealed 1`, or a file name.
    pub name: String,
    /// Level of the table or run.
    pub level: Option<u8>,
    /// Sorted run of the table.
    pub run: Option<u64>,
    /// Result of the table's Bloom filter: `excludes`, `passes`, or `none` if the table has no
    /// filter.
    pub filter: Option<&'static str>,
    /// The data block that was searched.
    pub block: Option<ExplainedBlock>,
    /// True if the block came from the block cache.
    pub cached: bool,
    /// `nothing`, `value`, `pointer` (to a value log), `tombstone`, `expired`, `operand` or
    /// `failed`.
    pub outcome: &'static str,
    /// Sequence number of the entry that was found.
    pub sequence: Option<u64>,
    /// Bytes read from disk.
    pub bytes_read: u64,
    /// Time in nanoseconds.
    pub elapsed_ns: u64,
}

/// Reads `key` for a reader at `at`; `clock` returns the time in nanoseconds.
pub(super) fn explain_read(
    view: &View,
    key: &[u8],
    at: SeqNo,
    clock: &dyn Fn() -> u64,
) -> Explanation {
    let since = clock();
    let (value, steps) = explain(view, key, at, clock);
    let elapsed_ns = clock().saturating_sub(since);
    Explanation {
        value_bytes: value.as_ref().ok().and_then(|v| v.as_ref()).map(|v| v.len() as u64),
        error: value.err(),
        steps: steps.iter().map(explain_step).collect(),
        elapsed_ns,
    }
}

fn explain_step(s: &LookupStep) -> ExplainStep {
    let (outcome, sequence) = match s.outcome {
        LookupOutcome::NotFound => ("nothing", None),
        LookupOutcome::Value(seq) => ("value", Some(seq.0).filter(|n| *n > 0)),
        LookupOutcome::Pointer(seq) => ("pointer", Some(seq.0)),
        LookupOutcome::Tombstone(seq) => ("tombstone", Some(seq.0)),
        LookupOutcome::Expired(seq) => ("expired", Some(seq.0)),
        LookupOutcome::Operand(seq) => ("operand", Some(seq.0)),
        LookupOutcome::Failed => ("failed", None),
    };
    let common = ExplainStep { outcome, sequence, elapsed_ns: s.ns, ..ExplainStep::default() };
    match &s.source {
        LookupSource::Memtable(0) => {
            ExplainStep { source: "memtable", name: "active".into(), ..common }
        }
        LookupSource::Memtable(n) => {
            ExplainStep { source: "memtable", name: format!("sealed {n}"), ..common }
        }
        LookupSource::UncoveredRun(level, run) => ExplainStep {
            source: "run",
            name: "no table covers the key".into(),
            level: Some(*level),
            run: Some(*run),
            ..common
        },
        LookupSource::Table(level, run, file, trace) => ExplainStep {
            source: "table",
            name: filename::file_name(*file, FileKind::Klog),
            level: Some(*level),
            run: Some(*run),
            filter: Some(match trace.filter_passed {
                None => "none",
                Some(true) => "passes",
                Some(false) => "excludes",
            }),
            block: trace.block.map(|b| ExplainedBlock {
                index: b.index as u64,
                offset: b.offset,
                bytes: b.bytes,
            }),
            cached: trace.block.is_some_and(|b| b.was_cached),
            bytes_read: trace.block.filter(|b| !b.was_cached).map_or(0, |b| b.bytes),
            ..common
        },
        LookupSource::Vlog(file, bytes) => ExplainStep {
            source: "value log",
            name: filename::file_name(*file, FileKind::Vlog),
            bytes_read: *bytes,
            ..common
        },
    }
}
