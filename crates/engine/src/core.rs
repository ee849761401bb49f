//! State shared by the components of the engine: one plain struct, with no behaviour beyond small
//! queries.

use crate::ballast;
use crate::commit_hooks::CommitHooks;
use crate::dir_sync::DirSync;
use crate::disk_space::{DiskReserve, DiskSpaceGuard};
use crate::events::{self, EngineEvent};
use crate::family::{Families, FamilyState};
use crate::health::Health;
use crate::info_log::InfoLog;
use crate::job_control::JobControl;
use crate::locks::LockManager;
use crate::log_listener::ListenerQueue;
use crate::logical_clock::LogicalClock;
use crate::manifest::Manifest;
use crate::memory_budget::{self, MemoryBudget, MemoryUsage, MemtableUsage, ObjectCounts};
use crate::obsolete_files::{ObsoleteFiles, immutable_memtable_bytes};
use crate::open_txns::OpenTxns;
use crate::prepared_txns::PreparedTxns;
use crate::rate_limiter::RateLimiter;
use crate::scrub::Scrub;
use crate::serializable_txns::SerializableTxns;
use crate::settings::Settings;
use crate::shared_batches::SharedBatches;
use crate::signal::Signal;
use crate::skipped_tombstones::SkippedTombstones;
use crate::snapshot::{LiveSnapshots, SnapshotHandle, SnapshotList};
use crate::wal::Wal;
use crate::watermark_timer::WatermarkTimer;
use crate::write_pressure::{self, PressureInputs, WritePressure};
use crate::write_stalls::WriteStalls;
use crate::write_throttle::WriteThrottle;
use perigee_base::file_header::FileKind;
use perigee_base::latency::Operation;
use perigee_base::stats::Counters;
use perigee_base::{AtomicSeqNo, Bytes, Error, ErrorKind, FileId, KeyComparator, SeqNo};
use perigee_env::sync::Mutex;
use perigee_env::{Dir, Env};
use perigee_file::{TableCache, filename};
use perigee_tree::version::FileOpener;
use perigee_tree::{Table, TableMeta, Vlog, VlogMeta};
use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use std::sync::{Arc, PoisonError};

/// Target size of the log, as a multiple of the largest memtable.
const LOG_MEMTABLES: u64 = 4;

