/* Configurations as text files, and changes of a column family's configuration at run time. */
#include "harness.h"

#include <math.h>

/* Every stored field, set to a value other than its default. */
static tidesdb_column_family_config_t unusual(void)
{
    tidesdb_column_family_config_t c = tidesdb_default_column_family_config();
    c.write_buffer_size = 5 << 20;
    c.level_size_ratio = 6;
    c.min_levels = 3;
    c.dividing_level_offset = 2;
    c.klog_value_threshold = 321;
    c.compression_algorithm = TDB_COMPRESS_ZSTD;
    c.enable_bloom_filter = 0;
    c.bloom_fpr = 0.05;
    c.enable_block_indexes = 0;
    c.index_sample_ratio = 9;
    c.block_index_prefix_len = 24;
    c.sync_mode = TDB_SYNC_INTERVAL;
    c.sync_interval_us = 54321;
    strcpy(c.comparator_name, "reverse");
    strcpy(c.comparator_ctx_str, "some context");
    c.skip_list_max_level = 14;
    c.skip_list_probability = 0.5f;
    c.default_isolation_level = TDB_ISOLATION_SERIALIZABLE;
    c.min_disk_space = 12345678;
    c.l1_file_count_trigger = 8;
    c.l0_queue_stall_threshold = 30;
    c.tombstone_density_trigger = 0.25;
    c.tombstone_density_min_entries = 2048;
    c.use_btree = 1;
    c.object_lazy_compaction = 1;
    c.object_prefetch_compaction = 0;
    return c;
}

static void compare(const char *f, const tidesdb_column_family_config_t *a, const tidesdb_column_family_config_t *b, int fixed)
{
#define SAME(field) EQ(f, "keeps " #field, a->field, b->field)
    SAME(write_buffer_size);
    SAME(level_size_ratio);
    SAME(min_levels);
    SAME(dividing_level_offset);
    SAME(klog_value_threshold);
    SAME(compression_algorithm);
    SAME(enable_bloom_filter);
    CHECK(f, "keeps bloom_fpr", fabs(a->bloom_fpr - b->bloom_fpr) < 1e-6);
    SAME(enable_block_indexes);
    SAME(index_sample_ratio);
    SAME(block_index_prefix_len);
    SAME(sync_mode);
    SAME(sync_interval_us);
    SAME(skip_list_max_level);
    CHECK(f, "keeps skip_list_probability", fabsf(a->skip_list_probability - b->skip_list_probability) < 1e-4f);
    SAME(default_isolation_level);
    SAME(min_disk_space);
    SAME(l1_file_count_trigger);
    SAME(l0_queue_stall_threshold);
    CHECK(f, "keeps tombstone_density_trigger", fabs(a->tombstone_density_trigger - b->tombstone_density_trigger) < 1e-6);
    SAME(tombstone_density_min_entries);
    if (!fixed) return;
    CHECK(f, "keeps comparator_name", !strcmp(a->comparator_name, b->comparator_name));
    CHECK(f, "keeps comparator_ctx_str", !strcmp(a->comparator_ctx_str, b->comparator_ctx_str));
    SAME(use_btree);
    SAME(object_lazy_compaction);
    SAME(object_prefetch_compaction);
#undef SAME
}

