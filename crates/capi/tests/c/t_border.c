/* The C boundary: handles that are closed, freed, of another kind or invented, absurd lengths, callbacks that call the
 * library, one handle used by many threads. Every invalid call must return an error; none may crash or hang.
 * For Perigee only: TidesDB dereferences every pointer. */
#include "harness.h"

/* Each calls every function with a parameter of its kind (database, column family, transaction or iterator) with `p` as
 * this argument. Returns the number of calls that succeeded. `good` provides valid handles for the other arguments. */
typedef struct
{
    fixture_t x;
    tidesdb_txn_t *txn;
} good_t;

#define FAILS(call) wrong += (call) == 0

static int as_database(void *p)
{
    tidesdb_t *db = p;
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    tidesdb_comparator_fn fn = NULL;
    void *ctx = NULL;
    char **names = NULL;
    int count = 0, wrong = 0;
    tidesdb_txn_t *txn = NULL;
    tidesdb_db_stats_t stats;
    tidesdb_cache_stats_t cache;
    FAILS(tidesdb_create_column_family(db, "border", &config));
    FAILS(tidesdb_drop_column_family(db, "cf"));
    FAILS(tidesdb_rename_column_family(db, "cf", "border"));
    FAILS(tidesdb_clone_column_family(db, "cf", "border"));
    wrong += tidesdb_get_column_family(db, "cf") != NULL;
    FAILS(tidesdb_list_column_families(db, &names, &count));
    FAILS(tidesdb_txn_begin(db, &txn));
    FAILS(tidesdb_txn_begin_with_isolation(db, TDB_ISOLATION_SNAPSHOT, &txn));
    FAILS(tidesdb_register_comparator(db, "border", tidesdb_comparator_memcmp, NULL, NULL));
    FAILS(tidesdb_get_comparator(db, "memcmp", &fn, &ctx));
    FAILS(tidesdb_backup(db, (char *)fresh_path()));
    FAILS(tidesdb_checkpoint(db, fresh_path()));
    FAILS(tidesdb_purge(db));
    FAILS(tidesdb_cancel_background_work(db));
    FAILS(tidesdb_get_db_stats(db, &stats));
    FAILS(tidesdb_get_cache_stats(db, &cache));
    FAILS(tidesdb_promote_to_primary(db));
    FAILS(tidesdb_delete_column_family(db, (tidesdb_column_family_t *)p));
    FAILS(tidesdb_close(db));
    return wrong;
}

static int as_family(good_t *good, void *p)
{
    tidesdb_column_family_t *cf = p;
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    tidesdb_iter_t *it = NULL;
    tidesdb_stats_t *stats = NULL;
    uint8_t *value = NULL;
    size_t size = 0;
    uint64_t n = 0;
    double cost = 0;
    int wrong = 0;
    FAILS(tidesdb_delete_column_family(good->x.db, cf));
    FAILS(tidesdb_txn_put(good->txn, cf, S("k"), S("v"), -1));
    FAILS(tidesdb_txn_get(good->txn, cf, S("k"), &value, &size));
    FAILS(tidesdb_txn_get_notrack(good->txn, cf, S("k"), &value, &size));
    FAILS(tidesdb_txn_contains(good->txn, cf, S("k")));
    FAILS(tidesdb_txn_delete(good->txn, cf, S("k")));
    FAILS(tidesdb_txn_single_delete(good->txn, cf, S("k")));
    FAILS(tidesdb_iter_new(good->txn, cf, &it));
    FAILS(tidesdb_cf_set_commit_hook(cf, NULL, NULL));
    FAILS(tidesdb_compact(cf));
    FAILS(tidesdb_compact_range(cf, S("a"), S("b")));
    FAILS(tidesdb_flush_memtable(cf));
    wrong += tidesdb_is_flushing(cf) != 0;
    wrong += tidesdb_is_compacting(cf) != 0;
    FAILS(tidesdb_purge_cf(cf));
    FAILS(tidesdb_sync_wal(cf));
    FAILS(tidesdb_cf_update_runtime_config(cf, &config, 0));
    FAILS(tidesdb_get_stats(cf, &stats));
    FAILS(tidesdb_cf_estimate_cardinality(cf, &n));
    FAILS(tidesdb_range_cost(cf, S("a"), S("b"), &cost));
    return wrong;
}

