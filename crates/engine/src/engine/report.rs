//! Collects the statistics of the engine without stopping anything.

use crate::catalog::Catalog;
use crate::catalog::family::FamilyState;
use crate::maintenance::Maintenance;
use crate::maintenance::jobs::due_compactions;
use crate::resources::Resources;
use crate::resources::job_control::{FinishedJob, JobKind, RunningJob};
use crate::runtime::Runtime;
use crate::runtime::events::EngineEvent;
use crate::stats::{
    ActiveMemtableStats, BackgroundStats, CacheStats, CounterValue, FamilyStats, FileStats,
    FinishedJobStats, ImmutableMemtableStats, IoStats, JobStats, LatencyBucket, LatencyStats,
    LevelStats, MemtableStats, OpenFileStats, OwnerMemory, RecoveryReport, RowCacheStats,
    SequenceRange, Stats, VlogStats,
};
use perigee_base::{FileKind, HistogramSummary, IoActivity, IoTotals, LevelNo, Operation};
use perigee_file::filename;
use perigee_tree::{Run, Table, Version, View};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Returns the event of an open: what recovery did, and the options.
pub fn open_event(catalog: &Catalog, r: &RecoveryReport) -> EngineEvent<'static> {
    let log_truncated = r.truncated_bytes > 0;
    let how = if r.clean { "clean" } else { "after a crash, or new" };
    let cut = if r.truncated_bytes > 0 {
        format!(", {} bytes cut ({})", r.truncated_bytes, r.reason)
    } else {
        String::new()
    };
    let recovery = format!(
        "{how}: sequence {}, {} operations replayed{cut}, {} orphans, {} us",
        r.recovered_sequence, r.replayed_operations, r.orphans, r.elapsed_us
    );
    let families: Vec<String> = catalog
        .families()
        .all()
        .iter()
        .map(|f| format!("{:?} {:?}", f.name(), f.settings()))
        .collect();
    let s = &catalog.runtime.settings;
    let options = format!(
        "durability {:?}, block cache {} bytes, verify outputs {}, background rate {}; \
        families: {}",
        s.durability,
        s.block_cache_bytes,
        s.verify_outputs,
        s.background_rate.unwrap_or(0),
        families.join("; ")
    );
    EngineEvent::Opened { recovery, log_truncated, options }
}

/// Collects all statistics.
pub fn stats(all: &Maintenance, recovery: &RecoveryReport) -> Stats {
    let families: Vec<FamilyStats> =
        all.catalog.families().all().iter().map(|f| family_stats(&all.catalog, f)).collect();
    let (tables, data_bytes) = count_tables(&all.catalog);
    let memory = memory_by_owner(&all.catalog);
    let recorded = all.catalog.recorded_files();
    let retained_bytes: u64 = recorded.retained.iter().map(|s| s.bytes).sum();
    let wal = all.log.stats();
    let manifest_bytes = match all.runtime.health.is_read_only() {
        true => all.runtime.dir.file_len(filename::MANIFEST).ok().flatten().unwrap_or(0),
        false => recorded.manifest_bytes,
    };
    Stats {
        counters: counters(&all.runtime),
        tables,
        transactions: all.txns.stats(),
        background: background_stats(&all.catalog, &families),
        memory_pressure: all.resources.memory_pressure_level(),
        disk_bytes: data_bytes + wal.bytes + retained_bytes + manifest_bytes,
        families,
        last_sequence: all.catalog.visible_seq().0,
        durable_sequence: all.log.durable_seq().0,
        memory,
        io: io_stats(&all.runtime),
        latency: latency_stats(&all.runtime),
        stalls: all.resources.stall_stats(),
        cache: cache_stats(&all.resources),
        row_cache: row_cache_stats(&all.resources),
        table_memory_bytes: all.resources.table_cache().resident_bytes(),
        memory_budget: all.resources.memory_limit().0,
        process_resident_bytes: all.runtime.env.fs.resident_bytes(),
        open_files: OpenFileStats {
            open: all.resources.table_cache().file_handles().open_count(),
            limit: all.resources.table_cache().file_handles().limit(),
        },
        free_space: all.resources.free_space(),
        wal,
        snapshots: all.catalog.snapshot_count(),
        running_jobs: running_jobs(&all.resources),
        stall_reason: all.resources.write_pressure().name().to_owned(),
        recovery: recovery.clone(),
        background_error: all.runtime.health.background_error(),
        scrub_errors: all.scrub().damage_errors(),
    }
}

/// Returns the counters by name.
pub fn counters(runtime: &Runtime) -> Vec<CounterValue> {
    runtime.counters.all().into_iter().map(|(name, value)| CounterValue { name, value }).collect()
}

