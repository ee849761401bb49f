/* Transactions: arguments, own writes, visibility, rollback, reset, several column families. */
#include "harness.h"

static void test_begin(fixture_t *x)
{
    const char *f = "tidesdb_txn_begin", *g = "tidesdb_txn_begin_with_isolation";
    tidesdb_txn_t *txn = NULL;
    RC(f, "NULL database is an invalid argument", tidesdb_txn_begin(NULL, &txn), TDB_ERR_INVALID_ARGS);
    RC(f, "NULL out pointer is an invalid argument", tidesdb_txn_begin(x->db, NULL), TDB_ERR_INVALID_ARGS);
    RC(f, "begins", tidesdb_txn_begin(x->db, &txn), 0);
    CHECK(f, "returns a handle", txn != NULL);
    tidesdb_txn_free(txn);
    RC(g, "NULL database is an invalid argument", tidesdb_txn_begin_with_isolation(NULL, 1, &txn),
       TDB_ERR_INVALID_ARGS);
    RC(g, "NULL out pointer is an invalid argument", tidesdb_txn_begin_with_isolation(x->db, 1, NULL),
       TDB_ERR_INVALID_ARGS);
    RC(g, "level -1 is an invalid argument", tidesdb_txn_begin_with_isolation(x->db, (tidesdb_isolation_level_t)-1, &txn),
       TDB_ERR_INVALID_ARGS);
    RC(g, "level 5 is an invalid argument", tidesdb_txn_begin_with_isolation(x->db, (tidesdb_isolation_level_t)5, &txn),
       TDB_ERR_INVALID_ARGS);
    for (int level = 0; level <= 4; level++)
    {
        txn = NULL;
        RC(g, "each of the five levels begins", tidesdb_txn_begin_with_isolation(x->db, level, &txn), 0);
        RC("tidesdb_txn_commit", "a transaction without operations commits", tidesdb_txn_commit(txn), 0);
        tidesdb_txn_free(txn);
    }
    tidesdb_txn_free(NULL);
    CHECK("tidesdb_txn_free", "NULL is allowed", 1);
}

static void test_arguments(fixture_t *x, tidesdb_txn_t *t)
{
    uint8_t *value = NULL;
    size_t size = 0;
    const int bad = TDB_ERR_INVALID_ARGS;
    RC("tidesdb_txn_put", "NULL transaction is an invalid argument", tidesdb_txn_put(NULL, x->cf, S("k"), S("v"), -1), bad);
    RC("tidesdb_txn_put", "NULL family is an invalid argument", tidesdb_txn_put(t, NULL, S("k"), S("v"), -1), bad);
    RC("tidesdb_txn_put", "NULL key is an invalid argument", tidesdb_txn_put(t, x->cf, NULL, 3, S("v"), -1), bad);
    RC("tidesdb_txn_put", "an empty key is an invalid argument", tidesdb_txn_put(t, x->cf, S(""), S("v"), -1), bad);
    RC("tidesdb_txn_put", "NULL value with a length is an invalid argument", tidesdb_txn_put(t, x->cf, S("k"), NULL, 3, -1), bad);
    RC("tidesdb_txn_get", "NULL transaction is an invalid argument", tidesdb_txn_get(NULL, x->cf, S("k"), &value, &size), bad);
    RC("tidesdb_txn_get", "NULL family is an invalid argument", tidesdb_txn_get(t, NULL, S("k"), &value, &size), bad);
    RC("tidesdb_txn_get", "NULL key is an invalid argument", tidesdb_txn_get(t, x->cf, NULL, 1, &value, &size), bad);
    RC("tidesdb_txn_get", "an empty key is an invalid argument", tidesdb_txn_get(t, x->cf, S(""), &value, &size), bad);
    RC("tidesdb_txn_get", "NULL value pointer is an invalid argument", tidesdb_txn_get(t, x->cf, S("k"), NULL, &size), bad);
    RC("tidesdb_txn_get", "NULL size pointer is an invalid argument", tidesdb_txn_get(t, x->cf, S("k"), &value, NULL), bad);
    RC("tidesdb_txn_get_notrack", "NULL transaction is an invalid argument", tidesdb_txn_get_notrack(NULL, x->cf, S("k"), &value, &size), bad);
    RC("tidesdb_txn_get_notrack", "NULL family is an invalid argument", tidesdb_txn_get_notrack(t, NULL, S("k"), &value, &size), bad);
    RC("tidesdb_txn_get_notrack", "NULL key is an invalid argument", tidesdb_txn_get_notrack(t, x->cf, NULL, 1, &value, &size), bad);
    RC("tidesdb_txn_get_notrack", "NULL value pointer is an invalid argument", tidesdb_txn_get_notrack(t, x->cf, S("k"), NULL, &size), bad);
    RC("tidesdb_txn_contains", "NULL transaction is an invalid argument", tidesdb_txn_contains(NULL, x->cf, S("k")), bad);
    RC("tidesdb_txn_contains", "NULL family is an invalid argument", tidesdb_txn_contains(t, NULL, S("k")), bad);
    RC("tidesdb_txn_contains", "NULL key is an invalid argument", tidesdb_txn_contains(t, x->cf, NULL, 1), bad);
    RC("tidesdb_txn_delete", "NULL transaction is an invalid argument", tidesdb_txn_delete(NULL, x->cf, S("k")), bad);
    RC("tidesdb_txn_delete", "NULL family is an invalid argument", tidesdb_txn_delete(t, NULL, S("k")), bad);
    RC("tidesdb_txn_delete", "NULL key is an invalid argument", tidesdb_txn_delete(t, x->cf, NULL, 1), bad);
    RC("tidesdb_txn_delete", "an empty key is an invalid argument", tidesdb_txn_delete(t, x->cf, S("")), bad);
    RC("tidesdb_txn_single_delete", "NULL transaction is an invalid argument", tidesdb_txn_single_delete(NULL, x->cf, S("k")), bad);
    RC("tidesdb_txn_single_delete", "NULL family is an invalid argument", tidesdb_txn_single_delete(t, NULL, S("k")), bad);
    RC("tidesdb_txn_single_delete", "NULL key is an invalid argument", tidesdb_txn_single_delete(t, x->cf, NULL, 1), bad);
    RC("tidesdb_txn_commit", "NULL is an invalid argument", tidesdb_txn_commit(NULL), bad);
    RC("tidesdb_txn_rollback", "NULL is an invalid argument", tidesdb_txn_rollback(NULL), bad);
    RC("tidesdb_txn_reset", "NULL is an invalid argument", tidesdb_txn_reset(NULL, 1), bad);
}