void test_ini(void)
{
    const char *save = "tidesdb_cf_config_save_to_ini", *load = "tidesdb_cf_config_load_from_ini";
    const int bad = TDB_ERR_INVALID_ARGS;
    tidesdb_column_family_config_t c = unusual(), loaded = tidesdb_default_column_family_config();
    char directory[700], path[800];
    snprintf(directory, sizeof directory, "%s", fresh_path());
    mkdir(directory, 0700);
    snprintf(path, sizeof path, "%s/config.ini", directory);
    RC(save, "NULL file is an invalid argument", tidesdb_cf_config_save_to_ini(NULL, "s", &c), bad);
    RC(save, "NULL section is an invalid argument", tidesdb_cf_config_save_to_ini(path, NULL, &c), bad);
    RC(save, "NULL configuration is an invalid argument", tidesdb_cf_config_save_to_ini(path, "s", NULL), bad);
    RC(load, "NULL file is an invalid argument", tidesdb_cf_config_load_from_ini(NULL, "s", &loaded), bad);
    RC(load, "NULL section is an invalid argument", tidesdb_cf_config_load_from_ini(path, NULL, &loaded), bad);
    RC(load, "NULL configuration is an invalid argument", tidesdb_cf_config_load_from_ini(path, "s", NULL), bad);
    CHECK(load, "a missing file is an error", tidesdb_cf_config_load_from_ini(path, "s", &loaded) != 0);
    RC(save, "a missing directory is an I/O error", tidesdb_cf_config_save_to_ini("/nowhere/at/all.ini", "s", &c), TDB_ERR_IO);
    RC(save, "succeeds", tidesdb_cf_config_save_to_ini(path, "family", &c), 0);
    CHECK(save, "writes the section's name", file_contains(path, "[family]"));
    CHECK(save, "writes names and values", file_contains(path, "write_buffer_size"));
    RC(load, "succeeds", tidesdb_cf_config_load_from_ini(path, "family", &loaded), 0);
    compare(load, &loaded, &c, 1);
    CHECK(save, "does not write hooks", loaded.commit_hook_fn == NULL && !file_contains(path, "hook"));

    c = tidesdb_default_column_family_config();
    REQUIRE(tidesdb_cf_config_save_to_ini(path, "family", &c) == 0);
    loaded = unusual();
    REQUIRE(tidesdb_cf_config_load_from_ini(path, "family", &loaded) == 0);
    EQ(save, "writing again replaces the file", loaded.write_buffer_size, c.write_buffer_size);
    EQ(load, "a default configuration round-trips", loaded.min_levels, c.min_levels);
    static const struct
    {
        const char *behaviour;
        compression_algorithm algorithm;
    } algorithms[] = {{"TDB_COMPRESS_NONE round-trips", TDB_COMPRESS_NONE},   {"TDB_COMPRESS_SNAPPY round-trips", TDB_COMPRESS_SNAPPY},
                      {"TDB_COMPRESS_LZ4 round-trips", TDB_COMPRESS_LZ4},     {"TDB_COMPRESS_ZSTD round-trips", TDB_COMPRESS_ZSTD},
                      {"TDB_COMPRESS_LZ4_FAST round-trips", TDB_COMPRESS_LZ4_FAST}};
    for (int i = 0; i < 5; i++)
    {
        c.compression_algorithm = algorithms[i].algorithm;
        REQUIRE(tidesdb_cf_config_save_to_ini(path, "family", &c) == 0 && tidesdb_cf_config_load_from_ini(path, "family", &loaded) == 0);
        EQ(load, algorithms[i].behaviour, loaded.compression_algorithm, algorithms[i].algorithm);
    }
    FILE *file = fopen(path, "w");
    fputs("; written by hand\n[other]\nwrite_buffer_size = 1\n\n[family]\n  write_buffer_size = 7340032\nmin_levels=4\n", file);
    fclose(file);
    loaded = tidesdb_default_column_family_config();
    RC(load, "a file written by hand", tidesdb_cf_config_load_from_ini(path, "family", &loaded), 0);
    EQ(load, "reads its own section", loaded.write_buffer_size, 7340032);
    EQ(load, "reads with and without spaces", loaded.min_levels, 4);
    EQ(load, "missing settings have their defaults", loaded.level_size_ratio, 10);

    /* The loaded configuration is valid for a new column family. */
    fixture_t x = fixture_open();
    REQUIRE(x.cf);
    RC("tidesdb_create_column_family", "a configuration loaded from a file", tidesdb_create_column_family(x.db, "from file", &loaded), 0);
    fixture_close(&x);
}

void test_runtime(void)
{
    const char *f = "tidesdb_cf_update_runtime_config";
    fixture_t x = fixture_open();
    REQUIRE(x.cf && fill(x.db, x.cf, 0, 500) == 0);
    tidesdb_column_family_config_t c = unusual(), before;
    tidesdb_stats_t *s = NULL;
    REQUIRE(tidesdb_get_stats(x.cf, &s) == 0);
    before = *s->config;
    tidesdb_free_stats(s);
    RC(f, "NULL family is an invalid argument", tidesdb_cf_update_runtime_config(NULL, &c, 0), TDB_ERR_INVALID_ARGS);
    RC(f, "NULL configuration is an invalid argument", tidesdb_cf_update_runtime_config(x.cf, NULL, 0), TDB_ERR_INVALID_ARGS);
    RC(f, "succeeds without writing", tidesdb_cf_update_runtime_config(x.cf, &c, 0), 0);
    fixture_reopen(&x);
    REQUIRE(x.cf && tidesdb_get_stats(x.cf, &s) == 0);
    EQ(f, "without writing the change does not survive a close", s->config->write_buffer_size, before.write_buffer_size);
    tidesdb_free_stats(s);
    RC(f, "succeeds with writing", tidesdb_cf_update_runtime_config(x.cf, &c, 1), 0);
    for (int reopened = 0; reopened < 2; reopened++)
    {
        if (reopened) fixture_reopen(&x);
        REQUIRE(x.cf && tidesdb_get_stats(x.cf, &s) == 0);
        compare(f, s->config, &c, 0);
        CHECK(f, "does not change the comparator", strcmp(s->config->comparator_name, "reverse") != 0);
        EQ(f, "does not change use_btree", s->config->use_btree, 0);
        CHECK(f, "does not change the name", !strcmp(s->config->name, "cf"));
        tidesdb_free_stats(s);
        CHECK(f, "the data stays readable", has(x.db, x.cf, "key000250", "value000250"));
    }
    RC(f, "flushes and compacts afterwards", (fill(x.db, x.cf, 400, 900), tidesdb_purge_cf(x.cf)), 0);
    CHECK(f, "does not change the order of the keys", !strncmp(family_keys(x.db, x.cf), "key000000,key000001", 19));
    c = tidesdb_default_column_family_config();
    c.sync_mode = TDB_SYNC_FULL;
    RC(f, "to TDB_SYNC_FULL", tidesdb_cf_update_runtime_config(x.cf, &c, 0), 0);
    RC("tidesdb_txn_commit", "under TDB_SYNC_FULL set at run time", put1(x.db, x.cf, "synced", "x"), 0);
    fixture_close(&x);
}
