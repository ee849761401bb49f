/* Column families: create, get, list, drop, delete, rename, clone, names that must not be accepted. */
#include "harness.h"

static int create(tidesdb_t *db, const char *name)
{
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    return tidesdb_create_column_family(db, name, &config);
}

static int listed(tidesdb_t *db, const char *name)
{
    char **names = NULL;
    int count = 0, found = 0;
    if (tidesdb_list_column_families(db, &names, &count)) return -1;
    for (int i = 0; i < count; i++)
    {
        found += !strcmp(names[i], name);
        tidesdb_free(names[i]);
    }
    tidesdb_free(names);
    return found;
}

static int list_count(tidesdb_t *db)
{
    char **names = NULL;
    int count = -1;
    if (tidesdb_list_column_families(db, &names, &count)) return -1;
    for (int i = 0; i < count; i++) tidesdb_free(names[i]);
    tidesdb_free(names);
    return count;
}

static void test_create(fixture_t *x)
{
    const char *f = "tidesdb_create_column_family";
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    RC(f, "NULL database is an invalid argument", tidesdb_create_column_family(NULL, "a", &config),
       TDB_ERR_INVALID_ARGS);
    RC(f, "NULL name is an invalid argument", tidesdb_create_column_family(x->db, NULL, &config),
       TDB_ERR_INVALID_ARGS);
    RC(f, "NULL configuration is an invalid argument", tidesdb_create_column_family(x->db, "a", NULL),
       TDB_ERR_INVALID_ARGS);
    RC(f, "default configuration", create(x->db, "first"), 0);
    RC(f, "an existing name is refused", create(x->db, "first"), TDB_ERR_EXISTS);
    RC(f, "names differ by case", create(x->db, "First"), 0);
    RC(f, "an empty name is an invalid argument", create(x->db, ""), TDB_ERR_INVALID_ARGS);
    RC(f, "a name with ../ is an invalid argument", create(x->db, "../outside"), TDB_ERR_INVALID_ARGS);
    CHECK(f, "a name with ../ creates nothing outside", !file_exists(joined(x->path, "../outside")));
    RC(f, "a name with / is an invalid argument", create(x->db, "a/b"), TDB_ERR_INVALID_ARGS);
    RC(f, "the name . is an invalid argument", create(x->db, "."), TDB_ERR_INVALID_ARGS);
    RC(f, "the name .. is an invalid argument", create(x->db, ".."), TDB_ERR_INVALID_ARGS);
    char name[400];
    memset(name, 'n', sizeof name);
    name[127] = 0;
    RC(f, "a name of 127 bytes", create(x->db, name), 0);
    CHECK("tidesdb_get_column_family", "finds a name of 127 bytes", tidesdb_get_column_family(x->db, name) != NULL);
    memset(name, 'm', sizeof name);
    name[128] = 0;
    RC(f, "a name of 128 bytes does not fit: an invalid argument", create(x->db, name), TDB_ERR_INVALID_ARGS);
    memset(name, 'm', sizeof name);
    name[399] = 0;
    RC(f, "a name of 399 bytes is an invalid argument", create(x->db, name), TDB_ERR_INVALID_ARGS);
    strcpy(config.comparator_name, "not registered");
    CHECK(f, "a comparator that is not registered is refused", tidesdb_create_column_family(x->db, "order", &config));
    CHECK(f, "a refused family does not exist", !tidesdb_get_column_family(x->db, "order"));
}

static int with(tidesdb_t *db, const char *name, tidesdb_column_family_config_t config)
{
    int rc = tidesdb_create_column_family(db, name, &config);
    tidesdb_column_family_t *cf = tidesdb_get_column_family(db, name);
    if (rc || !cf) return rc ? rc : -100;
    rc = fill(db, cf, 0, 300);
    if (rc == 0) rc = tidesdb_purge_cf(cf);
    if (rc == 0 && !has(db, cf, "key000123", "value000123")) rc = -101;
    int dropped = tidesdb_drop_column_family(db, name);
    return rc ? rc : dropped;
}

