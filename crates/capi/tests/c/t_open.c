/* Opening and closing: errors, every field of the configuration, the lock, data after a reopen. */
#include "harness.h"

#include <sys/wait.h>

static int open_and_close(tidesdb_config_t config)
{
    tidesdb_t *db = NULL;
    int rc = tidesdb_open(&config, &db);
    if (rc) return rc;
    tidesdb_column_family_t *cf = config.unified_memtable || !make_family(db, "cf")
                                      ? tidesdb_get_column_family(db, "cf")
                                      : tidesdb_get_column_family(db, "cf");
    if (!cf) cf = make_family(db, "cf");
    int written = put1(db, cf, "k", "v"), seen = has(db, cf, "k", "v");
    rc = tidesdb_close(db);
    return rc ? rc : written ? written : seen ? 0 : -100;
}

static void test_arguments(void)
{
    const char *f = "tidesdb_open";
    tidesdb_t *db = NULL;
    tidesdb_config_t config = quiet_config(fresh_path());
    RC(f, "NULL configuration is an invalid argument", tidesdb_open(NULL, &db), TDB_ERR_INVALID_ARGS);
    RC(f, "NULL out pointer is an invalid argument", tidesdb_open(&config, NULL), TDB_ERR_INVALID_ARGS);
    config.db_path = NULL;
    RC(f, "NULL path is an invalid argument", tidesdb_open(&config, &db), TDB_ERR_INVALID_ARGS);
    config.db_path = "";
    CHECK(f, "an empty path is refused", tidesdb_open(&config, &db) != 0);
    const char *file = fresh_path();
    fclose(fopen(file, "w"));
    config.db_path = (char *)file;
    CHECK(f, "a path that is a file is refused", tidesdb_open(&config, &db) != 0);
    CHECK(f, "a failed open leaves the out pointer NULL", db == NULL);
    RC("tidesdb_close", "NULL is an invalid argument", tidesdb_close(NULL), TDB_ERR_INVALID_ARGS);
}

static void test_fields(void)
{
    const char *f = "tidesdb_open";
    tidesdb_config_t c;
    /* Each with a separate path. */
#define WITH(behaviour, ...)          \
    c = quiet_config(fresh_path());   \
    __VA_ARGS__;                      \
    RC(f, behaviour, open_and_close(c), 0)
    WITH("num_flush_threads and num_compaction_threads of 4", c.num_flush_threads = 4, c.num_compaction_threads = 4);
    WITH("thread counts of 0 select the default", c.num_flush_threads = 0, c.num_compaction_threads = 0);
    WITH("block_cache_size of 0 disables the cache", c.block_cache_size = 0);
    WITH("block_cache_size of 1 MiB", c.block_cache_size = 1 << 20);
    WITH("max_open_sstables of 0 selects the default", c.max_open_sstables = 0);
    WITH("max_open_sstables of 16", c.max_open_sstables = 16);
    WITH("max_memory_usage of 1 GiB", c.max_memory_usage = 1 << 30);
    WITH("max_memory_usage below the minimum is raised", c.max_memory_usage = 1);
    WITH("log_truncation_at of 0 is no truncation", c.log_truncation_at = 0);
    WITH("max_concurrent_flushes other than the pool's size is adjusted", c.num_flush_threads = 2,
         c.max_concurrent_flushes = 7);
    WITH("finish_compactions_on_close of 1", c.finish_compactions_on_close = 1);
    WITH("unified_memtable of 1", c.unified_memtable = 1);
    WITH("unified memtable with its own buffer, levels and probability", c.unified_memtable = 1,
         c.unified_memtable_write_buffer_size = 1 << 20, c.unified_memtable_skip_list_max_level = 16,
         c.unified_memtable_skip_list_probability = 0.5f);
    WITH("unified memtable with TDB_SYNC_FULL", c.unified_memtable = 1, c.unified_memtable_sync_mode = TDB_SYNC_FULL);
    WITH("unified memtable with TDB_SYNC_INTERVAL", c.unified_memtable = 1,
         c.unified_memtable_sync_mode = TDB_SYNC_INTERVAL, c.unified_memtable_sync_interval_us = 10000);
    WITH("TDB_LOG_NONE", c.log_level = TDB_LOG_NONE);
    WITH("TDB_LOG_FATAL", c.log_level = TDB_LOG_FATAL);
#undef WITH
}

