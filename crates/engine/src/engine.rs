//! Constructs the components of the engine in layer order and closes them in reverse. [`Engine`] is
//! the public interface of this crate.

use crate::change_feed::ChangeFeed;
use crate::commit::{self, CommitPipeline, TwoPhaseDecision, rotate};
use crate::core::EngineCore;
use crate::events::{self, EngineEvent};
use crate::family::FamilyState;
use crate::job_control::JobKind;
use crate::jobs::{self, Workers};
use crate::load::{self, LoadBuilder};
use crate::logical_clock::LogicalClock;
use crate::named_snapshots;
use crate::prepared_txns::PreparedTxn;
use crate::recover;
use crate::report::{self, CacheStatus, EngineStatus, FamilyStatus, TableStatus};
use crate::safety::{BackupSummary, CheckpointSummary, backup, checkpoint};
use crate::settings::{DurabilityLevel, FamilySettings, Settings};
use crate::snapshot::SnapshotHandle;
use crate::txn::{EngineTxn, TxnSettings};
use crate::txn_spill::TxnSpillFiles;
use crate::verify::{self, VerifyResult};
use perigee_base::bug::{self, Bug};
use perigee_base::checksum::key_hash;
use perigee_base::latency::Operation;
use perigee_base::stats::Counters;
use perigee_base::{Error, ErrorKind, Result, SeqNo};
use perigee_env::fork::ForkGuard;
use perigee_env::fs::closable_dir::ClosableDir;
use perigee_env::sim::is_simulated;
use perigee_env::sync::Mutex;
use perigee_env::{Dir, DirLock, DirOpenMode, Env};
use perigee_file::filename;
use perigee_file::log::Batch;
use perigee_file::log::prepare::check_gid;
use perigee_tree::memtable::hashed_entries::seed_key_hashes;
use perigee_tree::{StripedGuard, View};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// An open database. Dropping the last handle closes it.
pub struct Engine {
    pub(crate) core: Arc<EngineCore>,
    writers: CommitPipeline,
    pub(crate) workers: Mutex<Option<Workers>>,
    recovery: recover::RecoverySummary,
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
        settings.read_only |= settings.salvage;
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
            let (core, recovery) = recover::open_read_only(env, dir, boot, settings)?;
            core.report_event(&report::open_event(&core, &recovery));
            core.listener_queue.deliver();
            return Ok(Engine::from_parts(Arc::new(core), None, recovery, path, closable, None));
        }
        let lock = match kept.take() {
            Some(kept) if kept.is_for(path)? => kept.lock,
            _ => dir.lock(filename::LOCK)?,
        };
        let (core, recovery) = match recover::open_database(env, dir, boot, settings) {
            Ok(opened) => opened,
            Err(e) => {
                *kept = Some(RetainedDirLock { dir: inner, process: ForkGuard::new(), lock });
                return Err(e);
            }
        };
        core.report_event(&report::open_event(&core, &recovery));
        core.listener_queue.deliver();
        let workers = jobs::start_workers(&core)?;
        Ok(Engine::from_parts(core, Some(workers), recovery, path, closable, Some(lock)))
    }

    fn from_parts(
        core: Arc<EngineCore>,
        workers: Option<Workers>,
        recovery: recover::RecoverySummary,
        path: &Path,
        dir: Arc<ClosableDir>,
        lock: Option<Box<dyn DirLock>>,
    ) -> Engine {
        let identity = core.database_id ^ key_hash(path.as_os_str().as_encoded_bytes());
        Engine {
            core,
            identity,
            writers: CommitPipeline::new(),
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
    pub fn write(&self, batch: Batch, durability: Option<DurabilityLevel>) -> Result<()> {
        self.write_measured(Operation::Write, batch, durability).map(drop)
    }
    /// Like [`write`](Engine::write), with the latency recorded for `operation`. Returns the
    /// sequence number of the last operation of the batch.
    pub fn write_measured(
        &self,
        operation: Operation,
        batch: Batch,
        durability: Option<DurabilityLevel>,
    ) -> Result<SeqNo> {
        let started = self.core.start_timer(operation, self.core.counters.commits.stripe_value());
        let durability = durability.unwrap_or(self.core.settings.durability);
        let written = commit::write_batch(&self.core, &self.writers, batch, durability);
        match &written {
            Ok(_) => self.core.stop_timer(operation, started),
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::OutcomeUnknown | ErrorKind::NoSpace | ErrorKind::Io
                ) =>
            {
                self.core.report_event(&EngineEvent::Failed { what: "write", error: e });
            }
            Err(_) => {}
        }
        written
    }

    /// Begins a transaction.
    pub fn begin_txn(&self, settings: TxnSettings) -> Result<EngineTxn> {
        EngineTxn::begin(&self.core, settings)
    }
    /// Commits a transaction, which has ended when this returns, whatever the result. Returns the
    /// sequence number of its last operation (the current one, if it wrote nothing).
    ///
    /// # Errors
    /// `Conflict`: the transaction had no effect, retry it. Those of [`Engine::write`].
    pub fn commit_txn(
        &self,
        txn: &mut EngineTxn,
        durability: Option<DurabilityLevel>,
    ) -> Result<SeqNo> {
        if txn.is_spilled() {
            let done = txn.commit_spilled(&self.core);
            txn.end();
            return done;
        }
        let finished = txn.finish_commit(&self.core);
        let durability = durability.unwrap_or(self.core.settings.durability);
        let started =
            self.core.start_timer(Operation::Write, self.core.counters.commits.stripe_value());
        let done = finished.and_then(|(batch, conditions)| {
            commit::write_batch_if(&self.core, &self.writers, batch, durability, conditions)
        });
        if done.is_ok() {
            self.core.stop_timer(Operation::Write, started);
        }
        txn.end();
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
        txn.spill_if_needed(&self.core, || Box::new(TxnSpillFiles::new(&self.core)))
    }
    /// Prepares a transaction durably under an identifier. It has ended when this returns, whatever
    /// the result, unless the identifier is invalid or in use.
    pub fn prepare_txn(&self, txn: &mut EngineTxn, gid: &[u8]) -> Result<()> {
        check_gid(gid)?;
        let _reservation = self.core.prepared_txns.reserve_gid(gid)?;
        txn.check_preparable()?;
        let level = txn.settings().isolation;
        let done = txn.finish_prepare(&self.core).and_then(|leaving| {
            let owner = leaving.locks.0;
            let done = commit::prepare_txn(&self.core, &self.writers, gid, level, leaving);
            done.inspect_err(|_| txn.restore_lock_owner(owner))
        });
        txn.end();
        done
    }
    /// Commits or rolls back a prepared transaction durably; returns its last sequence number.
    pub fn decide_prepared(&self, gid: &[u8], verdict: TwoPhaseDecision) -> Result<SeqNo> {
        let done = commit::decide_txn(&self.core, &self.writers, gid, verdict);
        self.core.commit_hooks.run_pending();
        done
    }
    /// Returns the prepared transactions that have not been decided.
    pub fn prepared_txns(&self) -> Result<Vec<Arc<PreparedTxn>>> {
        self.core.health.check_open()?;
        Ok(self.core.prepared_txns.all())
    }
    /// Calls the pending commit hooks of this thread, which must not hold a lock.
    pub fn run_commit_hooks(&self) {
        self.core.commit_hooks.run_pending();
    }
    /// Returns the shared state that transactions read.
    pub fn core(&self) -> &EngineCore {
        &self.core
    }

    /// Returns `Closed` if the database is closed.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        self.core.health.check_open()
    }
    /// Returns the newest view of a column family, and the sequence number at which to read it. The
    /// view is taken first: every commit visible at that sequence number is in the view, or is
    /// newer than the view as a whole.
    pub fn read_view(&self, family: &FamilyState) -> Result<(Arc<View>, SeqNo)> {
        self.core.health.check_open()?;
        family.check_not_dropped()?;
        let view = family.tree.view();
        Ok((view, self.core.visible_seq()))
    }
    /// Like [`read_view`](Engine::read_view), for one read: cheaper with many reading threads.
    #[inline]
    pub fn pin_view(&self, family: &FamilyState) -> Result<(StripedGuard<View>, SeqNo)> {
        self.core.health.check_open()?;
        family.check_not_dropped()?;
        let view = family.tree.pin();
        Ok((view, self.core.visible_seq()))
    }
    /// Returns the view of a column family for one read at a snapshot.
    #[inline]
    pub fn pin_view_at(
        &self,
        family: &FamilyState,
        held: &SnapshotHandle,
    ) -> Result<StripedGuard<View>> {
        self.core.health.check_open()?;
        family.check_not_dropped()?;
        let view = family.tree.pin();
        family.check_snapshot(held)?;
        Ok(view)
    }
    /// Returns the view of a column family for a snapshot.
    pub fn view_at(&self, family: &FamilyState, held: &SnapshotHandle) -> Result<Arc<View>> {
        self.core.health.check_open()?;
        family.check_not_dropped()?;
        let view = family.tree.view();
        family.check_snapshot(held)?;
        Ok(view)
    }
    /// Returns the clock that decides whether entries have expired.
    pub fn logical_clock(&self) -> &LogicalClock {
        &self.core.logical_clock
    }
    /// Accepts the wall clock as confirmed by the operator, and wakes work that waits for this.
    pub fn confirm_wall_clock(&self) {
        self.core.logical_clock.confirm_wall_clock();
        self.core.signal.notify();
    }
    /// Returns the sequence number of the last visible operation.
    pub fn visible_seq(&self) -> SeqNo {
        self.core.visible_seq()
    }
    /// Takes a snapshot of the current state.
    pub fn snapshot(&self) -> Result<SnapshotHandle> {
        self.core.health.check_open()?;
        Ok(self.core.snapshots.acquire(&self.core.visible_seq))
    }
    /// Takes a snapshot at an earlier sequence number.
    pub fn snapshot_at(&self, seq: SeqNo) -> Result<SnapshotHandle> {
        named_snapshots::snapshot_at(&self.core, seq)
    }
    /// Returns the oldest readable sequence number.
    pub fn oldest_readable(&self) -> SeqNo {
        self.core.snapshots.oldest_readable()
    }
    /// Creates a named snapshot of the current state; returns its sequence number.
    pub fn create_named_snapshot(&self, name: &str) -> Result<SeqNo> {
        named_snapshots::create_named(&self.core, name)
    }
    /// Returns a snapshot at the sequence number of a named snapshot.
    pub fn named_snapshot(&self, name: &str) -> Result<SnapshotHandle> {
        named_snapshots::find_named(&self.core, name)
    }
    /// Returns the names and sequence numbers of all named snapshots.
    pub fn named_snapshots(&self) -> Vec<(String, SeqNo)> {
        named_snapshots::list_named(&self.core)
    }
    /// Drops a named snapshot.
    pub fn drop_named_snapshot(&self, name: &str) -> Result<()> {
        named_snapshots::drop_named(&self.core, name)
    }
    /// Returns a change feed of everything after a sequence number.
    pub fn change_feed(&self, since: SeqNo) -> Result<ChangeFeed> {
        ChangeFeed::new(&self.core, since)
    }
    /// Begins a point read; returns the time if this one is to be measured.
    #[inline]
    pub fn start_get_timer(&self) -> Option<u64> {
        self.core.start_timer(Operation::Get, self.core.counters.gets.stripe_value())
    }
    /// Ends and counts a point read.
    #[inline]
    pub fn finish_get(&self, started: Option<u64>, hit: bool) {
        self.count_get(hit);
        self.core.stop_timer(Operation::Get, started);
    }
    /// Begins another operation; `before` is the number of earlier ones.
    #[inline]
    pub fn start_timer(&self, operation: Operation, before: u64) -> Option<u64> {
        self.core.start_timer(operation, before)
    }
    /// Ends a measurement begun with [`start_timer`](Engine::start_timer).
    #[inline]
    pub fn stop_timer(&self, operation: Operation, started: Option<u64>) {
        self.core.stop_timer(operation, started);
    }
    /// Returns the monotonic time in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.core.env.clock.monotonic_ns()
    }
    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }
    /// Counts tombstones skipped by scans; may trigger a check whether to compact them away.
    pub fn record_skipped_tombstones(&self, tombstones: u64) {
        self.core.counters.tombstones_skipped.add(tombstones);
        if self.core.skipped_tombstones.add(tombstones) {
            self.core.signal.notify();
        }
    }
    /// Counts a point read.
    pub fn count_get(&self, hit: bool) {
        self.core.counters.gets.add(1);
        if hit {
            self.core.counters.get_hits.add(1);
        }
    }

    /// Returns the column family `name`.
    pub fn family(&self, name: &str) -> Result<Arc<FamilyState>> {
        self.core.health.check_open()?;
        self.core.families.by_name(name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no column family {name:?}"))
        })
    }
    /// Returns the names of all column families.
    pub fn family_names(&self) -> Vec<String> {
        self.core.families.names()
    }
    /// Reports a change of the column families if it succeeded, or if its outcome is unknown.
    fn report_family_change<T>(&self, changed: Result<T>, what: &str, name: &str) -> Result<T> {
        let _span = events::enter_span("family", name);
        match &changed {
            Ok(_) => self.core.report_event(&EngineEvent::FamilyChanged { what, name }),
            Err(e) if e.kind() == ErrorKind::OutcomeUnknown => {
                self.core
                    .report_event(&EngineEvent::Failed { what: "column-family change", error: e });
            }
            Err(_) => {}
        }
        changed
    }
    /// Creates a column family.
    pub fn create_family(&self, name: &str, settings: FamilySettings) -> Result<Arc<FamilyState>> {
        self.report_family_change(
            crate::ddl::create_family(&self.core, name, settings),
            "created",
            name,
        )
    }
    /// Returns the settings given at open.
    pub fn settings(&self) -> &Settings {
        &self.core.settings
    }
    /// Returns the environment.
    pub fn env(&self) -> &Env {
        &self.core.env
    }
    /// Changes the settings of a column family.
    pub fn set_family_settings(
        &self,
        family: &FamilyState,
        settings: FamilySettings,
    ) -> Result<()> {
        self.report_family_change(
            crate::ddl::set_family_settings(&self.core, family, settings),
            "options changed",
            &family.name(),
        )
    }
    /// Drops a column family.
    pub fn drop_family(&self, name: &str) -> Result<()> {
        self.report_family_change(crate::ddl::drop_family(&self.core, name), "dropped", name)
    }

    /// Returns the number of commit-hook calls that panicked.
    pub fn hook_panics(&self) -> u64 {
        self.core.commit_hooks.panic_count()
    }
    /// Starts a bulk load into a column family.
    pub fn bulk_load(&self, family: &Arc<FamilyState>) -> Result<LoadBuilder> {
        LoadBuilder::new(&self.core, family)
    }
    /// Ingests standalone tables; returns the sequence number, entries and bytes.
    pub fn ingest(&self, files: &[load::ingest::IngestFiles]) -> Result<(SeqNo, u64, u64)> {
        load::ingest_files(&self.core, files)
    }
    /// Publishes bulk loads atomically.
    pub fn publish_loads(&self, loads: &mut [&mut LoadBuilder]) -> Result<SeqNo> {
        load::finish_loads(&self.core, loads)
    }
    /// Renames a column family.
    pub fn rename_family(&self, name: &str, to: &str) -> Result<()> {
        self.report_family_change(crate::ddl::rename_family(&self.core, name, to), "renamed", to)
    }
    /// Removes all contents of a column family.
    pub fn clear_family(&self, name: &str) -> Result<()> {
        self.report_family_change(crate::ddl::clear_family(&self.core, name), "cleared", name)
    }
    /// Creates a column family with the contents of another; they share files.
    pub fn clone_family(&self, source: &str, name: &str) -> Result<Arc<FamilyState>> {
        crate::ddl::check_new_family(&self.core, name)?;
        let source = self.family(source)?;
        if !bug::is_active(Bug::CloneOmitsMemtables) {
            self.flush(&[Arc::clone(&source)])?;
        }
        self.report_family_change(
            crate::ddl::clone_family(&self.core, &source, name),
            "cloned",
            name,
        )
    }

    /// Makes all acknowledged writes durable.
    pub fn sync(&self) -> Result<()> {
        self.core.health.check_writable()?;
        self.core.sync_log().map(|_| ())
    }

    /// Seals the memtables of these column families and waits until they are flushed.
    pub fn flush(&self, families: &[Arc<FamilyState>]) -> Result<()> {
        self.core.health.check_writable()?;
        {
            let mut appender = self.core.wal.appender();
            self.core.health.check_writable()?;
            let full: Vec<_> =
                families.iter().filter(|f| !f.tree.view().active.is_empty()).cloned().collect();
            if !full.is_empty() {
                rotate::seal_memtables(&self.core, &mut appender, &full)?;
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
        let failures = self.core.health.background_error_count();
        loop {
            let seen = self.core.signal.generation();
            if done() {
                return Ok(());
            }
            self.core.health.check_writable()?;
            if let Some(e) = self.core.health.background_error_since(failures) {
                return Err(e);
            }
            // If the caller is the one that paused the jobs, waiting would never end.
            if self.core.job_control.is_idle(Some(JobKind::Flush)) {
                self.core.job_control.check_allowed(JobKind::Flush)?;
            }
            self.core.signal.wait_timeout_us(seen, 50_000);
        }
    }

    /// Returns all column families.
    pub fn all_families(&self) -> Vec<Arc<FamilyState>> {
        self.core.families.all()
    }
    /// Creates a database with the same contents in `target`.
    pub fn checkpoint(&self, target: &Path) -> Result<CheckpointSummary> {
        checkpoint::create_checkpoint(&self.core, target)
    }
    /// Creates a generation in the backup directory `path`.
    pub fn backup(
        &self,
        path: &Path,
        reread: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<BackupSummary> {
        backup::create_backup(&self.core, path, reread, progress)
    }
    /// Reads and verifies every byte.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyResult> {
        verify::verify(&self.core, progress)
    }
    /// Returns statistics.
    pub fn status(&self) -> EngineStatus {
        report::engine_status(&self.core, &self.recovery)
    }
    /// Returns statistics of one column family.
    pub fn family_status(&self, family: &Arc<FamilyState>) -> FamilyStatus {
        report::family_status(&self.core, Arc::clone(family))
    }
    /// Returns statistics of the block cache.
    pub fn cache_status(&self) -> CacheStatus {
        report::cache_status(&self.core)
    }
    /// Returns the status of every table.
    pub fn table_statuses(&self) -> Vec<TableStatus> {
        report::all_tables(&self.core)
    }
}