static void test_fields(fixture_t *x)
{
    const char *f = "tidesdb_create_column_family";
    tidesdb_column_family_config_t c;
#define WITH(behaviour, ...)                    \
    c = tidesdb_default_column_family_config(); \
    __VA_ARGS__;                                \
    RC(f, behaviour, with(x->db, "fields", c), 0)
    WITH("write_buffer_size of 1 MiB", c.write_buffer_size = 1 << 20);
    WITH("level_size_ratio, min_levels, dividing_level_offset", c.level_size_ratio = 4, c.min_levels = 3,
         c.dividing_level_offset = 2);
    WITH("klog_value_threshold of 4: values go to the value log", c.klog_value_threshold = 4);
    WITH("TDB_COMPRESS_NONE", c.compression_algorithm = TDB_COMPRESS_NONE);
    WITH("TDB_COMPRESS_LZ4", c.compression_algorithm = TDB_COMPRESS_LZ4);
    WITH("TDB_COMPRESS_LZ4_FAST", c.compression_algorithm = TDB_COMPRESS_LZ4_FAST);
    WITH("TDB_COMPRESS_ZSTD", c.compression_algorithm = TDB_COMPRESS_ZSTD);
    WITH("TDB_COMPRESS_SNAPPY", c.compression_algorithm = TDB_COMPRESS_SNAPPY);
    WITH("without a bloom filter", c.enable_bloom_filter = 0);
    WITH("bloom_fpr of 0.001", c.bloom_fpr = 0.001);
    WITH("without block indexes", c.enable_block_indexes = 0);
    WITH("index_sample_ratio and block_index_prefix_len", c.index_sample_ratio = 8, c.block_index_prefix_len = 32);
    WITH("TDB_SYNC_FULL", c.sync_mode = TDB_SYNC_FULL);
    WITH("TDB_SYNC_INTERVAL of 10 ms", c.sync_mode = TDB_SYNC_INTERVAL, c.sync_interval_us = 10000);
    WITH("TDB_SYNC_NONE", c.sync_mode = TDB_SYNC_NONE);
    WITH("skip list levels and probability", c.skip_list_max_level = 20, c.skip_list_probability = 0.5f);
    WITH("default_isolation_level of SERIALIZABLE", c.default_isolation_level = TDB_ISOLATION_SERIALIZABLE);
    WITH("min_disk_space of 1 byte", c.min_disk_space = 1);
    WITH("l1_file_count_trigger and l0_queue_stall_threshold", c.l1_file_count_trigger = 2,
         c.l0_queue_stall_threshold = 40);
    WITH("tombstone density trigger", c.tombstone_density_trigger = 0.5, c.tombstone_density_min_entries = 10);
    WITH("use_btree", c.use_btree = 1);
    WITH("object store fields are accepted", c.object_lazy_compaction = 1, c.object_prefetch_compaction = 0);
    WITH("the comparator memcmp by name", strcpy(c.comparator_name, "memcmp"));
    WITH("a zeroed config with only the fields of the reference's example", ({
             tidesdb_column_family_config_t z = {.write_buffer_size = 8 << 20,
                                                 .level_size_ratio = 10,
                                                 .min_levels = 1,
                                                 .dividing_level_offset = 1,
                                                 .skip_list_max_level = 12,
                                                 .skip_list_probability = 0.25f,
                                                 .compression_algorithm = TDB_COMPRESS_LZ4,
                                                 .enable_bloom_filter = 1,
                                                 .bloom_fpr = 0.01,
                                                 .enable_block_indexes = 1,
                                                 .index_sample_ratio = 1,
                                                 .block_index_prefix_len = 16,
                                                 .sync_mode = TDB_SYNC_FULL,
                                                 .klog_value_threshold = 512,
                                                 .default_isolation_level = TDB_ISOLATION_READ_COMMITTED,
                                                 .l1_file_count_trigger = 4,
                                                 .l0_queue_stall_threshold = 10};
             c = z;
         }));
#undef WITH
}

