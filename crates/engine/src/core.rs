//! What the rooms of the engine share: one plain struct, no behaviour but small queries.

use crate::ballast;
use crate::commit_hooks::CommitHooks;
use crate::dir_sync::DirSync;
use crate::disk_space::DiskSpaceGuard;
use crate::events::{self, EngineEvent};
use crate::family::{Families, FamilyState};
use crate::health::Health;
use crate::info_log::InfoLog;
use crate::job_control::JobControl;
use crate::locks::LockManager;
use crate::log_listener::ListenerQueue;
use crate::logical_clock::LogicalClock;
use crate::manifest::Manifest;
use crate::memory_budget::{self, MemoryBudget, MemoryUsage};
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
use perigee_base::{Error, ErrorKind, FileId, KeyComparator, SeqNo};
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

/// The log may hold this many times the largest memtable.
const LOG_MEMTABLES: u64 = 4;

/// The shared state of an open database.
#[derive(Debug)]
pub struct EngineCore {
    /// The world.
    pub env: Env,
    /// The database directory.
    pub dir: Arc<dyn Dir>,
    /// Settings.
    pub settings: Settings,
    /// The database's id.
    pub database_id: u64,
    /// The boot id of this machine now.
    pub boot_id: u64,
    /// Counters.
    pub counters: Arc<Counters>,
    /// Makes names in the directory durable.
    pub dir_sync: Arc<DirSync>,
    /// May it write?
    pub health: Health,
    /// Rings when anything that is waited for changes.
    pub signal: Signal,
    /// The time for entries that expire.
    pub logical_clock: Arc<LogicalClock>,
    /// Who may hold how much memory.
    pub memory_budget: MemoryBudget,
    /// Batches that several families share.
    pub shared_batches: SharedBatches,
    /// Guards the last free space of the disk.
    pub disk_space: DiskSpaceGuard,
    /// Grows when a writer was refused for want of space: jobs try again.
    pub no_space_refusals: AtomicU64,
    /// Locks of transactions.
    pub locks: Arc<LockManager>,
    /// Serializable transactions.
    pub serializable_txns: Arc<SerializableTxns>,
    /// Prepared transactions.
    pub prepared_txns: PreparedTxns,
    /// Transactions that have not ended.
    pub open_txns: Arc<OpenTxns>,
    /// Live snapshots.
    pub snapshots: Arc<SnapshotList>,
    /// Those with a name, as the manifest has them.
    pub named_snapshots: std::sync::Mutex<BTreeMap<String, SnapshotHandle>>,
    /// Files waiting to be deleted.
    pub obsolete_files: ObsoleteFiles,
    /// Table files.
    pub table_cache: Arc<TableCache>,
    /// The log.
    pub wal: Wal,
    /// The manifest.
    pub manifest: Manifest,
    /// The users' key orders that families may have.
    pub comparators: std::sync::RwLock<Vec<KeyComparator>>,
    /// The families.
    pub families: Families,
    /// The next file id.
    pub next_file_id: Arc<AtomicU64>,
    /// The next run id of level 0.
    pub next_run_id: AtomicU64,
    /// The last visible operation.
    pub visible_seq: AtomicU64,
    /// The first operation that recovery has still to replay: its segment stays. `u64::MAX` when it
    /// is done.
    pub replay_position: AtomicU64,
    /// Set when jobs must give up.
    pub closing: AtomicBool,
    /// What commit hooks have not heard yet.
    pub commit_hooks: CommitHooks,
    /// One flush at a time, so that a family's memtables are installed oldest first.
    pub flush_lock: Mutex<()>,
    /// Loads at work on callers' threads: closing waits for them.
    pub running_loads: AtomicU64,
    /// One compaction at a time.
    pub compaction_lock: Mutex<()>,
    /// Which jobs may start, and which run.
    pub job_control: JobControl,
    /// How far the running flush is, in thousandths of its memtable.
    pub flush_progress: AtomicU64,
    /// Tombstones that scans have passed.
    pub skipped_tombstones: SkippedTombstones,
    /// What delayed writers owe.
    pub write_throttle: WriteThrottle,
    /// Why writers waited so far.
    pub write_stalls: WriteStalls,
    /// How far the scrub is, and what it found.
    pub scrub: Scrub,
    /// The log for people.
    pub info_log: InfoLog,
    /// Who is told its lines.
    pub listener_queue: ListenerQueue,
    /// How fast they may go.
    pub rate_limiter: RateLimiter,
    /// When the log is to be synced next for an interval write (monotonic microseconds, `u64::MAX`:
    /// not).
    pub sync_due_us: AtomicU64,
    /// When the manifest is to record how far the log is durable.
    pub watermark_timer: WatermarkTimer,
    /// The worst load of any family: sealed memtables (thousandths) in the high half, level 0 runs
    /// in the low.
    pub worst_family_load: AtomicU64,
    /// Table bytes that merges would free, in thousandths of the others.
    pub garbage_permille: AtomicU64,
    /// The log may grow to this before the families with the oldest operations are flushed.
    pub log_bytes_max: AtomicU64,
    /// Held while the load or the limits are counted and stored, so that an older count never
    /// replaces a newer one. No I/O inside.
    pub refresh_lock: std::sync::Mutex<()>,
}

