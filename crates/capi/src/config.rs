//! Converts TidesDB settings to options of the engine. Pure functions.
//!
//! Every field is applied, refused with its name, or - where it configures a mechanism that this
//! engine does not have (skip lists, sampled indexes, thread pools) - validated, stored, reported
//! back and logged as ignored: see [`ignored_database_settings`].

use crate::abi::*;
use crate::code::{INVALID_ARGS, Result};
use crate::ffi::read_field;
use perigee::{Compression, Durability, FamilyOptions, Isolation, KeyComparator, Options, limits};
use std::ffi::c_int;
use std::ptr::null_mut;
use std::time::Duration;

/// Default settings of a column family.
pub const DEFAULT_FAMILY_CONFIG: FamilyConfig = FamilyConfig {
    name: [0; NAME_BYTES],
    write_buffer_size: 64 << 20,
    level_size_ratio: 10,
    min_levels: 1,
    dividing_level_offset: 1,
    klog_value_threshold: 512,
    compression_algorithm: COMPRESS_LZ4,
    enable_bloom_filter: 1,
    bloom_fpr: 0.01,
    enable_block_indexes: 1,
    index_sample_ratio: 1,
    block_index_prefix_len: 16,
    sync_mode: SYNC_NONE,
    sync_interval_us: 128_000,
    comparator_name: [0; COMPARATOR_BYTES],
    comparator_ctx_str: [0; CONTEXT_BYTES],
    comparator_fn_cached: null_mut(),
    comparator_ctx_cached: null_mut(),
    skip_list_max_level: 12,
    skip_list_probability: 0.25,
    default_isolation_level: READ_COMMITTED,
    min_disk_space: 100 << 20,
    l1_file_count_trigger: 4,
    l0_queue_stall_threshold: 10,
    tombstone_density_trigger: 0.0,
    tombstone_density_min_entries: 1024,
    use_btree: 0,
    commit_hook_fn: None,
    commit_hook_ctx: null_mut(),
    object_target_file_size: 0,
    object_lazy_compaction: 0,
    object_prefetch_compaction: 1,
};

/// Default settings of a database.
pub const DEFAULT_CONFIG: Config = Config {
    db_path: c"./tidesdb".as_ptr(),
    num_flush_threads: 0,
    num_compaction_threads: 2,
    log_level: LOG_INFO,
    block_cache_size: 64 << 20,
    max_open_sstables: 256,
    log_to_file: 0,
    log_truncation_at: 24 << 20,
    max_memory_usage: 0,
    unified_memtable: 0,
    unified_memtable_write_buffer_size: 0,
    unified_memtable_skip_list_max_level: 0,
    unified_memtable_skip_list_probability: 0.0,
    unified_memtable_sync_mode: SYNC_NONE,
    unified_memtable_sync_interval_us: 0,
    object_store: null_mut(),
    object_store_config: null_mut(),
    max_concurrent_flushes: 0,
    finish_compactions_on_close: 0,
};

/// Default settings of an object store.
pub const DEFAULT_OBJECT_STORE_CONFIG: ObjectStoreConfig = ObjectStoreConfig {
    local_cache_path: std::ptr::null(),
    local_cache_max_bytes: 0,
    cache_on_read: 1,
    cache_on_write: 1,
    max_concurrent_uploads: 4,
    max_concurrent_downloads: 8,
    multipart_threshold: 64 << 20,
    multipart_part_size: 8 << 20,
    sync_manifest_to_object: 1,
    replicate_wal: 1,
    wal_upload_sync: 0,
    wal_sync_threshold_bytes: 1 << 20,
    wal_sync_on_commit: 0,
    replica_mode: 0,
    replica_sync_interval_us: 5_000_000,
    replica_replay_wal: 1,
};

fn invalid_field<T>(field: &str, why: &str) -> Result<T> {
    Err(INVALID_ARGS.with_text(format!("{field}: {why}")))
}

