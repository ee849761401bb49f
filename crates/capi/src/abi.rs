//! Definitions shared with C: constants, structures and function types, as in TidesDB 9.3. No
//! behaviour.
//!
//! Invariant: every size and offset is that of a C compiler; the sizes are asserted here, and
//! `tests/conformance.rs` compares all of them with the output of a C compiler.

use std::ffi::{c_char, c_double, c_float, c_int, c_void};

/// An opaque handle: a number that programs must not dereference (see `handle.rs`).
pub type Handle = *mut c_void;

/// Longest name of a column family, with its NUL.
pub const NAME_BYTES: usize = 128;
/// Longest name of a comparator, with its NUL.
pub const COMPARATOR_BYTES: usize = 64;
/// Longest context string of a comparator, with its NUL.
pub const CONTEXT_BYTES: usize = 256;

/// Log level: debug.
pub const LOG_DEBUG: c_int = 0;
/// Log level: information.
pub const LOG_INFO: c_int = 1;
/// Log level: warning.
pub const LOG_WARN: c_int = 2;
/// Log level: error.
pub const LOG_ERROR: c_int = 3;
/// Log level: fatal error.
pub const LOG_FATAL: c_int = 4;
/// Log level that disables logging.
pub const LOG_NONE: c_int = 99;

/// Sync mode: never sync.
pub const SYNC_NONE: c_int = 0;
/// Sync mode: sync every commit.
pub const SYNC_FULL: c_int = 1;
/// Sync mode: sync at an interval.
pub const SYNC_INTERVAL: c_int = 2;

/// No compression.
pub const COMPRESS_NONE: c_int = 0;
/// Snappy compression.
pub const COMPRESS_SNAPPY: c_int = 1;
/// LZ4 compression.
pub const COMPRESS_LZ4: c_int = 2;
/// Zstandard compression.
pub const COMPRESS_ZSTD: c_int = 3;
/// LZ4 compression with higher acceleration.
pub const COMPRESS_LZ4_FAST: c_int = 4;

/// Lowest isolation level (read uncommitted); the levels run from 0 to 4.
pub const READ_COMMITTED: c_int = 1;
/// Highest isolation level (serializable).
pub const SERIALIZABLE: c_int = 4;

/// Compares two keys.
pub type ComparatorFn =
    unsafe extern "C-unwind" fn(*const u8, usize, *const u8, usize, *mut c_void) -> c_int;

/// One operation of a commit, as passed to a hook.
#[repr(C)]
pub struct CommitOp {
    /// The key.
    pub key: *const u8,
    /// Length of the key in bytes.
    pub key_size: usize,
    /// The value; null for a delete.
    pub value: *const u8,
    /// Length of the value in bytes.
    pub value_size: usize,
    /// Expiry in seconds since 1970; 0: never.
    pub ttl: libc::time_t,
    /// 1 for a delete; 2 for a range delete, from `key` (inclusive) to `value` (exclusive).
    pub is_delete: c_int,
}

/// Receives the operations of a commit.
pub type CommitHookFn =
    unsafe extern "C-unwind" fn(*const CommitOp, c_int, u64, *mut c_void) -> c_int;

/// Settings of a column family.
#[repr(C)]
#[derive(Clone, Copy)]
// Field names and meanings are those of TidesDB's documentation; docs/c-api.md lists the effect of
// each field.
#[allow(missing_docs)]
pub struct FamilyConfig {
    pub name: [c_char; NAME_BYTES],
    pub write_buffer_size: usize,
    pub level_size_ratio: usize,
    pub min_levels: c_int,
    pub dividing_level_offset: c_int,
    pub klog_value_threshold: usize,
    pub compression_algorithm: c_int,
    pub enable_bloom_filter: c_int,
    pub bloom_fpr: c_double,
    pub enable_block_indexes: c_int,
    pub index_sample_ratio: c_int,
    pub block_index_prefix_len: c_int,
    pub sync_mode: c_int,
    pub sync_interval_us: u64,
    pub comparator_name: [c_char; COMPARATOR_BYTES],
    pub comparator_ctx_str: [c_char; CONTEXT_BYTES],
    pub comparator_fn_cached: *mut c_void,
    pub comparator_ctx_cached: *mut c_void,
    pub skip_list_max_level: c_int,
    pub skip_list_probability: c_float,
    pub default_isolation_level: c_int,
    pub min_disk_space: u64,
    pub l1_file_count_trigger: c_int,
    pub l0_queue_stall_threshold: c_int,
    pub tombstone_density_trigger: c_double,
    pub tombstone_density_min_entries: u64,
    pub use_btree: c_int,
    pub commit_hook_fn: Option<CommitHookFn>,
    pub commit_hook_ctx: *mut c_void,
    pub object_target_file_size: usize,
    pub object_lazy_compaction: c_int,
    pub object_prefetch_compaction: c_int,
}

/// Settings of a database.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Config {
    pub db_path: *const c_char,
    pub num_flush_threads: c_int,
    pub num_compaction_threads: c_int,
    pub log_level: c_int,
    pub block_cache_size: usize,
    pub max_open_sstables: usize,
    pub log_to_file: c_int,
    pub log_truncation_at: usize,
    pub max_memory_usage: usize,
    pub unified_memtable: c_int,
    pub unified_memtable_write_buffer_size: usize,
    pub unified_memtable_skip_list_max_level: c_int,
    pub unified_memtable_skip_list_probability: c_float,
    pub unified_memtable_sync_mode: c_int,
    pub unified_memtable_sync_interval_us: u64,
    pub object_store: Handle,
    pub object_store_config: *mut ObjectStoreConfig,
    pub max_concurrent_flushes: c_int,
    pub finish_compactions_on_close: c_int,
}

