//! Why a point read costs what it costs: every place that it asks, with the answer and the price.

use crate::{Db, Error, Family, Result};
use perigee_base::file_header::FileKind;
use perigee_file::filename;
use perigee_tree::explain::{LookupOutcome, LookupSource, LookupStep, explain};

/// What a `get` of one key does ([`Db::explain`]).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// Length of the value; `None`: the key is not there.
    pub value_bytes: Option<u64>,
    /// The error that the `get` ends with, if it does.
    pub error: Option<Error>,
    /// Every place that was asked or passed over, newest first.
    pub steps: Vec<ExplainStep>,
    /// Nanoseconds for all of it, the telling included.
    pub elapsed_ns: u64,
}

/// One place, what it was asked, what it said.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExplainStep {
    /// `memtable`, `table`, `run` (no table of it covers the key) or `value log`.
    pub source: &'static str,
    /// Which: `active`, `sealed 1`, or the file.
    pub name: String,
    /// Level of a table.
    pub level: Option<u8>,
    /// Run of a table.
    pub run: Option<u64>,
    /// What the filter of a table said: `excludes`, `passes` (or `none`: the table has no filter).
    pub filter: Option<&'static str>,
    /// The data block that was asked: number, offset, stored bytes.
    pub block: Option<(u64, u64, u64)>,
    /// Whether the block came from the cache.
    pub cached: bool,
    /// `nothing`, `value`, `pointer`, `tombstone`, `expired`, `failed`.
    pub outcome: &'static str,
    /// Sequence number of what was found.
    pub sequence: Option<u64>,
    /// Bytes read from disk.
    pub bytes_read: u64,
    /// Nanoseconds.
    pub elapsed_ns: u64,
}

impl Family {
    /// Reads `key` as [`Family::get`] does, the same way through the same code, and tells what was
    /// asked on the way: which memtables, which tables, their filters and blocks, from the cache or
    /// the disk.
    ///
    /// # Errors
    /// `Closed`, or `NotFound` for a dropped family. What makes the `get` itself fail is in the
    /// explanation.
    ///
    /// ```
    /// # use perigee::{Db, Options};
    /// # fn main() -> perigee::Result<()> {
    /// # use perigee::env::{Env, fs::memory::SimDisk};
    /// # let db = Db::open("/doc", Options::in_env(Env { fs: SimDisk::new(1), ..Env::real() }))?;
    /// db.put("moon", "full")?;
    /// db.flush()?;
    /// let e = db.explain("moon")?;
    /// assert_eq!(e.value_bytes, Some(4));
    /// let last = e.steps.last().expect("somebody was asked");
    /// assert_eq!((last.place, last.filter, last.outcome), ("table", Some("passes"), "value"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        let (view, at) = self.engine.read_view(&self.inner)?;
        let clock = || self.engine.now_ns();
        let since = clock();
        let (value, steps) = explain(&view, key.as_ref(), at, &clock);
        let elapsed_ns = clock().saturating_sub(since);
        Ok(Explanation {
            value_bytes: value.as_ref().ok().and_then(|v| v.as_ref()).map(|v| v.len() as u64),
            error: value.err(),
            steps: steps.iter().map(explain_step).collect(),
            elapsed_ns,
        })
    }
}

impl Db {
    /// [`Family::explain`] on `default`.
    ///
    /// # Errors
    /// As [`Family::explain`].
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        self.default_family().explain(key)
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
            block: trace.block.map(|b| (b.index as u64, b.offset, b.bytes)),
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
