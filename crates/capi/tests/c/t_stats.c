/* Statistics of a column family, of the database and of the cache; cost and cardinality estimates. */
#include "harness.h"

#include <math.h>

static void test_family(fixture_t *x)
{
    const char *f = "tidesdb_get_stats";
    tidesdb_stats_t *s = NULL;
    RC(f, "NULL family is an invalid argument", tidesdb_get_stats(NULL, &s), TDB_ERR_INVALID_ARGS);
    RC(f, "NULL out pointer is an invalid argument", tidesdb_get_stats(x->cf, NULL), TDB_ERR_INVALID_ARGS);
    tidesdb_free_stats(NULL);
    CHECK("tidesdb_free_stats", "NULL is allowed", 1);
    REQUIRE(tidesdb_get_stats(x->cf, &s) == 0 && s);
    EQ(f, "an empty family has no keys", s->total_keys, 0);
    EQ(f, "an empty family has no data", s->total_data_size, 0);
    EQ(f, "an empty family has written nothing", s->user_bytes_written, 0);
    CHECK(f, "num_levels is at least 1", s->num_levels >= 1);
    CHECK(f, "returns the configuration with the name", s->config && !strcmp(s->config->name, "cf"));
    EQ(f, "use_btree is as configured", s->use_btree, 0);
    tidesdb_free_stats(s);

    REQUIRE(fill(x->db, x->cf, 0, 1000) == 0);
    REQUIRE(tidesdb_get_stats(x->cf, &s) == 0);
    EQ(f, "total_keys counts the memtable", s->total_keys, 1000);
    EQ(f, "user_bytes_written is keys plus values, to the byte", s->user_bytes_written, 1000 * (9 + 11));
    CHECK(f, "memtable_size holds at least the data", s->memtable_size >= 20000);
    CHECK(f, "wal_bytes_written is at least the data", s->wal_bytes_written >= 20000);
    EQ(f, "flush_bytes_written is 0 before a flush", s->flush_bytes_written, 0);
    EQ(f, "flush_count is 0 before a flush", s->flush_count, 0);
    CHECK(f, "hit_rate is between 0 and 1", s->hit_rate >= 0 && s->hit_rate <= 1);
    tidesdb_free_stats(s);

    REQUIRE(flush_and_wait(x->cf) == 0 && tidesdb_get_stats(x->cf, &s) == 0);
    EQ(f, "total_keys counts files", s->total_keys, 1000);
    CHECK(f, "total_data_size after a flush", s->total_data_size > 0);
    CHECK(f, "flush_bytes_written after a flush", s->flush_bytes_written > 0);
    EQ(f, "flush_count after a flush", s->flush_count, 1);
    EQ(f, "compaction_count without a compaction", s->compaction_count, 0);
    CHECK(f, "avg_key_size is the keys' length", fabs(s->avg_key_size - 9) < 1);
    CHECK(f, "avg_value_size is the values' length", fabs(s->avg_value_size - 11) < 1);
    CHECK(f, "read_amp is not negative", s->read_amp >= 0);
    int files = 0;
    uint64_t keys = 0, bytes = 0, tombstones = 0;
    for (int i = 0; i < s->num_levels; i++)
    {
        files += s->level_num_sstables[i];
        keys += s->level_key_counts[i];
        bytes += s->level_sizes[i];
        tombstones += s->level_tombstone_counts[i];
    }
    EQ(f, "level_num_sstables sums to the files", files, 1);
    EQ(f, "level_key_counts sums to the keys on disk", keys, 1000);
    EQ(f, "level_sizes sums to total_data_size", bytes, s->total_data_size);
    EQ(f, "level_tombstone_counts sums to total_tombstones", tombstones, s->total_tombstones);
    EQ(f, "total_tombstones without deletes", s->total_tombstones, 0);
    CHECK(f, "tombstone_ratio without deletes is 0", s->tombstone_ratio == 0);
    tidesdb_free_stats(s);

    for (int i = 0; i < 100; i++)
    {
        char key[32];
        snprintf(key, sizeof key, "key%06d", i * 3);
        REQUIRE(delete1(x->db, x->cf, key) == 0);
    }
    REQUIRE(flush_and_wait(x->cf) == 0 && tidesdb_get_stats(x->cf, &s) == 0);
    EQ(f, "total_tombstones counts deletes on disk", s->total_tombstones, 100);
    CHECK(f, "tombstone_ratio is deletes per entry", fabs(s->tombstone_ratio - 100.0 / 1100) < 0.02);
    CHECK(f, "max_sst_density is that of the densest file", s->max_sst_density > 0.99 && s->max_sst_density <= 1);
    CHECK(f, "max_sst_density_level is a level", s->max_sst_density_level >= 0 && s->max_sst_density_level <= s->num_levels);
    EQ(f, "user_bytes_written counts a delete's key", s->user_bytes_written, 1000 * 20 + 100 * 9);
    tidesdb_free_stats(s);

    REQUIRE(tidesdb_purge_cf(x->cf) == 0 && tidesdb_get_stats(x->cf, &s) == 0);
    EQ(f, "total_keys after deletes and a purge is the number of remaining keys", s->total_keys, 900);
    EQ(f, "total_tombstones after a purge is 0", s->total_tombstones, 0);
    CHECK(f, "compaction_bytes_read after a compaction", s->compaction_bytes_read > 0);
    CHECK(f, "compaction_bytes_written after a compaction", s->compaction_bytes_written > 0);
    CHECK(f, "compaction_count after a compaction", s->compaction_count >= 1);
    tidesdb_free_stats(s);

    fixture_reopen(x);
    REQUIRE(x->cf && tidesdb_get_stats(x->cf, &s) == 0);
    EQ(f, "counters start at 0 at open", s->flush_bytes_written + s->compaction_bytes_written + s->flush_count, 0);
    EQ(f, "total_keys after a reopen", s->total_keys, 900);
    tidesdb_free_stats(s);
    CHECK(f, "is freed by tidesdb_free_stats", 1);

    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    config.use_btree = 1;
    REQUIRE(tidesdb_create_column_family(x->db, "btree", &config) == 0);
    tidesdb_column_family_t *btree = tidesdb_get_column_family(x->db, "btree");
    REQUIRE(fill(x->db, btree, 0, 2000) == 0 && flush_and_wait(btree) == 0 && tidesdb_get_stats(btree, &s) == 0);
    EQ(f, "use_btree of a B+tree family", s->use_btree, 1);
    CHECK(f, "btree_total_nodes of a B+tree family", s->btree_total_nodes > 0);
    CHECK(f, "btree heights of a B+tree family", s->btree_max_height > 0 && s->btree_avg_height > 0 && s->btree_avg_height <= s->btree_max_height);
    tidesdb_free_stats(s);
}

