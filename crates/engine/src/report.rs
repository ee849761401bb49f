//! Statistics of the engine: plain data, collected without stopping anything.

use crate::core::EngineCore;
use crate::disk_space::DiskSpaceStatus;
use crate::events::EngineEvent;
use crate::family::FamilyState;
use crate::job_control::{JobKind, RunningJob};
use crate::jobs::due_compactions;
use crate::memory_budget;
use crate::recover;
use crate::write_stalls::WriteStallTotals;
use perigee_base::file_header::FileKind;
use perigee_base::io_stats::{IoActivity, IoTotals};
use perigee_base::latency::{HistogramSummary, Operation};
use perigee_base::{Error, LevelNo, SeqNo};
use perigee_file::filename;
use perigee_tree::{Run, Table, Version};
use std::collections::BTreeSet;
use std::sync::Arc;

/// All statistics of the engine.
#[derive(Clone, Debug)]
pub struct EngineStatus {
    /// Counters by name.
    pub counters: Vec<(&'static str, u64)>,
    /// Column families.
    pub families: Vec<FamilyStatus>,
    /// Sequence number of the last visible operation.
    pub last_sequence: SeqNo,
    /// Sequence number up to which the log is durable.
    pub durable_sequence: SeqNo,
    /// The block cache.
    pub cache: CacheStatus,
    /// Table files of all column families; files shared by clones count once.
    pub tables: usize,
    /// Transactions.
    pub transactions: TransactionStatus,
    /// Background jobs and pending work.
    pub background: BackgroundStatus,
    /// How much of the budget is in use: 0 to 3 ([`memory_budget::memory_pressure_level`]).
    pub memory_pressure: u8,
    /// Bytes of resident indexes and filters.
    pub table_memory: u64,
    /// Memory by owner.
    pub memory: Vec<(&'static str, u64)>,
    /// Input and output by cause.
    pub io: Vec<(IoActivity, IoTotals)>,
    /// Latencies by operation.
    pub latency: Vec<(Operation, HistogramSummary)>,
    /// Write stalls by cause.
    pub stalls: Vec<(&'static str, WriteStallTotals)>,
    /// The memory budget.
    pub memory_budget: u64,
    /// Resident memory of the process, if known.
    pub resident_bytes: Option<u64>,
    /// Table files open now.
    pub open_files: OpenFileStatus,
    /// Free space.
    pub disk_space: DiskSpaceStatus,
    /// Log segments.
    pub wal_segments: FileTotals,
    /// Number of the newest log segment; it grows with each.
    pub newest_wal_segment: u64,
    /// Bytes of all files.
    pub disk_bytes: u64,
    /// Live snapshots.
    pub snapshots: usize,
    /// Running jobs, with their running time in microseconds.
    pub running_jobs: Vec<(Arc<RunningJob>, u64)>,
    /// The current cause of back-pressure, or `none`.
    pub pressure: &'static str,
    /// What recovery did.
    pub recovery: recover::RecoverySummary,
    /// The last unresolved background error.
    pub background_error: Option<Error>,
    /// Errors found by the scrub, one per damaged file.
    pub scrub_errors: Vec<Error>,
}

/// Statistics of a column family.
#[derive(Clone, Debug)]
pub struct FamilyStatus {
    /// The column family.
    pub family: Arc<FamilyState>,
    /// The active memtable.
    pub memtable: ActiveMemtableStatus,
    /// All memtables together.
    pub memtables: MemtableStatus,
    /// Sealed memtables.
    pub immutables: FileTotals,
    /// Levels down to the deepest non-empty one.
    pub levels: Vec<LevelStatus>,
    /// Value logs.
    pub vlogs: VlogStatus,
    /// Bytes of keys and values committed to it since open, including those replayed by recovery.
    pub user_bytes: u64,
    /// True if a flush is running or a memtable waits for one.
    pub flushing: bool,
    /// True if a compaction is running, or is due and allowed.
    pub compacting: bool,
    /// True if a compaction is due and none is running.
    pub compaction_due: bool,
}

/// The active memtable of a column family.
#[derive(Clone, Copy, Debug, Default)]
pub struct ActiveMemtableStatus {
    /// Bytes of memory.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
}

/// A number of files or memtables, and their size.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileTotals {
    /// Their number.
    pub count: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// The value logs of a column family.
#[derive(Clone, Copy, Debug, Default)]
pub struct VlogStatus {
    /// Number of files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of them that tables reference.
    pub referenced_bytes: u64,
}

/// The open table files.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenFileStatus {
    /// Files open now.
    pub open: usize,
    /// Their maximum number.
    pub limit: usize,
}

/// Contents of memtables.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemtableStatus {
    /// Entries, tombstones included.
    pub entries: u64,
    /// Point tombstones.
    pub tombstones: u64,
    /// Bytes of keys.
    pub key_bytes: u64,
    /// Bytes of values.
    pub value_bytes: u64,
}

/// Statistics of a level.
#[derive(Clone, Copy, Debug, Default)]
pub struct LevelStatus {
    /// Sorted runs.
    pub runs: usize,
    /// Tables.
    pub files: usize,
    /// Bytes of tables.
    pub bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Bytes of keys.
    pub key_bytes: u64,
    /// Bytes of values, inline and separated.
    pub value_bytes: u64,
    /// Bytes in value logs that its tables reference.
    pub separated_bytes: u64,
}

/// Statistics of the block cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStatus {
    /// Bytes that it holds.
    pub used: u64,
    /// Bytes that it may hold.
    pub capacity: u64,
    /// Blocks in it.
    pub blocks: u64,
    /// Lookups that found their block.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Blocks evicted.
    pub evictions: u64,
    /// Number of shards.
    pub shards: usize,
}

