/* Comparators: the six built-in ones, as functions and as comparators of column families; registered ones. */
#include "harness.h"

static int sign(int n) { return (n > 0) - (n < 0); }

#define SIGN(function, behaviour, a, b, expected) EQ(#function, behaviour, sign(function(S(a), S(b), NULL)), expected)

static void test_functions(void)
{
    SIGN(tidesdb_comparator_memcmp, "orders by bytes", "a", "b", -1);
    SIGN(tidesdb_comparator_memcmp, "equal keys are equal", "ab", "ab", 0);
    SIGN(tidesdb_comparator_memcmp, "a prefix sorts before longer keys", "a", "ab", -1);
    SIGN(tidesdb_comparator_memcmp, "bytes are unsigned", "\xff", "\x01", 1);
    SIGN(tidesdb_comparator_memcmp, "compares the bytes after a NUL", "a\0b", "a\0c", -1);
    SIGN(tidesdb_comparator_reverse_memcmp, "orders by bytes, descending", "a", "b", 1);
    SIGN(tidesdb_comparator_reverse_memcmp, "equal keys are equal", "ab", "ab", 0);
    SIGN(tidesdb_comparator_reverse_memcmp, "a prefix sorts after longer keys", "a", "ab", 1);
    SIGN(tidesdb_comparator_lexicographic, "orders as strcmp", "abc", "abd", -1);
    SIGN(tidesdb_comparator_lexicographic, "equal strings are equal", "abc", "abc", 0);
    SIGN(tidesdb_comparator_lexicographic, "a prefix sorts before longer keys", "abc", "ab", 1);
    SIGN(tidesdb_comparator_lexicographic, "a NUL ends the key", "ab\0x", "ab\0y", 0);
    SIGN(tidesdb_comparator_case_insensitive, "ignores the case of letters", "ABC", "abc", 0);
    SIGN(tidesdb_comparator_case_insensitive, "orders by letters", "ABC", "abd", -1);
    SIGN(tidesdb_comparator_case_insensitive, "a prefix sorts before longer keys", "AB", "abc", -1);
    SIGN(tidesdb_comparator_case_insensitive, "only A to Z are folded", "[", "{", -1);

    uint64_t one = 1, two = 2, huge = UINT64_MAX;
    int64_t minus = -1;
#define SIGN64(function, behaviour, a, b, expected) \
    EQ(#function, behaviour, sign(function((uint8_t *)&(a), 8, (uint8_t *)&(b), 8, NULL)), expected)
    SIGN64(tidesdb_comparator_uint64, "orders as numbers of this machine", one, two, -1);
    SIGN64(tidesdb_comparator_uint64, "equal numbers are equal", two, two, 0);
    SIGN64(tidesdb_comparator_uint64, "is unsigned", huge, one, 1);
    SIGN64(tidesdb_comparator_int64, "orders as numbers of this machine", two, one, 1);
    SIGN64(tidesdb_comparator_int64, "is signed", minus, one, -1);
    SIGN64(tidesdb_comparator_int64, "equal numbers are equal", minus, minus, 0);
    SIGN(tidesdb_comparator_uint64, "other lengths compare as bytes", "ab", "b", -1);
    SIGN(tidesdb_comparator_int64, "other lengths compare as bytes", "b", "ab", 1);
}

static tidesdb_column_family_t *ordered(tidesdb_t *db, const char *name, const char *comparator)
{
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    snprintf(config.comparator_name, sizeof config.comparator_name, "%s", comparator);
    return tidesdb_create_column_family(db, name, &config) ? NULL : tidesdb_get_column_family(db, name);
}

/* Returns the keys of a column family as decimal numbers, in its order. */
static const char *numbers(tidesdb_t *db, tidesdb_column_family_t *cf)
{
    static char text[256];
    tidesdb_txn_t *t = NULL;
    tidesdb_iter_t *it = NULL;
    text[0] = 0;
    if (tidesdb_txn_begin(db, &t) || tidesdb_iter_new(t, cf, &it)) return "(no iterator)";
    for (tidesdb_iter_seek_to_first(it); tidesdb_iter_valid(it); tidesdb_iter_next(it))
    {
        uint8_t *key = NULL;
        size_t size = 0;
        int64_t n;
        if (tidesdb_iter_key(it, &key, &size) || size != 8) break;
        memcpy(&n, key, 8);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", *text ? "," : "", (long long)n);
    }
    tidesdb_iter_free(it);
    tidesdb_txn_free(t);
    return text;
}

static int put_number(tidesdb_t *db, tidesdb_column_family_t *cf, int64_t n)
{
    tidesdb_txn_t *t = NULL;
    int rc = tidesdb_txn_begin(db, &t);
    if (rc == 0) rc = tidesdb_txn_put(t, cf, (uint8_t *)&n, 8, S("n"), -1);
    if (rc == 0) rc = tidesdb_txn_commit(t);
    tidesdb_txn_free(t);
    return rc;
}

static void test_families(fixture_t *x)
{
    const char *f = "tidesdb_create_column_family";
    static const char *const keys[] = {"b", "A", "c", "ba", "B2"};
    static const struct
    {
        const char *comparator, *behaviour, *order;
    } orders[] = {{"memcmp", "the comparator memcmp, in memory and on disk", "A,B2,b,ba,c"},
                  {"reverse", "the comparator reverse, in memory and on disk", "c,ba,b,B2,A"},
                  {"case_insensitive", "the comparator case_insensitive, in memory and on disk", "A,b,B2,ba,c"}};
    for (int i = 0; i < 3; i++)
    {
        tidesdb_column_family_t *cf = ordered(x->db, orders[i].comparator, orders[i].comparator);
        REQUIRE(cf);
        for (int k = 0; k < 5; k++) REQUIRE(put1(x->db, cf, keys[k], "v") == 0);
        CHECK(f, orders[i].behaviour, !strcmp(family_keys(x->db, cf), orders[i].order));
        flush_and_wait(cf);
        CHECK(f, orders[i].behaviour, !strcmp(family_keys(x->db, cf), orders[i].order));
    }
    tidesdb_column_family_t *cf = tidesdb_get_column_family(x->db, "case_insensitive");
    REQUIRE(put1(x->db, cf, "C", "upper") == 0);
    CHECK("tidesdb_txn_get", "keys that compare equal are one key", has(x->db, cf, "c", "upper"));
    cf = tidesdb_get_column_family(x->db, "reverse");
    tidesdb_txn_t *t = NULL;
    tidesdb_iter_t *it = NULL;
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0 && tidesdb_iter_new(t, cf, &it) == 0);
    tidesdb_iter_seek(it, S("bz"));
    CHECK("tidesdb_iter_seek", "follows the comparator of a reversed family", iter_at(it, "ba"));
    tidesdb_iter_seek_for_prev(it, S("bz"));
    CHECK("tidesdb_iter_seek_for_prev", "follows the comparator of a reversed family", iter_at(it, "c"));
    tidesdb_iter_free(it);
    tidesdb_txn_free(t);

    cf = ordered(x->db, "lexicographic", "lexicographic");
    REQUIRE(cf && tidesdb_txn_begin(x->db, &t) == 0);
    for (int k = 0; k < 5; k++) tidesdb_txn_put(t, cf, (const uint8_t *)keys[k], strlen(keys[k]) + 1, S("v"), -1);
    REQUIRE(tidesdb_txn_commit(t) == 0);
    tidesdb_txn_free(t);
    uint8_t *value = NULL;
    size_t size = 0;
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
    RC(f, "the comparator lexicographic finds its keys", tidesdb_txn_get(t, cf, S("ba\0"), &value, &size), 0);
    tidesdb_free(value);
    tidesdb_txn_free(t);

    static const int64_t some[] = {300, 2, 70000, 1, 256};
    cf = ordered(x->db, "uint64", "uint64");
    REQUIRE(cf);
    for (int i = 0; i < 5; i++) REQUIRE(put_number(x->db, cf, some[i]) == 0);
    CHECK(f, "the comparator uint64, in memory and on disk", !strcmp(numbers(x->db, cf), "1,2,256,300,70000"));
    flush_and_wait(cf);
    CHECK(f, "the comparator uint64, in memory and on disk", !strcmp(numbers(x->db, cf), "1,2,256,300,70000"));
    cf = ordered(x->db, "int64", "int64");
    REQUIRE(cf);
    for (int i = 0; i < 5; i++) REQUIRE(put_number(x->db, cf, some[i]) == 0 && put_number(x->db, cf, -some[i]) == 0);
    CHECK(f, "the comparator int64, in memory and on disk", !strcmp(numbers(x->db, cf), "-70000,-300,-256,-2,-1,1,2,256,300,70000"));
    tidesdb_purge_cf(cf);
    CHECK(f, "the comparator int64, in memory and on disk", !strcmp(numbers(x->db, cf), "-70000,-300,-256,-2,-1,1,2,256,300,70000"));
    fixture_reopen(x);
    REQUIRE(x->cf);
    cf = tidesdb_get_column_family(x->db, "reverse");
    CHECK("tidesdb_open", "a built-in comparator survives a reopen", cf && !strcmp(family_keys(x->db, cf), "c,ba,b,B2,A"));
    cf = tidesdb_get_column_family(x->db, "uint64");
    CHECK("tidesdb_open", "the comparator uint64 survives a reopen", cf && !strcmp(numbers(x->db, cf), "1,2,256,300,70000"));
}