/// The shared state of an open database.
#[derive(Debug)]
pub struct EngineCore {
    /// The environment: file system, clock, random numbers.
    pub env: Env,
    /// The database directory.
    pub dir: Arc<dyn Dir>,
    /// The settings given at open.
    pub settings: Settings,
    /// Id of the database.
    pub database_id: u64,
    /// Boot id of this machine now.
    pub boot_id: u64,
    /// Counters.
    pub counters: Arc<Counters>,
    /// Makes changes of the directory durable.
    pub dir_sync: Arc<DirSync>,
    /// Whether the database may be read and written, and background errors.
    pub health: Health,
    /// Notified when anything changes that a thread may wait for.
    pub signal: Signal,
    /// The clock that decides whether entries have expired.
    pub logical_clock: Arc<LogicalClock>,
    /// The memory budget and its distribution.
    pub memory_budget: MemoryBudget,
    /// Batches that several column families' memtables share.
    pub shared_batches: SharedBatches,
    /// Refuses writes when the disk is nearly full.
    pub disk_space: DiskSpaceGuard,
    /// Incremented when a write is refused for lack of space: jobs then retry.
    pub no_space_refusals: AtomicU64,
    /// Row locks of transactions.
    pub locks: Arc<LockManager>,
    /// Serializable transactions.
    pub serializable_txns: Arc<SerializableTxns>,
    /// Prepared transactions.
    pub prepared_txns: PreparedTxns,
    /// Transactions that have not ended.
    pub open_txns: Arc<OpenTxns>,
    /// Live snapshots.
    pub snapshots: Arc<SnapshotList>,
    /// Named snapshots, as recorded in the manifest.
    pub named_snapshots: std::sync::Mutex<BTreeMap<String, SnapshotHandle>>,
    /// Files waiting to be deleted.
    pub obsolete_files: ObsoleteFiles,
    /// Table files.
    pub table_cache: Arc<TableCache>,
    /// The log.
    pub wal: Wal,
    /// The manifest.
    pub manifest: Manifest,
    /// User-defined comparators available to column families.
    pub comparators: std::sync::RwLock<Vec<KeyComparator>>,
    /// The column families.
    pub families: Families,
    /// The next file id.
    pub next_file_id: Arc<AtomicU64>,
    /// The next run id for level 0.
    pub next_run_id: AtomicU64,
    /// Sequence number of the last visible operation.
    pub visible_seq: AtomicSeqNo,
    /// Sequence number of the first operation that recovery has yet to replay: its log segment must
    /// stay. `u64::MAX` once recovery is done.
    pub replay_position: AtomicSeqNo,
    /// Set when jobs must stop.
    pub closing: AtomicBool,
    /// Commit hooks and their pending calls.
    pub commit_hooks: CommitHooks,
    /// Serializes flushes, so that a column family's memtables are installed oldest first.
    pub flush_lock: Mutex<()>,
    /// Bulk loads in progress on callers' threads: closing waits for them.
    pub running_loads: AtomicU64,
    /// Serializes compactions.
    pub compaction_lock: Mutex<()>,
    /// Controls which jobs may start, and lists the running ones.
    pub job_control: JobControl,
    /// Progress of the running flush, in thousandths of its memtable.
    pub flush_progress: AtomicU64,
    /// Counts the tombstones that scans have skipped.
    pub skipped_tombstones: SkippedTombstones,
    /// Delays writers: bytes admitted above the target rate and not yet paid for.
    pub write_throttle: WriteThrottle,
    /// Write stalls so far, by cause.
    pub write_stalls: WriteStalls,
    /// Progress and results of the scrub.
    pub scrub: Scrub,
    /// The info log (`LOG`).
    pub info_log: InfoLog,
    /// Delivers its lines to the user's listener.
    pub listener_queue: ListenerQueue,
    /// Rate limit of background jobs.
    pub rate_limiter: RateLimiter,
    /// When the log is due to be synced for a write with interval durability (monotonic
    /// microseconds; `u64::MAX`: not due).
    pub sync_due_us: AtomicU64,
    /// When the manifest is due to record the durable position of the log.
    pub watermark_timer: WatermarkTimer,
    /// The highest load of any column family: sealed memtables (thousandths) in the high half,
    /// level 0 runs in the low half.
    pub worst_family_load: AtomicU64,
    /// Table bytes that compactions would free, in thousandths of the remaining ones.
    pub garbage_permille: AtomicU64,
    /// When the log exceeds this size, the column families with the oldest operations are flushed.
    pub log_bytes_max: AtomicU64,
    /// Held while the load or the limits are computed and stored, so that an older result never
    /// replaces a newer one. No I/O while it is held.
    pub refresh_lock: std::sync::Mutex<()>,
}