static int as_transaction(good_t *good, void *p)
{
    tidesdb_txn_t *txn = p;
    tidesdb_iter_t *it = NULL;
    uint8_t *value = NULL;
    size_t size = 0;
    int wrong = 0;
    FAILS(tidesdb_txn_put(txn, good->x.cf, S("k"), S("v"), -1));
    FAILS(tidesdb_txn_get(txn, good->x.cf, S("k"), &value, &size));
    FAILS(tidesdb_txn_get_notrack(txn, good->x.cf, S("k"), &value, &size));
    FAILS(tidesdb_txn_contains(txn, good->x.cf, S("k")));
    FAILS(tidesdb_txn_delete(txn, good->x.cf, S("k")));
    FAILS(tidesdb_txn_single_delete(txn, good->x.cf, S("k")));
    FAILS(tidesdb_txn_savepoint(txn, "s"));
    FAILS(tidesdb_txn_rollback_to_savepoint(txn, "s"));
    FAILS(tidesdb_txn_release_savepoint(txn, "s"));
    FAILS(tidesdb_iter_new(txn, good->x.cf, &it));
    FAILS(tidesdb_txn_commit(txn));
    FAILS(tidesdb_txn_rollback(txn));
    FAILS(tidesdb_txn_reset(txn, TDB_ISOLATION_SNAPSHOT));
    tidesdb_txn_free(txn);
    return wrong;
}

static int as_iterator(void *p)
{
    tidesdb_iter_t *it = p;
    uint8_t *key = NULL, *value = NULL;
    size_t key_size = 0, value_size = 0;
    int wrong = 0;
    FAILS(tidesdb_iter_seek(it, S("a")));
    FAILS(tidesdb_iter_seek_for_prev(it, S("a")));
    FAILS(tidesdb_iter_seek_to_first(it));
    FAILS(tidesdb_iter_seek_to_last(it));
    FAILS(tidesdb_iter_next(it));
    FAILS(tidesdb_iter_prev(it));
    wrong += tidesdb_iter_valid(it) != 0;
    FAILS(tidesdb_iter_key(it, &key, &key_size));
    FAILS(tidesdb_iter_value(it, &value, &value_size));
    FAILS(tidesdb_iter_key_value(it, &key, &key_size, &value, &value_size));
    tidesdb_iter_free(it);
    return wrong;
}

static good_t good_open(void)
{
    good_t good = {fixture_open(), NULL};
    if (good.x.cf) put1(good.x.db, good.x.cf, "k", "v");
    if (good.x.cf) tidesdb_txn_begin(good.x.db, &good.txn);
    return good;
}

static void good_close(good_t *good)
{
    tidesdb_txn_free(good->txn);
    fixture_close(&good->x);
}