/// Returns the memory in use by owner, computed now.
fn memory_by_owner(catalog: &Catalog) -> Vec<OwnerMemory> {
    catalog.refresh_load();
    let owners = catalog.resources.memory_usage().by_owner();
    owners.into_iter().map(|(owner, bytes)| OwnerMemory { owner, bytes }).collect()
}

fn io_stats(runtime: &Runtime) -> Vec<IoStats> {
    let totals = runtime.counters.io.totals().into_iter();
    let stats = |(cause, t): (IoActivity, IoTotals)| IoStats {
        cause: cause.name(),
        reads: t.reads,
        bytes_read: t.bytes_read,
        writes: t.writes,
        bytes_written: t.bytes_written,
    };
    totals.map(stats).collect()
}

fn latency_stats(runtime: &Runtime) -> Vec<LatencyStats> {
    let summaries = runtime.counters.latency.summaries().into_iter();
    let bucket = |(upper_ns, cumulative_count)| LatencyBucket { upper_ns, cumulative_count };
    let stats = |(operation, s): (Operation, HistogramSummary)| LatencyStats {
        operation: operation.name(),
        one_in: operation.one_in(),
        count: s.count,
        sum_ns: s.sum,
        p50_ns: s.p50,
        p90_ns: s.p90,
        p99_ns: s.p99,
        p999_ns: s.p999,
        max_ns: s.max,
        buckets: s.buckets.into_iter().map(bucket).collect(),
    };
    summaries.map(stats).collect()
}