/// Converts an isolation level from its number.
pub fn isolation_from_c(level: c_int) -> Result<Isolation> {
    Ok(match level {
        0 => Isolation::ReadUncommitted,
        1 => Isolation::ReadCommitted,
        2 => Isolation::RepeatableRead,
        3 => Isolation::Snapshot,
        4 => Isolation::Serializable,
        _ => return invalid_field("isolation level", "0 (read uncommitted) to 4 (serializable)"),
    })
}

/// Returns the number of an isolation level.
pub fn isolation_to_c(isolation: Isolation) -> c_int {
    match isolation {
        Isolation::ReadUncommitted => 0,
        Isolation::ReadCommitted => 1,
        Isolation::RepeatableRead => 2,
        Isolation::Snapshot => 3,
        Isolation::Serializable => 4,
    }
}

fn compression_from_c(algorithm: c_int) -> Result<Compression> {
    Ok(match algorithm {
        COMPRESS_NONE => Compression::None,
        COMPRESS_SNAPPY => Compression::Snappy,
        COMPRESS_LZ4 => Compression::Lz4,
        COMPRESS_ZSTD => Compression::Zstd(1),
        COMPRESS_LZ4_FAST => Compression::Lz4Fast(2),
        _ => {
            return invalid_field(
                "compression_algorithm",
                "0 (none), 1 (snappy), 2 (lz4), 3 (zstd), 4 (lz4, fast)",
            );
        }
    })
}

/// Returns the durability of commits to a column family with these settings.
pub fn durability_from_c(mode: c_int, interval_us: u64) -> Result<Durability> {
    Ok(match mode {
        SYNC_NONE => Durability::None,
        SYNC_FULL => Durability::Full,
        SYNC_INTERVAL if interval_us > 0 => {
            Durability::Interval(Duration::from_micros(interval_us))
        }
        SYNC_INTERVAL => {
            return invalid_field(
                "sync_interval_us",
                "more than 0 where the mode is TDB_SYNC_INTERVAL",
            );
        }
        _ => return invalid_field("sync_mode", "0 (none), 1 (full), 2 (interval)"),
    })
}

/// Returns the stronger of two durability modes.
pub fn stronger_durability(a: Durability, b: Durability) -> Durability {
    match (a, b) {
        (Durability::Full, _) | (_, Durability::Full) => Durability::Full,
        (Durability::Interval(a), Durability::Interval(b)) => Durability::Interval(a.min(b)),
        (Durability::Interval(t), _) | (_, Durability::Interval(t)) => Durability::Interval(t),
        _ => Durability::None,
    }
}

/// Clamps a setting to the engine's limits; 0 selects the default.
fn clamp_or_default<N: Ord + Default>(given: N, default: N, least: N, most: N) -> N {
    if given == N::default() { default } else { given.clamp(least, most) }
}

/// Validates the settings of a column family.
fn check_family_config(c: &FamilyConfig) -> Result<()> {
    if c.enable_bloom_filter != 0 && !(c.bloom_fpr > 0.0 && c.bloom_fpr < 1.0) && c.bloom_fpr != 0.0
    {
        return invalid_field("bloom_fpr", "more than 0 and less than 1");
    }
    if c.tombstone_density_trigger.is_nan() || !(0.0..=1.0).contains(&c.tombstone_density_trigger) {
        return invalid_field("tombstone_density_trigger", "0 to 1");
    }
    if !c.skip_list_probability.is_finite() || !(0.0..=1.0).contains(&c.skip_list_probability) {
        return invalid_field("skip_list_probability", "0 to 1");
    }
    for (name, n) in [
        ("min_levels", c.min_levels),
        ("dividing_level_offset", c.dividing_level_offset),
        ("skip_list_max_level", c.skip_list_max_level),
        ("l1_file_count_trigger", c.l1_file_count_trigger),
        ("l0_queue_stall_threshold", c.l0_queue_stall_threshold),
    ] {
        if n < 0 {
            return invalid_field(name, "not negative");
        }
    }
    if c.object_lazy_compaction != 0 && c.object_lazy_compaction != 1 {
        return invalid_field("object_lazy_compaction", "0 or 1");
    }
    Ok(())
}

