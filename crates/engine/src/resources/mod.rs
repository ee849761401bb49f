//! Limited resources, [`Resources`]: memory, disk space, open tables, and the rates of writers and
//! of background jobs. Whether memory is tight, and what follows from it, is decided only here.
//! Reads no column families: the catalog reports their load.

pub mod memory_shares;
pub mod memory_budget;
pub mod shared_batches;
pub mod disk_space;
pub mod ballast;
pub mod write_pressure;
pub mod memtable_selection;
pub mod write_throttle;
pub mod rate_limiter;
pub mod job_control;
pub mod write_stalls;
pub mod skipped_tombstones;
pub mod row_cache;
mod admit;
mod job_rate;

use crate::runtime::Runtime;
use crate::stats::StallStats;
use disk_space::{DiskReserve, DiskSpaceGuard};
use job_control::JobControl;
use memory_budget::MemoryBudget;
use memory_shares::{MemoryLimit, MemoryUsage, MemtableUsage, ObjectCounts};
use memtable_selection::ActiveMemtable;
use perigee_base::Bytes;
use perigee_base::limits::LEVEL0_RUNS_MAX;
use perigee_file::TableCache;
use rate_limiter::RateLimiter;
use row_cache::RowCache;
use shared_batches::SharedBatches;
use skipped_tombstones::SkippedTombstones;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use write_pressure::{PressureInputs, WritePressure};
use write_stalls::{WriteStallTotals, WriteStalls};
use write_throttle::WriteThrottle;

/// Target size of the log, as a multiple of the largest memtable.
const LOG_MEMTABLES: u64 = 4;

/// The bits of `worst_family_load` that hold the level 0 runs.
const RUNS_MASK: u64 = u32::MAX as u64;
const _: () = assert!(LEVEL0_RUNS_MAX as u64 <= RUNS_MASK);

/// The limited resources of an open database.
#[derive(Debug)]
pub struct Resources {
    /// The runtime.
    pub runtime: Arc<Runtime>,
    memory_budget: MemoryBudget,
    shared_batches: SharedBatches,
    /// The highest load of any column family: sealed memtables (thousandths) in the high half,
    /// level 0 runs in the low half.
    worst_family_load: AtomicU64,
    /// Table bytes that compactions would free, in thousandths of the remaining ones.
    garbage_permille: AtomicU64,
    /// When the log exceeds this size, the column families with the oldest operations are flushed.
    log_bytes_max: AtomicU64,
    /// Progress of the running flush, in thousandths of its memtable.
    flush_progress: AtomicU64,
    table_cache: Arc<TableCache>,
    /// `None` if the settings request no row cache.
    row_cache: Option<RowCache>,
    disk_space: DiskSpaceGuard,
    /// Writes that were refused for lack of space.
    no_space_refusals: AtomicU64,
    write_throttle: WriteThrottle,
    write_stalls: WriteStalls,
    rate_limiter: RateLimiter,
    job_control: JobControl,
    skipped_tombstones: SkippedTombstones,
    /// True if memtables may have to be flushed because of the scans in them.
    scanned_check_due: AtomicBool,
}

/// The load and the memory use of all column families.
#[derive(Clone, Copy, Debug, Default)]
pub struct FamilyLoad {
    /// Column families.
    pub families: usize,
    /// Sealed memtables of the most loaded one, in thousandths of its memtable size.
    pub sealed_permille: u64,
    /// Level 0 runs of the one that has the most.
    pub level0_runs: usize,
    /// Bytes of active memtables.
    pub active_bytes: u64,
    /// Bytes of sealed memtables.
    pub sealed_bytes: u64,
    /// Bytes of sealed memtables, including flushed ones that readers hold.
    pub tracked_bytes: u64,
    /// Bytes of shared batches that are counted in memtables.
    pub batch_bytes: u64,
    /// Bytes of the stripes of views and the contents of memtables.
    pub lazy_bytes: u64,
    /// Table bytes that compactions would free.
    pub garbage_bytes: u64,
    /// Bytes of all tables.
    pub table_bytes: u64,
}