/// Returns the number of tables, and the bytes of tables and value logs: files shared by clones
/// count once.
fn count_tables(catalog: &Catalog) -> (usize, u64) {
    let (mut tables, mut bytes, mut seen) = (0, 0, BTreeSet::new());
    for f in catalog.families().all() {
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
pub fn cache_stats(resources: &Resources) -> CacheStats {
    let cache = resources.table_cache().cache();
    CacheStats {
        used: cache.used_bytes(),
        capacity: cache.capacity(),
        blocks: cache.block_count(),
        hits: resources.runtime.counters.cache_hits.get(),
        misses: resources.runtime.counters.cache_misses.get(),
        evictions: cache.evictions(),
        shards: cache.shard_count(),
    }
}

/// Returns the statistics of the row cache.
fn row_cache_stats(resources: &Resources) -> RowCacheStats {
    let Some(cache) = resources.row_cache() else { return RowCacheStats::default() };
    let totals = cache.totals();
    RowCacheStats {
        capacity: cache.capacity(),
        used: totals.used,
        rows: totals.rows,
        hits: totals.hits,
        misses: totals.misses,
        invalidations: totals.invalidations,
        evictions: totals.evictions,
    }
}

fn background_stats(catalog: &Catalog, families: &[FamilyStats]) -> BackgroundStats {
    let jobs = catalog.resources.job_control().running_jobs();
    let running = |kind| jobs.iter().filter(|j| j.kind == kind).count();
    let is_waiting = |f: &&Arc<FamilyState>| {
        !catalog.resources.job_control().is_working_on(JobKind::Compaction, f.id)
            && due_compactions::is_due(catalog, f)
    };
    BackgroundStats {
        flushes_running: running(JobKind::Flush),
        immutable_memtables: families.iter().map(|f| f.immutable_memtables.count).sum(),
        compactions_running: running(JobKind::Compaction),
        compactions_due: catalog.families().all().iter().filter(is_waiting).count(),
    }
}

/// Returns true if a memtable of the column family waits for its flush or is being flushed: it
/// stays sealed until its tables are installed.
pub fn is_flushing(family: &FamilyState) -> bool {
    family.tree.with_view(|v| !v.immutables.is_empty())
}

/// Returns true if a compaction of the column family is running, or is due and allowed.
pub fn is_compacting(catalog: &Catalog, family: &Arc<FamilyState>) -> bool {
    catalog.resources.job_control().is_working_on(JobKind::Compaction, family.id)
        || (is_compaction_allowed(&catalog.resources) && due_compactions::is_due(catalog, family))
}

fn is_compaction_allowed(resources: &Resources) -> bool {
    !resources.runtime.health.is_read_only()
        && resources.job_control().check_allowed(JobKind::Compaction).is_ok()
}

fn job_stats(job: &RunningJob, now_us: u64) -> JobStats {
    JobStats {
        kind: job.kind.name(),
        family: job.family.clone(),
        reason: job.reason,
        from: job.input_levels.clone(),
        to: job.output_level,
        files: job.input_tables,
        bytes: job.input_bytes,
        bytes_done: job.bytes_done(),
        bytes_written: job.bytes_written.load(Relaxed),
        elapsed_us: now_us.saturating_sub(job.started_us),
    }
}

fn running_jobs(resources: &Resources) -> Vec<JobStats> {
    let now = resources.runtime.env.clock.monotonic_us();
    resources.job_control().running_jobs().iter().map(|job| job_stats(job, now)).collect()
}

/// Returns the flushes and compactions that ended last, the newest first.
pub fn finished_jobs(resources: &Resources) -> Vec<FinishedJobStats> {
    let now = resources.runtime.env.clock.monotonic_us();
    let stats = |finished: &FinishedJob| FinishedJobStats {
        job: job_stats(&finished.job, finished.ended_us),
        age_us: now.saturating_sub(finished.ended_us),
        is_complete: finished.is_complete,
    };
    resources.job_control().finished_jobs().iter().map(stats).collect()
}

fn memtable_stats(view: &View) -> MemtableStats {
    let mut all = MemtableStats::default();
    for m in view.memtables() {
        let (keys, values) = m.raw_bytes();
        all.entries += m.entries();
        all.tombstones += m.tombstones();
        all.key_bytes += keys;
        all.value_bytes += values;
    }
    all
}

/// Returns the statistics of a column family.
pub fn family_stats(catalog: &Catalog, family: &Arc<FamilyState>) -> FamilyStats {
    let view = family.tree.view();
    let (v, counters) = (&view.version, &family.counters);
    let depth = v.deepest_level().map_or(0, |l| l.index() + 1);
    FamilyStats {
        name: family.name().to_string(),
        id: family.id.0,
        memtable: ActiveMemtableStats {
            bytes: view.active.bytes(),
            entries: view.active.entries(),
        },
        memtables: memtable_stats(&view),
        immutable_memtables: ImmutableMemtableStats {
            count: view.immutables.len(),
            bytes: view.immutables.iter().map(|m| m.bytes()).sum(),
        },
        levels: (0..depth).map(|l| level_stats(v, l)).collect(),
        vlogs: VlogStats {
            files: v.vlogs.len(),
            bytes: v.vlogs.values().map(|l| l.meta.bytes).sum(),
            referenced_bytes: v.vlog_referenced_bytes().values().sum(),
        },
        user_bytes_written: family.user_bytes(),
        flush_tables: counters.flush_tables.get(),
        flush_bytes_written: counters.flush_bytes.get(),
        compaction_tables: counters.compaction_tables.get(),
        compaction_bytes_read: counters.compaction_bytes_read.get(),
        compaction_bytes_written: counters.compaction_bytes_written.get(),
        is_flushing: is_flushing(family),
        is_compacting: is_compacting(catalog, family),
    }
}

fn level_stats(v: &Version, level: usize) -> LevelStats {
    let mut all =
        LevelStats { level: level as u8, runs: v.levels[level].len(), ..LevelStats::default() };
    for t in v.levels[level].iter().flat_map(|r| &r.tables) {
        let s = &t.meta.summary;
        all.files += 1;
        all.blocks += t.reader.block_count() as u64;
        all.bytes += s.bytes;
        all.entries += s.entries;
        all.tombstones += s.tombstones;
        all.raw_key_bytes += s.raw_key_bytes;
        all.raw_value_bytes += s.raw_value_bytes;
        all.separated_bytes += s.separated_bytes();
    }
    all
}

/// Returns every table of every column family.
pub fn all_files(catalog: &Catalog) -> Vec<FileStats> {
    catalog.families().all().iter().flat_map(|f| family_files(f)).collect()
}

/// Returns every table of a column family.
pub fn family_files(family: &FamilyState) -> Vec<FileStats> {
    let view = family.tree.view();
    let stats = |(level, run, table): (LevelNo, &Run, &Arc<Table>)| {
        let s = &table.meta.summary;
        let (smallest, largest) = table.meta.seq_range();
        FileStats {
            family: family.name().to_string(),
            level: level.0,
            run: run.id.0,
            file: filename::file_name(table.meta.id, FileKind::Klog),
            bytes: s.bytes,
            entries: s.entries,
            tombstones: s.tombstones,
            first_key: s.first_key.clone(),
            last_key: s.last_key.clone(),
            sequences: SequenceRange { first: smallest.0, last: largest.0 },
            raw_key_bytes: s.raw_key_bytes,
            raw_value_bytes: s.raw_value_bytes,
            separated_bytes: s.separated_bytes(),
        }
    };
    view.version.tables().map(|(level, run, table)| stats((level, run, table))).collect()
}