/// Converts the settings of a column family to engine options. `unified_bytes` is the size of the
/// shared memtable, if configured.
pub fn family_options(
    c: &FamilyConfig,
    comparator: KeyComparator,
    unified_bytes: Option<usize>,
) -> Result<FamilyOptions> {
    check_family_config(c)?;
    durability_from_c(c.sync_mode, c.sync_interval_us)?;
    let memtable =
        clamp_or_default(unified_bytes.unwrap_or(c.write_buffer_size), 64 << 20, 1 << 10, 2 << 30);
    let threshold =
        clamp_or_default(c.klog_value_threshold, 512, 1, limits::INLINE_VALUE_BYTES_MAX);
    let ratio = clamp_or_default(c.level_size_ratio, 10, 2, 100);
    let options = FamilyOptions::new()
        .comparator(comparator)
        .memtable_bytes(memtable as u64)
        .value_threshold(threshold)
        .compression(compression_from_c(c.compression_algorithm)?)
        .level_ratio(ratio as u32)
        .isolation(Some(isolation_from_c(c.default_isolation_level)?));
    Ok(match c.enable_bloom_filter {
        0 => options.filter_bits(0),
        // Like TidesDB, use its default if no value is set.
        _ if c.bloom_fpr == 0.0 => options.filter_rate(DEFAULT_FAMILY_CONFIG.bloom_fpr),
        _ => options.filter_rate(c.bloom_fpr),
    })
}

/// Returns settings for a column family that was not created through C.
pub fn family_config_from_options(o: &FamilyOptions) -> FamilyConfig {
    FamilyConfig {
        write_buffer_size: o.memtable_bytes as usize,
        level_size_ratio: o.level_ratio as usize,
        klog_value_threshold: o.value_threshold,
        compression_algorithm: match o.compression {
            Compression::None => COMPRESS_NONE,
            Compression::Lz4 => COMPRESS_LZ4,
            Compression::Lz4Fast(_) => COMPRESS_LZ4_FAST,
            Compression::Snappy => COMPRESS_SNAPPY,
            Compression::Zstd(_) => COMPRESS_ZSTD,
            _ => DEFAULT_FAMILY_CONFIG.compression_algorithm,
        },
        enable_bloom_filter: c_int::from(o.filter_bits > 0),
        bloom_fpr: if o.filter_bits > 0 {
            o.false_positive_rate()
        } else {
            DEFAULT_FAMILY_CONFIG.bloom_fpr
        },
        sync_mode: SYNC_FULL,
        default_isolation_level: o.isolation.map_or(READ_COMMITTED, isolation_to_c),
        ..DEFAULT_FAMILY_CONFIG
    }
}

/// Lists fields of a column family that request a mechanism the engine does not have.
pub fn ignored_family_settings(c: &FamilyConfig) -> Vec<&'static str> {
    let fields = [
        ("min_levels", c.min_levels > DEFAULT_FAMILY_CONFIG.min_levels),
        (
            "dividing_level_offset",
            c.dividing_level_offset != DEFAULT_FAMILY_CONFIG.dividing_level_offset,
        ),
        ("enable_block_indexes", c.enable_block_indexes == 0),
        ("index_sample_ratio", c.index_sample_ratio > 1),
        (
            "block_index_prefix_len",
            c.block_index_prefix_len != 0
                && c.block_index_prefix_len != DEFAULT_FAMILY_CONFIG.block_index_prefix_len,
        ),
        (
            "skip_list_max_level",
            c.skip_list_max_level != 0
                && c.skip_list_max_level != DEFAULT_FAMILY_CONFIG.skip_list_max_level,
        ),
        (
            "skip_list_probability",
            c.skip_list_probability != 0.0
                && c.skip_list_probability != DEFAULT_FAMILY_CONFIG.skip_list_probability,
        ),
        (
            "l1_file_count_trigger",
            c.l1_file_count_trigger != 0
                && c.l1_file_count_trigger != DEFAULT_FAMILY_CONFIG.l1_file_count_trigger,
        ),
        (
            "l0_queue_stall_threshold",
            c.l0_queue_stall_threshold != 0
                && c.l0_queue_stall_threshold != DEFAULT_FAMILY_CONFIG.l0_queue_stall_threshold,
        ),
        ("tombstone_density_trigger", c.tombstone_density_trigger != 0.0),
        ("use_btree", c.use_btree != 0),
        ("object_target_file_size", c.object_target_file_size != 0),
        ("object_lazy_compaction", c.object_lazy_compaction != 0),
    ];
    fields.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect()
}