/// Statistics of transactions.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransactionStatus {
    /// Open transactions.
    pub open: u64,
    /// Bytes of memory held by their writes.
    pub bytes: u64,
    /// Prepared and undecided transactions.
    pub prepared: u64,
    /// Age of the oldest of those, in milliseconds.
    pub oldest_prepared_ms: Option<u64>,
}

/// Running jobs and pending work.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackgroundStatus {
    /// Running flushes.
    pub flushes_running: usize,
    /// Sealed memtables that are not yet flushed.
    pub immutable_memtables: usize,
    /// Running compactions.
    pub compactions_running: usize,
    /// Column families that need a compaction and are not being compacted.
    pub compactions_due: usize,
}

/// A table and its position.
#[derive(Clone, Debug)]
pub struct TableStatus {
    /// Name of the column family.
    pub family: String,
    /// Level.
    pub level: u8,
    /// Run.
    pub run: u64,
    /// File name.
    pub file: String,
    /// The table.
    pub table: Arc<Table>,
}

/// Returns the event of an open: what recovery did, and the options.
pub fn open_event(core: &EngineCore, r: &recover::RecoverySummary) -> EngineEvent<'static> {
    let log_truncated = r.truncated_bytes > 0;
    let how = if r.clean { "clean" } else { "after a crash, or new" };
    let cut = if r.truncated_bytes > 0 {
        format!(", {} bytes cut ({})", r.truncated_bytes, r.reason)
    } else {
        String::new()
    };
    let recovery = format!(
        "{how}: sequence {}, {} operations replayed{cut}, {} orphans, {} us",
        r.last_seq, r.replayed, r.orphans, r.elapsed_us
    );
    let families: Vec<String> =
        core.families.all().iter().map(|f| format!("{:?} {:?}", f.name(), f.settings())).collect();
    let s = &core.settings;
    let options = format!(
        "durability {:?}, block cache {} bytes, verify outputs {}, background rate {}; \
        families: {}",
        s.durability,
        s.block_cache_bytes,
        s.verify_outputs,
        s.background_bytes_per_second,
        families.join("; ")
    );
    EngineEvent::Opened { recovery, log_truncated, options }
}

/// Returns the number and bytes of the log segments that recovery needs, and the number of the
/// newest. A read-only database does not write the log: it uses the lengths of the files.
fn log_segments(core: &EngineCore) -> (FileTotals, u64) {
    if core.health.is_read_only() {
        let segments = core.manifest.with_catalog(|catalog| catalog.logs.clone());
        let length = |id| {
            core.dir.file_len(&filename::file_name(id, FileKind::Wal)).ok().flatten().unwrap_or(0)
        };
        let bytes = segments.iter().map(|(id, _)| length(*id)).sum();
        let all = FileTotals { count: segments.len(), bytes };
        return (all, segments.last().map_or(0, |(id, _)| id.0));
    }
    let appender = core.wal.appender();
    let all =
        FileTotals { count: appender.older_segments.len() + 1, bytes: appender.total_bytes() };
    (all, appender.writer.id().0)
}