static void test_get_and_list(fixture_t *x)
{
    const char *get = "tidesdb_get_column_family", *list = "tidesdb_list_column_families";
    char **names = NULL;
    int count = 0;
    CHECK(get, "an absent name returns NULL", tidesdb_get_column_family(x->db, "absent") == NULL);
    CHECK(get, "NULL database returns NULL", tidesdb_get_column_family(NULL, "cf") == NULL);
    CHECK(get, "NULL name returns NULL", tidesdb_get_column_family(x->db, NULL) == NULL);
    CHECK(get, "the same name gives the same handle", tidesdb_get_column_family(x->db, "cf") == x->cf);
    RC(list, "NULL database is an invalid argument", tidesdb_list_column_families(NULL, &names, &count),
       TDB_ERR_INVALID_ARGS);
    RC(list, "NULL names is an invalid argument", tidesdb_list_column_families(x->db, NULL, &count),
       TDB_ERR_INVALID_ARGS);
    RC(list, "NULL count is an invalid argument", tidesdb_list_column_families(x->db, &names, NULL),
       TDB_ERR_INVALID_ARGS);
    int before = list_count(x->db);
    create(x->db, "listed");
    EQ(list, "counts a new family", list_count(x->db), before + 1);
    EQ(list, "lists each family once", listed(x->db, "listed"), 1);
    tidesdb_drop_column_family(x->db, "listed");
    EQ(list, "does not list a dropped family", listed(x->db, "listed"), 0);

    const char *path = fresh_path();
    tidesdb_config_t config = quiet_config(path);
    tidesdb_t *db = NULL;
    REQUIRE(tidesdb_open(&config, &db) == 0);
    EQ(list, "a new database has none", list_count(db), 0);
    tidesdb_close(db);
}

static void test_drop(fixture_t *x)
{
    const char *drop = "tidesdb_drop_column_family", *delete = "tidesdb_delete_column_family";
    RC(drop, "NULL database is an invalid argument", tidesdb_drop_column_family(NULL, "cf"), TDB_ERR_INVALID_ARGS);
    RC(drop, "NULL name is an invalid argument", tidesdb_drop_column_family(x->db, NULL), TDB_ERR_INVALID_ARGS);
    RC(drop, "an absent name is not found", tidesdb_drop_column_family(x->db, "absent"), TDB_ERR_NOT_FOUND);
    tidesdb_column_family_t *cf = make_family(x->db, "gone");
    REQUIRE(cf && fill(x->db, cf, 0, 100) == 0);
    RC(drop, "removes a family with data", tidesdb_drop_column_family(x->db, "gone"), 0);
    CHECK(drop, "the name no longer exists", tidesdb_get_column_family(x->db, "gone") == NULL);
    RC(drop, "dropping twice is not found", tidesdb_drop_column_family(x->db, "gone"), TDB_ERR_NOT_FOUND);
    cf = make_family(x->db, "gone");
    REQUIRE(cf);
    CHECK(drop, "a new family of the same name is empty", lacks(x->db, cf, "key000001"));
    REQUIRE(fill(x->db, cf, 0, 100) == 0);
    RC(delete, "NULL database is an invalid argument", tidesdb_delete_column_family(NULL, cf), TDB_ERR_INVALID_ARGS);
    RC(delete, "NULL family is an invalid argument", tidesdb_delete_column_family(x->db, NULL), TDB_ERR_INVALID_ARGS);
    RC(delete, "removes by pointer", tidesdb_delete_column_family(x->db, cf), 0);
    CHECK(delete, "the name no longer exists", tidesdb_get_column_family(x->db, "gone") == NULL);
    fixture_reopen(x);
    REQUIRE(x->cf);
    CHECK(delete, "stays dropped after a reopen", tidesdb_get_column_family(x->db, "gone") == NULL);
    CHECK(drop, "does not affect other families", x->cf != NULL);
}

