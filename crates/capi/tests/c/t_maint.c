/* Maintenance: flush, compact, purge, cancel, sync, backup and checkpoint. */
#include "harness.h"

static void test_flush(fixture_t *x)
{
    const int bad = TDB_ERR_INVALID_ARGS;
    RC("tidesdb_flush_memtable", "NULL is an invalid argument", tidesdb_flush_memtable(NULL), bad);
    RC("tidesdb_compact", "NULL is an invalid argument", tidesdb_compact(NULL), bad);
    RC("tidesdb_purge_cf", "NULL is an invalid argument", tidesdb_purge_cf(NULL), bad);
    RC("tidesdb_purge", "NULL is an invalid argument", tidesdb_purge(NULL), bad);
    RC("tidesdb_sync_wal", "NULL is an invalid argument", tidesdb_sync_wal(NULL), bad);
    RC("tidesdb_cancel_background_work", "NULL is an invalid argument", tidesdb_cancel_background_work(NULL), bad);
    RC("tidesdb_is_flushing", "NULL is 0", tidesdb_is_flushing(NULL), 0);
    RC("tidesdb_is_compacting", "NULL is 0", tidesdb_is_compacting(NULL), 0);
    RC("tidesdb_flush_memtable", "an empty memtable", tidesdb_flush_memtable(x->cf), 0);
    RC("tidesdb_compact", "an empty family", tidesdb_compact(x->cf), 0);
    RC("tidesdb_purge_cf", "an empty family", tidesdb_purge_cf(x->cf), 0);
    RC("tidesdb_purge", "an empty database", tidesdb_purge(x->db), 0);
    RC("tidesdb_sync_wal", "nothing to sync", tidesdb_sync_wal(x->cf), 0);
    REQUIRE(fill(x->db, x->cf, 0, 2000) == 0);
    RC("tidesdb_sync_wal", "after commits", tidesdb_sync_wal(x->cf), 0);
    RC("tidesdb_flush_memtable", "starts a flush", tidesdb_flush_memtable(x->cf), 0);
    RC("tidesdb_flush_memtable", "again while it runs", tidesdb_flush_memtable(x->cf), 0);
    for (int i = 0; i < 300000 && tidesdb_is_flushing(x->cf); i++) usleep(1000);
    RC("tidesdb_is_flushing", "is 0 in the end", tidesdb_is_flushing(x->cf), 0);
    CHECK("tidesdb_flush_memtable", "the data stays readable", has(x->db, x->cf, "key001999", "value001999"));
    tidesdb_stats_t *stats = NULL;
    REQUIRE(tidesdb_get_stats(x->cf, &stats) == 0);
    CHECK("tidesdb_flush_memtable", "makes a file of a memtable below its size", stats->total_data_size > 0);
    tidesdb_free_stats(stats);
    RC("tidesdb_sync_wal", "after a flush", tidesdb_sync_wal(x->cf), 0);
}

static int files_of(tidesdb_column_family_t *cf)
{
    tidesdb_stats_t *stats = NULL;
    int files = 0;
    if (tidesdb_get_stats(cf, &stats)) return -1;
    for (int i = 0; i < stats->num_levels; i++) files += stats->level_num_sstables[i];
    tidesdb_free_stats(stats);
    return files;
}

