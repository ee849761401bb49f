//! Converts public options to engine settings, and engine reports to public reports. The only
//! module that knows both.

use crate::backup_reports::{
    BackupFile, BackupInfo, BackupReport, BackupVerifyReport, CheckpointReport, PruneReport,
    RestoreReport,
};
use crate::history::History;
use crate::options::{Compression, Durability, FamilyOptions, Options};
use crate::stats::{
    BackgroundStats, CacheStats, FamilyStats, FileStats, IoStats, JobStats, LatencyStats,
    LevelStats, MemtableStats, RecoveryReport, StallStats, Stats, TransactionStats, VerifyReport,
};
use crate::txn_options::{Isolation, TxnOptions};
use perigee_base::io_stats::{IoActivity, IoTotals};
use perigee_base::latency::{HistogramSummary, Operation};
use perigee_engine::history::HistoryRetention as Kept;
use perigee_engine::job_control::RunningJob;
use perigee_engine::report::{CacheStatus, EngineStatus, FamilyStatus, LevelStatus, TableStatus};
use perigee_engine::safety::{
    BackupCheckSummary, BackupGeneration, BackupSummary, CheckpointSummary, PruneSummary,
    RestoreSummary,
};
use perigee_engine::txn::{IsolationLevel as Level, TxnSettings};
use perigee_engine::verify::VerifyResult;
use perigee_engine::write_stalls::WriteStallTotals;
use perigee_engine::{FamilySettings, Settings};
use perigee_env::Env;
use perigee_file::CompressionMethod as Inner;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub(crate) fn durability(d: Durability) -> perigee_engine::DurabilityLevel {
    match d {
        Durability::Full => perigee_engine::DurabilityLevel::Full,
        Durability::Interval(t) => perigee_engine::DurabilityLevel::Interval(
            u64::try_from(t.as_micros()).unwrap_or(u64::MAX),
        ),
        Durability::None => perigee_engine::DurabilityLevel::None,
    }
}

/// Converts transaction options; `default` is the isolation level if they set none.
pub(crate) fn txn_settings(o: &TxnOptions, default: Level) -> TxnSettings {
    TxnSettings {
        isolation: o.isolation.map_or(default, level_of),
        read_only: o.read_only,
        pessimistic: o.pessimistic,
        lock_timeout_us: micros(o.lock_timeout),
        // 0 means no limit in the engine, so a limit of 0 becomes 1.
        timeout_us: o.timeout.map_or(0, |t| micros(t).max(1)),
        max_bytes: o.max_bytes.map_or(0, |n| n.max(1)),
        spill_bytes: o.spill_bytes.map_or(0, |n| n.max(1)),
    }
}

pub(crate) fn level_of(isolation: Isolation) -> Level {
    match isolation {
        Isolation::ReadUncommitted => Level::ReadUncommitted,
        Isolation::ReadCommitted => Level::ReadCommitted,
        Isolation::RepeatableRead => Level::RepeatableRead,
        Isolation::Snapshot => Level::Snapshot,
        Isolation::Serializable => Level::Serializable,
    }
}

pub(crate) fn isolation_of(level: Level) -> Isolation {
    match level {
        Level::ReadUncommitted => Isolation::ReadUncommitted,
        Level::ReadCommitted => Isolation::ReadCommitted,
        Level::RepeatableRead => Isolation::RepeatableRead,
        Level::Snapshot => Isolation::Snapshot,
        Level::Serializable => Isolation::Serializable,
    }
}