static void test_own_writes(fixture_t *x)
{
    tidesdb_txn_t *t = NULL;
    uint8_t *value = NULL;
    size_t size = 9;
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
    RC("tidesdb_txn_get", "an absent key is not found", tidesdb_txn_get(t, x->cf, S("none"), &value, &size),
       TDB_ERR_NOT_FOUND);
    RC("tidesdb_txn_put", "accepts a key and a value", tidesdb_txn_put(t, x->cf, S("own"), S("1"), -1), 0);
    CHECK("tidesdb_txn_get", "sees the transaction's own write", txn_has(t, x->cf, "own", "1"));
    CHECK("tidesdb_txn_put", "is invisible to others before the commit", lacks(x->db, x->cf, "own"));
    tidesdb_txn_put(t, x->cf, S("own"), S("22"), -1);
    CHECK("tidesdb_txn_put", "the last own write of a key counts", txn_has(t, x->cf, "own", "22"));
    RC("tidesdb_txn_contains", "finds the transaction's own write", tidesdb_txn_contains(t, x->cf, S("own")), 0);
    RC("tidesdb_txn_get_notrack", "sees the transaction's own write", ({
           int rc = tidesdb_txn_get_notrack(t, x->cf, S("own"), &value, &size);
           if (rc == 0) tidesdb_free(value);
           rc;
       }),
       0);
    RC("tidesdb_txn_delete", "accepts an own key", tidesdb_txn_delete(t, x->cf, S("own")), 0);
    CHECK("tidesdb_txn_delete", "hides the own write in the transaction", txn_lacks(t, x->cf, "own"));
    RC("tidesdb_txn_contains", "does not find a key that the transaction deleted", tidesdb_txn_contains(t, x->cf, S("own")),
       TDB_ERR_NOT_FOUND);
    RC("tidesdb_txn_get_notrack", "does not find a key that the transaction deleted",
       tidesdb_txn_get_notrack(t, x->cf, S("own"), &value, &size), TDB_ERR_NOT_FOUND);
    tidesdb_txn_put(t, x->cf, S("own"), S("3"), -1);
    CHECK("tidesdb_txn_put", "after an own delete makes the key visible again", txn_has(t, x->cf, "own", "3"));
    RC("tidesdb_txn_put", "an empty value", tidesdb_txn_put(t, x->cf, S("empty"), S(""), -1), 0);
    RC("tidesdb_txn_put", "a NULL value is an invalid argument also with length 0", tidesdb_txn_put(t, x->cf, S("null"), NULL, 0, -1), TDB_ERR_INVALID_ARGS);
    RC("tidesdb_txn_delete", "an absent key is not an error", tidesdb_txn_delete(t, x->cf, S("never")), 0);
    RC("tidesdb_txn_commit", "commits", tidesdb_txn_commit(t), 0);
    CHECK("tidesdb_txn_commit", "makes the writes visible", has(x->db, x->cf, "own", "3"));
    CHECK("tidesdb_txn_get", "an empty value is found with length 0", has(x->db, x->cf, "empty", ""));
    RC("tidesdb_txn_commit", "twice is an invalid argument", tidesdb_txn_commit(t), TDB_ERR_INVALID_ARGS);
    RC("tidesdb_txn_put", "after the commit is an invalid argument", tidesdb_txn_put(t, x->cf, S("k"), S("v"), -1), TDB_ERR_INVALID_ARGS);
    RC("tidesdb_txn_delete", "after the commit is an invalid argument", tidesdb_txn_delete(t, x->cf, S("k")), TDB_ERR_INVALID_ARGS);
    RC("tidesdb_txn_get", "after the commit is an invalid argument", tidesdb_txn_get(t, x->cf, S("own"), &value, &size), TDB_ERR_INVALID_ARGS);
    tidesdb_iter_t *it = NULL;
    CHECK("tidesdb_iter_new", "after the commit is an error", tidesdb_iter_new(t, x->cf, &it) != 0);
    CHECK("tidesdb_txn_contains", "after the commit is an error", tidesdb_txn_contains(t, x->cf, S("own")) < 0);
    CHECK("tidesdb_txn_rollback", "after the commit undoes nothing",
          (tidesdb_txn_rollback(t), has(x->db, x->cf, "own", "3")));
    tidesdb_txn_free(t);
}