static void test_compact(fixture_t *x)
{
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    config.l1_file_count_trigger = 100;
    config.l0_queue_stall_threshold = 200;
    REQUIRE(tidesdb_create_column_family(x->db, "compacted", &config) == 0);
    tidesdb_column_family_t *cf = tidesdb_get_column_family(x->db, "compacted");
    for (int i = 0; i < 3; i++) REQUIRE(fill(x->db, cf, 0, 1500) == 0 && flush_and_wait(cf) == 0);
    int before = files_of(cf);
    RC("tidesdb_compact", "blocks until it has merged", tidesdb_compact(cf), 0);
    CHECK("tidesdb_compact", "leaves fewer files with the same keys", before >= 2 && files_of(cf) < before);
    CHECK("tidesdb_compact", "keeps the data", has(x->db, cf, "key000000", "value000000") && has(x->db, cf, "key001499", "value001499"));
    for (int i = 0; i < 300000 && tidesdb_is_compacting(cf); i++) usleep(1000);
    RC("tidesdb_is_compacting", "is 0 in the end", tidesdb_is_compacting(cf), 0);

    for (int i = 0; i < 1000; i++)
    {
        char key[32];
        snprintf(key, sizeof key, "key%06d", i);
        REQUIRE(delete1(x->db, cf, key) == 0);
    }
    RC("tidesdb_purge_cf", "flushes and compacts", tidesdb_purge_cf(cf), 0);
    CHECK("tidesdb_purge_cf", "deleted keys stay deleted", lacks(x->db, cf, "key000500"));
    CHECK("tidesdb_purge_cf", "other keys stay", has(x->db, cf, "key001200", "value001200"));
    for (int i = 0; i < 300000 && (tidesdb_is_flushing(cf) || tidesdb_is_compacting(cf)); i++) usleep(1000);
    RC("tidesdb_is_flushing", "is 0 soon after a purge", tidesdb_is_flushing(cf), 0);
    RC("tidesdb_is_compacting", "is 0 soon after a purge", tidesdb_is_compacting(cf), 0);
    tidesdb_stats_t *stats = NULL;
    REQUIRE(tidesdb_get_stats(cf, &stats) == 0);
    EQ("tidesdb_purge_cf", "leaves nothing in memory", stats->memtable_size, 0);
    EQ("tidesdb_purge_cf", "drops tombstones that no longer cover entries", stats->total_tombstones, 0);
    tidesdb_free_stats(stats);
    tidesdb_column_family_t *second = make_family(x->db, "second");
    REQUIRE(second && fill(x->db, second, 0, 100) == 0 && fill(x->db, cf, 0, 100) == 0);
    RC("tidesdb_purge", "purges every family", tidesdb_purge(x->db), 0);
    CHECK("tidesdb_purge", "every family is on disk", files_of(second) > 0 && files_of(cf) > 0);
    CHECK("tidesdb_purge", "keeps every family's data", has(x->db, second, "key000099", "value000099") && has(x->db, cf, "key000050", "value000050"));

    const char *f = "tidesdb_compact_range";
    RC(f, "NULL family is an invalid argument", tidesdb_compact_range(NULL, S("a"), S("b")), TDB_ERR_INVALID_ARGS);
    RC(f, "two NULL keys are an invalid argument", tidesdb_compact_range(cf, NULL, 0, NULL, 0), TDB_ERR_INVALID_ARGS);
    RC(f, "an empty start is an invalid argument", tidesdb_compact_range(cf, S(""), S("b")), TDB_ERR_INVALID_ARGS);
    RC(f, "an empty end is an invalid argument", tidesdb_compact_range(cf, S("a"), S("")), TDB_ERR_INVALID_ARGS);
    for (int i = 0; i < 2; i++) REQUIRE(fill(x->db, cf, 0, 1500) == 0 && flush_and_wait(cf) == 0);
    RC(f, "a range", tidesdb_compact_range(cf, S("key000100"), S("key000900")), 0);
    RC(f, "an empty range", tidesdb_compact_range(cf, S("zzz"), S("zzzz")), 0);
    RC(f, "a NULL start is unbounded", tidesdb_compact_range(cf, NULL, 0, S("key000500")), 0);
    RC(f, "a NULL end is unbounded", tidesdb_compact_range(cf, S("key000500"), NULL, 0), 0);
    CHECK(f, "keeps the data", has(x->db, cf, "key000000", "value000000") && has(x->db, cf, "key000500", "value000500") &&
                                   has(x->db, cf, "key001499", "value001499"));
}

static void test_cancel(void)
{
    const char *f = "tidesdb_cancel_background_work";
    fixture_t x = fixture_open();
    REQUIRE(x.cf);
    for (int i = 0; i < 3; i++) REQUIRE(fill(x.db, x.cf, i * 1000, i * 1000 + 1500) == 0 && flush_and_wait(x.cf) == 0);
    RC(f, "succeeds", tidesdb_cancel_background_work(x.db), 0);
    RC(f, "twice is not an error", tidesdb_cancel_background_work(x.db), 0);
    RC("tidesdb_is_compacting", "is 0 after a cancel", tidesdb_is_compacting(x.cf), 0);
    RC(f, "writes continue", put1(x.db, x.cf, "after", "cancel"), 0);
    RC(f, "flushes continue", flush_and_wait(x.cf), 0);
    CHECK(f, "reads continue", has(x.db, x.cf, "key000001", "value000001"));
    fixture_reopen(&x);
    REQUIRE(x.cf);
    CHECK(f, "no data is lost across a reopen", has(x.db, x.cf, "key003499", "value003499") && has(x.db, x.cf, "after", "cancel"));
    RC("tidesdb_compact", "works again after a reopen", tidesdb_compact(x.cf), 0);
    fixture_close(&x);
}

