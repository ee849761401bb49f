//! [`ChangeFeed`]: an iterator over commits and changes of column families.

use crate::error::{OrRaise, closed};
use crate::scan::not_copyable;
use crate::source::OpenDatabase;
use perigee::changes::{
    ChangeKind, ChangeOperation, CommittedBatch, FamilyChange as EngineChange, FamilyChangeKind,
    FeedEvent,
};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::ops::Bound as KeyBound;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for a change between two checks for signals and for a close of the database.
const WAIT_STEP: Duration = Duration::from_millis(50);

/// One operation of a commit. `kind` is `"put"`, `"delete"`, `"single_delete"`, `"merge"` or
/// `"delete_range"`. A put has `key`, `value` and perhaps `expires_at` (seconds since the Unix
/// epoch), a merge has `key` and the operand as `value`. A range delete has `start` and `end`,
/// `None` if the range has no such bound; `start_inclusive` and `end_inclusive` say whether the
/// bound itself is deleted.
#[pyclass(frozen, get_all, module = "perigeedb")]
pub struct Operation {
    /// Sequence number of the operation.
    sequence: u64,
    /// Name of the column family at the time of the commit.
    family: String,
    /// Kind of the operation.
    kind: &'static str,
    /// The key, or `None` for a range delete.
    key: Option<Py<PyBytes>>,
    /// The value or operand, or `None`.
    value: Option<Py<PyBytes>>,
    /// Time at which a put expires, in seconds since the Unix epoch, or `None`.
    expires_at: Option<f64>,
    /// First bound of a range delete, or `None`.
    start: Option<Py<PyBytes>>,
    /// True if the first bound itself is deleted.
    start_inclusive: bool,
    /// Second bound of a range delete, or `None`.
    end: Option<Py<PyBytes>>,
    /// True if the second bound itself is deleted.
    end_inclusive: bool,
}

impl Operation {
    fn new(py: Python<'_>, operation: &ChangeOperation<'_>) -> Operation {
        let bytes = |b: &[u8]| Some(PyBytes::new(py, b).unbind());
        let bound = |b: KeyBound<&[u8]>| match b {
            KeyBound::Included(key) => (bytes(key), true),
            KeyBound::Excluded(key) => (bytes(key), false),
            KeyBound::Unbounded => (None, false),
        };
        let mut out = Operation {
            sequence: operation.sequence,
            family: operation.family_name.to_owned(),
            kind: "unknown",
            key: None,
            value: None,
            expires_at: None,
            start: None,
            start_inclusive: false,
            end: None,
            end_inclusive: false,
        };
        match operation.kind {
            ChangeKind::Put { key, value, expires_at_ms } => {
                (out.kind, out.key, out.value) = ("put", bytes(key), bytes(value));
                out.expires_at = expires_at_ms.map(|ms| ms as f64 / 1000.0);
            }
            ChangeKind::Delete { key } => (out.kind, out.key) = ("delete", bytes(key)),
            ChangeKind::SingleDelete { key } => (out.kind, out.key) = ("single_delete", bytes(key)),
            ChangeKind::Merge { key, operand } => {
                (out.kind, out.key, out.value) = ("merge", bytes(key), bytes(operand));
            }
            ChangeKind::DeleteRange { start, end } => {
                out.kind = "delete_range";
                (out.start, out.start_inclusive) = bound(start);
                (out.end, out.end_inclusive) = bound(end);
            }
            // A kind that a later version of the engine adds.
            _ => {}
        }
        out
    }
}

#[pymethods]
impl Operation {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut text = format!("<perigeedb.Operation {} in {:?}", self.kind, self.family);
        for part in [&self.key, &self.value, &self.start, &self.end].into_iter().flatten() {
            let part = part.bind(py);
            let shown = part.as_bytes().get(..40).unwrap_or(part.as_bytes());
            let more = if shown.len() < part.as_bytes().len() { "..." } else { "" };
            text += &format!(" b\"{}{more}\"", shown.escape_ascii());
        }
        Ok(text + ">")
    }
}

/// A commit in a change feed: all its operations, on all column families.
#[pyclass(frozen, get_all, module = "perigeedb")]
pub struct Commit {
    /// Sequence number of the last operation.
    sequence: u64,
    /// Sequence number of the first operation.
    first_sequence: u64,
    /// The operations, a tuple of `Operation`, in the order of the batch.
    operations: Py<PyTuple>,
}

impl Commit {
    fn new(py: Python<'_>, commit: &CommittedBatch) -> PyResult<Commit> {
        let operations: Vec<Py<Operation>> = commit
            .operations()
            .map(|operation| Py::new(py, Operation::new(py, &operation)))
            .collect::<PyResult<_>>()?;
        Ok(Commit {
            sequence: commit.sequence(),
            first_sequence: commit.first_sequence(),
            operations: PyTuple::new(py, operations)?.unbind(),
        })
    }
}