/// Collects all statistics.
pub fn engine_status(core: &EngineCore, recovery: &recover::RecoverySummary) -> EngineStatus {
    let families: Vec<FamilyStatus> =
        core.families.all().into_iter().map(|f| family_status(core, f)).collect();
    let (tables, data_bytes) = count_tables(core);
    let memory = memory_by_owner(core);
    let retained_bytes: u64 =
        core.manifest.with_catalog(|catalog| catalog.retained.iter().map(|s| s.bytes).sum());
    let (wal, wal_newest) = log_segments(core);
    let manifest_bytes = match core.health.is_read_only() {
        true => core.dir.file_len(filename::MANIFEST).ok().flatten().unwrap_or(0),
        false => core.manifest.bytes(),
    };
    EngineStatus {
        counters: core.counters.all(),
        tables,
        transactions: transaction_status(core),
        background: background_status(core, &families),
        memory_pressure: memory_budget::memory_pressure_level(
            core.memory_budget.limit,
            &core.memory_usage(),
        ),
        disk_bytes: data_bytes + wal.bytes + retained_bytes + manifest_bytes,
        families,
        last_sequence: core.visible_seq(),
        durable_sequence: core.wal.durable(),
        memory,
        io: core.counters.io.totals(),
        latency: core.counters.latency.summaries(),
        stalls: core.write_stalls.totals(),
        cache: cache_status(core),
        table_memory: core.table_cache.resident_bytes(),
        memory_budget: core.memory_budget.limit.0,
        resident_bytes: core.env.fs.resident_bytes(),
        open_files: OpenFileStatus {
            open: core.table_cache.file_handles().open_count(),
            limit: core.table_cache.file_handles().limit(),
        },
        disk_space: core.disk_space.status(),
        wal_segments: wal,
        newest_wal_segment: wal_newest,
        snapshots: core.snapshots.count(),
        running_jobs: running_jobs(core),
        pressure: core.write_pressure().name(),
        recovery: recovery.clone(),
        background_error: core.health.background_error(),
        scrub_errors: core.scrub.damage_errors(),
    }
}

/// Returns the memory in use by owner, computed now.
fn memory_by_owner(core: &EngineCore) -> Vec<(&'static str, u64)> {
    core.refresh_load();
    core.memory_usage().by_owner()
}

/// Returns the number of tables, and the bytes of tables and value logs: files shared by clones
/// count once.
fn count_tables(core: &EngineCore) -> (usize, u64) {
    let (mut tables, mut bytes, mut seen) = (0, 0, BTreeSet::new());
    for f in core.families.all() {
        let view = f.tree.view();
        for (_, _, t) in view.version.tables().filter(|(_, _, t)| seen.insert(t.meta.id)) {
            bytes += t.meta.summary.bytes;
            tables += 1;
        }
        bytes += view
            .version
            .vlogs
            .values()
            .filter(|v| seen.insert(v.meta.id))
            .map(|v| v.meta.bytes)
            .sum::<u64>();
    }
    (tables, bytes)
}

/// Returns the statistics of the block cache.
pub fn cache_status(core: &EngineCore) -> CacheStatus {
    let cache = core.table_cache.cache();
    CacheStatus {
        used: cache.used_bytes(),
        capacity: cache.capacity(),
        blocks: cache.block_count(),
        hits: core.counters.cache_hits.get(),
        misses: core.counters.cache_misses.get(),
        evictions: cache.evictions(),
        shards: cache.shard_count(),
    }
}

fn transaction_status(core: &EngineCore) -> TransactionStatus {
    let (open, bytes) = core.open_txns.totals();
    let prepared = core.prepared_txns.all();
    let now_ms = core.env.clock.wall_ms();
    let oldest = prepared.iter().map(|p| p.prepared_ms).min();
    let oldest_prepared_ms = oldest.map(|at| now_ms.saturating_sub(at));
    TransactionStatus { open, bytes, prepared: prepared.len() as u64, oldest_prepared_ms }
}