impl Resources {
    /// Creates the resources with nothing in use but what replay has left.
    pub fn new(
        runtime: Arc<Runtime>,
        memory_budget: MemoryBudget,
        table_cache: Arc<TableCache>,
        shared_batches: SharedBatches,
    ) -> Resources {
        let background_rate = runtime.settings.background_rate;
        let (limit, wanted) = (memory_budget.limit, runtime.settings.row_cache_bytes);
        let rows = memory_shares::row_cache_capacity(limit, wanted, &MemoryUsage::default());
        let step = memory_shares::rebalance_step(limit);
        let row_cache = (rows > 0).then(|| RowCache::new(Bytes(rows), step));
        Resources {
            memory_budget,
            shared_batches,
            worst_family_load: AtomicU64::new(0),
            garbage_permille: AtomicU64::new(0),
            log_bytes_max: AtomicU64::new(0),
            flush_progress: AtomicU64::new(0),
            table_cache,
            row_cache,
            disk_space: DiskSpaceGuard::new(runtime.settings.min_free_space),
            no_space_refusals: AtomicU64::new(0),
            write_throttle: WriteThrottle::default(),
            write_stalls: WriteStalls::default(),
            rate_limiter: RateLimiter::new(background_rate.map_or(0, |rate| rate.max(1))),
            job_control: JobControl::default(),
            skipped_tombstones: SkippedTombstones::default(),
            scanned_check_due: AtomicBool::new(false),
            runtime,
        }
    }

    /// Returns the memory budget of the database.
    pub fn memory_limit(&self) -> MemoryLimit {
        self.memory_budget.limit
    }
    /// Returns the memory pressure: how much of the budget is in use, 0 to 3.
    pub fn memory_pressure_level(&self) -> u8 {
        memory_shares::memory_pressure_level(self.memory_limit(), &self.memory_usage())
    }
    /// Returns the bytes that a transaction may keep in memory.
    pub fn txn_memory_bytes(&self) -> u64 {
        memory_shares::txn_memory_bytes(self.memory_limit())
    }
    /// Returns the bytes of entries that a bulk load may buffer if it requests `wanted`.
    pub fn bulk_load_bytes(&self, wanted: usize) -> usize {
        memory_shares::bulk_load_bytes(self.memory_limit(), wanted)
    }
    /// Returns the size at which tables are cut if the settings request `wanted` bytes.
    pub fn target_table_bytes(&self, wanted: u64) -> u64 {
        memory_shares::target_table_bytes(self.memory_limit(), wanted)
    }
    /// Returns the number of parts in which `bytes` of a bulk load are written at the same time, to
    /// tables of at most `wanted` bytes.
    pub fn load_parts(&self, bytes: usize, wanted: u64) -> usize {
        let table_bytes = self.target_table_bytes(wanted);
        let cores = self.runtime.env.spawn.cores();
        memory_shares::load_parts(self.memory_limit(), Bytes(bytes as u64), table_bytes, cores)
    }
    /// Returns the number of parallel merges into tables of `table_bytes`.
    pub fn max_parallel_merges(&self, table_bytes: u64) -> usize {
        let cores = self.runtime.env.spawn.cores();
        memory_shares::max_parallel_merges(self.memory_limit(), table_bytes, cores)
    }
    /// Returns the bytes by which memory in use may change before it is charged again.
    pub fn charge_step(&self) -> u64 {
        memory_shares::rebalance_step(self.memory_limit())
    }
    /// Returns the share of the memtables in the memory budget.
    pub fn memtable_share(&self) -> u64 {
        self.memory_budget.memtable_share()
    }
    /// Returns the bytes of all memtables and shared batches, including those held by readers.
    pub fn total_memtable_bytes(&self) -> u64 {
        self.memory_budget.total_memtable_bytes()
    }
    /// Returns true if memtables wait for their flush.
    pub fn has_sealed_memtables(&self) -> bool {
        self.memory_budget.sealed_bytes() > 0
    }
    /// Returns the memory in use, by purpose.
    pub fn memory_usage(&self) -> MemoryUsage {
        let (all, filters) = (self.table_cache.resident_bytes(), self.table_cache.filter_bytes());
        self.memory_budget.usage(MemoryUsage {
            cache: self.table_cache.cache().used_bytes(),
            rows: self.row_cache.as_ref().map_or(0, RowCache::used_bytes),
            indexes: all.saturating_sub(filters),
            filters,
            jobs: self.job_memory_bytes(),
            ..MemoryUsage::default()
        })
    }
    /// Sets the capacities of the caches to what the other consumers leave.
    pub fn rebalance_memory(&self) {
        let mut usage = self.memory_usage();
        if let Some(rows) = &self.row_cache {
            let (limit, wanted) = (self.memory_limit(), rows.capacity_max());
            rows.set_capacity(memory_shares::row_cache_capacity(limit, wanted, &usage));
            usage.rows = rows.used_bytes();
        }
        let capacity = self.memory_budget.rebalance(&usage);
        self.table_cache.cache().set_capacity(capacity);
    }
    /// Returns the bytes of memory that running jobs hold.
    fn job_memory_bytes(&self) -> u64 {
        self.job_control.running_jobs().iter().map(|j| j.memory_bytes()).sum()
    }
    /// Called when jobs or loads hold more or less memory; rebalances the budget if the change is
    /// large.
    pub fn update_job_memory(&self) {
        if self.memory_budget.is_job_memory_changed(self.job_memory_bytes()) {
            self.rebalance_memory();
        }
    }
    /// Changes the memory charged for a load or a prepared transaction from `held` bytes to `now`
    /// bytes.
    pub fn charge(&self, held: &mut u64, now: u64) {
        self.memory_budget.set_load_bytes(held, now);
        self.update_job_memory();
    }
    /// Ends a charge: the memory was freed, and may be returned to the operating system.
    pub fn discharge(&self, held: &mut u64) {
        self.memory_budget.add_freed_bytes(*held);
        self.charge(held, 0);
    }
    /// Accounts for `bytes` added to memtables: shrinks the block cache, and may trigger a check
    /// whether to return memory to the operating system.
    pub fn add_memtable_bytes(&self, bytes: u64) {
        if self.memory_budget.add_active_bytes(bytes) {
            self.rebalance_memory();
            if self.memory_budget.take_release_check() {
                self.runtime.signal.notify();
            }
        }
    }
    /// Accounts for memory that was freed and is not counted elsewhere.
    pub fn add_freed_bytes(&self, bytes: u64) {
        self.memory_budget.add_freed_bytes(bytes);
    }
    /// Returns freed memory to the operating system if the budget requires it.
    pub fn release_freed_memory(&self) {
        let fs = &self.runtime.env.fs;
        let now = self.runtime.env.clock.monotonic_us();
        if self.memory_budget.take_release(now, || fs.resident_bytes()) {
            fs.trim_heap();
        }
    }