static void test_bytes(fixture_t *x)
{
    tidesdb_txn_t *t = NULL;
    uint8_t *value = NULL, key[256], *big = malloc(3 << 20);
    size_t size = 0;
    for (int i = 0; i < 256; i++) key[i] = (uint8_t)i;
    for (int i = 0; i < 3 << 20; i++) big[i] = (uint8_t)(i * 31 >> 3);
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
    RC("tidesdb_txn_put", "a key of all 256 bytes, with NULs", tidesdb_txn_put(t, x->cf, key, 256, key, 256, -1), 0);
    RC("tidesdb_txn_put", "a value of 3 MiB", tidesdb_txn_put(t, x->cf, S("big"), big, 3 << 20, -1), 0);
    RC("tidesdb_txn_put", "a key of 8000 bytes", tidesdb_txn_put(t, x->cf, big, 8000, S("long"), -1), 0);
    REQUIRE(tidesdb_txn_commit(t) == 0);
    tidesdb_txn_free(t);
    for (int flushed = 0; flushed < 2; flushed++)
    {
        if (flushed) tidesdb_purge_cf(x->cf);
        REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
        CHECK("tidesdb_txn_get", "returns binary keys and values, before and after a flush",
              !tidesdb_txn_get(t, x->cf, key, 256, &value, &size) && size == 256 && !memcmp(value, key, 256));
        tidesdb_free(value), value = NULL;
        CHECK("tidesdb_txn_get", "returns 3 MiB, before and after a flush",
              !tidesdb_txn_get(t, x->cf, S("big"), &value, &size) && size == 3 << 20 && !memcmp(value, big, size));
        tidesdb_free(value), value = NULL;
        CHECK("tidesdb_txn_get", "finds a key of 8000 bytes", !tidesdb_txn_get(t, x->cf, big, 8000, &value, &size));
        tidesdb_free(value), value = NULL;
        tidesdb_txn_free(t);
    }
    free(big);
}