fn background_status(core: &EngineCore, families: &[FamilyStatus]) -> BackgroundStatus {
    let jobs = core.job_control.running_jobs();
    let running = |kind| jobs.iter().filter(|j| j.kind == kind).count();
    BackgroundStatus {
        flushes_running: running(JobKind::Flush),
        immutable_memtables: families.iter().map(|f| f.immutables.count).sum(),
        compactions_running: running(JobKind::Compaction),
        compactions_due: families.iter().filter(|f| f.compaction_due).count(),
    }
}

/// Returns true if a memtable of the column family waits for its flush or is being flushed: it
/// stays sealed until its tables are installed.
pub fn is_flushing(family: &FamilyState) -> bool {
    family.tree.with_view(|v| !v.immutables.is_empty())
}

/// Returns true if a compaction of the column family is running, or is due and allowed.
pub fn is_compacting(core: &EngineCore, family: &Arc<FamilyState>) -> bool {
    core.job_control.is_working_on(JobKind::Compaction, family.id)
        || (is_compaction_allowed(core) && due_compactions::is_due(core, family))
}

fn is_compaction_allowed(core: &EngineCore) -> bool {
    !core.health.is_read_only() && core.job_control.check_allowed(JobKind::Compaction).is_ok()
}

fn running_jobs(core: &EngineCore) -> Vec<(Arc<RunningJob>, u64)> {
    let now = core.env.clock.monotonic_us();
    core.job_control
        .running_jobs()
        .into_iter()
        .map(|j| (Arc::clone(&j), now.saturating_sub(j.started_us)))
        .collect()
}

/// Returns the statistics of a column family.
pub fn family_status(core: &EngineCore, family: Arc<FamilyState>) -> FamilyStatus {
    let view = family.tree.view();
    let v = &view.version;
    let compacting_now = core.job_control.is_working_on(JobKind::Compaction, family.id);
    let due = !compacting_now && due_compactions::is_due(core, &family);
    let mut memtables = MemtableStatus::default();
    for m in view.memtables() {
        let (keys, values) = m.raw_bytes();
        memtables.entries += m.entries();
        memtables.tombstones += m.tombstones();
        memtables.key_bytes += keys;
        memtables.value_bytes += values;
    }
    let depth = v.deepest_level().map_or(0, |l| l.index() + 1);
    FamilyStatus {
        memtable: ActiveMemtableStatus {
            bytes: view.active.bytes(),
            entries: view.active.entries(),
        },
        memtables,
        user_bytes: family.user_bytes(),
        flushing: is_flushing(&family),
        compacting: compacting_now || (due && is_compaction_allowed(core)),
        compaction_due: due,
        immutables: FileTotals {
            count: view.immutables.len(),
            bytes: view.immutables.iter().map(|m| m.bytes()).sum(),
        },
        levels: (0..depth).map(|l| level_status(v, l)).collect(),
        vlogs: VlogStatus {
            files: v.vlogs.len(),
            bytes: v.vlogs.values().map(|l| l.meta.bytes).sum(),
            referenced_bytes: v.vlog_referenced_bytes().values().sum(),
        },
        family,
    }
}

fn level_status(v: &Version, level: usize) -> LevelStatus {
    let mut all = LevelStatus { runs: v.levels[level].len(), ..LevelStatus::default() };
    for t in v.levels[level].iter().flat_map(|r| &r.tables) {
        let s = &t.meta.summary;
        all.files += 1;
        all.blocks += t.reader.block_count() as u64;
        all.bytes += s.bytes;
        all.entries += s.entries;
        all.tombstones += s.tombstones;
        all.key_bytes += s.raw_key_bytes;
        all.value_bytes += s.raw_value_bytes;
        all.separated_bytes += s.vlogs.iter().map(|(_, bytes)| bytes).sum::<u64>();
    }
    all
}

/// Returns every table of every column family.
pub fn all_tables(core: &EngineCore) -> Vec<TableStatus> {
    core.families.all().iter().flat_map(|f| family_tables(f)).collect()
}

/// Returns every table of a column family.
pub fn family_tables(family: &FamilyState) -> Vec<TableStatus> {
    let view = family.tree.view();
    let status = |(level, run, table): (LevelNo, &Run, &Arc<Table>)| TableStatus {
        family: family.name().to_string(),
        level: level.0,
        run: run.id.0,
        file: filename::file_name(table.meta.id, FileKind::Klog),
        table: Arc::clone(table),
    };
    view.version.tables().map(|(level, run, table)| status((level, run, table))).collect()
}
