//! Constructs the subsystems of the engine in dependency order and closes them in reverse order.
//! [`Engine`] is the public interface of this crate.

pub mod report;
mod close;
mod job_requests;

use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::catalog::snapshot::SnapshotHandle;
use crate::ddl;
use crate::log::Log;
use crate::log::change_feed::LogFeed;
use crate::log::commit::{self, TwoPhaseDecision, rotate};
use crate::maintenance::Maintenance;
use crate::maintenance::jobs::{self, Workers};
use crate::maintenance::load::{self, LoadBuilder};
use crate::maintenance::prepared_spill;
use crate::maintenance::safety::{BackupReport, CheckpointReport, backup, checkpoint};
use crate::maintenance::txn_spill::TxnSpillFiles;
use crate::maintenance::value_writer::{EngineValueWriter, FinishedValue};
use crate::maintenance::verify;
use crate::recover;
use crate::resources::Resources;
use crate::resources::job_control::JobKind;
use crate::runtime::Runtime;
use crate::runtime::events::{self, EngineEvent};
use crate::runtime::logical_clock::LogicalClock;
use crate::settings::durability::Durability;
use crate::settings::{FamilySettings, Settings};
use crate::stats::{
    CacheStats, CounterValue, FamilyStats, FileStats, FinishedJobStats, RecoveryReport, Stats,
    VerifyReport,
};
use crate::txn::TxnManager;
use crate::txn::locks::{LockManager, LockMode};
use crate::txn::prepared_txn::PreparedTxn;
use crate::txn::read_write_sets::KeyOrRangeRef;
use crate::txn::{EngineTxn, TxnSettings};
use perigee_base::bug::Bug;
use perigee_base::checksum::key_hash;
use perigee_base::{
    Counters, Error, ErrorKind, Expiry, ExpiryClock, Operation, Result, SeqNo, bug,
};
use perigee_env::fs::ClosableDir;
use perigee_env::sim::is_simulated;
use perigee_env::{Dir, DirLock, DirOpenMode, Env, ForkGuard, Mutex};
use perigee_file::filename;
use perigee_file::log::{Batch, check_gid};
use perigee_tree::seed_key_hashes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The lock of a directory whose recovery has failed.
#[derive(Debug)]
pub struct RetainedDirLock {
    dir: Arc<dyn Dir>,
    process: ForkGuard,
    lock: Box<dyn DirLock>,
}

impl RetainedDirLock {
    /// Returns true if this process holds the lock, and `path` still is the locked directory.
    fn is_for(&self, path: &Path) -> Result<bool> {
        Ok(!self.process.is_forked() && self.dir.is_located_at(path)?)
    }
}

/// Reports what recovery did, before the background threads start.
fn report_open(catalog: &Catalog, recovery: &RecoveryReport) {
    catalog.runtime.report_event(&report::open_event(catalog, recovery));
    catalog.runtime.listener_queue().deliver();
}

/// An open database. Dropping the last handle closes it.
pub struct Engine {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) txns: Arc<TxnManager>,
    pub(crate) log: Arc<Log>,
    maintenance: Arc<Maintenance>,
    pub(crate) workers: Mutex<Option<Workers>>,
    recovery: RecoveryReport,
    path: PathBuf,
    identity: u64,
    pub(crate) dir: Arc<ClosableDir>,
    pub(crate) lock: Mutex<Option<Box<dyn DirLock>>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({})", self.path.display())
    }
}