static void test_configuration(fixture_t *x)
{
    const char *f = "tidesdb_get_stats";
    tidesdb_column_family_config_t c = tidesdb_default_column_family_config();
    c.write_buffer_size = 3 << 20;
    c.level_size_ratio = 7;
    c.klog_value_threshold = 777;
    c.compression_algorithm = TDB_COMPRESS_ZSTD;
    c.bloom_fpr = 0.02;
    c.sync_mode = TDB_SYNC_INTERVAL;
    c.sync_interval_us = 77000;
    c.l1_file_count_trigger = 6;
    c.default_isolation_level = TDB_ISOLATION_SNAPSHOT;
    REQUIRE(tidesdb_create_column_family(x->db, "config", &c) == 0);
    for (int reopened = 0; reopened < 2; reopened++)
    {
        if (reopened) fixture_reopen(x);
        tidesdb_column_family_t *cf = tidesdb_get_column_family(x->db, "config");
        tidesdb_stats_t *s = NULL;
        REQUIRE(cf && tidesdb_get_stats(cf, &s) == 0 && s->config);
        EQ(f, "config has write_buffer_size, also after a reopen", s->config->write_buffer_size, 3 << 20);
        EQ(f, "config has level_size_ratio, also after a reopen", s->config->level_size_ratio, 7);
        EQ(f, "config has klog_value_threshold, also after a reopen", s->config->klog_value_threshold, 777);
        EQ(f, "config has compression_algorithm, also after a reopen", s->config->compression_algorithm, TDB_COMPRESS_ZSTD);
        CHECK(f, "config has bloom_fpr, also after a reopen", fabs(s->config->bloom_fpr - 0.02) < 1e-9);
        EQ(f, "config has sync_mode, also after a reopen", s->config->sync_mode, TDB_SYNC_INTERVAL);
        EQ(f, "config has sync_interval_us, also after a reopen", s->config->sync_interval_us, 77000);
        EQ(f, "config has l1_file_count_trigger, also after a reopen", s->config->l1_file_count_trigger, 6);
        EQ(f, "config has default_isolation_level, also after a reopen", s->config->default_isolation_level, TDB_ISOLATION_SNAPSHOT);
        tidesdb_free_stats(s);
    }
}