    /// Returns true if active memtables must be sealed although none is full.
    pub fn must_seal_memtables(&self) -> bool {
        self.memory_budget.bytes_to_seal().is_some()
    }
    /// Returns the indexes of the active memtables to seal so that the budget is kept.
    pub fn pick_memtables_to_seal(&self, active: &[ActiveMemtable]) -> Vec<usize> {
        let Some(excess) = self.memory_budget.bytes_to_seal() else { return Vec::new() };
        let usage = self.memory_budget.memtable_usage();
        let oldest = |bytes| self.shared_batches.oldest_seq_covering(bytes);
        let picked = memtable_selection::pick_memtables_to_seal(active, usage, excess, oldest);
        if picked.is_empty() {
            self.memory_budget.mark_nothing_to_seal();
        }
        picked
    }
    /// Called when memtables were sealed or flushed: sealing others may be useful again.
    pub fn reset_seal_check(&self) {
        self.memory_budget.clear_nothing_to_seal();
    }
    /// Stores the load and the memory use of all column families, and rebalances the budget.
    pub fn set_family_load(&self, load: FamilyLoad) {
        check!(
            load.level0_runs as u64 <= RUNS_MASK && load.garbage_bytes <= load.table_bytes,
            "the garbage of tables is a part of them, and the runs of level 0 fit in their field",
            load.level0_runs,
            load.garbage_bytes,
            load.table_bytes
        );
        let sealed_permille = load.sealed_permille.min(u64::from(u32::MAX));
        self.worst_family_load.store(sealed_permille << 32 | load.level0_runs as u64, SeqCst);
        let live_bytes = load.table_bytes.saturating_sub(load.garbage_bytes).max(1);
        self.garbage_permille.store(load.garbage_bytes.saturating_mul(1000) / live_bytes, SeqCst);
        let shared = self.shared_batches.held_bytes().saturating_sub(load.batch_bytes);
        let tables = self.table_cache.open_table_count();
        let objects = memory_shares::object_bytes(ObjectCounts { families: load.families, tables });
        let usage = MemtableUsage {
            active: load.active_bytes,
            sealed: load.sealed_bytes,
            shared,
            retained: load.tracked_bytes.saturating_sub(load.sealed_bytes),
        };
        self.memory_budget.set_memtable_usage(usage, objects + load.lazy_bytes);
        self.rebalance_memory();
    }
    /// Sets the limits that depend on the size of the largest memtable.
    pub fn set_largest_memtable(&self, memtable_bytes: u64) {
        self.log_bytes_max.store(memtable_bytes.saturating_mul(LOG_MEMTABLES), SeqCst);
    }
    /// Returns the size of the log above which the column families with the oldest operations are
    /// flushed.
    pub fn log_bytes_max(&self) -> u64 {
        self.log_bytes_max.load(Relaxed)
    }
    /// Returns the level 0 runs of the column family that has the most.
    pub fn level0_runs_max(&self) -> u64 {
        self.worst_family_load.load(SeqCst) & RUNS_MASK
    }
    /// Sets the progress of the running flush, in thousandths of its memtable; 0: none is running.
    pub fn set_flush_progress(&self, permille: u64) {
        self.flush_progress.store(permille, Relaxed);
    }
    /// Returns the current back-pressure.
    pub fn write_pressure(&self) -> WritePressure {
        let load = self.worst_family_load.load(SeqCst);
        write_pressure::write_pressure(PressureInputs {
            immutable_memtables: load >> 32,
            flush_progress: self.flush_progress.load(Relaxed),
            level0_runs: (load & RUNS_MASK) as usize,
            memtable_bytes_max: self.log_bytes_max.load(Relaxed) / LOG_MEMTABLES,
            active_bytes: self.memory_budget.active_bytes(),
            sealed_bytes: self.memory_budget.sealed_bytes(),
            memtable_share: self.memory_budget.memtable_share(),
            garbage_permille: self.garbage_permille.load(Relaxed),
            garbage_permille_max: self.garbage_percent_max() * 10,
        })
    }