impl Engine {
    /// Returns an error if `path` holds a directory that is not a database of this program; a
    /// missing directory is accepted.
    ///
    /// # Errors
    /// `InvalidArgument`, `Io`.
    pub fn check_path(env: &Env, path: &Path) -> Result<()> {
        recover::foreign_dir::refuse_foreign_path(env, path)
    }
    /// Returns the names of the column families of the database in `path`, each with the name of
    /// its comparator and whether it has tables. Reads the manifest without opening the database.
    ///
    /// # Errors
    /// `NotFound` if there is no database; `Corruption`, `FormatTooNew`, `Io`.
    pub fn list_families(env: &Env, path: &Path) -> Result<Vec<(String, String, bool)>> {
        recover::list_families(env, path)
    }
    /// Opens or creates the database in `path`.
    pub fn open(env: Env, path: &Path, settings: Settings) -> Result<Engine> {
        Engine::open_with_lock(env, path, settings, &mut None)
    }
    /// Like [`open`](Engine::open), with the directory lock in `kept`, if any. If recovery fails,
    /// the lock is left in `kept`, so that the directory stays locked until the next open.
    pub fn open_with_lock(
        env: Env,
        path: &Path,
        settings: Settings,
        kept: &mut Option<RetainedDirLock>,
    ) -> Result<Engine> {
        let listener = settings.listener.clone();
        Engine::try_open(env, path, settings, kept)
            .inspect_err(|e| events::report_failed_open(listener, e))
    }
    fn try_open(
        env: Env,
        path: &Path,
        settings: Settings,
        kept: &mut Option<RetainedDirLock>,
    ) -> Result<Engine> {
        let _span = events::enter_span("open", &path.to_string_lossy());
        settings.check()?;
        let mut settings = settings;
        settings.read_only |= settings.salvage_readonly;
        settings.create_if_missing &= !settings.read_only;
        let mode = if settings.create_if_missing {
            DirOpenMode::CreateIfMissing
        } else {
            DirOpenMode::Existing
        };
        if !is_simulated() {
            seed_key_hashes(env.rand.next_u64());
        }
        let files = env.fs.open_file_limiter();
        let inner = files.open_with_retry(|| env.fs.open_dir(path, mode))?;
        let closable = Arc::new(ClosableDir::new(Arc::clone(&inner), files)?);
        let dir: Arc<dyn Dir> = Arc::clone(&closable) as _;
        recover::foreign_dir::refuse_foreign(&env, &*dir, settings.create_if_missing)?;
        if !settings.create_if_missing && dir.file_len(filename::MANIFEST)?.is_none() {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("there is no database in {}", path.display()),
            ));
        }
        let boot = env.fs.boot_id();
        if settings.read_only {
            let (opened, recovery) = recover::open_read_only(env, dir, boot, settings)?;
            report_open(&opened.catalog, &recovery);
            return Ok(Engine::from_parts(opened, None, recovery, path, closable, None));
        }
        let lock = match kept.take() {
            Some(kept) if kept.is_for(path)? => kept.lock,
            _ => dir.lock(filename::LOCK)?,
        };
        let (opened, recovery) = match recover::open_database(env, dir, boot, settings) {
            Ok(opened) => opened,
            Err(e) => {
                *kept = Some(RetainedDirLock { dir: inner, process: ForkGuard::new(), lock });
                return Err(e);
            }
        };
        report_open(&opened.catalog, &recovery);
        let workers = jobs::start_workers(&opened)?;
        Ok(Engine::from_parts(opened, Some(workers), recovery, path, closable, Some(lock)))
    }

    fn from_parts(
        maintenance: Arc<Maintenance>,
        workers: Option<Workers>,
        recovery: RecoveryReport,
        path: &Path,
        dir: Arc<ClosableDir>,
        lock: Option<Box<dyn DirLock>>,
    ) -> Engine {
        let identity =
            maintenance.runtime.identity.database ^ key_hash(path.as_os_str().as_encoded_bytes());
        Engine {
            runtime: Arc::clone(&maintenance.runtime),
            resources: Arc::clone(&maintenance.resources),
            catalog: Arc::clone(&maintenance.catalog),
            txns: Arc::clone(&maintenance.txns),
            log: Arc::clone(&maintenance.log),
            maintenance,
            identity,
            workers: Mutex::new(workers),
            recovery,
            path: path.to_owned(),
            dir,
            lock: Mutex::new(lock),
        }
    }

    /// Returns the database directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Identifies the database in this directory. A checkpoint has the database id of its source
    /// (the shared table files contain it), but family ids diverge with the first one created on
    /// either side.
    pub fn identity(&self) -> u64 {
        self.identity
    }
    /// Commits a batch. `None`: with the default durability of the database.
    pub fn write(&self, batch: Batch, durability: Option<Durability>) -> Result<()> {
        self.write_measured(Operation::Write, batch, durability).map(drop)
    }
    /// Like [`write`](Engine::write), with the latency recorded for `operation`. Returns the
    /// sequence number of the last operation of the batch.
    pub fn write_measured(
        &self,
        operation: Operation,
        batch: Batch,
        durability: Option<Durability>,
    ) -> Result<SeqNo> {
        let started =
            self.runtime.start_timer(operation, self.runtime.counters.commits.stripe_value());
        let durability = durability.unwrap_or(self.runtime.settings.durability);
        let written = commit::write_batch(&self.log, batch, durability);
        match &written {
            Ok(_) => self.runtime.stop_timer(operation, started),
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::OutcomeUnknown | ErrorKind::NoSpace | ErrorKind::Io
                ) =>
            {
                self.runtime.report_event(&EngineEvent::Failed { what: "write", error: e });
            }
            Err(_) => {}
        }
        written
    }

    /// Begins a transaction.
    pub fn begin_txn(&self, settings: TxnSettings) -> Result<EngineTxn> {
        EngineTxn::begin(&self.txns, settings, || self.log.commit_section())
    }
    /// Discards all state of a transaction and begins it again.
    pub fn reset_txn(&self, txn: &mut EngineTxn) -> Result<()> {
        txn.reset(&self.txns, || self.log.commit_section())
    }
    /// Commits a transaction, which has ended when this returns, whatever the result. Returns the
    /// sequence number of its last operation (the current one, if it wrote nothing).
    ///
    /// # Errors
    /// `Conflict`: the transaction had no effect, retry it. Those of [`Engine::write`].
    pub fn commit_txn(&self, txn: &mut EngineTxn, durability: Option<Durability>) -> Result<SeqNo> {
        if txn.is_spilled() {
            let done = txn.commit_spilled(&self.runtime);
            check_slow!(
                done.as_ref().is_ok_and(|seq| *seq <= self.visible_seq()) || done.is_err(),
                "a committed transaction is visible",
                done
            );
            txn.end();
            if done.is_ok() {
                txn.forget_lock_owner();
            }
            return done;
        }
        let finished = txn.finish_commit(&self.catalog);
        let durability = durability.unwrap_or(self.runtime.settings.durability);
        let started = self
            .runtime
            .start_timer(Operation::Write, self.runtime.counters.commits.stripe_value());
        let done = finished.and_then(|(batch, conditions)| {
            commit::write_batch_if(&self.log, batch, durability, conditions)
        });
        if done.is_ok() {
            self.runtime.stop_timer(Operation::Write, started);
        }
        txn.end();
        check_slow!(
            txn.written() == (0, 0) && txn.snapshot().is_none(),
            "a transaction that has ended holds nothing",
            txn.written(),
            txn.snapshot()
        );
        if done.is_ok() {
            txn.forget_lock_owner();
        }
        done
    }
    /// Called before a transaction writes: moves its writes to files if they exceed its memory.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: nothing has changed.
    #[inline]
    pub fn spill_if_full(&self, txn: &mut EngineTxn) -> Result<()> {
        if !txn.needs_spill_check() {
            return Ok(());
        }
        txn.spill_if_needed(&self.resources, || Box::new(TxnSpillFiles::new(&self.maintenance)))
    }
    /// Begins a value of a column family that is written in parts.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`; `NotFound` if the column family was dropped.
    pub fn value_writer(&self, family: &Arc<FamilyState>) -> Result<EngineValueWriter> {
        EngineValueWriter::new(&self.maintenance, family)
    }
    /// Ends a value that was written in parts, and puts it in a transaction.
    ///
    /// # Errors
    /// Those of a write in the transaction; the value is gone then.
    pub fn put_written_value(
        &self,
        txn: &mut EngineTxn,
        family: &FamilyState,
        key: &[u8],
        expiry: Option<Expiry>,
        value: EngineValueWriter,
    ) -> Result<()> {
        value.finish(|finished| match finished {
            FinishedValue::Short(value) => {
                self.spill_if_full(txn)?;
                let lock_target = || (KeyOrRangeRef::Key(key), LockMode::Insert);
                txn.write(&self.runtime, family, lock_target, |batch| match expiry {
                    Some(expiry) => batch.put_expiring(family.id, key, value, expiry),
                    None => batch.put(family.id, key, value),
                })
            }
            FinishedValue::InFile(value) => {
                txn.put_separated(&self.resources, family, key, expiry, value, || {
                    Box::new(TxnSpillFiles::new(&self.maintenance))
                })
            }
        })
    }
    /// Prepares a transaction durably under an identifier. It has ended when this returns, whatever
    /// the result, unless the identifier is invalid or in use.
    pub fn prepare_txn(&self, txn: &mut EngineTxn, gid: &[u8]) -> Result<()> {
        check_gid(gid)?;
        let _reservation = self.txns.prepared_txns().reserve_gid(gid)?;
        if txn.is_spilled() {
            let done = txn.prepare_spilled(&self.runtime, gid);
            txn.end();
            return done;
        }
        let level = txn.settings().isolation;
        let done = txn.finish_prepare(&self.runtime).and_then(|leaving| {
            let owner = leaving.locks.0;
            let done = commit::prepare_txn(&self.log, gid, level, leaving);
            done.inspect_err(|_| txn.restore_lock_owner(owner))
        });
        txn.end();
        done
    }
    /// Commits or rolls back a prepared transaction; returns its last sequence number.
    pub fn decide_prepared(
        &self,
        gid: &[u8],
        decision: TwoPhaseDecision,
        durability: Durability,
    ) -> Result<SeqNo> {
        check_gid(gid)?;
        self.runtime.health.check_writable()?;
        let prepared = self.txns.prepared_txns().claim_decision(gid)?;
        let done = if prepared.spilled().is_some() {
            prepared_spill::decide_spilled(&self.maintenance, prepared, decision)
        } else {
            commit::decide_txn(&self.log, &prepared, decision, durability)
        };
        self.log.run_commit_hooks();
        done
    }
    /// Returns the lock manager.
    pub fn locks(&self) -> &LockManager {
        self.txns.locks()
    }
    /// Returns the prepared transactions that have not been decided.
    pub fn prepared_txns(&self) -> Result<Vec<Arc<PreparedTxn>>> {
        self.runtime.health.check_open()?;
        Ok(self.txns.prepared_txns().all())
    }
    /// Calls the pending commit hooks of this thread, which must not hold a lock.
    pub fn run_commit_hooks(&self) {
        self.log.run_commit_hooks();
    }
    /// Returns the runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    /// Returns the log, which change feeds read.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Returns `Closed` if the database is closed.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        self.runtime.health.check_open()
    }
    /// Returns the clock that decides whether entries have expired.
    pub fn logical_clock(&self) -> &LogicalClock {
        &self.runtime.logical_clock
    }
    /// Returns the expiry of an entry with a time to live that begins now.
    pub fn expiry_after(&self, ttl: Duration) -> Expiry {
        Expiry::after_ttl(self.runtime.logical_clock.now_ms(), ttl.as_millis())
    }
    /// Accepts the wall clock as confirmed by the operator, and wakes work that waits for this.
    pub fn confirm_wall_clock(&self) {
        self.runtime.logical_clock.confirm_wall_clock();
        self.runtime.signal.notify();
    }
    /// Returns the sequence number of the last visible operation.
    pub fn visible_seq(&self) -> SeqNo {
        self.catalog.visible_seq()
    }
    /// Takes a snapshot of the current state.
    pub fn snapshot(&self) -> Result<SnapshotHandle> {
        self.runtime.health.check_open()?;
        Ok(self.catalog.acquire_snapshot())
    }
    /// Takes a snapshot at an earlier sequence number.
    pub fn snapshot_at(&self, seq: SeqNo) -> Result<SnapshotHandle> {
        self.catalog.snapshot_at(seq)
    }
    /// Returns the oldest readable sequence number.
    pub fn oldest_readable(&self) -> SeqNo {
        self.catalog.oldest_readable()
    }
    /// Creates a named snapshot of the current state; returns its sequence number.
    pub fn create_named_snapshot(&self, name: &str) -> Result<SeqNo> {
        ddl::create_named_snapshot(&self.log, name)
    }
    /// Returns a snapshot at the sequence number of a named snapshot.
    pub fn named_snapshot(&self, name: &str) -> Result<SnapshotHandle> {
        self.catalog.named_snapshot(name)
    }
    /// Returns the names and sequence numbers of all named snapshots.
    pub fn named_snapshots(&self) -> Vec<(String, SeqNo)> {
        self.catalog.named_snapshots()
    }
    /// Drops a named snapshot.
    pub fn drop_named_snapshot(&self, name: &str) -> Result<()> {
        self.catalog.drop_named_snapshot(name)
    }
    /// Returns a change feed of everything after a sequence number.
    pub fn change_feed(&self, since: SeqNo) -> Result<LogFeed> {
        LogFeed::new(&self.catalog, since)
    }
    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.runtime.counters
    }
    /// Counts tombstones skipped by scans; may trigger a check whether to compact them away.
    pub(crate) fn record_skipped_tombstones(&self, tombstones: u64) {
        self.resources.add_skipped_tombstones(tombstones);
    }
    /// Requests a check which memtables to flush because of the scans in them.
    pub(crate) fn request_scanned_check(&self) {
        self.resources.request_scanned_check();
    }

    /// Returns the column family `name`.
    pub fn family(&self, name: &str) -> Result<Arc<FamilyState>> {
        self.runtime.health.check_open()?;
        self.catalog.families().by_name(name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no column family {name:?}"))
        })
    }
    /// Returns the names of all column families.
    pub fn family_names(&self) -> Vec<String> {
        self.catalog.families().names()
    }
    /// Reports a change of the column families if it succeeded, or if its outcome is unknown.
    fn report_family_change<T>(&self, changed: Result<T>, what: &str, name: &str) -> Result<T> {
        let _span = events::enter_span("family", name);
        match &changed {
            Ok(_) => self.runtime.report_event(&EngineEvent::FamilyChanged { what, name }),
            Err(e) if e.kind() == ErrorKind::OutcomeUnknown => {
                self.runtime
                    .report_event(&EngineEvent::Failed { what: "column-family change", error: e });
            }
            Err(_) => {}
        }
        changed
    }
    /// Creates a column family.
    pub fn create_family(&self, name: &str, settings: FamilySettings) -> Result<Arc<FamilyState>> {
        self.report_family_change(ddl::create_family(&self.log, name, settings), "created", name)
    }
    /// Returns the settings given at open.
    pub fn settings(&self) -> &Settings {
        &self.runtime.settings
    }
    /// Returns the environment.
    pub fn env(&self) -> &Env {
        &self.runtime.env
    }
    /// Changes the settings of a column family.
    pub fn set_family_settings(
        &self,
        family: &Arc<FamilyState>,
        settings: FamilySettings,
    ) -> Result<()> {
        self.report_family_change(
            ddl::set_family_settings(&self.catalog, family, settings),
            "options changed",
            &family.name(),
        )
    }
    /// Drops a column family.
    pub fn drop_family(&self, name: &str) -> Result<()> {
        self.report_family_change(ddl::drop_family(&self.log, name), "dropped", name)
    }

    /// Returns the number of commit-hook calls that panicked.
    pub fn hook_panics(&self) -> u64 {
        self.log.hook_panics()
    }
    /// Starts a bulk load into a column family.
    pub fn bulk_load(&self, family: &Arc<FamilyState>) -> Result<LoadBuilder> {
        LoadBuilder::new(&self.maintenance, family)
    }
    /// Ingests standalone tables; returns the sequence number, entries and bytes.
    pub fn ingest(&self, files: &[load::ingest::IngestFiles]) -> Result<(SeqNo, u64, u64)> {
        load::ingest_files(&self.maintenance, files)
    }
    /// Publishes bulk loads atomically.
    pub fn publish_loads(&self, loads: &mut [&mut LoadBuilder]) -> Result<SeqNo> {
        load::finish_loads(&self.maintenance, loads)
    }
    /// Renames a column family.
    pub fn rename_family(&self, name: &str, to: &str) -> Result<()> {
        self.report_family_change(ddl::rename_family(&self.log, name, to), "renamed", to)
    }
    /// Removes all contents of a column family.
    pub fn clear_family(&self, name: &str) -> Result<()> {
        self.report_family_change(ddl::clear_family(&self.log, name), "cleared", name)
    }
    /// Creates a column family with the contents of another; they share files.
    pub fn clone_family(&self, source: &str, name: &str) -> Result<Arc<FamilyState>> {
        ddl::check_new_family(&self.catalog, name)?;
        let source = self.family(source)?;
        if !bug::is_active(Bug::CloneOmitsMemtables) {
            self.flush(&[Arc::clone(&source)])?;
        }
        self.report_family_change(ddl::clone_family(&self.log, &source, name), "cloned", name)
    }

    /// Makes all acknowledged writes durable.
    pub fn sync(&self) -> Result<()> {
        self.runtime.health.check_writable()?;
        self.log.sync().map(|_| ())
    }

    /// Waits until all writes up to `seq` are durable; threads that wait share syncs.
    ///
    /// # Errors
    /// `InvalidArgument` if no write has this sequence number yet. `OutcomeUnknown` if this or an
    /// earlier sync failed.
    pub fn sync_up_to(&self, seq: SeqNo) -> Result<()> {
        self.runtime.health.check_open()?;
        self.log.sync_up_to(seq)
    }

    /// Seals the memtables of these column families and waits until they are flushed.
    pub fn flush(&self, families: &[Arc<FamilyState>]) -> Result<()> {
        self.runtime.health.check_writable()?;
        {
            let mut appender = self.log.commit_section();
            self.runtime.health.check_writable()?;
            let full: Vec<_> =
                families.iter().filter(|f| !f.tree.view().active.is_empty()).cloned().collect();
            if !full.is_empty() {
                rotate::seal_memtables(&self.log, &mut appender, &full)?;
            }
        }
        let waiting: Vec<_> = families
            .iter()
            .flat_map(|f| {
                f.tree
                    .view()
                    .immutables
                    .iter()
                    .map(|m| (Arc::clone(f), Arc::clone(m)))
                    .collect::<Vec<_>>()
            })
            .collect();
        self.wait_until(|| !waiting.iter().any(|(f, m)| f.awaits_flush(m)))
    }

    /// Waits for flushes; returns an error if they fail or background work is paused.
    fn wait_until(&self, done: impl Fn() -> bool) -> Result<()> {
        let failures = self.runtime.health.background_error_count();
        loop {
            let seen = self.runtime.signal.generation();
            if done() {
                return Ok(());
            }
            self.runtime.health.check_writable()?;
            if let Some(e) = self.runtime.health.background_error_since(failures) {
                return Err(e);
            }
            // If the caller is the one that paused the jobs, waiting would never end.
            if self.resources.job_control().is_idle(Some(JobKind::Flush)) {
                self.resources.job_control().check_allowed(JobKind::Flush)?;
            }
            self.runtime.signal.wait_timeout_us(seen, 50_000);
        }
    }

    /// Returns all column families.
    pub fn all_families(&self) -> Vec<Arc<FamilyState>> {
        self.catalog.families().all()
    }
    /// Creates a database with the same contents in `target`.
    pub fn checkpoint(&self, target: &Path) -> Result<CheckpointReport> {
        checkpoint::create_checkpoint(&self.log, target)
    }
    /// Creates a generation in the backup directory `path`.
    pub fn backup(
        &self,
        path: &Path,
        reread: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<BackupReport> {
        backup::create_backup(&self.log, path, reread, progress)
    }
    /// Reads and verifies every byte.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        verify::verify(&self.log, progress)
    }
    /// Returns statistics.
    pub fn stats(&self) -> Stats {
        report::stats(&self.maintenance, &self.recovery)
    }
    /// Returns the flushes and compactions that ended last, the newest first.
    pub fn finished_jobs(&self) -> Vec<FinishedJobStats> {
        report::finished_jobs(&self.resources)
    }
    /// Returns statistics of one column family.
    pub fn family_stats(&self, family: &Arc<FamilyState>) -> FamilyStats {
        report::family_stats(&self.catalog, family)
    }
    /// Returns statistics of the block cache.
    pub fn cache_stats(&self) -> CacheStats {
        report::cache_stats(&self.resources)
    }
    /// Returns the counters by name.
    pub fn counter_values(&self) -> Vec<CounterValue> {
        report::counters(&self.runtime)
    }
    /// Returns every table file of a column family.
    pub fn family_files(&self, family: &FamilyState) -> Vec<FileStats> {
        report::family_files(family)
    }
    /// Returns every table file.
    pub fn files(&self) -> Vec<FileStats> {
        report::all_files(&self.catalog)
    }
}
