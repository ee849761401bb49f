//! Public options to the engine's, and the engine's reports to public ones: the one file where both are known.

use crate::options::{Compression, Durability, FamilyOptions, Options};
use crate::safety::{
    BackupFile, BackupInfo, BackupReport, BackupVerifyReport, CheckpointReport, PruneReport, RestoreReport,
};
use crate::stats::{
    FamilyStats, FileStats, JobStats, LevelStats, MemoryStats, RecoveryReport, Stats, VerifyReport,
};
use perigee_engine::control::Job;
use perigee_engine::report::{FamilyStatus, Status, TableStatus};
use perigee_engine::safety::{Backed, Checked, Checkpointed, Generation, Pruned, Restored};
use perigee_engine::verify::Verified;
use perigee_engine::{FamilySettings, Settings};
use perigee_file::Compression as Inner;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) fn durability(d: Durability) -> perigee_engine::Durability {
    match d {
        Durability::Full => perigee_engine::Durability::Full,
        Durability::Interval(t) => {
            perigee_engine::Durability::Interval(u64::try_from(t.as_micros()).unwrap_or(u64::MAX))
        }
        Durability::None => perigee_engine::Durability::None,
    }
}

pub(crate) fn settings(o: &Options) -> Settings {
    Settings {
        create_if_missing: o.create_if_missing,
        error_if_exists: o.error_if_exists,
        durability: durability(o.durability),
        memory_budget: o.memory_budget,
        block_cache_bytes: o.block_cache_bytes,
        max_open_files: o.max_open_files,
        min_free_space: o.min_free_space,
        verify_outputs: o.verify_outputs,
        background_bytes_per_second: o.background_rate.map_or(0, |rate| rate.max(1)),
        default_family: o.default_family.as_ref().map(family_settings),
    }
}

pub(crate) fn family_settings(o: &FamilyOptions) -> FamilySettings {
    FamilySettings {
        order: o.order,
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
    }
}

pub(crate) fn family_options(s: &FamilySettings) -> FamilyOptions {
    FamilyOptions {
        order: s.order,
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
    }
}

pub(crate) fn stats(s: Status) -> Stats {
    Stats {
        counters: s.counters,
        families: s.families.iter().map(family_stats).collect(),
        last_sequence: s.last_sequence,
        durable_sequence: s.durable_sequence,
        block_cache_bytes: s.cache,
        table_memory_bytes: s.memory.tables,
        memory: MemoryStats {
            budget: s.memory_budget,
            block_cache: s.cache.0,
            memtables: s.memory.active,
            sealed: s.memory.sealed,
            tables: s.memory.tables,
            jobs: s.memory.jobs,
        },
        open_files: s.open_files,
        free_space: s.space.1,
        wal: s.wal,
        disk_bytes: s.disk_bytes,
        snapshots: s.snapshots,
        running: s.running.iter().map(job_stats).collect(),
        pressure: s.pressure.to_owned(),
        recovery: RecoveryReport {
            recovered_sequence: s.recovery.recovered,
            replayed_operations: s.recovery.replayed,
            truncated_bytes: s.recovery.truncated_bytes,
            reason: s.recovery.reason.trim_end_matches("; ").to_owned(),
            orphans: s.recovery.orphans,
            clean: s.recovery.clean,
            elapsed_us: s.recovery.elapsed_us,
        },
        background_error: s.background_error,
    }
}

fn job_stats((job, elapsed_us): &(Arc<Job>, u64)) -> JobStats {
    JobStats {
        kind: job.kind.name(),
        family: job.family.clone(),
        reason: job.reason,
        from: job.from.clone(),
        to: job.to,
        files: job.files,
        bytes: job.bytes,
        bytes_done: job.bytes_done(),
        bytes_written: job.written.load(Relaxed),
        elapsed_us: *elapsed_us,
    }
}

fn family_stats(f: &FamilyStatus) -> FamilyStats {
    let level = |(i, l): (usize, &(usize, usize, u64, u64, u64))| LevelStats {
        level: i as u8,
        runs: l.0,
        files: l.1,
        bytes: l.2,
        entries: l.3,
        tombstones: l.4,
    };
    FamilyStats {
        name: f.family.name().to_string(),
        id: f.family.id.0,
        options: family_options(&f.family.settings),
        memtable: f.memtable,
        sealed: f.sealed,
        levels: f.levels.iter().enumerate().map(level).collect(),
        vlogs: f.vlogs,
    }
}

pub(crate) fn file_stats(t: TableStatus) -> FileStats {
    let s = &t.table.meta.summary;
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
        sequences: (s.smallest.0, s.largest.0),
        separated_bytes: s.vlogs.iter().map(|(_, bytes)| bytes).sum(),
    }
}

pub(crate) fn verify_report(v: Verified) -> VerifyReport {
    VerifyReport { files: v.files, bytes: v.bytes, entries: v.entries, errors: v.errors }
}

pub(crate) fn checkpoint_report(c: Checkpointed) -> CheckpointReport {
    CheckpointReport {
        sequence: c.sequence,
        linked_files: c.linked_files,
        linked_bytes: c.linked_bytes,
        copied_files: c.copied_files,
        copied_bytes: c.copied_bytes,
        own_bytes: c.own_bytes,
    }
}

pub(crate) fn backup_report(b: Backed) -> BackupReport {
    BackupReport {
        generation: b.generation,
        sequence: b.sequence,
        new_files: b.new.0,
        new_bytes: b.new.1,
        shared_files: b.shared.0,
        shared_bytes: b.shared.1,
    }
}

pub(crate) fn backup_info(g: Generation) -> BackupInfo {
    let file = |f: &perigee_engine::safety::record::Stored| BackupFile {
        name: perigee_engine::safety::store::stored_name(g.database, f),
        bytes: f.bytes,
        checksum: f.checksum,
    };
    BackupInfo {
        generation: g.number,
        database: g.database,
        sequence: g.sequence,
        created_ms: g.created_ms,
        bytes: g.bytes(),
        files: g.files.iter().map(file).collect(),
    }
}

pub(crate) fn restore_report(r: Restored) -> RestoreReport {
    RestoreReport { generation: r.generation, sequence: r.sequence, files: r.files, bytes: r.bytes }
}

pub(crate) fn backup_verify_report(c: Checked) -> BackupVerifyReport {
    BackupVerifyReport { generations: c.generations, files: c.files, bytes: c.bytes, errors: c.errors }
}

pub(crate) fn prune_report(p: Pruned) -> PruneReport {
    PruneReport { removed: p.removed, kept: p.kept, files: p.files, bytes: p.bytes }
}