    /// Returns the garbage that `space_amplification` allows, in percent of the live bytes; 0: no
    /// limit.
    fn garbage_percent_max(&self) -> u64 {
        u64::from(self.runtime.settings.space_amplification).saturating_sub(100)
    }
    /// Returns the most garbage in value logs, in percent of their live bytes: half of what is
    /// allowed. The other half is for values that newer ones hide.
    pub fn vlog_garbage_percent(&self) -> u64 {
        self.garbage_percent_max() / 2
    }
    /// Creates or recreates the ballast if there is enough free space. `table_bytes` returns the
    /// size of the database. Must be called by one thread at a time.
    pub fn maintain_ballast(&self, table_bytes: impl FnOnce() -> u64) {
        let (reserve, dir) = (self.disk_space.status().reserve, &*self.runtime.dir);
        if reserve > 0 && !ballast::is_largest(dir) {
            ballast::maintain(dir, Bytes(table_bytes()), DiskReserve(reserve));
        }
    }
    /// Returns the number of writes that were refused for lack of space.
    pub fn no_space_refusals(&self) -> u64 {
        self.no_space_refusals.load(SeqCst)
    }
    /// Returns the batches that several column families share.
    pub fn shared_batches(&self) -> &SharedBatches {
        &self.shared_batches
    }
    /// Returns the open tables.
    pub fn table_cache(&self) -> &Arc<TableCache> {
        &self.table_cache
    }
    /// Returns the row cache, if there is one.
    #[inline]
    pub fn row_cache(&self) -> Option<&RowCache> {
        self.row_cache.as_ref()
    }
    /// Returns the free space of the disk, as of the last query.
    pub fn free_space(&self) -> u64 {
        self.disk_space.status().free
    }
    /// Sets the number of bytes to keep free on the disk.
    pub fn set_min_free_space(&self, bytes: u64) {
        self.disk_space.set_reserve(bytes);
        self.runtime.signal.notify();
    }
    /// Returns the write stalls so far, by cause.
    pub fn stall_stats(&self) -> Vec<StallStats> {
        let stats = |(reason, s): (&'static str, WriteStallTotals)| StallStats {
            reason,
            delays: s.delays,
            delay_us: s.delay_us,
            stops: s.stops,
            stop_us: s.stop_us,
        };
        self.write_stalls.totals().into_iter().map(stats).collect()
    }
    /// Returns the control over which jobs may start, with the running ones.
    pub fn job_control(&self) -> &JobControl {
        &self.job_control
    }
    /// Counts tombstones skipped by scans; wakes the threads that check whether to compact them
    /// away, once per threshold crossing.
    pub fn add_skipped_tombstones(&self, tombstones: u64) {
        self.runtime.counters.tombstones_skipped.add(tombstones);
        if self.skipped_tombstones.add(tombstones) {
            self.runtime.signal.notify();
        }
    }
    /// Returns true once per threshold crossing: memtables whose tombstones were skipped may have to
    /// be sealed.
    pub fn take_skipped_tombstones_check(&self) -> bool {
        self.skipped_tombstones.take_memtable_check()
    }
    /// Requests a check of the memtables: scans have taken many steps in one of them. Wakes the
    /// threads that do it, unless a request is pending.
    pub fn request_scanned_check(&self) {
        if !self.scanned_check_due.swap(true, Relaxed) {
            self.runtime.signal.notify();
        }
    }
    /// Returns true once per request.
    pub fn take_scanned_check(&self) -> bool {
        self.scanned_check_due.load(Relaxed) && self.scanned_check_due.swap(false, Relaxed)
    }
    /// Returns how often the number of skipped tombstones has crossed the threshold.
    pub fn skipped_tombstones_crossings(&self) -> u64 {
        self.skipped_tombstones.threshold_crossings()
    }
}
