/* The three functions that return a configuration by value: every field is as documented. */
#include "harness.h"

void test_defaults_database(void)
{
    const char *f = "tidesdb_default_config";
    tidesdb_config_t c = tidesdb_default_config();
    EQ(f, "num_flush_threads is 0, chosen at open", c.num_flush_threads, 0);
    EQ(f, "num_compaction_threads is 2", c.num_compaction_threads, 2);
    EQ(f, "log_level is TDB_LOG_INFO", c.log_level, TDB_LOG_INFO);
    EQ(f, "block_cache_size is 64 MiB", c.block_cache_size, 64 << 20);
    EQ(f, "max_open_sstables is 256", c.max_open_sstables, 256);
    EQ(f, "max_memory_usage is 0, chosen at open", c.max_memory_usage, 0);
    EQ(f, "log_to_file is 0", c.log_to_file, 0);
    EQ(f, "log_truncation_at is 24 MiB", c.log_truncation_at, 24 << 20);
    EQ(f, "unified_memtable is 0", c.unified_memtable, 0);
    EQ(f, "unified_memtable_write_buffer_size is 0", c.unified_memtable_write_buffer_size, 0);
    EQ(f, "unified_memtable_skip_list_max_level is 0", c.unified_memtable_skip_list_max_level, 0);
    CHECK(f, "unified_memtable_skip_list_probability is 0", c.unified_memtable_skip_list_probability == 0);
    EQ(f, "unified_memtable_sync_mode is TDB_SYNC_NONE", c.unified_memtable_sync_mode, TDB_SYNC_NONE);
    EQ(f, "unified_memtable_sync_interval_us is 0", c.unified_memtable_sync_interval_us, 0);
    CHECK(f, "object_store is NULL", c.object_store == NULL);
    CHECK(f, "object_store_config is NULL", c.object_store_config == NULL);
    EQ(f, "max_concurrent_flushes is 0, the pool's size", c.max_concurrent_flushes, 0);
    EQ(f, "finish_compactions_on_close is 0", c.finish_compactions_on_close, 0);
}

void test_defaults_family(void)
{
    const char *f = "tidesdb_default_column_family_config";
    tidesdb_column_family_config_t c = tidesdb_default_column_family_config();
    EQ(f, "write_buffer_size is 64 MiB", c.write_buffer_size, 64 << 20);
    EQ(f, "level_size_ratio is 10", c.level_size_ratio, 10);
    EQ(f, "min_levels is 1", c.min_levels, 1);
    EQ(f, "dividing_level_offset is 1", c.dividing_level_offset, 1);
    EQ(f, "klog_value_threshold is 512", c.klog_value_threshold, 512);
    CHECK(f, "compression_algorithm is TDB_COMPRESS_NONE or what that is resolved to, LZ4",
          c.compression_algorithm == TDB_COMPRESS_NONE || c.compression_algorithm == TDB_COMPRESS_LZ4);
    EQ(f, "enable_bloom_filter is 1", c.enable_bloom_filter, 1);
    CHECK(f, "bloom_fpr is 0.01", c.bloom_fpr == 0.01);
    EQ(f, "enable_block_indexes is 1", c.enable_block_indexes, 1);
    EQ(f, "index_sample_ratio is 1", c.index_sample_ratio, 1);
    EQ(f, "block_index_prefix_len is 16", c.block_index_prefix_len, 16);
    CHECK(f, "sync_mode is one of the three",
          c.sync_mode == TDB_SYNC_NONE || c.sync_mode == TDB_SYNC_FULL || c.sync_mode == TDB_SYNC_INTERVAL);
    EQ(f, "sync_interval_us is 128000", c.sync_interval_us, 128000);
    CHECK(f, "comparator_name is empty or memcmp", !c.comparator_name[0] || !strcmp(c.comparator_name, "memcmp"));
    EQ(f, "comparator_ctx_str is empty", c.comparator_ctx_str[0], 0);
    EQ(f, "skip_list_max_level is 12", c.skip_list_max_level, 12);
    CHECK(f, "skip_list_probability is 0.25", c.skip_list_probability == 0.25f);
    EQ(f, "default_isolation_level is READ_COMMITTED", c.default_isolation_level, TDB_ISOLATION_READ_COMMITTED);
    EQ(f, "min_disk_space is 100 MiB", c.min_disk_space, 100 << 20);
    EQ(f, "l1_file_count_trigger is 4", c.l1_file_count_trigger, 4);
    EQ(f, "l0_queue_stall_threshold is 10", c.l0_queue_stall_threshold, 10);
    CHECK(f, "tombstone_density_trigger is 0, disabled", c.tombstone_density_trigger == 0);
    EQ(f, "tombstone_density_min_entries is 1024", c.tombstone_density_min_entries, 1024);
    EQ(f, "use_btree is 0", c.use_btree, 0);
    CHECK(f, "commit_hook_fn is NULL", c.commit_hook_fn == NULL);
    CHECK(f, "commit_hook_ctx is NULL", c.commit_hook_ctx == NULL);
    EQ(f, "object_target_file_size is 0", c.object_target_file_size, 0);
    EQ(f, "object_lazy_compaction is 0", c.object_lazy_compaction, 0);
    EQ(f, "object_prefetch_compaction is 1", c.object_prefetch_compaction, 1);
}