typedef struct
{
    int calls;
    int direction;
} order_ctx_t;

/* Compares by the last byte, ascending or descending as its context says. */
static int by_last_byte(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, void *ctx)
{
    order_ctx_t *order = ctx;
    int direction = 1;
    if (order)
    {
        __atomic_add_fetch(&order->calls, 1, __ATOMIC_RELAXED);
        direction = order->direction;
    }
    int by = (a_size ? a[a_size - 1] : -1) - (b_size ? b[b_size - 1] : -1);
    if (by == 0) by = (a_size > b_size) - (a_size < b_size);
    if (by == 0) by = memcmp(a, b, a_size);
    return by * direction;
}

static void test_registered(fixture_t *x)
{
    const char *f = "tidesdb_register_comparator", *g = "tidesdb_get_comparator";
    tidesdb_comparator_fn fn = NULL;
    void *ctx = NULL;
    /* Contexts must outlive the close of the database by the caller, because its flush compares keys. */
    static order_ctx_t up = {0, 1}, down = {0, -1};
    RC(f, "NULL database is an invalid argument", tidesdb_register_comparator(NULL, "n", by_last_byte, NULL, NULL), TDB_ERR_INVALID_ARGS);
    RC(f, "NULL name is an invalid argument", tidesdb_register_comparator(x->db, NULL, by_last_byte, NULL, NULL), TDB_ERR_INVALID_ARGS);
    RC(f, "NULL function is an invalid argument", tidesdb_register_comparator(x->db, "n", NULL, NULL, NULL), TDB_ERR_INVALID_ARGS);
    RC(f, "registers", tidesdb_register_comparator(x->db, "last byte", by_last_byte, NULL, &up), 0);
    RC(f, "registers with a context string", tidesdb_register_comparator(x->db, "last byte down", by_last_byte, "down", &down), 0);
    RC(g, "NULL database is an invalid argument", tidesdb_get_comparator(NULL, "memcmp", &fn, &ctx), TDB_ERR_INVALID_ARGS);
    RC(g, "NULL name is an invalid argument", tidesdb_get_comparator(x->db, NULL, &fn, &ctx), TDB_ERR_INVALID_ARGS);
    RC(g, "an unknown name is not found", tidesdb_get_comparator(x->db, "unknown", &fn, &ctx), TDB_ERR_NOT_FOUND);
    RC(g, "finds a registered one", tidesdb_get_comparator(x->db, "last byte", &fn, &ctx), 0);
    CHECK(g, "returns the function", fn == by_last_byte);
    CHECK(g, "returns the context", ctx == &up);
    static const char *const built_in[] = {"memcmp", "lexicographic", "uint64", "int64", "reverse", "case_insensitive"};
    for (int i = 0; i < 6; i++) RC(g, "the six built-in names are registered at open", tidesdb_get_comparator(x->db, built_in[i], &fn, &ctx), 0);
    REQUIRE(tidesdb_get_comparator(x->db, "reverse", &fn, &ctx) == 0);
    CHECK(g, "a built-in function compares", fn && fn(S("a"), S("b"), ctx) > 0);

    tidesdb_column_family_t *cf = ordered(x->db, "by last", "last byte"), *other = ordered(x->db, "by last down", "last byte down");
    CHECK(f, "a family can use it", cf && other);
    REQUIRE(cf && other);
    static const char *const keys[] = {"c1", "a3", "b2", "d0"};
    for (int i = 0; i < 4; i++) REQUIRE(put1(x->db, cf, keys[i], keys[i]) == 0 && put1(x->db, other, keys[i], keys[i]) == 0);
    CHECK(f, "orders the family", !strcmp(family_keys(x->db, cf), "d0,c1,b2,a3"));
    CHECK(f, "the context is passed on every call", up.calls > 0 && down.calls > 0);
    CHECK(f, "each context has its own order", !strcmp(family_keys(x->db, other), "a3,b2,c1,d0"));
    CHECK("tidesdb_txn_get", "finds keys under a registered comparator", has(x->db, cf, "a3", "a3") && lacks(x->db, cf, "a4"));
    REQUIRE(tidesdb_purge_cf(cf) == 0);
    CHECK(f, "orders files too", !strcmp(family_keys(x->db, cf), "d0,c1,b2,a3") && has(x->db, cf, "b2", "b2"));
    REQUIRE(delete1(x->db, cf, "c1") == 0 && tidesdb_purge_cf(cf) == 0);
    CHECK(f, "compaction keeps the order", !strcmp(family_keys(x->db, cf), "d0,b2,a3"));
    tidesdb_txn_t *t = NULL;
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
    put_text(t, cf, "zz1", "own");
    CHECK("tidesdb_iter_new", "own writes follow a registered comparator", !strcmp(keys_forward(t, cf), "d0,zz1,b2,a3"));
    tidesdb_txn_free(t);

    /* After a reopen: column families whose comparator is not registered yet must not return a wrong order. */
    fixture_reopen(x);
    REQUIRE(x->db);
    up.calls = 0;
    cf = tidesdb_get_column_family(x->db, "by last");
    other = tidesdb_get_column_family(x->db, "by last down");
    CHECK(f, "after a reopen without registering a family is unavailable, or correctly ordered",
          (!cf || !strcmp(family_keys(x->db, cf), "d0,b2,a3")) && (!other || !strcmp(family_keys(x->db, other), "a3,b2,c1,d0")));
    RC(f, "registers again after a reopen", tidesdb_register_comparator(x->db, "last byte", by_last_byte, NULL, &up), 0);
    RC(f, "registers a second one again after a reopen", tidesdb_register_comparator(x->db, "last byte down", by_last_byte, "down", &down), 0);
    cf = tidesdb_get_column_family(x->db, "by last");
    CHECK(f, "an existing family is readable after registering", cf && has(x->db, cf, "d0", "d0"));
    CHECK(f, "an existing family is ordered by the registered comparator", cf && !strcmp(family_keys(x->db, cf), "d0,b2,a3"));
    if (cf) put1(x->db, cf, "e1", "e1");
    CHECK(f, "new writes after a reopen follow the registered comparator", cf && !strcmp(family_keys(x->db, cf), "d0,e1,b2,a3"));
    other = tidesdb_get_column_family(x->db, "by last down");
    CHECK(f, "the second comparator works after registering", other && !strcmp(family_keys(x->db, other), "a3,b2,c1,d0"));
    x->cf = tidesdb_get_column_family(x->db, "cf");
    CHECK(f, "families with other comparators are available, too", x->cf && put1(x->db, x->cf, "k", "v") == 0);
}

void test_comparators(void)
{
    test_functions();
    fixture_t x = fixture_open();
    REQUIRE(x.cf);
    test_families(&x);
    if (x.cf) test_registered(&x);
    fixture_close(&x);
    tidesdb_config_t config = quiet_config(fresh_path());
    config.unified_memtable = 1;
    tidesdb_t *db = NULL;
    REQUIRE(tidesdb_open(&config, &db) == 0);
    tidesdb_column_family_config_t c = tidesdb_default_column_family_config();
    strcpy(c.comparator_name, "reverse");
    RC("tidesdb_create_column_family", "unified memtable: a comparator other than memcmp is an invalid argument",
       tidesdb_create_column_family(db, "reversed", &c), TDB_ERR_INVALID_ARGS);
    tidesdb_close(db);
}