static void test_database(fixture_t *x)
{
    const char *f = "tidesdb_get_db_stats";
    tidesdb_db_stats_t s, later;
    RC(f, "NULL database is an invalid argument", tidesdb_get_db_stats(NULL, &s), TDB_ERR_INVALID_ARGS);
    RC(f, "NULL out pointer is an invalid argument", tidesdb_get_db_stats(x->db, NULL), TDB_ERR_INVALID_ARGS);
    memset(&s, 0xee, sizeof s);
    RC(f, "fills the caller's struct", tidesdb_get_db_stats(x->db, &s), 0);
    char **names = NULL;
    int count = 0;
    tidesdb_list_column_families(x->db, &names, &count);
    for (int i = 0; i < count; i++) tidesdb_free(names[i]);
    tidesdb_free(names);
    EQ(f, "num_column_families", s.num_column_families, count);
    CHECK(f, "total_memory is this machine's", s.total_memory > 100 << 20);
    CHECK(f, "available_memory is no more than total_memory", s.available_memory > 0 && s.available_memory <= s.total_memory);
    CHECK(f, "resolved_memory_limit is set", s.resolved_memory_limit > 0);
    CHECK(f, "memory_pressure_level is 0 to 3", s.memory_pressure_level >= 0 && s.memory_pressure_level <= 3);
    CHECK(f, "flush_pending_count is not negative", s.flush_pending_count >= 0);
    EQ(f, "unified_memtable_enabled is 0", s.unified_memtable_enabled, 0);
    EQ(f, "uwal_bytes_written is 0 without a unified memtable", s.uwal_bytes_written, 0);
    EQ(f, "object_store_enabled is 0", s.object_store_enabled, 0);
    CHECK(f, "object_store_connector is NULL", s.object_store_connector == NULL);
    EQ(f, "replica_mode is 0", s.replica_mode, 0);
    EQ(f, "primary_epoch and seen_epoch are 0", s.primary_epoch + s.seen_epoch, 0);
    EQ(f, "upload counters are 0", s.total_uploads + s.total_upload_failures + s.upload_queue_depth + s.last_uploaded_generation, 0);
    EQ(f, "local cache statistics are 0", s.local_cache_bytes_used + s.local_cache_bytes_max + (size_t)s.local_cache_num_files, 0);
    REQUIRE(fill(x->db, x->cf, 5000, 6000) == 0 && tidesdb_get_db_stats(x->db, &later) == 0);
    CHECK(f, "global_seq grows with commits", later.global_seq > s.global_seq);
    EQ(f, "user_bytes_written counts every family", later.user_bytes_written - s.user_bytes_written, 20000);
    CHECK(f, "wal_bytes_written grows by at least the data", later.wal_bytes_written - s.wal_bytes_written >= 20000);
    CHECK(f, "total_memtable_bytes counts the memtables", later.total_memtable_bytes >= s.total_memtable_bytes + 20000);
    REQUIRE(tidesdb_purge(x->db) == 0 && tidesdb_get_db_stats(x->db, &s) == 0);
    CHECK(f, "total_sstable_count and total_data_size_bytes count files", s.total_sstable_count > 0 && s.total_data_size_bytes > 0);
    CHECK(f, "flush_count and flush_bytes_written count flushes", s.flush_count > later.flush_count && s.flush_bytes_written > later.flush_bytes_written);
    EQ(f, "queues are empty after a purge", s.flush_queue_size + s.compaction_queue_size, 0);
    EQ(f, "total_immutable_count is 0 after a purge", s.total_immutable_count, 0);
    CHECK(f, "num_open_sstables is not negative", s.num_open_sstables >= 0);
    tidesdb_txn_t *t = NULL;
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
    static uint8_t big[1 << 20];
    tidesdb_txn_put(t, x->cf, S("in flight"), big, sizeof big, -1);
    REQUIRE(tidesdb_get_db_stats(x->db, &later) == 0);
    CHECK(f, "txn_memory_bytes holds an open transaction's writes", later.txn_memory_bytes >= 1 << 20);
    tidesdb_txn_free(t);
    REQUIRE(tidesdb_get_db_stats(x->db, &later) == 0);
    CHECK(f, "txn_memory_bytes falls when it is freed", later.txn_memory_bytes < 1 << 20);

    tidesdb_config_t config = quiet_config(fresh_path());
    config.unified_memtable = 1;
    config.max_memory_usage = (size_t)6 << 30;
    tidesdb_t *db = NULL;
    REQUIRE(tidesdb_open(&config, &db) == 0);
    tidesdb_column_family_t *cf = make_family(db, "u"), *second = make_family(db, "v");
    REQUIRE(cf && second && fill(db, cf, 0, 1000) == 0 && fill(db, second, 0, 10) == 0 && tidesdb_get_db_stats(db, &s) == 0);
    EQ(f, "unified: unified_memtable_enabled is 1", s.unified_memtable_enabled, 1);
    CHECK(f, "unified: uwal_bytes_written holds the log", s.uwal_bytes_written >= 20000);
    EQ(f, "unified: wal_bytes_written is 0", s.wal_bytes_written, 0);
    CHECK(f, "unified: unified_memtable_bytes holds the data", s.unified_memtable_bytes >= 20000);
    CHECK(f, "unified: total_memtable_bytes includes it", s.total_memtable_bytes >= 20000);
    CHECK(f, "unified: next index is past the families", s.unified_next_cf_index >= 2);
    EQ(f, "unified: user_bytes_written", s.user_bytes_written, 1010 * 20);
    CHECK(f, "resolved_memory_limit is the requested limit", s.resolved_memory_limit == (size_t)6 << 30);
    CHECK(f, "unified: families have separate keys", has(db, cf, "key000500", "value000500") && lacks(db, second, "key000500"));
    tidesdb_close(db);
}