static void test_rename(fixture_t *x)
{
    const char *f = "tidesdb_rename_column_family";
    tidesdb_column_family_t *cf = make_family(x->db, "old");
    REQUIRE(cf && fill(x->db, cf, 0, 500) == 0 && create(x->db, "taken") == 0);
    RC(f, "NULL database is an invalid argument", tidesdb_rename_column_family(NULL, "old", "new"),
       TDB_ERR_INVALID_ARGS);
    RC(f, "NULL old name is an invalid argument", tidesdb_rename_column_family(x->db, NULL, "new"),
       TDB_ERR_INVALID_ARGS);
    RC(f, "NULL new name is an invalid argument", tidesdb_rename_column_family(x->db, "old", NULL),
       TDB_ERR_INVALID_ARGS);
    RC(f, "an absent family is not found", tidesdb_rename_column_family(x->db, "absent", "new"), TDB_ERR_NOT_FOUND);
    RC(f, "an existing new name is refused", tidesdb_rename_column_family(x->db, "old", "taken"), TDB_ERR_EXISTS);
    RC(f, "a new name with ../ is an invalid argument", tidesdb_rename_column_family(x->db, "old", "../old"),
       TDB_ERR_INVALID_ARGS);
    /* A library that accepted the name has moved the column family: move it back. */
    if (!tidesdb_get_column_family(x->db, "old")) tidesdb_rename_column_family(x->db, "../old", "old");
    RC(f, "an empty new name is an invalid argument", tidesdb_rename_column_family(x->db, "old", ""),
       TDB_ERR_INVALID_ARGS);
    if (!tidesdb_get_column_family(x->db, "old")) tidesdb_rename_column_family(x->db, "", "old");
    RC(f, "renames", tidesdb_rename_column_family(x->db, "old", "new"), 0);
    CHECK(f, "the old name no longer exists", tidesdb_get_column_family(x->db, "old") == NULL);
    cf = tidesdb_get_column_family(x->db, "new");
    CHECK(f, "the new name exists", cf != NULL);
    CHECK(f, "the data is readable under the new name", cf && has(x->db, cf, "key000499", "value000499"));
    CHECK(f, "accepts writes under the new name", cf && put1(x->db, cf, "more", "x") == 0);
    fixture_reopen(x);
    REQUIRE(x->cf);
    cf = tidesdb_get_column_family(x->db, "new");
    CHECK(f, "survives a reopen", cf && has(x->db, cf, "key000499", "value000499") && has(x->db, cf, "more", "x"));
    CHECK(f, "the old name can be used again", create(x->db, "old") == 0);
}

static void test_clone(fixture_t *x)
{
    const char *f = "tidesdb_clone_column_family";
    tidesdb_column_family_t *source = make_family(x->db, "source"), *clone;
    REQUIRE(source && fill(x->db, source, 0, 500) == 0);
    RC(f, "NULL database is an invalid argument", tidesdb_clone_column_family(NULL, "source", "clone"),
       TDB_ERR_INVALID_ARGS);
    RC(f, "NULL source is an invalid argument", tidesdb_clone_column_family(x->db, NULL, "clone"),
       TDB_ERR_INVALID_ARGS);
    RC(f, "NULL destination is an invalid argument", tidesdb_clone_column_family(x->db, "source", NULL),
       TDB_ERR_INVALID_ARGS);
    RC(f, "source equal to destination is an invalid argument",
       tidesdb_clone_column_family(x->db, "source", "source"), TDB_ERR_INVALID_ARGS);
    RC(f, "an absent source is not found", tidesdb_clone_column_family(x->db, "absent", "clone"), TDB_ERR_NOT_FOUND);
    RC(f, "an existing destination is refused", tidesdb_clone_column_family(x->db, "source", "cf"), TDB_ERR_EXISTS);
    RC(f, "a destination with ../ is an invalid argument", tidesdb_clone_column_family(x->db, "source", "../clone"),
       TDB_ERR_INVALID_ARGS);
    RC(f, "clones", tidesdb_clone_column_family(x->db, "source", "clone"), 0);
    clone = tidesdb_get_column_family(x->db, "clone");
    REQUIRE(clone);
    CHECK(f, "has the source's data, including unflushed entries",
          has(x->db, clone, "key000000", "value000000") && has(x->db, clone, "key000499", "value000499"));
    REQUIRE(put1(x->db, source, "only", "source") == 0 && put1(x->db, clone, "only", "clone") == 0);
    REQUIRE(delete1(x->db, clone, "key000001") == 0);
    CHECK(f, "writes to one do not affect the other",
          has(x->db, source, "only", "source") && has(x->db, clone, "only", "clone"));
    CHECK(f, "deletes in the clone do not affect the source", has(x->db, source, "key000001", "value000001"));
    REQUIRE(tidesdb_drop_column_family(x->db, "source") == 0);
    CHECK(f, "outlives its source", has(x->db, clone, "key000499", "value000499"));
    fixture_reopen(x);
    REQUIRE(x->cf);
    clone = tidesdb_get_column_family(x->db, "clone");
    CHECK(f, "survives a reopen", clone && has(x->db, clone, "key000499", "value000499"));
    CHECK(f, "deletes in the clone survive a reopen", clone && lacks(x->db, clone, "key000001"));
}

void test_families(void)
{
    fixture_t x = fixture_open();
    REQUIRE(x.cf);
    test_create(&x);
    test_fields(&x);
    test_get_and_list(&x);
    test_drop(&x);
    if (x.cf) test_rename(&x);
    if (x.cf) test_clone(&x);
    fixture_close(&x);
}