void test_border_handles(void)
{
    good_t good = good_open();
    fixture_t x = fixture_open();
    REQUIRE(good.txn && x.cf && put1(x.db, x.cf, "k", "v") == 0);
    tidesdb_txn_t *txn = NULL, *open_txn = NULL;
    tidesdb_iter_t *it = NULL, *open_it = NULL;
    REQUIRE(tidesdb_txn_begin(x.db, &txn) == 0 && tidesdb_iter_new(txn, x.cf, &it) == 0);
    tidesdb_iter_free(it);
    EQ("(boundary)", "a freed iterator: every call returns an error", as_iterator(it), 0);
    REQUIRE(tidesdb_iter_new(txn, x.cf, &it) == 0 && tidesdb_iter_seek_to_first(it) == 0);
    tidesdb_txn_free(txn);
    as_iterator(it);
    CHECK("(boundary)", "an iterator whose transaction was freed does not crash", 1);
    EQ("(boundary)", "a freed transaction: every call returns an error", as_transaction(&good, txn), 0);
    tidesdb_txn_free(txn);
    CHECK("tidesdb_txn_free", "twice does not crash", 1);
    tidesdb_iter_free(it);
    CHECK("tidesdb_iter_free", "twice does not crash", 1);

    tidesdb_column_family_t *dropped = make_family(x.db, "dropped");
    REQUIRE(dropped && put1(x.db, dropped, "k", "v") == 0 && tidesdb_txn_begin(x.db, &open_txn) == 0);
    REQUIRE(tidesdb_iter_new(open_txn, dropped, &open_it) == 0);
    REQUIRE(tidesdb_drop_column_family(x.db, "dropped") == 0);
    EQ("(boundary)", "a dropped family: every call returns an error", as_family(&good, dropped), 0);
    RC("tidesdb_delete_column_family", "a dropped family is an error", tidesdb_delete_column_family(x.db, dropped) != 0, 1);
    tidesdb_iter_seek_to_first(open_it);
    tidesdb_iter_next(open_it);
    CHECK("(boundary)", "an iterator over a dropped family does not crash", 1);
    tidesdb_iter_free(open_it);
    tidesdb_txn_free(open_txn);

    /* Handles of another kind. */
    REQUIRE(tidesdb_iter_new(good.txn, good.x.cf, &it) == 0);
    EQ("(boundary)", "a transaction in place of a family", as_family(&good, good.txn), 0);
    EQ("(boundary)", "an iterator in place of a family", as_family(&good, it), 0);
    EQ("(boundary)", "a database in place of a family", as_family(&good, good.x.db), 0);
    EQ("(boundary)", "a family in place of a transaction", as_transaction(&good, good.x.cf), 0);
    EQ("(boundary)", "a database in place of a transaction", as_transaction(&good, good.x.db), 0);
    EQ("(boundary)", "an iterator in place of a transaction", as_transaction(&good, it), 0);
    EQ("(boundary)", "a transaction in place of an iterator", as_iterator(good.txn), 0);
    EQ("(boundary)", "a family in place of an iterator", as_iterator(good.x.cf), 0);
    EQ("(boundary)", "a transaction in place of a database", as_database(good.txn), 0);
    EQ("(boundary)", "a family in place of a database", as_database(good.x.cf), 0);
    EQ("(boundary)", "an iterator in place of a database", as_database(it), 0);
    tidesdb_iter_free(it);
    CHECK("(boundary)", "valid handles still work afterwards", txn_has(good.txn, good.x.cf, "k", "v"));
    CHECK("(boundary)", "a family of another database is an error", put_text(good.txn, x.cf, "k", "v") != 0);
    CHECK("tidesdb_delete_column_family", "a family of another database is an error", tidesdb_delete_column_family(good.x.db, x.cf) != 0);

    /* A database that is closed with open transactions and iterators. */
    REQUIRE(tidesdb_txn_begin(x.db, &open_txn) == 0 && tidesdb_iter_new(open_txn, x.cf, &open_it) == 0);
    REQUIRE(tidesdb_iter_seek_to_first(open_it) == 0 && put_text(open_txn, x.cf, "late", "v") == 0);
    RC("tidesdb_close", "with an open transaction and an open iterator", tidesdb_close(x.db), 0);
    EQ("(boundary)", "a closed database: every call returns an error", as_database(x.db), 0);
    CHECK("tidesdb_close", "twice returns an error", tidesdb_close(x.db) != 0);
    EQ("(boundary)", "the family of a closed database: every call returns an error", as_family(&good, x.cf), 0);
    CHECK("(boundary)", "an iterator of a closed database returns an error when it is moved",
          tidesdb_iter_next(open_it) != 0 && tidesdb_iter_seek(open_it, S("a")) != 0 && tidesdb_iter_seek_to_last(open_it) != 0);
    CHECK("(boundary)", "operations and the commit of a transaction of a closed database return an error",
          put_text(open_txn, good.x.cf, "k", "v") != 0 && !txn_has(open_txn, good.x.cf, "k", "v") &&
              tidesdb_txn_savepoint(open_txn, "s") != 0 && tidesdb_txn_commit(open_txn) != 0 && tidesdb_txn_reset(open_txn, 1) != 0);
    as_iterator(open_it);
    as_transaction(&good, open_txn);
    CHECK("(boundary)", "objects of a closed database can be freed", 1);
    tidesdb_config_t config = quiet_config(x.path);
    RC("tidesdb_open", "again after a close with an open transaction", tidesdb_open(&config, &x.db), 0);
    x.cf = tidesdb_get_column_family(x.db, "cf");
    CHECK("tidesdb_close", "discards the writes of an open transaction", x.cf && lacks(x.db, x.cf, "late") && has(x.db, x.cf, "k", "v"));
    fixture_close(&x);
    good_close(&good);
}