typedef int (*copy_fn)(tidesdb_t *db, const char *path);
static int backup(tidesdb_t *db, const char *path) { return tidesdb_backup(db, (char *)path); }
static int checkpoint(tidesdb_t *db, const char *path) { return tidesdb_checkpoint(db, path); }

static void test_copy(const char *f, copy_fn copy)
{
    fixture_t x = fixture_open();
    REQUIRE(x.cf);
    tidesdb_column_family_t *other = make_family(x.db, "other");
    REQUIRE(other && fill(x.db, x.cf, 0, 2000) == 0 && flush_and_wait(x.cf) == 0 && fill(x.db, x.cf, 2000, 2500) == 0);
    REQUIRE(put1(x.db, other, "o", "1") == 0);
    RC(f, "NULL database is an invalid argument", copy(NULL, fresh_path()), TDB_ERR_INVALID_ARGS);
    RC(f, "NULL directory is an invalid argument", copy(x.db, NULL), TDB_ERR_INVALID_ARGS);
    const char *full = fresh_path();
    mkdir(full, 0700);
    fclose(fopen(joined(full, "something"), "w"));
    RC(f, "a directory that is not empty is refused", copy(x.db, full), TDB_ERR_EXISTS);
    EQ(f, "a refused directory is not changed", directory_entries(full), 1);
    const char *empty = fresh_path(), *none = fresh_path();
    mkdir(empty, 0700);
    RC(f, "into an empty directory", copy(x.db, empty), 0);
    RC(f, "into a missing directory", copy(x.db, none), 0);
    CHECK(f, "the database stays usable", put1(x.db, x.cf, "later", "x") == 0 && has(x.db, x.cf, "key000000", "value000000"));
    REQUIRE(delete1(x.db, x.cf, "key000000") == 0);
    for (int i = 0; i < 2; i++)
    {
        fixture_t y = {i ? none : empty, NULL, NULL};
        tidesdb_config_t config = quiet_config(y.path);
        RC(f, "opens as a database while its source is open", tidesdb_open(&config, &y.db), 0);
        REQUIRE(y.db && (y.cf = tidesdb_get_column_family(y.db, "cf")));
        CHECK(f, "has flushed data", has(y.db, y.cf, "key001000", "value001000"));
        CHECK(f, "has unflushed data", has(y.db, y.cf, "key002499", "value002499"));
        CHECK(f, "has every family", (other = tidesdb_get_column_family(y.db, "other")) && has(y.db, other, "o", "1"));
        CHECK(f, "has no later writes", lacks(y.db, y.cf, "later") && has(y.db, y.cf, "key000000", "value000000"));
        CHECK(f, "accepts writes that its source does not see", put1(y.db, y.cf, "own", "x") == 0 && lacks(x.db, x.cf, "own"));
        RC(f, "the copy compacts", tidesdb_purge(y.db), 0);
        fixture_reopen(&y);
        CHECK(f, "the copy reopens", y.cf && has(y.db, y.cf, "own", "x") && has(y.db, y.cf, "key001999", "value001999"));
        fixture_close(&y);
    }
    REQUIRE(tidesdb_purge(x.db) == 0);
    CHECK(f, "writes in the copy do not affect the source", has(x.db, x.cf, "key001999", "value001999") && has(x.db, x.cf, "key002499", "value002499"));
    fixture_close(&x);
}

void test_maintenance(void)
{
    fixture_t x = fixture_open();
    REQUIRE(x.cf);
    test_flush(&x);
    test_compact(&x);
    fixture_close(&x);
    test_cancel();
}

void test_backup(void) { test_copy("tidesdb_backup", backup); }
void test_checkpoint(void) { test_copy("tidesdb_checkpoint", checkpoint); }