static void test_cache(fixture_t *x)
{
    const char *f = "tidesdb_get_cache_stats";
    tidesdb_cache_stats_t s, later;
    RC(f, "NULL database is an invalid argument", tidesdb_get_cache_stats(NULL, &s), TDB_ERR_INVALID_ARGS);
    RC(f, "NULL out pointer is an invalid argument", tidesdb_get_cache_stats(x->db, NULL), TDB_ERR_INVALID_ARGS);
    memset(&s, 0xee, sizeof s);
    RC(f, "fills the caller's struct", tidesdb_get_cache_stats(x->db, &s), 0);
    EQ(f, "enabled is 1 with a cache", s.enabled, 1);
    CHECK(f, "num_partitions is at least 1", s.num_partitions >= 1);
    REQUIRE(tidesdb_purge(x->db) == 0 && tidesdb_get_cache_stats(x->db, &s) == 0);
    for (int round = 0; round < 3; round++)
        for (int i = 5000; i < 6000; i += 50)
        {
            char key[32], value[32];
            snprintf(key, sizeof key, "key%06d", i);
            snprintf(value, sizeof value, "value%06d", i);
            REQUIRE(has(x->db, x->cf, key, value));
        }
    REQUIRE(tidesdb_get_cache_stats(x->db, &later) == 0);
    CHECK(f, "reads of files count as hits or misses", later.hits + later.misses > s.hits + s.misses);
    CHECK(f, "repeated reads are hits", later.hits > s.hits);
    CHECK(f, "hit_rate is hits per lookup", later.hits + later.misses == 0 ||
              fabs(later.hit_rate - (double)later.hits / (double)(later.hits + later.misses)) < 0.01);
    CHECK(f, "total_entries and total_bytes count blocks", later.total_entries > 0 && later.total_bytes > 0);
    tidesdb_config_t config = quiet_config(fresh_path());
    config.block_cache_size = 0;
    tidesdb_t *db = NULL;
    REQUIRE(tidesdb_open(&config, &db) == 0 && tidesdb_get_cache_stats(db, &s) == 0);
    EQ(f, "enabled is 0 when block_cache_size is 0", s.enabled, 0);
    EQ(f, "all fields are 0 without a cache", s.total_entries + s.total_bytes + s.hits + s.misses, 0);
    tidesdb_close(db);
}