void test_border_garbage(void)
{
    good_t good = good_open();
    REQUIRE(good.txn);
    long on_stack[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    void *heap = calloc(1, 512);
    /* Pointers that the library never returned must be refused without being dereferenced. */
    void *garbage[] = {(void *)1, (void *)8, (void *)0xdeadbeef, (void *)0xdeadbeefdeadbef0, (void *)-1, (void *)-8,
                       on_stack, heap, (char *)good.txn + 1, (char *)good.txn + 8, (char *)good.x.db - 8, (void *)test_border_garbage};
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++)
    {
        EQ("(boundary)", "garbage in place of a database: every call returns an error", as_database(garbage[i]), 0);
        EQ("(boundary)", "garbage in place of a family: every call returns an error", as_family(&good, garbage[i]), 0);
        EQ("(boundary)", "garbage in place of a transaction: every call returns an error", as_transaction(&good, garbage[i]), 0);
        EQ("(boundary)", "garbage in place of an iterator: every call returns an error", as_iterator(garbage[i]), 0);
    }
    CHECK("(boundary)", "garbage does not affect valid handles", txn_has(good.txn, good.x.cf, "k", "v"));
    free(heap);
    good_close(&good);
}

void test_border_arguments(void)
{
    good_t good = good_open();
    REQUIRE(good.txn);
    tidesdb_txn_t *t = good.txn;
    tidesdb_column_family_t *cf = good.x.cf;
    uint8_t *value = NULL;
    size_t size = 0;
    static const size_t absurd[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2, (size_t)1 << 62, (size_t)1 << 40, (size_t)PTRDIFF_MAX + 1};
    for (int i = 0; i < 6; i++)
    {
        size_t n = absurd[i];
        CHECK("tidesdb_txn_put", "an absurd key size returns an error", tidesdb_txn_put(t, cf, (uint8_t *)"k", n, S("v"), -1) != 0);
        CHECK("tidesdb_txn_put", "an absurd value size returns an error", tidesdb_txn_put(t, cf, S("k"), (uint8_t *)"v", n, -1) != 0);
        CHECK("tidesdb_txn_get", "an absurd key size returns an error", tidesdb_txn_get(t, cf, (uint8_t *)"k", n, &value, &size) != 0);
        CHECK("tidesdb_txn_contains", "an absurd key size returns an error", tidesdb_txn_contains(t, cf, (uint8_t *)"k", n) != 0);
        CHECK("tidesdb_txn_delete", "an absurd key size returns an error", tidesdb_txn_delete(t, cf, (uint8_t *)"k", n) != 0);
        CHECK("tidesdb_txn_single_delete", "an absurd key size returns an error", tidesdb_txn_single_delete(t, cf, (uint8_t *)"k", n) != 0);
        CHECK("tidesdb_compact_range", "an absurd key size returns an error", tidesdb_compact_range(cf, (uint8_t *)"k", n, S("z")) != 0);
        double cost = 0;
        CHECK("tidesdb_range_cost", "an absurd key size returns an error", tidesdb_range_cost(cf, (uint8_t *)"k", n, S("z"), &cost) != 0);
        tidesdb_iter_t *it = NULL;
        REQUIRE(tidesdb_iter_new(t, cf, &it) == 0);
        CHECK("tidesdb_iter_seek", "an absurd key size returns an error", tidesdb_iter_seek(it, (uint8_t *)"k", n) != 0);
        CHECK("tidesdb_iter_seek_for_prev", "an absurd key size returns an error", tidesdb_iter_seek_for_prev(it, (uint8_t *)"k", n) != 0);
        tidesdb_iter_free(it);
    }
    RC("tidesdb_txn_contains", "an empty key is an invalid argument", tidesdb_txn_contains(t, cf, S("")), TDB_ERR_INVALID_ARGS);
    RC("tidesdb_txn_single_delete", "an empty key is an invalid argument", tidesdb_txn_single_delete(t, cf, S("")), TDB_ERR_INVALID_ARGS);
    CHECK("tidesdb_txn_put", "ttl far in the future is visible", tidesdb_txn_put(t, cf, S("far"), S("v"), (time_t)INT64_MAX) == 0 && txn_has(t, cf, "far", "v"));
    CHECK("tidesdb_txn_put", "a ttl below -1 does not crash", (tidesdb_txn_put(t, cf, S("odd"), S("v"), (time_t)INT64_MIN), 1));
    CHECK("tidesdb_txn_commit", "with odd ttls", tidesdb_txn_commit(t) == 0);

    /* Configurations with absurd numbers: an error or a usable column family. */
    tidesdb_column_family_config_t c = tidesdb_default_column_family_config();
    memset(c.comparator_name, 'x', sizeof c.comparator_name);
    CHECK("tidesdb_create_column_family", "a comparator name without an end returns an error", tidesdb_create_column_family(good.x.db, "endless", &c) != 0);
    c = tidesdb_default_column_family_config();
    c.compression_algorithm = (compression_algorithm)99;
    CHECK("tidesdb_create_column_family", "an algorithm that does not exist returns an error", tidesdb_create_column_family(good.x.db, "odd", &c) != 0);
    memset(&c, 0xff, sizeof c);
    c.commit_hook_fn = NULL;
    tidesdb_create_column_family(good.x.db, "all ones", &c);
    memset(&c, 0, sizeof c);
    int rc = tidesdb_create_column_family(good.x.db, "all zeroes", &c);
    tidesdb_column_family_t *zeroes = tidesdb_get_column_family(good.x.db, "all zeroes");
    CHECK("tidesdb_create_column_family", "all zeroes return an error or create a usable family",
          rc ? zeroes == NULL : put1(good.x.db, zeroes, "k", "v") == 0 && tidesdb_purge_cf(zeroes) == 0 && has(good.x.db, zeroes, "k", "v"));
    tidesdb_config_t config = quiet_config(fresh_path());
    config.num_flush_threads = -5, config.num_compaction_threads = -5, config.max_open_sstables = SIZE_MAX;
    config.block_cache_size = SIZE_MAX, config.max_memory_usage = SIZE_MAX, config.log_level = (tidesdb_log_level_t)77;
    tidesdb_t *db = NULL;
    rc = tidesdb_open(&config, &db);
    CHECK("tidesdb_open", "absurd numbers return an error or open a usable database",
          rc ? db == NULL : make_family(db, "cf") && tidesdb_close(db) == 0);
    good_close(&good);
}

