/* Allocators set by the program, the log, and smaller functions. Each of these groups runs in a separate process. */
#include "harness.h"

static long mallocs, frees, live;

static void *count_malloc(size_t size)
{
    __atomic_add_fetch(&mallocs, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&live, 1, __ATOMIC_RELAXED);
    return malloc(size);
}

static void *count_calloc(size_t count, size_t size)
{
    __atomic_add_fetch(&mallocs, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&live, 1, __ATOMIC_RELAXED);
    return calloc(count, size);
}

static void *count_realloc(void *old, size_t size)
{
    if (!old) __atomic_add_fetch(&live, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&mallocs, 1, __ATOMIC_RELAXED);
    return realloc(old, size);
}

static void count_free(void *old)
{
    if (old)
    {
        __atomic_add_fetch(&frees, 1, __ATOMIC_RELAXED);
        __atomic_sub_fetch(&live, 1, __ATOMIC_RELAXED);
    }
    free(old);
}

void test_init(void)
{
    const char *f = "tidesdb_init";
    RC(f, "NULL functions mean the system's", tidesdb_init(NULL, NULL, NULL, NULL), 0);
    RC(f, "twice returns -1", tidesdb_init(NULL, NULL, NULL, NULL), -1);
    tidesdb_finalize();
    RC("tidesdb_finalize", "init works again afterwards", tidesdb_init(count_malloc, count_calloc, count_realloc, count_free), 0);
    RC(f, "twice returns -1 with functions too", tidesdb_init(count_malloc, count_calloc, count_realloc, count_free), -1);
    fixture_t x = fixture_open();
    REQUIRE(x.cf && put1(x.db, x.cf, "k", "value") == 0);
    tidesdb_txn_t *t = NULL;
    uint8_t *value = NULL;
    size_t size = 0;
    REQUIRE(tidesdb_txn_begin(x.db, &t) == 0);
    long before = mallocs, freed;
    REQUIRE(tidesdb_txn_get(t, x.cf, S("k"), &value, &size) == 0);
    CHECK(f, "values of get come from the given functions", mallocs > before);
    freed = frees;
    tidesdb_free(value);
    EQ("tidesdb_free", "frees with the given function", frees, freed + 1);
    before = mallocs;
    REQUIRE(tidesdb_txn_get_notrack(t, x.cf, S("k"), &value, &size) == 0);
    CHECK(f, "values of get_notrack come from the given functions", mallocs > before);
    count_free(value);
    CHECK(f, "returned memory can be freed by the caller's own function", 1);
    tidesdb_txn_free(t);
    char **names = NULL;
    int count = 0;
    before = mallocs;
    REQUIRE(tidesdb_list_column_families(x.db, &names, &count) == 0);
    CHECK(f, "names of list come from the given functions", mallocs >= before + 2);
    for (int i = 0; i < count; i++) count_free(names[i]);
    count_free(names);
    tidesdb_stats_t *s = NULL;
    before = live;
    REQUIRE(tidesdb_get_stats(x.cf, &s) == 0);
    tidesdb_free_stats(s);
    EQ("tidesdb_free_stats", "frees everything that get_stats allocated", live, before);
    tidesdb_free(NULL);
    CHECK("tidesdb_free", "NULL is allowed", 1);
    fixture_close(&x);
    EQ(f, "everything is freed after close", live, 0);
    tidesdb_finalize();
    x = fixture_open();
    CHECK("tidesdb_open", "initializes by itself after a finalize", x.cf && put1(x.db, x.cf, "k", "v") == 0);
    before = mallocs;
    CHECK("tidesdb_finalize", "removes the given functions", has(x.db, x.cf, "k", "v") && mallocs == before);
    RC(f, "after an open that initialized by itself returns -1", tidesdb_init(NULL, NULL, NULL, NULL), -1);
    fixture_close(&x);
}

void test_system_allocator(void)
{
    fixture_t x = fixture_open();
    CHECK("tidesdb_open", "initializes by itself", x.cf != NULL);
    REQUIRE(x.cf && put1(x.db, x.cf, "k", "value") == 0);
    tidesdb_txn_t *t = NULL;
    uint8_t *value = NULL;
    size_t size = 0;
    REQUIRE(tidesdb_txn_begin(x.db, &t) == 0 && tidesdb_txn_get(t, x.cf, S("k"), &value, &size) == 0);
    free(value);
    CHECK("tidesdb_txn_get", "its value may be freed with free()", 1);
    REQUIRE(tidesdb_txn_get(t, x.cf, S("k"), &value, &size) == 0);
    tidesdb_free(value);
    CHECK("tidesdb_free", "frees a value", 1);
    tidesdb_txn_free(t);
    char **names = NULL;
    int count = 0;
    REQUIRE(tidesdb_list_column_families(x.db, &names, &count) == 0 && count == 1);
    free(names[0]);
    free(names);
    CHECK("tidesdb_list_column_families", "its names may be freed with free()", 1);
    fixture_close(&x);
    tidesdb_finalize();
    CHECK("tidesdb_finalize", "after the last close", 1);
}