/// Lists such fields of a database.
pub fn ignored_database_settings(c: &Config) -> Vec<&'static str> {
    let fields = [
        ("num_flush_threads", c.num_flush_threads > 0),
        (
            "num_compaction_threads",
            c.num_compaction_threads > 0
                && c.num_compaction_threads != DEFAULT_CONFIG.num_compaction_threads,
        ),
        ("max_concurrent_flushes", c.max_concurrent_flushes > 0),
        ("unified_memtable_skip_list_max_level", c.unified_memtable_skip_list_max_level != 0),
        ("unified_memtable_skip_list_probability", c.unified_memtable_skip_list_probability != 0.0),
    ];
    fields.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect()
}

/// Converts the settings of a database to engine options. Path and object store are handled by the
/// caller.
pub fn database_options(c: &Config) -> Result<Options> {
    for (name, n) in [
        ("num_flush_threads", c.num_flush_threads),
        ("num_compaction_threads", c.num_compaction_threads),
        ("max_concurrent_flushes", c.max_concurrent_flushes),
        ("unified_memtable_skip_list_max_level", c.unified_memtable_skip_list_max_level),
    ] {
        if n < 0 {
            return invalid_field(name, "not negative");
        }
    }
    if !(LOG_DEBUG..=LOG_FATAL).contains(&c.log_level) && c.log_level != LOG_NONE {
        return invalid_field("log_level", "0 (debug) to 4 (fatal), or 99 (none)");
    }
    if c.unified_memtable != 0 {
        // An interval of 0 selects TidesDB's default interval.
        unified_durability(c)?;
    }
    let budget = if c.max_memory_usage == 0 { 0 } else { (c.max_memory_usage as u64).max(1 << 20) };
    Ok(Options::new()
        .durability(Durability::None)
        .isolation(Isolation::ReadCommitted)
        .block_cache_bytes(c.block_cache_size as u64)
        .memory_budget(budget)
        .max_open_files(u32::try_from(c.max_open_sstables).unwrap_or(u32::MAX))
        // Until the settings of the column families are loaded.
        .min_free_space(1 << 20)
        // The library writes the log itself, in TidesDB's format.
        .log_file_bytes(0))
}

/// Returns the durability of every commit in a database with a memtable shared by all column
/// families.
pub fn unified_durability(c: &Config) -> Result<Durability> {
    let interval = if c.unified_memtable_sync_interval_us == 0 {
        DEFAULT_FAMILY_CONFIG.sync_interval_us
    } else {
        c.unified_memtable_sync_interval_us
    };
    match c.unified_memtable {
        0 => Ok(Durability::None),
        _ => durability_from_c(c.unified_memtable_sync_mode, interval),
    }
}

/// Merges requested settings into the current ones. Comparator and table format are kept.
pub fn merge_runtime_config(old: &FamilyConfig, new: &FamilyConfig) -> FamilyConfig {
    FamilyConfig {
        name: old.name,
        comparator_name: old.comparator_name,
        comparator_ctx_str: old.comparator_ctx_str,
        comparator_fn_cached: old.comparator_fn_cached,
        comparator_ctx_cached: old.comparator_ctx_cached,
        use_btree: old.use_btree,
        object_target_file_size: old.object_target_file_size,
        object_lazy_compaction: old.object_lazy_compaction,
        object_prefetch_compaction: old.object_prefetch_compaction,
        ..*new
    }
}

/// Returns the comparator name of a column family.
pub fn comparator_name(c: &FamilyConfig) -> Result<String> {
    read_field(&c.comparator_name)
}