/* ---- callbacks that call the library ---- */

typedef struct
{
    fixture_t *x;
    tidesdb_column_family_t *other;
    tidesdb_txn_t *own;
    int calls, other_rc, own_rc, depth;
} reentry_t;

static int hook_commits(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)ops, (void)count, (void)seq;
    reentry_t *r = ctx;
    r->calls++;
    r->other_rc = put1(r->x->db, r->other, "from the hook", "x");
    return 0;
}

static int hook_uses_own(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)ops, (void)count, (void)seq;
    reentry_t *r = ctx;
    r->calls++;
    r->own_rc = put_text(r->own, r->x->cf, "late", "x");
    tidesdb_txn_commit(r->own);
    tidesdb_txn_rollback(r->own);
    return 0;
}

static int hook_frees_own(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)ops, (void)count, (void)seq;
    reentry_t *r = ctx;
    r->calls++;
    tidesdb_txn_free(r->own);
    return 0;
}

static int hook_again(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)ops, (void)count, (void)seq;
    reentry_t *r = ctx;
    r->calls++;
    if (r->depth++ < 3) r->own_rc = put1(r->x->db, r->x->cf, "again", "x");
    return 0;
}

static int hook_takes_itself_off(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)ops, (void)count, (void)seq;
    reentry_t *r = ctx;
    r->calls++;
    r->own_rc = tidesdb_cf_set_commit_hook(r->x->cf, NULL, NULL);
    return 0;
}

static int compare_calls(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, void *ctx)
{
    reentry_t *r = ctx;
    /* Once is enough: the comparisons made by the nested calls run this function, too. */
    if (__atomic_fetch_add(&r->calls, 1, __ATOMIC_RELAXED) == 3)
    {
        tidesdb_db_stats_t stats;
        r->other_rc = tidesdb_get_column_family(r->x->db, "cf") == NULL;
        r->own_rc = tidesdb_get_db_stats(r->x->db, &stats);
        tidesdb_comparator_fn fn = NULL;
        void *its = NULL;
        tidesdb_get_comparator(r->x->db, "calls", &fn, &its);
    }
    return tidesdb_comparator_memcmp(a, a_size, b, b_size, NULL);
}

static int compare_nonsense(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, void *ctx)
{
    (void)a, (void)b, (void)b_size, (void)ctx;
    return a_size & 1 ? -1 : 1;
}