/// Settings of an object store below a database.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct ObjectStoreConfig {
    pub local_cache_path: *const c_char,
    pub local_cache_max_bytes: usize,
    pub cache_on_read: c_int,
    pub cache_on_write: c_int,
    pub max_concurrent_uploads: c_int,
    pub max_concurrent_downloads: c_int,
    pub multipart_threshold: usize,
    pub multipart_part_size: usize,
    pub sync_manifest_to_object: c_int,
    pub replicate_wal: c_int,
    pub wal_upload_sync: c_int,
    pub wal_sync_threshold_bytes: usize,
    pub wal_sync_on_commit: c_int,
    pub replica_mode: c_int,
    pub replica_sync_interval_us: u64,
    pub replica_replay_wal: c_int,
}

/// Settings of an S3 connector.
#[repr(C)]
#[allow(missing_docs)]
pub struct S3Config {
    pub endpoint: *const c_char,
    pub bucket: *const c_char,
    pub prefix: *const c_char,
    pub access_key: *const c_char,
    pub secret_key: *const c_char,
    pub region: *const c_char,
    pub use_ssl: c_int,
    pub use_path_style: c_int,
    pub tls_ca_path: *const c_char,
    pub tls_insecure_skip_verify: c_int,
    pub multipart_threshold: usize,
    pub multipart_part_size: usize,
}

/// Statistics of a column family.
#[repr(C)]
#[allow(missing_docs)]
pub struct FamilyStats {
    pub num_levels: c_int,
    pub memtable_size: usize,
    pub level_sizes: *mut usize,
    pub level_num_sstables: *mut c_int,
    pub config: *mut FamilyConfig,
    pub total_keys: u64,
    pub total_data_size: u64,
    pub avg_key_size: c_double,
    pub avg_value_size: c_double,
    pub level_key_counts: *mut u64,
    pub read_amp: c_double,
    pub hit_rate: c_double,
    pub use_btree: c_int,
    pub btree_total_nodes: u64,
    pub btree_max_height: u32,
    pub btree_avg_height: c_double,
    pub total_tombstones: u64,
    pub tombstone_ratio: c_double,
    pub level_tombstone_counts: *mut u64,
    pub max_sst_density: c_double,
    pub max_sst_density_level: c_int,
    pub wal_bytes_written: u64,
    pub flush_bytes_written: u64,
    pub compaction_bytes_written: u64,
    pub compaction_bytes_read: u64,
    pub user_bytes_written: u64,
    pub flush_count: u64,
    pub compaction_count: u64,
}

/// Statistics of the block cache.
#[repr(C)]
#[derive(Default)]
#[allow(missing_docs)]
pub struct CacheStats {
    pub enabled: c_int,
    pub total_entries: usize,
    pub total_bytes: usize,
    pub hits: u64,
    pub misses: u64,
    pub hit_rate: c_double,
    pub num_partitions: usize,
}

/// Statistics of a database.
#[repr(C)]
#[allow(missing_docs)]
pub struct DbStats {
    pub num_column_families: c_int,
    pub total_memory: u64,
    pub available_memory: u64,
    pub resolved_memory_limit: usize,
    pub memory_pressure_level: c_int,
    pub flush_pending_count: c_int,
    pub total_memtable_bytes: i64,
    pub total_immutable_count: c_int,
    pub total_sstable_count: c_int,
    pub total_data_size_bytes: u64,
    pub num_open_sstables: c_int,
    pub global_seq: u64,
    pub txn_memory_bytes: i64,
    pub compaction_queue_size: usize,
    pub flush_queue_size: usize,
    pub unified_memtable_enabled: c_int,
    pub unified_memtable_bytes: i64,
    pub unified_immutable_count: c_int,
    pub unified_is_flushing: c_int,
    pub unified_next_cf_index: u32,
    pub unified_wal_generation: u64,
    pub object_store_enabled: c_int,
    pub object_store_connector: *const c_char,
    pub local_cache_bytes_used: usize,
    pub local_cache_bytes_max: usize,
    pub local_cache_num_files: c_int,
    pub last_uploaded_generation: u64,
    pub upload_queue_depth: usize,
    pub total_uploads: u64,
    pub total_upload_failures: u64,
    pub replica_mode: c_int,
    pub primary_epoch: u64,
    pub seen_epoch: u64,
    pub uwal_bytes_written: u64,
    pub wal_bytes_written: u64,
    pub flush_bytes_written: u64,
    pub compaction_bytes_written: u64,
    pub compaction_bytes_read: u64,
    pub user_bytes_written: u64,
    pub flush_count: u64,
    pub compaction_count: u64,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<CommitOp>() == 48);
    assert!(size_of::<FamilyConfig>() == 624 && offset_of!(FamilyConfig, commit_hook_fn) == 592);
    assert!(size_of::<Config>() == 128 && offset_of!(Config, object_store) == 104);
    assert!(size_of::<ObjectStoreConfig>() == 96);
    assert!(size_of::<S3Config>() == 88);
    assert!(size_of::<FamilyStats>() == 224 && offset_of!(FamilyStats, user_bytes_written) == 200);
    assert!(size_of::<CacheStats>() == 56);
    assert!(size_of::<DbStats>() == 304 && offset_of!(DbStats, uwal_bytes_written) == 240);
};