#[pymethods]
impl Commit {
    fn __repr__(&self, py: Python<'_>) -> String {
        let count = self.operations.bind(py).len();
        format!("<perigeedb.Commit {} of {count} operations>", self.sequence)
    }
}

/// A change of a column family as a whole in a change feed. `kind` is `"created"`, `"dropped"`,
/// `"renamed"`, `"cleared"`, `"cloned"` or `"loaded"`: after a bulk load, whose entries are not in
/// the feed, read the column family.
#[pyclass(frozen, get_all, module = "perigeedb")]
pub struct FamilyChange {
    /// Sequence number of the change.
    sequence: u64,
    /// Number of the column family (`Family.id`).
    family_id: u32,
    /// Kind of the change.
    kind: &'static str,
    /// Name of the column family, the new one after a rename; `None` for `"cleared"` and
    /// `"loaded"`.
    name: Option<String>,
    /// Name before a rename.
    old_name: Option<String>,
}

impl FamilyChange {
    fn new(change: &EngineChange) -> FamilyChange {
        use FamilyChangeKind as Kind;
        let (kind, name, old_name) = match &change.kind {
            Kind::Created { name } => ("created", Some(name), None),
            Kind::Dropped { name } => ("dropped", Some(name), None),
            Kind::Renamed { from, to } => ("renamed", Some(to), Some(from)),
            Kind::Cleared => ("cleared", None, None),
            Kind::Cloned { name, .. } => ("cloned", Some(name), None),
            Kind::Loaded => ("loaded", None, None),
            _ => ("unknown", None, None),
        };
        FamilyChange {
            sequence: change.sequence,
            family_id: change.family,
            kind,
            name: name.cloned(),
            old_name: old_name.cloned(),
        }
    }
}

#[pymethods]
impl FamilyChange {
    fn __repr__(&self) -> String {
        let name = self.name.as_ref().map_or_else(String::new, |name| format!(" {name:?}"));
        format!("<perigeedb.FamilyChange {}: {}{name}>", self.sequence, self.kind)
    }
}

/// An iterator over everything that was committed after a position, as `Commit` and `FamilyChange`
/// objects, in commit order. The iteration ends when no further change has come within the timeout
/// of the feed; iterating again continues after the last change that was returned.
///
/// >>> feed = db.changes()
/// >>> db.update({"moon": "full", "tide": "high"})
/// >>> for change in feed:
/// ...     for operation in change.operations:
/// ...         print(change.sequence, operation.kind, operation.key, operation.value)
/// 2 put b'moon' b'full'
/// 2 put b'tide' b'high'
/// >>> feed.position
/// 2
#[pyclass(frozen, module = "perigeedb")]
pub struct ChangeFeed {
    feed: Mutex<perigee::changes::ChangeFeed>,
    database: Arc<OpenDatabase>,
    /// Longest wait for a change; `None`: without limit.
    timeout: Option<Duration>,
}

impl ChangeFeed {
    pub fn new(
        feed: perigee::changes::ChangeFeed,
        database: Arc<OpenDatabase>,
        timeout: Option<Duration>,
    ) -> ChangeFeed {
        ChangeFeed { feed: Mutex::new(feed), database, timeout }
    }
    fn wait(&self, timeout: Duration) -> perigee::Result<Option<FeedEvent>> {
        let mut feed = self.feed.lock().unwrap_or_else(PoisonError::into_inner);
        if timeout.is_zero() { feed.next_change() } else { feed.wait(timeout) }
    }
}

#[pymethods]
impl ChangeFeed {
    /// Sequence number up to which all changes have been returned. Store it with the result of
    /// processing them, and continue there: `db.changes(position)`.
    #[getter]
    fn position(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.feed.lock().unwrap_or_else(PoisonError::into_inner).position())
    }
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let start = Instant::now();
        loop {
            if self.database.is_closed() {
                return Err(closed("database")).or_raise();
            }
            let left = self.timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            let step = left.map_or(WAIT_STEP, |left| left.min(WAIT_STEP));
            match py.detach(|| self.wait(step)).or_raise()? {
                Some(FeedEvent::Commit(commit)) => {
                    return Commit::new(py, &commit)?.into_bound_py_any(py).map(Some);
                }
                Some(FeedEvent::Family(change)) => {
                    return FamilyChange::new(&change).into_bound_py_any(py).map(Some);
                }
                // A kind of change that a later version of the engine adds.
                Some(_) => {}
                None if left.is_some_and(|left| left <= step) => return Ok(None),
                None => py.check_signals()?,
            }
        }
    }
    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<perigeedb.ChangeFeed at {}>", self.position(py))
    }
    fn __reduce__(&self) -> PyResult<()> {
        Err(not_copyable("a change feed"))
    }
}