void test_border_callbacks(void)
{
    const char *f = "tidesdb_cf_set_commit_hook";
    fixture_t x = fixture_open();
    REQUIRE(x.cf);
    reentry_t r = {&x, make_family(x.db, "other"), NULL, 0, -99, -99, 0};
    REQUIRE(r.other && tidesdb_cf_set_commit_hook(x.cf, hook_commits, &r) == 0);
    RC(f, "a hook that commits another transaction: the commit succeeds", put1(x.db, x.cf, "k", "v"), 0);
    CHECK(f, "a hook that commits another transaction: that one succeeds too", r.other_rc == 0 && has(x.db, r.other, "from the hook", "x"));
    tidesdb_cf_set_commit_hook(x.cf, hook_uses_own, &r);
    REQUIRE(tidesdb_txn_begin(x.db, &r.own) == 0 && put_text(r.own, x.cf, "own", "1") == 0);
    RC(f, "a hook that uses its own transaction: the commit succeeds", tidesdb_txn_commit(r.own), 0);
    CHECK(f, "a hook that uses its own transaction gets an error", r.own_rc != 0 && lacks(x.db, x.cf, "late") && has(x.db, x.cf, "own", "1"));
    tidesdb_txn_free(r.own);
    tidesdb_cf_set_commit_hook(x.cf, hook_frees_own, &r);
    REQUIRE(tidesdb_txn_begin(x.db, &r.own) == 0 && put_text(r.own, x.cf, "freed", "1") == 0);
    tidesdb_txn_commit(r.own);
    tidesdb_txn_free(r.own);
    CHECK(f, "a hook that frees its own transaction does not crash", has(x.db, x.cf, "freed", "1"));
    r.calls = 0;
    tidesdb_cf_set_commit_hook(x.cf, hook_again, &r);
    RC(f, "a hook that commits to its own family", put1(x.db, x.cf, "first", "x"), 0);
    CHECK(f, "a hook that commits to its own family is called for that too", r.calls == 4 && r.own_rc == 0);
    r.calls = 0;
    tidesdb_cf_set_commit_hook(x.cf, hook_takes_itself_off, &r);
    REQUIRE(put1(x.db, x.cf, "one", "x") == 0 && put1(x.db, x.cf, "two", "x") == 0);
    CHECK(f, "a hook that removes itself is not called again", r.calls == 1 && r.own_rc == 0);

    r.calls = 0;
    f = "tidesdb_register_comparator";
    REQUIRE(tidesdb_register_comparator(x.db, "calls", compare_calls, NULL, &r) == 0);
    tidesdb_column_family_config_t c = tidesdb_default_column_family_config();
    strcpy(c.comparator_name, "calls");
    REQUIRE(tidesdb_create_column_family(x.db, "calls", &c) == 0);
    tidesdb_column_family_t *cf = tidesdb_get_column_family(x.db, "calls");
    REQUIRE(fill(x.db, cf, 0, 50) == 0);
    CHECK(f, "a comparator that calls the library", r.calls > 3 && has(x.db, cf, "key000049", "value000049"));
    /* The library may refuse this comparator; if it does not, it must not crash. */
    tidesdb_register_comparator(x.db, "nonsense", compare_nonsense, NULL, NULL);
    strcpy(c.comparator_name, "nonsense");
    tidesdb_create_column_family(x.db, "nonsense", &c);
    cf = tidesdb_get_column_family(x.db, "nonsense");
    put1(x.db, cf, "a", "1"), put1(x.db, cf, "bb", "2"), put1(x.db, cf, "ccc", "3");
    tidesdb_txn_t *t = NULL;
    tidesdb_iter_t *it = NULL;
    if (tidesdb_txn_begin(x.db, &t) == 0 && tidesdb_iter_new(t, cf, &it) == 0)
    {
        tidesdb_iter_seek_to_first(it);
        for (int i = 0; i < 20 && tidesdb_iter_valid(it); i++) tidesdb_iter_next(it);
    }
    tidesdb_iter_free(it);
    tidesdb_txn_free(t);
    tidesdb_flush_memtable(cf);
    CHECK(f, "a comparator with arbitrary results does not crash", 1);
    fixture_close(&x);
}

/* ---- one handle used by many threads ---- */