impl EngineCore {
    /// Returns the user-defined comparators available now.
    pub fn comparators(&self) -> Vec<KeyComparator> {
        self.comparators.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Reports an event to the info log, the listener and tracing.
    pub fn report_event(&self, event: &EngineEvent<'_>) {
        if events::emit(&self.info_log, &self.listener_queue, event) {
            self.signal.notify();
        }
    }
    /// Returns the current time if this call of `operation` is to be measured; `before` is the
    /// number of earlier calls.
    #[inline]
    pub fn start_timer(&self, operation: Operation, before: u64) -> Option<u64> {
        let measured = self.settings.latency_stats && before % operation.one_in() == 0;
        measured.then(|| self.env.clock.monotonic_ns())
    }
    /// Ends a measurement begun with [`EngineCore::start_timer`].
    #[inline]
    pub fn stop_timer(&self, operation: Operation, started: Option<u64>) {
        if let Some(started) = started {
            let took = self.env.clock.monotonic_ns().saturating_sub(started);
            self.counters.latency.histogram(operation).record(took);
        }
    }
    /// Returns the sequence number of the last visible operation.
    pub fn visible_seq(&self) -> SeqNo {
        self.visible_seq.load(Acquire)
    }
    /// Returns the snapshots that a rewrite must respect. `newest` is the newest sequence number
    /// that the rewrite will process; `None` if the caller only queries.
    pub fn live_snapshots(&self, newest: Option<SeqNo>) -> LiveSnapshots {
        let now = self.env.clock.monotonic_us();
        match newest {
            Some(newest) => self.snapshots.begin_rewrite(&self.visible_seq, now, newest),
            None => self.snapshots.live_snapshots(&self.visible_seq, now),
        }
    }
    /// Recomputes the load and the memory use of all column families; called where a memtable is
    /// sealed or a version is installed.
    pub fn refresh_load(&self) {
        let _one_at_a_time = self.refresh_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut worst = (0, 0);
        let (mut active, mut sealed, mut batch_bytes) = (0, 0, 0);
        let (mut wasted, mut stored) = (0u64, 0u64);
        let mut lazy_bytes = 0;
        let families = self.families.all();
        for f in &families {
            let v = f.tree.view();
            v.immutables.iter().for_each(|m| self.obsolete_files.track_memtable(m));
            let waiting = write_pressure::immutable_memtable_load(
                v.immutables.iter().map(|m| m.bytes()),
                f.settings().memtable_bytes,
            );
            worst = (worst.0.max(waiting), worst.1.max(v.version.levels[0].len()));
            let waste = v.version.garbage();
            (wasted, stored) = (wasted + waste.garbage_bytes, stored + waste.total_bytes);
            active += v.active.bytes();
            sealed += v.immutables.iter().map(|m| immutable_memtable_bytes(m)).sum::<u64>();
            batch_bytes += v.active.shared_batch_bytes();
            lazy_bytes += v.active.contents_bytes() + f.tree.stripe_bytes();
        }
        self.worst_family_load
            .store(worst.0.min(u64::from(u32::MAX)) << 32 | worst.1 as u64, SeqCst);
        self.garbage_permille
            .store(wasted.saturating_mul(1000) / stored.saturating_sub(wasted).max(1), SeqCst);
        let (held, held_batch_bytes) = self.obsolete_files.tracked_memtable_bytes();
        let (retained, batch_bytes) = (held.saturating_sub(sealed), batch_bytes + held_batch_bytes);
        let shared = self.shared_batches.held_bytes().saturating_sub(batch_bytes);
        let counts =
            ObjectCounts { families: families.len(), tables: self.table_cache.open_table_count() };
        let objects = memory_budget::object_bytes(counts) + lazy_bytes;
        let usage = MemtableUsage { active, sealed, shared, retained };
        self.memory_budget.set_memtable_usage(usage, objects);
        self.rebalance_memory();
    }
    /// Returns the memory in use, by purpose.
    pub fn memory_usage(&self) -> MemoryUsage {
        let (all, filters) = (self.table_cache.resident_bytes(), self.table_cache.filter_bytes());
        self.memory_budget.usage(MemoryUsage {
            cache: self.table_cache.cache().used_bytes(),
            indexes: all.saturating_sub(filters),
            filters,
            jobs: self.job_memory_bytes(),
            ..MemoryUsage::default()
        })
    }
    /// Sets the capacity of the block cache to what the other consumers leave.
    pub fn rebalance_memory(&self) {
        let capacity = self.memory_budget.rebalance(&self.memory_usage());
        self.table_cache.cache().set_capacity(capacity);
    }
    /// Returns the bytes of memory that running jobs hold.
    pub fn job_memory_bytes(&self) -> u64 {
        self.job_control.running_jobs().iter().map(|j| j.memory_bytes()).sum()
    }
    /// Called when jobs or loads hold more or less memory; rebalances the budget if the change is
    /// large.
    pub fn update_job_memory(&self) {
        if self.memory_budget.is_job_memory_changed(self.job_memory_bytes()) {
            self.rebalance_memory();
        }
    }
    /// Called when a job has ended and freed its memory; may return freed memory to the operating
    /// system.
    pub fn release_job_memory(&self) {
        self.memory_budget.clear_nothing_to_seal();
        self.refresh_load();
        self.release_freed_memory();
    }
    /// Accounts for `bytes` added to memtables: shrinks the block cache, and may trigger a check
    /// whether to return memory to the operating system.
    pub fn add_memtable_bytes(&self, bytes: u64) {
        if self.memory_budget.add_active_bytes(bytes) {
            self.rebalance_memory();
            if self.memory_budget.take_release_check() {
                self.signal.notify();
            }
        }
    }
    /// Returns freed memory to the operating system if the budget requires it.
    pub fn release_freed_memory(&self) {
        let resident = || self.env.fs.resident_bytes();
        if self.memory_budget.take_release(self.env.clock.monotonic_us(), resident) {
            self.env.fs.trim_heap();
        }
    }
    /// Creates or recreates the ballast if there is enough free space. Must be called by one thread
    /// at a time.
    pub fn maintain_ballast(&self) {
        let reserve = self.disk_space.status().reserve;
        if reserve > 0 && !ballast::is_largest(&*self.dir) {
            let tables = |f: &Arc<FamilyState>| -> u64 {
                f.tree.view().version.tables().map(|(_, _, t)| t.meta.summary.bytes).sum()
            };
            let table_bytes = Bytes(self.families.all().iter().map(tables).sum());
            ballast::maintain(&*self.dir, table_bytes, DiskReserve(reserve));
        }
    }
    /// Recomputes the limits derived from the column families' settings; called when column
    /// families or their settings change.
    pub fn refresh_limits(&self) {
        let _one_at_a_time = self.refresh_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let largest =
            self.families.all().iter().map(|f| f.settings().memtable_bytes).max().unwrap_or(0);
        self.log_bytes_max.store(largest.saturating_mul(LOG_MEMTABLES), SeqCst);
    }
    /// Returns the current back-pressure.
    pub fn write_pressure(&self) -> WritePressure {
        let load = self.worst_family_load.load(SeqCst);
        write_pressure::write_pressure(PressureInputs {
            immutable_memtables: load >> 32,
            flush_progress: self.flush_progress.load(Relaxed),
            level0_runs: (load & 0xffff_ffff) as usize,
            memtable_bytes_max: self.log_bytes_max.load(Relaxed) / LOG_MEMTABLES,
            active_bytes: self.memory_budget.active_bytes(),
            sealed_bytes: self.memory_budget.sealed_bytes(),
            memtable_share: self.memory_budget.memtable_share(),
            garbage_permille: self.garbage_permille.load(Relaxed),
            garbage_permille_max: u64::from(self.settings.space_amplification).saturating_sub(100)
                * 10,
        })
    }
    /// Makes files created in the database directory durable.
    pub fn sync_dir(&self) -> perigee_base::Result<()> {
        self.dir_sync.sync(&self.health)
    }
    /// Syncs the log and returns the last durable sequence number; the watermark is recorded in the
    /// background.
    pub fn sync_log(&self) -> perigee_base::Result<SeqNo> {
        let durable = self.wal.sync(&self.health)?;
        if self.watermark_timer.schedule(|| self.env.clock.monotonic_us()) {
            self.signal.notify();
        }
        Ok(durable)
    }
    /// Returns an opener for the files that manifest edits add.
    pub fn table_opener(&self) -> TableCacheOpener<'_> {
        TableCacheOpener { table_cache: &self.table_cache }
    }
}