static void test_rollback(fixture_t *x)
{
    const char *f = "tidesdb_txn_rollback";
    tidesdb_txn_t *t = NULL;
    REQUIRE(put1(x->db, x->cf, "kept", "old") == 0 && tidesdb_txn_begin(x->db, &t) == 0);
    put_text(t, x->cf, "kept", "new");
    put_text(t, x->cf, "rolled", "x");
    RC(f, "succeeds", tidesdb_txn_rollback(t), 0);
    CHECK(f, "undoes new keys", lacks(x->db, x->cf, "rolled"));
    CHECK(f, "undoes overwrites", has(x->db, x->cf, "kept", "old"));
    RC("tidesdb_txn_put", "after a rollback is an invalid argument", put_text(t, x->cf, "late", "x"), TDB_ERR_INVALID_ARGS);
    RC("tidesdb_txn_commit", "after a rollback is an invalid argument", tidesdb_txn_commit(t), TDB_ERR_INVALID_ARGS);
    tidesdb_txn_free(t);
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
    put_text(t, x->cf, "freed", "x");
    tidesdb_txn_free(t);
    CHECK("tidesdb_txn_free", "without a commit discards the writes", lacks(x->db, x->cf, "freed"));
}

static void test_reset(fixture_t *x)
{
    const char *f = "tidesdb_txn_reset";
    tidesdb_txn_t *t = NULL;
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
    put_text(t, x->cf, "r1", "1");
    RC(f, "an active transaction is an invalid argument", tidesdb_txn_reset(t, 1), TDB_ERR_INVALID_ARGS);
    CHECK(f, "a refused reset changes nothing", txn_has(t, x->cf, "r1", "1"));
    REQUIRE(tidesdb_txn_commit(t) == 0);
    RC(f, "level 5 is an invalid argument", tidesdb_txn_reset(t, (tidesdb_isolation_level_t)5), TDB_ERR_INVALID_ARGS);
    RC(f, "level -1 is an invalid argument", tidesdb_txn_reset(t, (tidesdb_isolation_level_t)-1), TDB_ERR_INVALID_ARGS);
    RC(f, "after a commit", tidesdb_txn_reset(t, TDB_ISOLATION_READ_COMMITTED), 0);
    CHECK(f, "a reset transaction sees committed data", txn_has(t, x->cf, "r1", "1"));
    put_text(t, x->cf, "r2", "2");
    RC("tidesdb_txn_commit", "works after a reset", tidesdb_txn_commit(t), 0);
    CHECK(f, "the second use commits its own writes", has(x->db, x->cf, "r2", "2"));
    for (int i = 0; i < 5; i++)
    {
        RC(f, "to each of the five levels", tidesdb_txn_reset(t, i), 0);
        put_text(t, x->cf, "r3", "3");
        REQUIRE(tidesdb_txn_rollback(t) == 0);
    }
    CHECK(f, "after a rollback discards all its writes",
          tidesdb_txn_reset(t, TDB_ISOLATION_READ_COMMITTED) == 0 && txn_lacks(t, x->cf, "r3"));
    tidesdb_txn_rollback(t);
    REQUIRE(tidesdb_txn_reset(t, TDB_ISOLATION_REPEATABLE_READ) == 0);
    REQUIRE(put1(x->db, x->cf, "r4", "later") == 0);
    CHECK(f, "takes a fresh snapshot at the new level", txn_lacks(t, x->cf, "r4"));
    tidesdb_txn_free(t);
}