void test_objstore(void)
{
    const char *f = "tidesdb_objstore_default_config";
    tidesdb_objstore_config_t c = tidesdb_objstore_default_config();
    CHECK(f, "local_cache_path is NULL", c.local_cache_path == NULL);
    EQ(f, "local_cache_max_bytes is 0", c.local_cache_max_bytes, 0);
    EQ(f, "cache_on_read is 1", c.cache_on_read, 1);
    EQ(f, "cache_on_write is 1", c.cache_on_write, 1);
    EQ(f, "max_concurrent_uploads is 4", c.max_concurrent_uploads, 4);
    EQ(f, "max_concurrent_downloads is 8", c.max_concurrent_downloads, 8);
    EQ(f, "multipart_threshold is 64 MiB", c.multipart_threshold, 64 << 20);
    EQ(f, "multipart_part_size is 8 MiB", c.multipart_part_size, 8 << 20);
    EQ(f, "sync_manifest_to_object is 1", c.sync_manifest_to_object, 1);
    EQ(f, "replicate_wal is 1", c.replicate_wal, 1);
    EQ(f, "wal_upload_sync is 0", c.wal_upload_sync, 0);
    EQ(f, "wal_sync_threshold_bytes is 1 MiB", c.wal_sync_threshold_bytes, 1 << 20);
    EQ(f, "wal_sync_on_commit is 0", c.wal_sync_on_commit, 0);
    EQ(f, "replica_mode is 0", c.replica_mode, 0);
    EQ(f, "replica_sync_interval_us is 5 seconds", c.replica_sync_interval_us, 5000000);
    EQ(f, "replica_replay_wal is 1", c.replica_replay_wal, 1);

    tidesdb_objstore_t *store = tidesdb_objstore_fs_create(fresh_path());
    CHECK("tidesdb_objstore_fs_create", "NULL returns NULL", tidesdb_objstore_fs_create(NULL) == NULL);
    if (store || library == LIBRARY_TIDESDB)
    {
        tidesdb_config_t config = quiet_config(fresh_path());
        config.object_store = store;
        config.object_store_config = &c;
        tidesdb_t *db = NULL;
        int rc = tidesdb_open(&config, &db);
        CHECK("tidesdb_open", "an object store is refused by an error, not ignored", rc != TDB_SUCCESS);
        if (rc == 0) tidesdb_close(db);
    }
    else CHECK("tidesdb_objstore_fs_create", "no connector yet: NULL", store == NULL);

    /* A build without S3 does not export these two; if they exist, invalid arguments return NULL. */
    tidesdb_objstore_t *(*s3)(const char *, const char *, const char *, const char *, const char *, const char *, int,
                              int) = exported("tidesdb_objstore_s3_create");
    tidesdb_objstore_t *(*s3_config)(const tidesdb_objstore_s3_config_t *) =
        exported("tidesdb_objstore_s3_create_config");
    CHECK("tidesdb_objstore_s3_create", "NULL endpoint returns NULL",
          !s3 || !s3(NULL, "bucket", NULL, "key", "secret", NULL, 0, 1));
    CHECK("tidesdb_objstore_s3_create_config", "NULL configuration returns NULL", !s3_config || !s3_config(NULL));

    fixture_t fixture = fixture_open();
    RC("tidesdb_promote_to_primary", "NULL is an invalid argument", tidesdb_promote_to_primary(NULL),
       TDB_ERR_INVALID_ARGS);
    RC("tidesdb_promote_to_primary", "a primary is an invalid argument", tidesdb_promote_to_primary(fixture.db),
       TDB_ERR_INVALID_ARGS);
    fixture_close(&fixture);
}