typedef struct
{
    good_t *good;
    tidesdb_iter_t *it;
    int number;
    volatile int *stop;
} crowd_t;

static void *crowd_transaction(void *argument)
{
    crowd_t *c = argument;
    for (int i = 0; i < 2000; i++)
    {
        char key[32];
        snprintf(key, sizeof key, "crowd%d-%d", c->number, i % 50);
        put_text(c->good->txn, c->good->x.cf, key, key);
        txn_has(c->good->txn, c->good->x.cf, key, key);
        if (i % 100 == 0) tidesdb_txn_savepoint(c->good->txn, "s");
        if (i % 333 == 0) tidesdb_txn_rollback_to_savepoint(c->good->txn, "s");
        if (i % 500 == 499 && tidesdb_txn_commit(c->good->txn) == 0) tidesdb_txn_reset(c->good->txn, 1);
    }
    return NULL;
}

static void *crowd_iterator(void *argument)
{
    crowd_t *c = argument;
    for (int i = 0; i < 2000; i++)
    {
        uint8_t *key, *value;
        size_t key_size, value_size;
        if ((i + c->number) % 3 == 0) tidesdb_iter_seek_to_first(c->it);
        else if (i & 1) tidesdb_iter_next(c->it);
        else tidesdb_iter_prev(c->it);
        tidesdb_iter_valid(c->it);
        /* The bytes are not read: another thread may have moved the iterator. */
        tidesdb_iter_key_value(c->it, &key, &key_size, &value, &value_size);
    }
    return NULL;
}

static void *crowd_close(void *argument)
{
    crowd_t *c = argument;
    usleep(20000);
    tidesdb_close(c->good->x.db);
    return NULL;
}

static void *crowd_work(void *argument)
{
    crowd_t *c = argument;
    while (!*c->stop)
    {
        put1(c->good->x.db, c->good->x.cf, "k", "v");
        has(c->good->x.db, c->good->x.cf, "k", "v");
        tidesdb_get_column_family(c->good->x.db, "cf");
    }
    return NULL;
}

static void *crowd_free(void *argument)
{
    crowd_t *c = argument;
    tidesdb_txn_free(c->good->txn);
    return NULL;
}

static void crowd(void *(*work)(void *), good_t *good, tidesdb_iter_t *it)
{
    pthread_t threads[4];
    crowd_t members[4];
    volatile int stop = 0;
    for (int i = 0; i < 4; i++)
    {
        members[i] = (crowd_t){good, it, i, &stop};
        pthread_create(&threads[i], NULL, work, &members[i]);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

void test_border_threads(void)
{
    good_t good = good_open();
    REQUIRE(good.txn && fill(good.x.db, good.x.cf, 0, 100) == 0);
    tidesdb_iter_t *it = NULL;
    crowd(crowd_transaction, &good, NULL);
    CHECK("(boundary)", "four threads on one transaction do not crash", 1);
    tidesdb_txn_free(good.txn);
    REQUIRE(tidesdb_txn_begin(good.x.db, &good.txn) == 0 && tidesdb_iter_new(good.txn, good.x.cf, &it) == 0);
    crowd(crowd_iterator, &good, it);
    CHECK("(boundary)", "four threads on one iterator do not crash", 1);
    tidesdb_iter_free(it);
    crowd(crowd_free, &good, NULL);
    CHECK("(boundary)", "four threads that free one transaction do not crash", 1);
    CHECK("(boundary)", "the database works afterwards", put1(good.x.db, good.x.cf, "after", "x") == 0 && has(good.x.db, good.x.cf, "after", "x"));

    volatile int stop = 0;
    pthread_t workers[3], closer;
    crowd_t members[3];
    for (int i = 0; i < 3; i++)
    {
        members[i] = (crowd_t){&good, NULL, i, &stop};
        pthread_create(&workers[i], NULL, crowd_work, &members[i]);
    }
    pthread_create(&closer, NULL, crowd_close, &members[0]);
    pthread_join(closer, NULL);
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(workers[i], NULL);
    CHECK("tidesdb_close", "with concurrent calls does not crash", 1);
    fixture_t x = good.x;
    tidesdb_config_t config = quiet_config(x.path);
    RC("tidesdb_open", "again after a close with concurrent calls", tidesdb_open(&config, &x.db), 0);
    fixture_close(&x);
}