static void test_families(fixture_t *x)
{
    const char *f = "tidesdb_txn_commit";
    tidesdb_column_family_t *other = make_family(x->db, "other");
    tidesdb_txn_t *t = NULL;
    REQUIRE(other && tidesdb_txn_begin(x->db, &t) == 0);
    put_text(t, x->cf, "both", "1");
    put_text(t, other, "both", "2");
    CHECK("tidesdb_txn_get", "keeps the families of a transaction separate",
          txn_has(t, x->cf, "both", "1") && txn_has(t, other, "both", "2"));
    RC(f, "commits to several families", tidesdb_txn_commit(t), 0);
    tidesdb_txn_free(t);
    CHECK(f, "every family has its writes", has(x->db, x->cf, "both", "1") && has(x->db, other, "both", "2"));
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
    put_text(t, x->cf, "neither", "1");
    put_text(t, other, "neither", "2");
    tidesdb_txn_rollback(t);
    tidesdb_txn_free(t);
    CHECK("tidesdb_txn_rollback", "undoes every family", lacks(x->db, x->cf, "neither") && lacks(x->db, other, "neither"));

    /* After a conflict in one column family the other one is unchanged, too. */
    tidesdb_txn_t *a = NULL, *b = NULL;
    REQUIRE(tidesdb_txn_begin_with_isolation(x->db, TDB_ISOLATION_SNAPSHOT, &a) == 0);
    REQUIRE(tidesdb_txn_begin_with_isolation(x->db, TDB_ISOLATION_SNAPSHOT, &b) == 0);
    put_text(a, x->cf, "fought", "a");
    put_text(b, other, "peaceful", "b");
    put_text(b, x->cf, "fought", "b");
    REQUIRE(tidesdb_txn_commit(a) == 0);
    RC(f, "a conflict in one family refuses all", tidesdb_txn_commit(b), TDB_ERR_CONFLICT);
    CHECK(f, "no write of a refused transaction is applied", lacks(x->db, other, "peaceful"));
    tidesdb_txn_free(a), tidesdb_txn_free(b);

    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
    for (int i = 0; i < 20000; i++)
    {
        char key[32];
        snprintf(key, sizeof key, "many%06d", i);
        REQUIRE(put_text(t, i & 1 ? x->cf : other, key, key) == 0);
    }
    RC(f, "20000 operations at once", tidesdb_txn_commit(t), 0);
    tidesdb_txn_free(t);
    CHECK(f, "the last of many operations is applied", has(x->db, x->cf, "many019999", "many019999"));
    fixture_reopen(x);
    REQUIRE(x->cf && (other = tidesdb_get_column_family(x->db, "other")));
    CHECK(f, "every family's writes survive a reopen",
          has(x->db, x->cf, "both", "1") && has(x->db, other, "both", "2") && has(x->db, other, "many019998", "many019998"));
}

static void test_deletes(fixture_t *x)
{
    REQUIRE(put1(x->db, x->cf, "d1", "1") == 0 && put1(x->db, x->cf, "d2", "2") == 0 && put1(x->db, x->cf, "d3", "3") == 0);
    REQUIRE(delete1(x->db, x->cf, "d1") == 0);
    CHECK("tidesdb_txn_delete", "a committed delete hides the key", lacks(x->db, x->cf, "d1"));
    tidesdb_txn_t *t = NULL;
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
    RC("tidesdb_txn_single_delete", "accepts a key", tidesdb_txn_single_delete(t, x->cf, S("d2")), 0);
    CHECK("tidesdb_txn_single_delete", "hides the key in its own transaction", txn_lacks(t, x->cf, "d2"));
    CHECK("tidesdb_txn_single_delete", "is invisible to others before the commit", has(x->db, x->cf, "d2", "2"));
    RC("tidesdb_txn_contains", "finds a committed key", tidesdb_txn_contains(t, x->cf, S("d3")), 0);
    RC("tidesdb_txn_contains", "an absent key is not found", tidesdb_txn_contains(t, x->cf, S("nowhere")), TDB_ERR_NOT_FOUND);
    RC("tidesdb_txn_contains", "a deleted key is not found", tidesdb_txn_contains(t, x->cf, S("d1")), TDB_ERR_NOT_FOUND);
    REQUIRE(tidesdb_txn_commit(t) == 0);
    tidesdb_txn_free(t);
    CHECK("tidesdb_txn_single_delete", "a committed one hides the key", lacks(x->db, x->cf, "d2"));
    REQUIRE(put1(x->db, x->cf, "d2", "again") == 0);
    CHECK("tidesdb_txn_single_delete", "the key can be put again", has(x->db, x->cf, "d2", "again"));
    REQUIRE(tidesdb_purge_cf(x->cf) == 0);
    CHECK("tidesdb_txn_delete", "stays deleted after flush and compaction", lacks(x->db, x->cf, "d1"));
    CHECK("tidesdb_txn_single_delete", "a key put again stays after flush and compaction", has(x->db, x->cf, "d2", "again"));
}

void test_txn(void)
{
    fixture_t x = fixture_open();
    REQUIRE(x.cf);
    test_begin(&x);
    tidesdb_txn_t *t = NULL;
    REQUIRE(tidesdb_txn_begin(x.db, &t) == 0);
    test_arguments(&x, t);
    tidesdb_txn_free(t);
    test_own_writes(&x);
    test_bytes(&x);
    test_rollback(&x);
    test_reset(&x);
    test_deletes(&x);
    test_families(&x);
    fixture_close(&x);
}