static void test_cost(fixture_t *x)
{
    const char *f = "tidesdb_range_cost";
    const int bad = TDB_ERR_INVALID_ARGS;
    double cost = -1, wide = 0, narrow = 0, back = 0;
    tidesdb_column_family_t *cf = make_family(x->db, "cost");
    REQUIRE(cf);
    RC(f, "an empty family", tidesdb_range_cost(cf, S("a"), S("z"), &cost), 0);
    CHECK(f, "an empty family costs nothing", cost == 0);
    REQUIRE(fill(x->db, cf, 0, 20000) == 0 && tidesdb_purge_cf(cf) == 0);
    RC(f, "NULL family is an invalid argument", tidesdb_range_cost(NULL, S("a"), S("b"), &cost), bad);
    RC(f, "NULL first key is an invalid argument", tidesdb_range_cost(cf, NULL, 1, S("b"), &cost), bad);
    RC(f, "NULL second key is an invalid argument", tidesdb_range_cost(cf, S("a"), NULL, 1, &cost), bad);
    RC(f, "an empty first key is an invalid argument", tidesdb_range_cost(cf, S(""), S("b"), &cost), bad);
    RC(f, "an empty second key is an invalid argument", tidesdb_range_cost(cf, S("a"), S(""), &cost), bad);
    RC(f, "NULL out pointer is an invalid argument", tidesdb_range_cost(cf, S("a"), S("b"), NULL), bad);
    RC(f, "a wide range", tidesdb_range_cost(cf, S("key000000"), S("key019999"), &wide), 0);
    RC(f, "a narrow range", tidesdb_range_cost(cf, S("key000100"), S("key000200"), &narrow), 0);
    CHECK(f, "a wide range costs more than a narrow one", wide > narrow);
    CHECK(f, "a range with data costs something", narrow > 0);
    RC(f, "swapped bounds", tidesdb_range_cost(cf, S("key019999"), S("key000000"), &back), 0);
    CHECK(f, "the order of the bounds does not matter", back == wide);
    RC(f, "a range outside all data", tidesdb_range_cost(cf, S("zz"), S("zzz"), &cost), 0);
    CHECK(f, "a range outside all data costs nothing", cost == 0);

    f = "tidesdb_cf_estimate_cardinality";
    uint64_t n = 99;
    RC(f, "NULL family is an invalid argument", tidesdb_cf_estimate_cardinality(NULL, &n), bad);
    RC(f, "NULL out pointer is an invalid argument", tidesdb_cf_estimate_cardinality(cf, NULL), bad);
    RC(f, "succeeds", tidesdb_cf_estimate_cardinality(cf, &n), 0);
    CHECK(f, "is near the number of keys", n > 15000 && n < 25000);
    for (int i = 0; i < 3; i++) REQUIRE(fill(x->db, cf, 0, 20000) == 0 && flush_and_wait(cf) == 0);
    REQUIRE(tidesdb_cf_estimate_cardinality(cf, &n) == 0);
    CHECK(f, "counts a key in several files once", n > 15000 && n < 30000);
    tidesdb_column_family_t *empty = make_family(x->db, "nothing");
    n = 99;
    CHECK(f, "is 0 for an empty family", empty && tidesdb_cf_estimate_cardinality(empty, &n) == 0 && n == 0);
}

void test_stats(void)
{
    fixture_t x = fixture_open();
    REQUIRE(x.cf);
    test_family(&x);
    REQUIRE(x.cf);
    test_configuration(&x);
    x.cf = tidesdb_get_column_family(x.db, "cf");
    REQUIRE(x.cf);
    test_database(&x);
    test_cache(&x);
    test_cost(&x);
    fixture_close(&x);
}
