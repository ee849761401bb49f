/* The public C interface of TidesDB 9, implemented by Perigee: every structure, constant and function has the layout, value and
 * signature that programs built for TidesDB 9.3 expect. docs/c-api.md describes what each call does, and the differences.
 *
 * Functions return TDB_SUCCESS or one of the TDB_ERR_ codes unless documented otherwise; perigee_last_error() (perigee.h) returns
 * the message. Handles are numbers in pointer types: stale, null and invented ones are refused, never dereferenced.
 * A ttl is an expiry in seconds since 1970 (0 or less: never). Keys have 1 to 65536 bytes, values up to 1 GiB. */
#ifndef TIDESDB_DB_H
#define TIDESDB_DB_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C"
{
#endif

/* ---- handles ---- */

struct tidesdb_t
{
    int _opaque;
};
struct tidesdb_column_family_t
{
    int _opaque;
};
struct tidesdb_txn_t
{
    int _opaque;
};
struct tidesdb_iter_t
{
    int _opaque;
};
struct tidesdb_objstore_t
{
    int _opaque;
};

typedef struct tidesdb_t tidesdb_t;
typedef struct tidesdb_column_family_t tidesdb_column_family_t;
typedef struct tidesdb_txn_t tidesdb_txn_t;
typedef struct tidesdb_iter_t tidesdb_iter_t;
typedef struct tidesdb_objstore_t tidesdb_objstore_t;

/* ---- constants ---- */

/* Return codes. */
#define TDB_SUCCESS          0
#define TDB_ERR_MEMORY       -1
#define TDB_ERR_INVALID_ARGS -2
#define TDB_ERR_NOT_FOUND    -3
#define TDB_ERR_IO           -4
#define TDB_ERR_CORRUPTION   -5
#define TDB_ERR_EXISTS       -6
#define TDB_ERR_CONFLICT     -7
#define TDB_ERR_TOO_LARGE    -8
#define TDB_ERR_MEMORY_LIMIT -9
#define TDB_ERR_INVALID_DB   -10
#define TDB_ERR_UNKNOWN      -11
#define TDB_ERR_LOCKED       -12
#define TDB_ERR_READONLY     -13
#define TDB_ERR_BUSY         -14
#define TDB_ERR_PRECONDITION -15

/* Sizes of text fields, including the NUL. */
#define TDB_MAX_COMPARATOR_NAME 64
#define TDB_MAX_COMPARATOR_CTX  256
#define TDB_MAX_CF_NAME_LEN     128

typedef enum
{
    TDB_BACKEND_FS = 0,
    TDB_BACKEND_S3 = 1,
    TDB_BACKEND_UNKNOWN = 99
} tidesdb_objstore_backend_t;

typedef enum
{
    TDB_LOG_DEBUG = 0,
    TDB_LOG_INFO = 1,
    TDB_LOG_WARN = 2,
    TDB_LOG_ERROR = 3,
    TDB_LOG_FATAL = 4,
    TDB_LOG_NONE = 99
} tidesdb_log_level_t;

typedef enum
{
    TDB_ISOLATION_READ_UNCOMMITTED = 0,
    TDB_ISOLATION_READ_COMMITTED = 1,
    TDB_ISOLATION_REPEATABLE_READ = 2,
    TDB_ISOLATION_SNAPSHOT = 3,
    TDB_ISOLATION_SERIALIZABLE = 4
} tidesdb_isolation_level_t;

typedef enum
{
    TDB_COMPRESS_NONE = 0,
    TDB_COMPRESS_SNAPPY = 1,
    TDB_COMPRESS_LZ4 = 2,
    TDB_COMPRESS_ZSTD = 3,
    TDB_COMPRESS_LZ4_FAST = 4
} compression_algorithm;

typedef enum
{
    TDB_SYNC_NONE = 0,
    TDB_SYNC_FULL = 1,
    TDB_SYNC_INTERVAL = 2
} tidesdb_sync_mode_t;

/* ---- callbacks ---- */

/* Compares keys: returns less than, equal to or greater than 0. Must be a total order that never changes under its name. Called on
 * any thread; must not call the library. */
typedef int (*tidesdb_comparator_fn)(const uint8_t *key1, size_t key1_size, const uint8_t *key2, size_t key2_size,
                                     void *ctx);

/* An operation of a commit; its pointers are valid during the call of the hook. */
typedef struct tidesdb_commit_op_t
{
    const uint8_t *key;
    size_t key_size;
    const uint8_t *value; /* null for a delete */
    size_t value_size;
    time_t ttl;    /* expiry; 0: never */
    int is_delete; /* 0 put, 1 delete; perigee.h documents further values */
} tidesdb_commit_op_t;

/* Called once for each commit to a column family, in commit order. A result other than 0 is logged; the commit is not affected. */
typedef int (*tidesdb_commit_hook_fn)(const tidesdb_commit_op_t *ops, int num_ops, uint64_t commit_seq, void *ctx);

typedef void *(*tidesdb_malloc_fn)(size_t size);
typedef void *(*tidesdb_calloc_fn)(size_t count, size_t size);
typedef void *(*tidesdb_realloc_fn)(void *ptr, size_t size);
typedef void (*tidesdb_free_fn)(void *ptr);

/* ---- settings ---- */

typedef struct
{
    const char *local_cache_path;
    size_t local_cache_max_bytes;
    int cache_on_read;
    int cache_on_write;
    int max_concurrent_uploads;
    int max_concurrent_downloads;
    size_t multipart_threshold;
    size_t multipart_part_size;
    int sync_manifest_to_object;
    int replicate_wal;
    int wal_upload_sync;
    size_t wal_sync_threshold_bytes;
    int wal_sync_on_commit;
    int replica_mode;
    uint64_t replica_sync_interval_us;
    int replica_replay_wal;
} tidesdb_objstore_config_t;

typedef struct
{
    const char *endpoint;
    const char *bucket;
    const char *prefix;
    const char *access_key;
    const char *secret_key;
    const char *region;
    int use_ssl;
    int use_path_style;
    const char *tls_ca_path;
    int tls_insecure_skip_verify;
    size_t multipart_threshold;
    size_t multipart_part_size;
} tidesdb_objstore_s3_config_t;

/* docs/c-api.md, "Settings", describes the effect of each field. */
typedef struct tidesdb_column_family_config_t
{
    char name[TDB_MAX_CF_NAME_LEN];
    size_t write_buffer_size;    /* bytes of a memtable */
    size_t level_size_ratio;     /* size ratio of adjacent levels */
    int min_levels;
    int dividing_level_offset;
    size_t klog_value_threshold; /* values of at least this many bytes are stored in a value log */
    compression_algorithm compression_algorithm;
    int enable_bloom_filter;
    double bloom_fpr;
    int enable_block_indexes;
    int index_sample_ratio;
    int block_index_prefix_len;
    int sync_mode;               /* tidesdb_sync_mode_t */
    uint64_t sync_interval_us;
    char comparator_name[TDB_MAX_COMPARATOR_NAME]; /* empty: "memcmp" */
    char comparator_ctx_str[TDB_MAX_COMPARATOR_CTX];
    void *comparator_fn_cached;
    void *comparator_ctx_cached;
    int skip_list_max_level;
    float skip_list_probability;
    tidesdb_isolation_level_t default_isolation_level;
    uint64_t min_disk_space;     /* bytes of disk space kept free */
    int l1_file_count_trigger;
    int l0_queue_stall_threshold;
    double tombstone_density_trigger;
    uint64_t tombstone_density_min_entries;
    int use_btree;
    tidesdb_commit_hook_fn commit_hook_fn;
    void *commit_hook_ctx;
    size_t object_target_file_size;
    int object_lazy_compaction;
    int object_prefetch_compaction;
} tidesdb_column_family_config_t;

typedef struct tidesdb_config_t
{
    char *db_path;
    int num_flush_threads;
    int num_compaction_threads;
    tidesdb_log_level_t log_level;
    size_t block_cache_size;
    size_t max_open_sstables;
    int log_to_file;          /* 1: into LOG in the database's directory */
    size_t log_truncation_at; /* the file is truncated at this size; 0: never */
    size_t max_memory_usage;  /* total memory limit; 0: a quarter of the machine's memory */
    int unified_memtable;
    size_t unified_memtable_write_buffer_size;
    int unified_memtable_skip_list_max_level;
    float unified_memtable_skip_list_probability;
    int unified_memtable_sync_mode;
    uint64_t unified_memtable_sync_interval_us;
    tidesdb_objstore_t *object_store; /* must be null: object stores are not supported yet */
    tidesdb_objstore_config_t *object_store_config;
    int max_concurrent_flushes;
    int finish_compactions_on_close;
} tidesdb_config_t;

/* ---- statistics ---- */

typedef struct tidesdb_stats_t
{
    int num_levels;
    size_t memtable_size;
    size_t *level_sizes;
    int *level_num_sstables;
    tidesdb_column_family_config_t *config;
    uint64_t total_keys;
    uint64_t total_data_size;
    double avg_key_size;
    double avg_value_size;
    uint64_t *level_key_counts;
    double read_amp;
    double hit_rate;
    int use_btree;
    uint64_t btree_total_nodes;
    uint32_t btree_max_height;
    double btree_avg_height;
    uint64_t total_tombstones;
    double tombstone_ratio;
    uint64_t *level_tombstone_counts;
    double max_sst_density;
    int max_sst_density_level; /* starts at 1; 0: no tables */
    uint64_t wal_bytes_written;
    uint64_t flush_bytes_written;
    uint64_t compaction_bytes_written;
    uint64_t compaction_bytes_read;
    uint64_t user_bytes_written;
    uint64_t flush_count;
    uint64_t compaction_count;
} tidesdb_stats_t;

typedef struct tidesdb_cache_stats_t
{
    int enabled;
    size_t total_entries;
    size_t total_bytes;
    uint64_t hits;
    uint64_t misses;
    double hit_rate;
    size_t num_partitions;
} tidesdb_cache_stats_t;

typedef struct tidesdb_db_stats_t
{
    int num_column_families;
    uint64_t total_memory;
    uint64_t available_memory;
    size_t resolved_memory_limit;
    int memory_pressure_level; /* 0 to 3 */
    int flush_pending_count;
    int64_t total_memtable_bytes;
    int total_immutable_count;
    int total_sstable_count;
    uint64_t total_data_size_bytes;
    int num_open_sstables;
    uint64_t global_seq;
    int64_t txn_memory_bytes;
    size_t compaction_queue_size;
    size_t flush_queue_size;
    int unified_memtable_enabled;
    int64_t unified_memtable_bytes;
    int unified_immutable_count;
    int unified_is_flushing;
    uint32_t unified_next_cf_index;
    uint64_t unified_wal_generation;
    int object_store_enabled;
    const char *object_store_connector;
    size_t local_cache_bytes_used;
    size_t local_cache_bytes_max;
    int local_cache_num_files;
    uint64_t last_uploaded_generation;
    size_t upload_queue_depth;
    uint64_t total_uploads;
    uint64_t total_upload_failures;
    int replica_mode;
    uint64_t primary_epoch;
    uint64_t seen_epoch;
    uint64_t uwal_bytes_written; /* of the log shared by all column families */
    uint64_t wal_bytes_written;
    uint64_t flush_bytes_written;
    uint64_t compaction_bytes_written;
    uint64_t compaction_bytes_read;
    uint64_t user_bytes_written;
    uint64_t flush_count;
    uint64_t compaction_count;
} tidesdb_db_stats_t;

/* ---- the library ---- */

tidesdb_config_t tidesdb_default_config(void);
tidesdb_column_family_config_t tidesdb_default_column_family_config(void);
tidesdb_objstore_config_t tidesdb_objstore_default_config(void);

/* Sets the allocator of returned memory; null: C's. Optional. Returns 0, or -1 if it was set before (tidesdb_open sets C's if none is). */
int tidesdb_init(tidesdb_malloc_fn malloc_fn, tidesdb_calloc_fn calloc_fn, tidesdb_realloc_fn realloc_fn,
                 tidesdb_free_fn free_fn);
void tidesdb_finalize(void);
void tidesdb_free(void *ptr);
long tidesdb_raise_open_file_limit(long desired);

/* ---- databases ---- */

int tidesdb_open(const tidesdb_config_t *config, tidesdb_t **db);
int tidesdb_close(tidesdb_t *db);
int tidesdb_backup(tidesdb_t *db, char *dir);
int tidesdb_checkpoint(tidesdb_t *db, const char *checkpoint_dir);
int tidesdb_purge(tidesdb_t *db);
int tidesdb_cancel_background_work(tidesdb_t *db);
int tidesdb_promote_to_primary(tidesdb_t *db);
int tidesdb_get_db_stats(tidesdb_t *db, tidesdb_db_stats_t *stats);
int tidesdb_get_cache_stats(tidesdb_t *db, tidesdb_cache_stats_t *stats);

/* ---- comparators ---- */

int tidesdb_register_comparator(tidesdb_t *db, const char *name, tidesdb_comparator_fn fn, const char *ctx_str,
                                void *ctx);
int tidesdb_get_comparator(tidesdb_t *db, const char *name, tidesdb_comparator_fn *fn, void **ctx);
int tidesdb_comparator_memcmp(const uint8_t *key1, size_t key1_size, const uint8_t *key2, size_t key2_size, void *ctx);
int tidesdb_comparator_lexicographic(const uint8_t *key1, size_t key1_size, const uint8_t *key2, size_t key2_size,
                                     void *ctx);
int tidesdb_comparator_uint64(const uint8_t *key1, size_t key1_size, const uint8_t *key2, size_t key2_size, void *ctx);
int tidesdb_comparator_int64(const uint8_t *key1, size_t key1_size, const uint8_t *key2, size_t key2_size, void *ctx);
int tidesdb_comparator_reverse_memcmp(const uint8_t *key1, size_t key1_size, const uint8_t *key2, size_t key2_size,
                                      void *ctx);
int tidesdb_comparator_case_insensitive(const uint8_t *key1, size_t key1_size, const uint8_t *key2, size_t key2_size,
                                        void *ctx);

/* ---- column families ---- */

int tidesdb_create_column_family(tidesdb_t *db, const char *name, const tidesdb_column_family_config_t *config);
int tidesdb_drop_column_family(tidesdb_t *db, const char *name);
int tidesdb_delete_column_family(tidesdb_t *db, tidesdb_column_family_t *cf);
int tidesdb_rename_column_family(tidesdb_t *db, const char *old_name, const char *new_name);
int tidesdb_clone_column_family(tidesdb_t *db, const char *src_name, const char *dst_name);
tidesdb_column_family_t *tidesdb_get_column_family(tidesdb_t *db, const char *name); /* null: does not exist */
/* The caller frees the array and each name with tidesdb_free (or free). */
int tidesdb_list_column_families(tidesdb_t *db, char ***names, int *count);
int tidesdb_cf_config_load_from_ini(const char *ini_file, const char *section_name,
                                    tidesdb_column_family_config_t *config);
int tidesdb_cf_config_save_to_ini(const char *ini_file, const char *section_name,
                                  const tidesdb_column_family_config_t *config);
int tidesdb_cf_update_runtime_config(tidesdb_column_family_t *cf, const tidesdb_column_family_config_t *new_config,
                                     int persist_to_disk);
int tidesdb_cf_set_commit_hook(tidesdb_column_family_t *cf, tidesdb_commit_hook_fn fn, void *ctx);
int tidesdb_flush_memtable(tidesdb_column_family_t *cf);
int tidesdb_compact(tidesdb_column_family_t *cf);
int tidesdb_compact_range(tidesdb_column_family_t *cf, const uint8_t *start_key, size_t start_key_size,
                          const uint8_t *end_key, size_t end_key_size);
int tidesdb_purge_cf(tidesdb_column_family_t *cf);
int tidesdb_sync_wal(tidesdb_column_family_t *cf);
int tidesdb_is_flushing(tidesdb_column_family_t *cf);   /* 1 or 0 */
int tidesdb_is_compacting(tidesdb_column_family_t *cf); /* 1 or 0 */
int tidesdb_get_stats(tidesdb_column_family_t *cf, tidesdb_stats_t **stats);
void tidesdb_free_stats(tidesdb_stats_t *stats);
int tidesdb_cf_estimate_cardinality(tidesdb_column_family_t *cf, uint64_t *out_estimate);
int tidesdb_range_cost(tidesdb_column_family_t *cf, const uint8_t *key_a, size_t key_a_size, const uint8_t *key_b,
                       size_t key_b_size, double *cost);

/* ---- transactions: one thread at a time ---- */

int tidesdb_txn_begin(tidesdb_t *db, tidesdb_txn_t **txn); /* read committed */
int tidesdb_txn_begin_with_isolation(tidesdb_t *db, tidesdb_isolation_level_t isolation, tidesdb_txn_t **txn);
int tidesdb_txn_put(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size,
                    const uint8_t *value, size_t value_size, time_t ttl);
/* The caller frees the value with tidesdb_free (or free). */
int tidesdb_txn_get(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size,
                    uint8_t **value, size_t *value_size);
int tidesdb_txn_get_notrack(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size,
                            uint8_t **value, size_t *value_size);
int tidesdb_txn_contains(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size);
int tidesdb_txn_delete(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size);
int tidesdb_txn_single_delete(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size);
int tidesdb_txn_commit(tidesdb_txn_t *txn);
int tidesdb_txn_rollback(tidesdb_txn_t *txn);
int tidesdb_txn_reset(tidesdb_txn_t *txn, tidesdb_isolation_level_t isolation);
void tidesdb_txn_free(tidesdb_txn_t *txn);
int tidesdb_txn_savepoint(tidesdb_txn_t *txn, const char *name);
int tidesdb_txn_rollback_to_savepoint(tidesdb_txn_t *txn, const char *name);
int tidesdb_txn_release_savepoint(tidesdb_txn_t *txn, const char *name);

/* ---- iterators: one thread at a time; returned keys and values are valid until the iterator moves ---- */

int tidesdb_iter_new(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, tidesdb_iter_t **iter);
int tidesdb_iter_seek(tidesdb_iter_t *iter, const uint8_t *key, size_t key_size);
int tidesdb_iter_seek_for_prev(tidesdb_iter_t *iter, const uint8_t *key, size_t key_size);
int tidesdb_iter_seek_to_first(tidesdb_iter_t *iter);
int tidesdb_iter_seek_to_last(tidesdb_iter_t *iter);
int tidesdb_iter_next(tidesdb_iter_t *iter);
int tidesdb_iter_prev(tidesdb_iter_t *iter);
int tidesdb_iter_valid(tidesdb_iter_t *iter); /* 1 or 0 */
int tidesdb_iter_key(tidesdb_iter_t *iter, uint8_t **key, size_t *key_size);
int tidesdb_iter_value(tidesdb_iter_t *iter, uint8_t **value, size_t *value_size);
int tidesdb_iter_key_value(tidesdb_iter_t *iter, uint8_t **key, size_t *key_size, uint8_t **value,
                           size_t *value_size);
void tidesdb_iter_free(tidesdb_iter_t *iter);

/* ---- object stores: not supported yet; tidesdb_open refuses a connector, and S3 connectors are null ---- */

tidesdb_objstore_t *tidesdb_objstore_fs_create(const char *root_dir);
tidesdb_objstore_t *tidesdb_objstore_s3_create(const char *endpoint, const char *bucket, const char *prefix,
                                               const char *access_key, const char *secret_key, const char *region,
                                               int use_ssl, int use_path_style);
tidesdb_objstore_t *tidesdb_objstore_s3_create_config(const tidesdb_objstore_s3_config_t *config);

#ifdef __cplusplus
}
#endif

#endif
