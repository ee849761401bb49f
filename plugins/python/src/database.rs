//! [`Database`]: an open database, which is also the handle to its column family `default`.

use crate::batch::{self, Batch};
use crate::convert;
use crate::error::OrRaise;
use crate::family::{self, Family};
use crate::feed::ChangeFeed;
use crate::input::{DurabilityArg, EncryptionKeys, IsolationArg, Seconds, environment};
use crate::options::{self, TxnArguments};
use crate::snapshot::{self, Snapshot};
use crate::source::{OpenDatabase, Source, TxnCell, View};
use crate::transaction::{self, Transaction};
use perigee::{Db, backup::BackupOptions};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::path::PathBuf;
use std::sync::Arc;

/// An open database: a mapping from keys to values, sorted by key, and the other column families.
/// Made by `open`. All methods can be called from any number of threads at once.
#[pyclass(frozen, mapping, extends = Family, module = "perigeedb")]
pub struct Database {
    source: Arc<Source>,
}

/// Opens the database in the directory `path`, or creates it, and returns a `Database`, which is a
/// context manager and a mapping. Only one process at a time can open a database for writing.
///
/// Options of the database are keyword arguments: `create_if_missing`, `error_if_exists`,
/// `read_only`, `durability` ("full", "none", "interval 100 ms"), `isolation`, `memory_budget`
/// ("512 MiB" or a number of bytes) and all others of `docs/OPTIONS.md`; `None` is the default.
/// Options of a column family, such as `compression`, replace all options of the column family
/// `default`; `families` is a dictionary from names of other column families, which are created if
/// they do not exist, to their options.
///
/// With `encryption_keys`, a key of 32 bytes or a list of keys, the files are encrypted; every later
/// open needs all keys that were used. New files are written with the last key of the list.
///
/// Raises `Locked` if the database is already open, `NotFound` if it must not be created,
/// `InvalidArgument` or `ValueError` for wrong values and `TypeError` for unknown options.
///
/// >>> other = perigeedb.open(path + "/other", memory_budget="64 MiB", durability="none")
/// >>> other["moon"] = "full"
/// >>> other.close()
#[pyfunction]
#[pyo3(signature = (path, /, *, encryption_keys=None, **options))]
pub fn open(
    py: Python<'_>,
    path: PathBuf,
    encryption_keys: Option<EncryptionKeys>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<Database>> {
    let mut options = options::open_options(options)?;
    options.env = environment(encryption_keys);
    let db = py.detach(|| Db::open(&path, options)).or_raise()?;
    let family = db.default_family();
    let source = Source::new(OpenDatabase::new(db), family, View::Live);
    let base = family::family(&source);
    Py::new(py, base.add_subclass(Database { source }))
}

impl Database {
    fn db(&self) -> &Db {
        &self.source.database.db
    }
    /// Fails after `close`: for calls that the engine answers without a check.
    fn open_db(&self) -> PyResult<&Db> {
        self.source.database.check_open().or_raise()?;
        Ok(self.db())
    }
    fn begin(
        &self,
        py: Python<'_>,
        arguments: &TxnArguments,
        durability: Option<DurabilityArg>,
    ) -> PyResult<Py<Transaction>> {
        let options = arguments.to_options();
        let txn = py.detach(|| self.db().begin(options)).or_raise()?;
        Py::new(py, transaction::transaction(&self.source, TxnCell::new(txn), durability))
    }
}

#[pymethods]
impl Database {
    /// Directory of the database.
    #[getter]
    fn path(&self) -> PathBuf {
        self.db().path().to_owned()
    }
    /// True after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.source.database.is_closed()
    }
    /// Makes every write durable and closes the database. Other objects made from it, such as
    /// iterators, raise `Closed` from now on. Closing again has no effect.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.source.database.close()).or_raise()
    }
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    /// Returns the column family with this name. Creates it with the given options if it does not
    /// exist, or, if `create` is false, raises `NotFound`. The options have no effect on a column
    /// family that exists: `Family.set_options` changes them.
    ///
    /// >>> logs = db.family("logs", compression="zstd 3", filter_bits=12)
    /// >>> logs["2026-11-29"] = "first light"
    /// >>> db.families()
    /// ['default', 'logs']
    #[pyo3(signature = (name, /, *, create=true, **options))]
    fn family(
        &self,
        py: Python<'_>,
        name: &str,
        create: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Family>> {
        if !create && options.is_some_and(|o| !o.is_empty()) {
            return Err(PyTypeError::new_err(
                "options of a column family need create=True; set_options() changes them later",
            ));
        }
        let options = options::family_options(options)?;
        let open = || {
            if create { self.db().family_or_create(name, options) } else { self.db().family(name) }
        };
        let opened = py.detach(open).or_raise()?;
        Py::new(py, family::family(&self.source.with(opened, View::Live)))
    }
    /// Returns the names of all column families, sorted.
    fn families(&self) -> PyResult<Vec<String>> {
        Ok(self.open_db()?.families())
    }
    /// Drops a column family and its contents. Open iterators still return its entries.
    #[pyo3(signature = (name, /))]
    fn drop_family(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| self.db().drop_family(name)).or_raise()
    }
    /// Renames a column family. Handles stay valid.
    #[pyo3(signature = (name, new_name, /))]
    fn rename_family(&self, py: Python<'_>, name: &str, new_name: &str) -> PyResult<()> {
        py.detach(|| self.db().admin().rename_family(name, new_name)).or_raise()
    }

    /// Returns an empty batch of writes, which are applied atomically; a context manager.
    #[pyo3(signature = (*, durability=None))]
    fn batch(&self, py: Python<'_>, durability: Option<DurabilityArg>) -> PyResult<Py<Batch>> {
        Py::new(py, batch::batch(&self.source, durability))
    }
    /// Begins a transaction; a context manager that commits at the end.
    ///
    /// `isolation` is `"read_committed"`, `"repeatable_read"`, `"snapshot"` (the default) or
    /// `"serializable"`. With `lock`, each key is locked before it is written, and a call waits up
    /// to `lock_timeout` seconds (default 1) for other transactions; otherwise the second of two
    /// transactions that wrote the same key raises `Conflict` when it commits. A transaction that
    /// began before it got a lock can still conflict with the one that held it, unless its
    /// isolation is `"read_committed"`: use `run`. A `read_only`
    /// transaction never conflicts. After `timeout` seconds calls raise `Aborted`; writes of more
    /// than `max_bytes` are rejected. `durability` is that of the commit.
    #[pyo3(signature = (
        *, isolation=None, lock=false, read_only=false, lock_timeout=None, timeout=None,
        max_bytes=None, durability=None
    ))]
    fn transaction(
        &self,
        py: Python<'_>,
        isolation: Option<IsolationArg>,
        lock: bool,
        read_only: bool,
        lock_timeout: Option<Seconds>,
        timeout: Option<Seconds>,
        max_bytes: Option<u64>,
        durability: Option<DurabilityArg>,
    ) -> PyResult<Py<Transaction>> {
        let arguments =
            TxnArguments { isolation, lock, read_only, lock_timeout, timeout, max_bytes };
        self.begin(py, &arguments, durability)
    }
    /// Calls `work(transaction)`, commits, and returns the result of `work`. After a conflict, it
    /// calls `work` again on the current state, up to `retries` times, with increasing pauses; so
    /// `work` must not have other side effects. If `work` raises an exception, nothing is committed. Other
    /// arguments are those of `transaction`.
    ///
    /// >>> def count_visit(txn):
    /// ...     visits = int(txn.get("visits", b"0")) + 1
    /// ...     txn["visits"] = str(visits)
    /// ...     return visits
    /// >>> db.run(count_visit), db.run(count_visit)
    /// (1, 2)
    #[pyo3(signature = (
        work, /, *, retries=100, isolation=None, lock=false, read_only=false, lock_timeout=None,
        timeout=None, max_bytes=None, durability=None
    ))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        work: &Bound<'py, PyAny>,
        retries: u32,
        isolation: Option<IsolationArg>,
        lock: bool,
        read_only: bool,
        lock_timeout: Option<Seconds>,
        timeout: Option<Seconds>,
        max_bytes: Option<u64>,
        durability: Option<DurabilityArg>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !work.is_callable() {
            return Err(PyTypeError::new_err(
                "run() takes a function that is called with a transaction",
            ));
        }
        let arguments =
            TxnArguments { isolation, lock, read_only, lock_timeout, timeout, max_bytes };
        let txn = self.begin(py, &arguments, durability)?;
        transaction::run(txn.bind(py), work, retries)
    }

    /// Returns a snapshot: a read-only view of all column families as they are now, or as of the
    /// named snapshot `name` (`create_snapshot`), or right after the write with the sequence number
    /// `at`, if that state is still there (option `history`). A context manager.
    #[pyo3(signature = (*, name=None, at=None))]
    fn snapshot(
        &self,
        py: Python<'_>,
        name: Option<&str>,
        at: Option<u64>,
    ) -> PyResult<Py<Snapshot>> {
        let take = || match (name, at) {
            (Some(name), None) => self.db().history().named_snapshot(name),
            (None, Some(at)) => self.db().history().snapshot_at(at),
            (None, None) => self.db().snapshot(),
            (Some(_), Some(_)) => {
                Err(perigee::Error::invalid("pass the name of a snapshot or a number, not both"))
            }
        };
        let taken = py.detach(take).or_raise()?;
        Py::new(py, snapshot::snapshot(&self.source, taken))
    }
    /// Creates a snapshot with a name, which survives a restart, and returns its sequence number.
    ///
    /// >>> db["moon"] = "new"
    /// >>> sequence = db.create_snapshot("before")
    /// >>> db["moon"] = "full"
    /// >>> db.snapshot(name="before")["moon"], db.named_snapshots() == {"before": sequence}
    /// (b'new', True)
    /// >>> db.drop_snapshot("before")
    #[pyo3(signature = (name, /))]
    fn create_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<u64> {
        py.detach(|| self.db().history().create_snapshot(name)).or_raise()
    }
    /// Deletes a named snapshot.
    #[pyo3(signature = (name, /))]
    fn drop_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| self.db().history().drop_snapshot(name)).or_raise()
    }
    /// Returns the named snapshots: a dictionary from names to sequence numbers.
    fn named_snapshots<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        for snapshot in self.open_db()?.history().named_snapshots() {
            out.set_item(snapshot.name, snapshot.sequence)?;
        }
        Ok(out)
    }
    /// Sequence number of the newest write.
    #[getter]
    fn sequence(&self) -> PyResult<u64> {
        Ok(self.open_db()?.history().latest_seq())
    }
    /// Returns an iterator over everything that is committed durably after the sequence number
    /// `since` (0: from the beginning). It ends when there was no further change for `timeout`
    /// seconds (default 0; `None`: it waits without limit). Raises `NotFound` if the log does not
    /// reach back that far: the option `log_retention` keeps more of it.
    #[pyo3(signature = (since=0, *, timeout=Seconds(std::time::Duration::ZERO)),
           text_signature = "($self, since=0, *, timeout=0)")]
    fn changes(
        &self,
        py: Python<'_>,
        since: u64,
        timeout: Option<Seconds>,
    ) -> PyResult<ChangeFeed> {
        let feed = py.detach(|| self.db().history().changes(since)).or_raise()?;
        let database = Arc::clone(&self.source.database);
        Ok(ChangeFeed::new(feed, database, timeout.map(|t| t.0)))
    }

    /// Makes every write so far survive a power failure. Needed only with a durability other than
    /// `"full"`.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.db().sync()).or_raise()
    }
    /// Writes the memtables of all column families to table files.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.db().admin().flush()).or_raise()
    }
    /// Compacts all column families: drops overwritten and deleted entries. Can rewrite the whole
    /// database. `db.family("default").compact(start, end)` compacts a range of keys.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.db().admin().compact()).or_raise()
    }
    /// Reclaims the space of all deleted, overwritten and expired entries of all column families.
    fn purge(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.db().admin().purge()).or_raise()
    }
    /// Waits until no flush or compaction is running or due, for at most `timeout` seconds. Returns
    /// false after the timeout.
    #[pyo3(signature = (timeout=None))]
    fn wait_idle(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<bool> {
        let wait = || match timeout {
            Some(timeout) => self.db().admin().wait_idle_for(timeout.0),
            None => self.db().admin().wait_idle().map(|()| true),
        };
        py.detach(wait).or_raise()
    }
    /// Reads every byte of every file and checks it. Returns a dictionary with `files`, `bytes`,
    /// `entries` and `errors`, one for each damaged file.
    ///
    /// >>> db["moon"] = "full"
    /// >>> db.flush()
    /// >>> db.verify()["errors"]
    /// []
    fn verify<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::report(py, &py.detach(|| self.db().admin().verify()).or_raise()?)
    }
    /// Creates a copy of the database, as of now, in the directory `path`, which must not exist or
    /// must be empty. On the same file system the files are shared by hard links.
    fn checkpoint<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
        convert::report(py, &py.detach(|| self.db().backups().checkpoint(path)).or_raise()?)
    }
    /// Adds a backup to the directory `path`; only files that it does not contain are copied. See
    /// `Backups` for restoring. With `reread`, shared files of earlier backups are checked too.
    #[pyo3(signature = (path, *, reread=false))]
    fn backup<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        reread: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = BackupOptions::new().reread(reread);
        let create = || self.db().backups().create_with(path, options, |_done, _total| {});
        convert::report(py, &py.detach(create).or_raise()?)
    }

    /// Returns the options in effect: a dictionary with the options of the database, and under
    /// `"families"` those of each column family.
    ///
    /// >>> db.options()["durability"], db.options()["families"]["default"]["compression"]
    /// ('full', 'lz4')
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let file = convert::report(py, &self.open_db()?.admin().options())?;
        let database = file.get_item("database")?;
        database.set_item("families", file.get_item("family")?)?;
        Ok(database)
    }
    /// Returns statistics of the database, its column families and background work as a dictionary
    /// (`docs/STATISTICS.md`).
    ///
    /// >>> db["moon"] = "full"
    /// >>> db.stats()["last_sequence"]
    /// 1
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let db = self.open_db()?;
        convert::report(py, &py.detach(|| db.admin().stats()))
    }
    /// Returns the counters since the database was opened: a dictionary from names to numbers. Much
    /// cheaper than `stats`.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        for counter in self.open_db()?.admin().counters() {
            out.set_item(counter.name, counter.value)?;
        }
        Ok(out)
    }
    /// Returns the metrics as a dictionary from names, with labels, to numbers.
    ///
    /// >>> db["moon"] = "full"
    /// >>> db.metrics()["perigee_last_sequence"]
    /// 1.0
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        let text = self.metrics_text(py)?;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some((name, value)) = line.rsplit_once(' ')
                && let Ok(number) = value.parse::<f64>()
            {
                out.set_item(name, number)?;
            }
        }
        Ok(out)
    }
    /// Returns the metrics as OpenMetrics text, for an endpoint `/metrics`
    /// (`application/openmetrics-text; version=1.0.0`).
    fn metrics_text(&self, py: Python<'_>) -> PyResult<String> {
        let db = self.open_db()?;
        Ok(py.detach(|| db.admin().metrics()))
    }
    /// Returns a dictionary for each table file: level, size, number of entries, range of keys.
    fn files<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let db = self.open_db()?;
        convert::report(py, &py.detach(|| db.admin().files()))
    }
    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let this = slf.get();
        let path = PyString::new(slf.py(), &this.db().path().display().to_string());
        let state = if this.closed() { ", closed" } else { "" };
        Ok(format!("<perigeedb.Database {}{state}>", path.repr()?))
    }
}