static void test_lives(void)
{
    const char *f = "tidesdb_open";
    fixture_t one = fixture_open();
    REQUIRE(one.cf);
    CHECK(f, "creates the directory", file_exists(one.path));
    tidesdb_t *second = NULL;
    tidesdb_config_t config = quiet_config(one.path);
    RC(f, "a path open in this process is locked", tidesdb_open(&config, &second), TDB_ERR_LOCKED);
    if (second) tidesdb_close(second);

    char command[1400];
    snprintf(command, sizeof command, "'%s' --probe '%s'", program_path, one.path);
    int code = 1;
    FILE *other = popen(command, "r");
    REQUIRE(other && fscanf(other, "%d", &code) == 1);
    pclose(other);
    EQ(f, "a path open in another process is locked", code, TDB_ERR_LOCKED);
    RC(f, "a refused second open leaves the first working", put1(one.db, one.cf, "a", "1"), 0);

    fixture_t two = fixture_open();
    REQUIRE(two.cf);
    RC(f, "two databases in one process", put1(two.db, two.cf, "a", "2"), 0);
    CHECK(f, "two databases have separate data", has(one.db, one.cf, "a", "1") && has(two.db, two.cf, "a", "2"));
    RC("tidesdb_close", "succeeds", tidesdb_close(two.db), 0);
    two.db = NULL;
    CHECK("tidesdb_close", "leaves other databases open", has(one.db, one.cf, "a", "1"));

    fixture_reopen(&one);
    REQUIRE(one.cf);
    CHECK(f, "families exist after a reopen", one.cf != NULL);
    CHECK(f, "unflushed commits survive a reopen", has(one.db, one.cf, "a", "1"));
    REQUIRE(fill(one.db, one.cf, 0, 3000) == 0);
    tidesdb_flush_memtable(one.cf);
    REQUIRE(put1(one.db, one.cf, "after", "flush") == 0);
    fixture_reopen(&one);
    REQUIRE(one.cf);
    CHECK(f, "flushed commits survive a reopen", has(one.db, one.cf, "key002999", "value002999"));
    CHECK(f, "commits after a flush survive a reopen", has(one.db, one.cf, "after", "flush"));
    REQUIRE(delete1(one.db, one.cf, "key000007") == 0);
    fixture_reopen(&one);
    REQUIRE(one.cf);
    CHECK(f, "deletes survive a reopen", lacks(one.db, one.cf, "key000007"));
    CHECK(f, "an unfinished transaction is discarded by a reopen", ({
              tidesdb_txn_t *txn = NULL;
              tidesdb_txn_begin(one.db, &txn);
              put_text(txn, one.cf, "unfinished", "x");
              tidesdb_txn_free(txn);
              fixture_reopen(&one);
              one.cf && lacks(one.db, one.cf, "unfinished");
          }));
    fixture_close(&one);
    config = quiet_config(one.path);
    RC(f, "a closed path can be opened by another process, and then here again", ({
           int rc = 1;
           other = popen(command, "r");
           if (other && fscanf(other, "%d", &rc) != 1) rc = 1;
           if (other) pclose(other);
           rc ? rc : tidesdb_open(&config, &one.db);
       }),
       0);
    fixture_close(&one);

    config = quiet_config(fresh_path());
    char path[700];
    snprintf(path, sizeof path, "%s", config.db_path);
    config.db_path = path;
    tidesdb_t *db = NULL;
    REQUIRE(tidesdb_open(&config, &db) == 0);
    memset(path, 'x', 8);
    tidesdb_column_family_t *cf = make_family(db, "later");
    CHECK(f, "the configuration need not outlive the call", cf && put1(db, cf, "k", "v") == 0);
    RC("tidesdb_close", "works with data in the memtable", tidesdb_close(db), 0);
}

static void test_wide_thread(void)
{
    long (*raise)(long) = tidesdb_raise_open_file_limit;
    const char *f = "tidesdb_raise_open_file_limit";
    long now = raise(0);
    CHECK(f, "0 reports the limit in effect", now > 0);
    EQ(f, "a value below the limit changes nothing", raise(now - 1), now);
    CHECK(f, "a value above the limit never lowers it", raise(now + 1) >= now);
    CHECK(f, "an absurd value is not an error", raise(1L << 40) >= now);
    CHECK(f, "a negative value reports the limit", raise(-5) >= now);
}

void test_open(void)
{
    test_arguments();
    test_fields();
    test_lives();
    test_wide_thread();
}