static void (*log_write)(int level, const char *file, int line, const char *format, ...);

void test_log(void)
{
    const char *f = "tidesdb_log_write";
    log_write = exported(f);
    REQUIRE(log_write);
    char log[700];
    tidesdb_config_t config = quiet_config(fresh_path());
    snprintf(log, sizeof log, "%s/LOG", config.db_path);
    config.log_to_file = 1;
    config.log_level = TDB_LOG_INFO;
    tidesdb_t *db = NULL;
    REQUIRE(tidesdb_open(&config, &db) == 0);
    CHECK("tidesdb_open", "log_to_file: a file LOG appears in the directory", file_exists(log));
    log_write(TDB_LOG_INFO, "here.c", 42, "loaded %d tenants of %s", 7, "north");
    CHECK(f, "writes into the log file at once", file_contains(log, "loaded 7 tenants of north"));
    CHECK(f, "records file and line", file_contains(log, "here.c:42"));
    CHECK(f, "records the level", file_contains(log, "[INFO]"));
    log_write(TDB_LOG_DEBUG, "here.c", 43, "too detailed");
    CHECK(f, "skips lines below the level", !file_contains(log, "too detailed"));
    log_write(TDB_LOG_WARN, "here.c", 44, "a warning of 100%%");
    CHECK(f, "writes higher levels", file_contains(log, "a warning of 100%") && file_contains(log, "[WARN]"));
    log_write(TDB_LOG_ERROR, "here.c", 45, "an error");
    log_write(TDB_LOG_FATAL, "here.c", 46, "a fatal one");
    CHECK(f, "errors have the name of their level", file_contains(log, "[ERROR]") && file_contains(log, "[FATAL]"));
    tidesdb_column_family_t *cf = make_family(db, "cf");
    REQUIRE(cf && put1(db, cf, "k", "v") == 0);
    CHECK("tidesdb_open", "log_to_file: the database works", has(db, cf, "k", "v"));
    tidesdb_close(db);
    REQUIRE(tidesdb_open(&config, &db) == 0);
    CHECK("tidesdb_open", "log_to_file: appends at the next open", file_contains(log, "loaded 7 tenants of north"));
    tidesdb_close(db);

    config = quiet_config(fresh_path());
    snprintf(log, sizeof log, "%s/LOG", config.db_path);
    config.log_to_file = 1;
    config.log_level = TDB_LOG_NONE;
    REQUIRE(tidesdb_open(&config, &db) == 0);
    log_write(TDB_LOG_FATAL, "here.c", 47, "not written");
    CHECK("tidesdb_open", "TDB_LOG_NONE writes nothing", !file_contains(log, "not written"));
    tidesdb_close(db);

    /* Without a file: standard error, which is redirected to a file here. */
    char errors[700];
    snprintf(errors, sizeof errors, "%s", fresh_path());
    REQUIRE(freopen(errors, "w", stderr));
    config = quiet_config(fresh_path());
    config.log_level = TDB_LOG_DEBUG;
    REQUIRE(tidesdb_open(&config, &db) == 0);
    log_write(TDB_LOG_DEBUG, "here.c", 48, "to standard error");
    fflush(stderr);
    CHECK(f, "without log_to_file goes to standard error", file_contains(errors, "to standard error"));
    CHECK(f, "at TDB_LOG_DEBUG debug lines are written", file_contains(errors, "[DEBUG]"));
    tidesdb_close(db);

    int (*available)(int) = exported("tidesdb_compression_available");
    f = "tidesdb_compression_available";
    REQUIRE(available);
    EQ(f, "TDB_COMPRESS_NONE is always available", available(TDB_COMPRESS_NONE), 1);
    EQ(f, "TDB_COMPRESS_LZ4 is available", available(TDB_COMPRESS_LZ4), 1);
    EQ(f, "TDB_COMPRESS_LZ4_FAST is available", available(TDB_COMPRESS_LZ4_FAST), 1);
    EQ(f, "TDB_COMPRESS_ZSTD is available", available(TDB_COMPRESS_ZSTD), 1);
    EQ(f, "TDB_COMPRESS_SNAPPY is available", available(TDB_COMPRESS_SNAPPY), 1);
    EQ(f, "an unknown number is not available", available(77), 0);
    EQ(f, "a negative number is not available", available(-1), 0);
}