/// Converts to microseconds, rounded up so that only zero becomes zero.
fn micros(t: Duration) -> u64 {
    u64::try_from(t.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}

pub(crate) fn settings(o: &Options) -> Settings {
    let named = o.families.iter().filter(|(name, _)| *name != "default");
    Settings {
        create_if_missing: o.create_if_missing,
        read_only: o.read_only,
        salvage: o.salvage_readonly,
        error_if_exists: o.error_if_exists,
        durability: durability(o.durability),
        isolation: level_of(o.isolation),
        memory_budget: o.memory_budget,
        block_cache_bytes: o.block_cache_bytes,
        max_open_files: u64::from(o.max_open_files),
        min_free_space: o.min_free_space,
        verify_outputs: o.verify_outputs,
        background_bytes_per_second: o.background_rate.map_or(0, |rate| rate.max(1)),
        space_amplification: o.space_amplification,
        scrub_interval_us: micros(o.scrub_interval),
        log_retention: o.log_retention,
        history: match o.history {
            History::None => Kept::None,
            History::Operations(n) => Kept::Operations(n),
            History::Time(t) => Kept::Time(micros(t)),
        },
        latency_stats: o.latency_stats,
        log_file_bytes: o.log_file_bytes,
        log_files_kept: o.log_files_kept,
        listener: o.listener.clone(),
        comparators: o.comparators.clone(),
        merge_operators: o.merge_operators.clone(),
        compaction_filters: o.compaction_filters.clone(),
        default_family: o
            .default_family
            .as_ref()
            .or(o.families.get("default"))
            .map(family_settings),
        families: named.map(|(name, o)| (name.clone(), family_settings(o))).collect(),
    }
}

/// Converts engine settings back to options, with these column-family options.
pub(crate) fn options(
    s: &Settings,
    env: Env,
    mut families: BTreeMap<String, FamilyOptions>,
) -> Options {
    Options {
        create_if_missing: s.create_if_missing,
        read_only: s.read_only,
        salvage_readonly: s.salvage,
        error_if_exists: s.error_if_exists,
        isolation: isolation_of(s.isolation),
        durability: match s.durability {
            perigee_engine::DurabilityLevel::Full => Durability::Full,
            perigee_engine::DurabilityLevel::Interval(us) => {
                Durability::Interval(Duration::from_micros(us))
            }
            perigee_engine::DurabilityLevel::None => Durability::None,
        },
        memory_budget: s.memory_budget,
        block_cache_bytes: s.block_cache_bytes,
        max_open_files: u32::try_from(s.max_open_files).unwrap_or(u32::MAX),
        min_free_space: s.min_free_space,
        verify_outputs: s.verify_outputs,
        background_rate: Some(s.background_bytes_per_second).filter(|rate| *rate > 0),
        space_amplification: s.space_amplification,
        scrub_interval: Duration::from_micros(s.scrub_interval_us),
        log_retention: s.log_retention,
        history: match s.history {
            Kept::None => History::None,
            Kept::Operations(n) => History::Operations(n),
            Kept::Time(us) => History::Time(Duration::from_micros(us)),
        },
        latency_stats: s.latency_stats,
        log_file_bytes: s.log_file_bytes,
        log_files_kept: s.log_files_kept,
        listener: s.listener.clone(),
        default_family: families.remove("default"),
        families,
        comparators: s.comparators.clone(),
        merge_operators: s.merge_operators.clone(),
        compaction_filters: s.compaction_filters.clone(),
        env,
    }
}

pub(crate) fn family_settings(o: &FamilyOptions) -> FamilySettings {
    FamilySettings {
        comparator: o.comparator,
        memtable_bytes: o.memtable_bytes,
        value_threshold: o.value_threshold as u64,
        block_bytes: o.block_bytes as u64,
        compression: match o.compression {
            Compression::None => Inner::None,
            Compression::Lz4 => Inner::Lz4,
            Compression::Lz4Fast(acceleration) => Inner::Lz4Fast(acceleration),
            Compression::Snappy => Inner::Snappy,
            Compression::Zstd(level) => Inner::Zstd(level),
        },
        filter_bits: o.filter_bits,
        target_file_bytes: o.target_file_bytes,
        level1_bytes: o.level1_bytes,
        level_ratio: o.level_ratio,
        isolation: o.isolation.map(level_of),
        merge_operator: o.merge_operator.clone(),
    }
}

pub(crate) fn family_options(s: &FamilySettings) -> FamilyOptions {
    FamilyOptions {
        comparator: s.comparator,
        memtable_bytes: s.memtable_bytes,
        value_threshold: s.value_threshold as usize,
        block_bytes: s.block_bytes as usize,
        compression: match s.compression {
            Inner::None => Compression::None,
            Inner::Lz4 => Compression::Lz4,
            Inner::Lz4Fast(acceleration) => Compression::Lz4Fast(acceleration),
            Inner::Snappy => Compression::Snappy,
            Inner::Zstd(level) => Compression::Zstd(level),
        },
        filter_bits: s.filter_bits,
        target_file_bytes: s.target_file_bytes,
        level1_bytes: s.level1_bytes,
        level_ratio: s.level_ratio,
        isolation: s.isolation.map(isolation_of),
        merge_operator: s.merge_operator.clone(),
    }
}

pub(crate) fn stats(s: EngineStatus) -> Stats {
    let cache = cache_stats(&s.cache);
    Stats {
        counters: s.counters,
        families: s.families.iter().map(family_stats).collect(),
        last_sequence: s.last_sequence.0,
        durable_sequence: s.durable_sequence.0,
        block_cache_bytes: (s.cache.used, s.cache.capacity),
        table_memory_bytes: s.table_memory,
        memory_budget: s.memory_budget,
        open_files: (s.open_files.open, s.open_files.limit),
        free_space: s.disk_space.free,
        wal: (s.wal_segments.count, s.wal_segments.bytes),
        wal_newest: s.newest_wal_segment,
        disk_bytes: s.disk_bytes,
        tables: s.tables,
        snapshots: s.snapshots,
        transactions: TransactionStats {
            open: s.transactions.open,
            bytes: s.transactions.bytes,
            prepared: s.transactions.prepared,
            oldest_prepared: s.transactions.oldest_prepared_ms.map(Duration::from_millis),
        },
        background: BackgroundStats {
            flushes_running: s.background.flushes_running,
            immutable_memtables: s.background.immutable_memtables,
            compactions_running: s.background.compactions_running,
            compactions_due: s.background.compactions_due,
        },
        memory_pressure: s.memory_pressure,
        cache,
        memory: s.memory,
        process_resident_bytes: s.resident_bytes,
        io: s.io.iter().map(io_stats).collect(),
        latency: s.latency.into_iter().map(latency_stats).collect(),
        stalls: s.stalls.iter().map(stall_stats).collect(),
        running_jobs: s.running_jobs.iter().map(job_stats).collect(),
        stall_reason: s.pressure.to_owned(),
        recovery: RecoveryReport {
            recovered_sequence: s.recovery.last_seq.0,
            replayed_operations: s.recovery.replayed,
            truncated_bytes: s.recovery.truncated_bytes,
            reason: s.recovery.reason.trim_end_matches("; ").to_owned(),
            orphans: s.recovery.orphans,
            clean: s.recovery.clean,
            peak_bytes: s.recovery.peak_bytes,
            elapsed_us: s.recovery.elapsed_us,
            changed_options: s.recovery.changed_settings,
        },
        background_error: s.background_error,
        scrub_errors: s.scrub_errors,
    }
}

pub(crate) fn cache_stats(s: &CacheStatus) -> CacheStats {
    CacheStats {
        capacity: s.capacity,
        used: s.used,
        blocks: s.blocks,
        hits: s.hits,
        misses: s.misses,
        evictions: s.evictions,
        shards: s.shards,
    }
}

fn io_stats((cause, m): &(IoActivity, IoTotals)) -> IoStats {
    IoStats {
        cause: cause.name(),
        reads: m.reads,
        bytes_read: m.bytes_read,
        writes: m.writes,
        bytes_written: m.bytes_written,
    }
}

fn latency_stats((operation, s): (Operation, HistogramSummary)) -> LatencyStats {
    LatencyStats {
        operation: operation.name(),
        one_in: operation.one_in(),
        count: s.count,
        sum_ns: s.sum,
        p50_ns: s.p50,
        p90_ns: s.p90,
        p99_ns: s.p99,
        p999_ns: s.p999,
        max_ns: s.max,
        buckets: s.buckets,
    }
}

fn stall_stats((reason, s): &(&'static str, WriteStallTotals)) -> StallStats {
    StallStats {
        reason,
        delays: s.delays,
        delay_us: s.delay_us,
        stops: s.stops,
        stop_us: s.stop_us,
    }
}

fn job_stats((job, elapsed_us): &(Arc<RunningJob>, u64)) -> JobStats {
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
        elapsed_us: *elapsed_us,
    }
}

pub(crate) fn family_stats(f: &FamilyStatus) -> FamilyStats {
    let level = |(i, l): (usize, &LevelStatus)| LevelStats {
        level: i as u8,
        runs: l.runs,
        files: l.files,
        bytes: l.bytes,
        entries: l.entries,
        tombstones: l.tombstones,
        blocks: l.blocks,
        raw_key_bytes: l.key_bytes,
        raw_value_bytes: l.value_bytes,
        separated_bytes: l.separated_bytes,
    };
    let (m, counters) = (f.memtables, &f.family.counters);
    FamilyStats {
        name: f.family.name().to_string(),
        id: f.family.id.0,
        options: family_options(&f.family.settings()),
        memtable: (f.memtable.bytes, f.memtable.entries),
        memtables: MemtableStats {
            entries: m.entries,
            tombstones: m.tombstones,
            key_bytes: m.key_bytes,
            value_bytes: m.value_bytes,
        },
        immutable_memtables: (f.immutables.count, f.immutables.bytes),
        levels: f.levels.iter().enumerate().map(level).collect(),
        vlogs: (f.vlogs.files, f.vlogs.bytes, f.vlogs.referenced_bytes),
        user_bytes_written: f.user_bytes,
        flush_tables: counters.flush_tables.get(),
        flush_bytes_written: counters.flush_bytes.get(),
        compaction_tables: counters.compaction_tables.get(),
        compaction_bytes_read: counters.compaction_bytes_read.get(),
        compaction_bytes_written: counters.compaction_bytes_written.get(),
        is_flushing: f.flushing,
        is_compacting: f.compacting,
    }
}

pub(crate) fn file_stats(t: TableStatus) -> FileStats {
    let s = &t.table.meta.summary;
    let (smallest, largest) = t.table.meta.seq_range();
    FileStats {
        family: t.family,
        level: t.level,
        run: t.run,
        file: t.file,
        bytes: s.bytes,
        entries: s.entries,
        tombstones: s.tombstones,
        first_key: s.first_key.clone(),
        last_key: s.last_key.clone(),
        sequences: (smallest.0, largest.0),
        raw_key_bytes: s.raw_key_bytes,
        raw_value_bytes: s.raw_value_bytes,
        separated_bytes: s.vlogs.iter().map(|(_, bytes)| bytes).sum(),
    }
}

pub(crate) fn verify_report(v: VerifyResult) -> VerifyReport {
    VerifyReport { files: v.files, bytes: v.bytes, entries: v.entries, errors: v.errors }
}

pub(crate) fn checkpoint_report(c: CheckpointSummary) -> CheckpointReport {
    CheckpointReport {
        sequence: c.last_seq.0,
        linked_files: c.linked_files,
        linked_bytes: c.linked_bytes,
        copied_files: c.copied_files,
        copied_bytes: c.copied_bytes,
        own_bytes: c.own_bytes,
    }
}

pub(crate) fn backup_report(b: BackupSummary) -> BackupReport {
    BackupReport {
        generation: b.generation,
        sequence: b.last_seq.0,
        new_files: b.copied.files,
        new_bytes: b.copied.bytes,
        shared_files: b.reused.files,
        shared_bytes: b.reused.bytes,
    }
}

pub(crate) fn backup_info(g: BackupGeneration) -> BackupInfo {
    let file = |f: &perigee_engine::safety::generation::StoredFile| BackupFile {
        name: perigee_engine::safety::backup_store::stored_name(g.database, f),
        bytes: f.bytes,
        checksum: f.checksum,
    };
    BackupInfo {
        generation: g.number,
        database: g.database,
        sequence: g.last_seq.0,
        created_ms: g.created_ms,
        bytes: g.bytes(),
        files: g.files.iter().map(file).collect(),
    }
}

pub(crate) fn restore_report(r: RestoreSummary) -> RestoreReport {
    RestoreReport {
        generation: r.generation,
        sequence: r.last_seq.0,
        files: r.files,
        bytes: r.bytes,
    }
}

pub(crate) fn backup_verify_report(c: BackupCheckSummary) -> BackupVerifyReport {
    BackupVerifyReport {
        generations: c.generations,
        files: c.files,
        bytes: c.bytes,
        errors: c.errors,
    }
}

pub(crate) fn prune_report(p: PruneSummary) -> PruneReport {
    PruneReport { removed: p.removed, kept: p.kept, files: p.files, bytes: p.bytes }
}