/// The table cache as a [`FileOpener`].
#[derive(Debug)]
pub struct TableCacheOpener<'a> {
    /// The table cache.
    pub table_cache: &'a TableCache,
}

impl FileOpener for TableCacheOpener<'_> {
    fn open_table(&self, meta: &TableMeta) -> perigee_base::Result<Arc<Table>> {
        let reader = self
            .table_cache
            .klog_reader(meta.id, meta.summary.bytes)
            .map_err(|e| missing_file_error(e, meta.id, FileKind::Klog))?;
        if let Some(seq) = meta.global_seq {
            reader.set_global_seq(seq);
        }
        Ok(Arc::new(Table { meta: meta.clone(), reader }))
    }
    fn open_vlog(&self, meta: &VlogMeta) -> perigee_base::Result<Arc<Vlog>> {
        let reader = self
            .table_cache
            .vlog_reader(meta.id, meta.bytes)
            .map_err(|e| missing_file_error(e, meta.id, FileKind::Vlog))?;
        Ok(Arc::new(Vlog { meta: meta.clone(), reader }))
    }
}

/// Turns `NotFound` for a file that the manifest names into `Corruption`.
fn missing_file_error(e: Error, id: FileId, kind: FileKind) -> Error {
    if e.kind() != ErrorKind::NotFound {
        return e;
    }
    Error::corruption("a file that the manifest names is missing")
        .in_file(filename::file_name(id, kind))
}

/// Allocates a file id.
pub fn allocate_file_id(ids: &AtomicU64) -> FileId {
    FileId(ids.fetch_add(1, SeqCst))
}