impl EngineCore {
    /// The users' key orders that families may have now.
    pub fn comparators(&self) -> Vec<KeyComparator> {
        self.comparators.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Tells what happened.
    pub fn report_event(&self, event: &EngineEvent<'_>) {
        if events::emit(&self.info_log, &self.listener_queue, event) {
            self.signal.notify();
        }
    }
    /// The time, if this one of the operation is to be measured; `before` counts those before it.
    #[inline]
    pub fn start_timer(&self, operation: Operation, before: u64) -> Option<u64> {
        let measured = self.settings.latency_stats && before % operation.one_in() == 0;
        measured.then(|| self.env.clock.monotonic_ns())
    }
    /// The end of what [`Core::start`] began.
    #[inline]
    pub fn stop_timer(&self, operation: Operation, started: Option<u64>) {
        if let Some(started) = started {
            let took = self.env.clock.monotonic_ns().saturating_sub(started);
            self.counters.latency.histogram(operation).record(took);
        }
    }
    /// The last visible operation.
    pub fn visible_seq(&self) -> SeqNo {
        SeqNo(self.visible_seq.load(Acquire))
    }
    /// Whom a rewrite must respect; of operations up to which number, if it is not only a question.
    pub fn live_snapshots(&self, newest: Option<SeqNo>) -> LiveSnapshots {
        let now = self.env.clock.monotonic_us();
        match newest {
            Some(newest) => self.snapshots.begin_rewrite(&self.visible_seq, now, newest),
            None => self.snapshots.live_snapshots(&self.visible_seq, now),
        }
    }
    /// Looks at every family again; called where a memtable is sealed or a version installed.
    pub fn refresh_load(&self) {
        let _one_at_a_time = self.refresh_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut worst = (0, 0);
        let (mut active, mut sealed, mut parts) = (0, 0, 0);
        let (mut wasted, mut stored) = (0u64, 0u64);
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
            parts += v.active.shared_batch_bytes();
        }
        self.worst_family_load
            .store(worst.0.min(u64::from(u32::MAX)) << 32 | worst.1 as u64, SeqCst);
        self.garbage_permille
            .store(wasted.saturating_mul(1000) / stored.saturating_sub(wasted).max(1), SeqCst);
        let (held, held_parts) = self.obsolete_files.tracked_memtable_bytes();
        let (kept, parts) = (held.saturating_sub(sealed), parts + held_parts);
        let shared = self.shared_batches.held_bytes().saturating_sub(parts);
        let objects =
            memory_budget::object_bytes(families.len(), self.table_cache.open_table_count());
        self.memory_budget.set_memtable_usage((active, sealed), (shared, kept), objects);
        self.rebalance_memory();
    }
    /// Who holds how much memory.
    pub fn memory_usage(&self) -> MemoryUsage {
        let (all, filters) = (self.table_cache.resident_bytes(), self.table_cache.filter_bytes());
        let tables = (all.saturating_sub(filters), filters);
        self.memory_budget.usage(
            self.table_cache.cache().used_bytes(),
            tables,
            self.job_memory_bytes(),
        )
    }
    /// Gives the block cache what the others leave.
    pub fn rebalance_memory(&self) {
        let capacity = self.memory_budget.rebalance(&self.memory_usage());
        self.table_cache.cache().set_capacity(capacity);
    }
    /// What the running jobs hold.
    pub fn job_memory_bytes(&self) -> u64 {
        self.job_control.running_jobs().iter().map(|j| j.memory_bytes()).sum()
    }
    /// Jobs or loads hold more or less than before: if it is much, the others are told.
    pub fn update_job_memory(&self) {
        if self.memory_budget.is_job_memory_changed(self.job_memory_bytes()) {
            self.rebalance_memory();
        }
    }
    /// A job is over: what it held is free, and perhaps it is time to hand freed memory back.
    pub fn release_job_memory(&self) {
        self.memory_budget.clear_nothing_to_seal();
        self.refresh_load();
        self.release_freed_memory();
    }
    /// Memtables grew: others give way, and if that freed much somebody looks whether it goes back
    /// to the system.
    pub fn add_memtable_bytes(&self, bytes: u64) {
        if self.memory_budget.add_active_bytes(bytes) {
            self.rebalance_memory();
            if self.memory_budget.take_release_check() {
                self.signal.notify();
            }
        }
    }
    /// Hands freed memory back to the system, if the budget needs it.
    pub fn release_freed_memory(&self) {
        let resident = || self.env.fs.resident_bytes();
        if self.memory_budget.take_release(self.env.clock.monotonic_us(), resident) {
            self.env.fs.trim_heap();
        }
    }
    /// Makes the ballast, or makes it anew, where there is room. Called by one thread.
    pub fn maintain_ballast(&self) {
        let (reserve, _) = self.disk_space.status();
        if reserve > 0 && !ballast::is_largest(&*self.dir) {
            let tables = |f: &Arc<FamilyState>| -> u64 {
                f.tree.view().version.tables().map(|(_, _, t)| t.meta.summary.bytes).sum()
            };
            ballast::maintain(&*self.dir, self.families.all().iter().map(tables).sum(), reserve);
        }
    }
    /// Derives what depends on the families' settings; called where families come and go.
    pub fn refresh_limits(&self) {
        let _one_at_a_time = self.refresh_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let largest =
            self.families.all().iter().map(|f| f.settings().memtable_bytes).max().unwrap_or(0);
        self.log_bytes_max.store(largest.saturating_mul(LOG_MEMTABLES), SeqCst);
    }
    /// The back-pressure now.
    pub fn write_pressure(&self) -> WritePressure {
        let load = self.worst_family_load.load(SeqCst);
        write_pressure::write_pressure(PressureInputs {
            immutable_memtables: load >> 32,
            flush_progress: self.flush_progress.load(Relaxed),
            level0_runs: (load & 0xffff_ffff) as usize,
            memtable_bytes_max: self.log_bytes_max.load(Relaxed) / LOG_MEMTABLES,
            memtable_bytes: self.memory_budget.memtable_bytes(),
            memtable_share: self.memory_budget.memtable_share(),
            garbage_permille: self.garbage_permille.load(Relaxed),
            garbage_permille_max: u64::from(self.settings.space_amplification).saturating_sub(100)
                * 10,
        })
    }
    /// Makes creations in the database directory durable.
    pub fn sync_dir(&self) -> perigee_base::Result<()> {
        self.dir_sync.sync(&self.health)
    }
    /// Syncs the log; the watermark follows in the background.
    pub fn sync_log(&self) -> perigee_base::Result<u64> {
        let durable = self.wal.sync(&self.health)?;
        if self.watermark_timer.schedule(|| self.env.clock.monotonic_us()) {
            self.signal.notify();
        }
        Ok(durable)
    }
    /// An opener of the files that edits add.
    pub fn table_opener(&self) -> TableCacheOpener<'_> {
        TableCacheOpener { table_cache: &self.table_cache }
    }
}

/// The shelf as the tree sees it.
#[derive(Debug)]
pub struct TableCacheOpener<'a> {
    /// The shelf.
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

/// A file that the manifest names and nobody finds is damage, not a missing database.
fn missing_file_error(e: Error, id: FileId, kind: FileKind) -> Error {
    if e.kind() != ErrorKind::NotFound {
        return e;
    }
    Error::corruption("a file that the manifest names is missing")
        .in_file(filename::file_name(id, kind))
}

/// The next id for a file.
pub fn allocate_file_id(ids: &AtomicU64) -> FileId {
    FileId(ids.fetch_add(1, SeqCst))
}
