/* Iterators: both directions, seeks, changes of direction, deletes, own writes, their snapshot. */
#include "harness.h"

static tidesdb_iter_t *open_iter(tidesdb_txn_t *t, tidesdb_column_family_t *cf)
{
    tidesdb_iter_t *it = NULL;
    tidesdb_iter_new(t, cf, &it);
    return it;
}

static void test_arguments(fixture_t *x, tidesdb_txn_t *t)
{
    const int bad = TDB_ERR_INVALID_ARGS;
    tidesdb_iter_t *it = NULL;
    uint8_t *key = NULL, *value = NULL;
    size_t key_size = 0, value_size = 0;
    RC("tidesdb_iter_new", "NULL transaction is an invalid argument", tidesdb_iter_new(NULL, x->cf, &it), bad);
    RC("tidesdb_iter_new", "NULL family is an invalid argument", tidesdb_iter_new(t, NULL, &it), bad);
    RC("tidesdb_iter_new", "NULL out pointer is an invalid argument", tidesdb_iter_new(t, x->cf, NULL), bad);
    RC("tidesdb_iter_seek", "NULL iterator is an invalid argument", tidesdb_iter_seek(NULL, S("a")), bad);
    RC("tidesdb_iter_seek_for_prev", "NULL iterator is an invalid argument", tidesdb_iter_seek_for_prev(NULL, S("a")), bad);
    RC("tidesdb_iter_seek_to_first", "NULL is an invalid argument", tidesdb_iter_seek_to_first(NULL), bad);
    RC("tidesdb_iter_seek_to_last", "NULL is an invalid argument", tidesdb_iter_seek_to_last(NULL), bad);
    RC("tidesdb_iter_next", "NULL is an invalid argument", tidesdb_iter_next(NULL), bad);
    RC("tidesdb_iter_prev", "NULL is an invalid argument", tidesdb_iter_prev(NULL), bad);
    RC("tidesdb_iter_valid", "NULL is not valid", tidesdb_iter_valid(NULL), 0);
    RC("tidesdb_iter_key", "NULL iterator is an invalid argument", tidesdb_iter_key(NULL, &key, &key_size), bad);
    RC("tidesdb_iter_value", "NULL iterator is an invalid argument", tidesdb_iter_value(NULL, &value, &value_size), bad);
    RC("tidesdb_iter_key_value", "NULL iterator is an invalid argument",
       tidesdb_iter_key_value(NULL, &key, &key_size, &value, &value_size), bad);
    tidesdb_iter_free(NULL);
    CHECK("tidesdb_iter_free", "NULL is allowed", 1);
    it = open_iter(t, x->cf);
    REQUIRE(it);
    RC("tidesdb_iter_seek", "NULL key is an invalid argument", tidesdb_iter_seek(it, NULL, 3), bad);
    RC("tidesdb_iter_seek_for_prev", "NULL key is an invalid argument", tidesdb_iter_seek_for_prev(it, NULL, 3), bad);
    RC("tidesdb_iter_valid", "an iterator that was never positioned is not valid", tidesdb_iter_valid(it), 0);
    CHECK("tidesdb_iter_key", "without a position is an error", tidesdb_iter_key(it, &key, &key_size) != 0);
    CHECK("tidesdb_iter_value", "without a position is an error", tidesdb_iter_value(it, &value, &value_size) != 0);
    CHECK("tidesdb_iter_key_value", "without a position is an error",
          tidesdb_iter_key_value(it, &key, &key_size, &value, &value_size) != 0);
    tidesdb_iter_seek_to_first(it);
    RC("tidesdb_iter_key", "NULL key pointer is an invalid argument", tidesdb_iter_key(it, NULL, &key_size), bad);
    RC("tidesdb_iter_key", "NULL size pointer is an invalid argument", tidesdb_iter_key(it, &key, NULL), bad);
    RC("tidesdb_iter_value", "NULL value pointer is an invalid argument", tidesdb_iter_value(it, NULL, &value_size), bad);
    RC("tidesdb_iter_value", "NULL size pointer is an invalid argument", tidesdb_iter_value(it, &value, NULL), bad);
    RC("tidesdb_iter_key_value", "NULL pointers are an invalid argument",
       tidesdb_iter_key_value(it, &key, &key_size, NULL, NULL), bad);
    tidesdb_iter_free(it);
}

static void test_empty(fixture_t *x)
{
    tidesdb_column_family_t *empty = make_family(x->db, "empty");
    tidesdb_txn_t *t = NULL;
    REQUIRE(empty && tidesdb_txn_begin(x->db, &t) == 0);
    tidesdb_iter_t *it = open_iter(t, empty);
    REQUIRE(it);
    tidesdb_iter_seek_to_first(it);
    CHECK("tidesdb_iter_seek_to_first", "in an empty family is not valid", !tidesdb_iter_valid(it));
    tidesdb_iter_seek_to_last(it);
    CHECK("tidesdb_iter_seek_to_last", "in an empty family is not valid", !tidesdb_iter_valid(it));
    tidesdb_iter_seek(it, S("a"));
    CHECK("tidesdb_iter_seek", "in an empty family is not valid", !tidesdb_iter_valid(it));
    tidesdb_iter_seek_for_prev(it, S("a"));
    CHECK("tidesdb_iter_seek_for_prev", "in an empty family is not valid", !tidesdb_iter_valid(it));
    CHECK("tidesdb_iter_next", "in an empty family stays not valid", (tidesdb_iter_next(it), !tidesdb_iter_valid(it)));
    CHECK("tidesdb_iter_prev", "in an empty family stays not valid", (tidesdb_iter_prev(it), !tidesdb_iter_valid(it)));
    tidesdb_iter_free(it);
    tidesdb_txn_free(t);
}

static void test_walks(fixture_t *x, const char *where)
{
    char name[120];
#define NAMED(text) (snprintf(name, sizeof name, "%s, %s", text, where), name)
    tidesdb_txn_t *t = NULL;
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
    CHECK("tidesdb_iter_next", NAMED("returns all keys in order"), !strcmp(keys_forward(t, x->cf), "b,d,f,h,j"));
    CHECK("tidesdb_iter_prev", NAMED("returns all keys in reverse order"), !strcmp(keys_backward(t, x->cf), "j,h,f,d,b"));
    tidesdb_iter_t *it = open_iter(t, x->cf);
    REQUIRE(it);
    tidesdb_iter_seek_to_first(it);
    CHECK("tidesdb_iter_seek_to_first", NAMED("is on the first key"), iter_at(it, "b"));
    tidesdb_iter_seek_to_last(it);
    CHECK("tidesdb_iter_seek_to_last", NAMED("is on the last key"), iter_at(it, "j"));
    RC("tidesdb_iter_seek", NAMED("succeeds"), tidesdb_iter_seek(it, S("d")), 0);
    CHECK("tidesdb_iter_seek", NAMED("is on an existing key"), iter_at(it, "d"));
    tidesdb_iter_seek(it, S("e"));
    CHECK("tidesdb_iter_seek", NAMED("is on the next greater key"), iter_at(it, "f"));
    tidesdb_iter_seek(it, S("a"));
    CHECK("tidesdb_iter_seek", NAMED("before the first key is on the first"), iter_at(it, "b"));
    tidesdb_iter_seek(it, S("k"));
    CHECK("tidesdb_iter_seek", NAMED("after the last is not valid"), !tidesdb_iter_valid(it));
    tidesdb_iter_seek(it, S("c"));
    CHECK("tidesdb_iter_seek", NAMED("works again after the end"), iter_at(it, "d"));
    RC("tidesdb_iter_seek_for_prev", NAMED("succeeds"), tidesdb_iter_seek_for_prev(it, S("d")), 0);
    CHECK("tidesdb_iter_seek_for_prev", NAMED("is on an existing key"), iter_at(it, "d"));
    tidesdb_iter_seek_for_prev(it, S("e"));
    CHECK("tidesdb_iter_seek_for_prev", NAMED("is on the next smaller key"), iter_at(it, "d"));
    tidesdb_iter_seek_for_prev(it, S("z"));
    CHECK("tidesdb_iter_seek_for_prev", NAMED("after the last key is on the last"), iter_at(it, "j"));
    tidesdb_iter_seek_for_prev(it, S("a"));
    CHECK("tidesdb_iter_seek_for_prev", NAMED("before the first is not valid"), !tidesdb_iter_valid(it));
    tidesdb_iter_seek_for_prev(it, S("g"));
    tidesdb_iter_prev(it);
    CHECK("tidesdb_iter_seek_for_prev", NAMED("can be followed by prev"), iter_at(it, "d"));
    tidesdb_iter_seek(it, S("d"));
    tidesdb_iter_next(it);
    CHECK("tidesdb_iter_next", NAMED("steps to the next key"), iter_at(it, "f"));
    tidesdb_iter_prev(it);
    CHECK("tidesdb_iter_prev", NAMED("a change of direction steps back"), iter_at(it, "d"));
    tidesdb_iter_prev(it);
    CHECK("tidesdb_iter_prev", NAMED("steps to the previous key"), iter_at(it, "b"));
    tidesdb_iter_next(it);
    CHECK("tidesdb_iter_next", NAMED("a change of direction steps forward"), iter_at(it, "d"));
    tidesdb_iter_seek_to_last(it);
    tidesdb_iter_next(it);
    CHECK("tidesdb_iter_next", NAMED("past the last is not valid"), !tidesdb_iter_valid(it));
    tidesdb_iter_seek_to_first(it);
    tidesdb_iter_prev(it);
    CHECK("tidesdb_iter_prev", NAMED("before the first is not valid"), !tidesdb_iter_valid(it));
    tidesdb_iter_free(it);
    tidesdb_txn_free(t);
#undef NAMED
}

static void test_borrowed(fixture_t *x)
{
    tidesdb_txn_t *t = NULL;
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
    tidesdb_iter_t *it = open_iter(t, x->cf);
    uint8_t *key = NULL, *value = NULL, *key2 = NULL, *value2 = NULL;
    size_t key_size = 0, value_size = 0, key2_size = 0, value2_size = 0;
    REQUIRE(it);
    tidesdb_iter_seek(it, S("d"));
    RC("tidesdb_iter_key", "succeeds", tidesdb_iter_key(it, &key, &key_size), 0);
    RC("tidesdb_iter_value", "succeeds", tidesdb_iter_value(it, &value, &value_size), 0);
    CHECK("tidesdb_iter_value", "returns the value of the key", value_size == 2 && !memcmp(value, "dd", 2));
    RC("tidesdb_iter_key_value", "succeeds", tidesdb_iter_key_value(it, &key2, &key2_size, &value2, &value2_size), 0);
    CHECK("tidesdb_iter_key_value", "returns the same as the two single calls",
          key_size == key2_size && !memcmp(key, key2, key_size) && value_size == value2_size && !memcmp(value, value2, value_size));
    CHECK("tidesdb_iter_key", "its pointer stays valid across further reads of the same entry", key_size == 1 && *key == 'd');
    /* Other calls on the transaction do not invalidate the borrowed bytes. */
    CHECK("tidesdb_iter_value", "its pointer stays valid across a get", txn_has(t, x->cf, "b", "bb") && !memcmp(value, "dd", 2));
    tidesdb_iter_free(it);
    tidesdb_txn_free(t);
}

static void test_snapshot(fixture_t *x)
{
    const char *f = "tidesdb_iter_new";
    tidesdb_txn_t *t = NULL;
    REQUIRE(tidesdb_txn_begin_with_isolation(x->db, TDB_ISOLATION_SNAPSHOT, &t) == 0);
    tidesdb_iter_t *it = open_iter(t, x->cf);
    REQUIRE(it);
    tidesdb_iter_seek_to_first(it);
    REQUIRE(put1(x->db, x->cf, "c", "new") == 0 && delete1(x->db, x->cf, "h") == 0 && put1(x->db, x->cf, "d", "changed") == 0);
    char seen[64] = "";
    for (; tidesdb_iter_valid(it); tidesdb_iter_next(it))
    {
        uint8_t *key = NULL, *value = NULL;
        size_t size = 0, value_size = 0;
        if (tidesdb_iter_key_value(it, &key, &size, &value, &value_size)) break;
        snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%.*s%.*s", (int)size, key, (int)value_size, value);
    }
    CHECK(f, "sees its snapshot, whatever others commit", !strcmp(seen, "bbbdddfffhhhjjj"));
    CHECK(f, "a later one in the same snapshot sees the same", !strcmp(keys_forward(t, x->cf), "b,d,f,h,j"));
    flush_and_wait(x->cf);
    CHECK(f, "a snapshot survives a flush", !strcmp(keys_backward(t, x->cf), "j,h,f,d,b"));
    tidesdb_iter_free(it);
    tidesdb_txn_free(t);
    CHECK("tidesdb_iter_next", "skips deleted keys", !strcmp(family_keys(x->db, x->cf), "b,c,d,f,j"));
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
    CHECK("tidesdb_iter_prev", "skips deleted keys", !strcmp(keys_backward(t, x->cf), "j,f,d,c,b"));
    it = open_iter(t, x->cf);
    REQUIRE(it);
    tidesdb_iter_seek(it, S("h"));
    CHECK("tidesdb_iter_seek", "to a deleted key is on the next one", iter_at(it, "j"));
    tidesdb_iter_seek_for_prev(it, S("h"));
    CHECK("tidesdb_iter_seek_for_prev", "to a deleted key is on the previous one", iter_at(it, "f"));
    tidesdb_iter_free(it);
    tidesdb_txn_free(t);
}

static void test_own_writes(fixture_t *x)
{
    const char *f = "tidesdb_iter_new";
    tidesdb_column_family_t *cf = make_family(x->db, "own");
    REQUIRE(cf && put1(x->db, cf, "b", "committed") == 0 && put1(x->db, cf, "d", "committed") == 0);
    tidesdb_txn_t *t = NULL;
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
    put_text(t, cf, "a", "own"), put_text(t, cf, "c", "own"), put_text(t, cf, "e", "own");
    CHECK(f, "sees the transaction's own writes, forward", !strcmp(keys_forward(t, cf), "a,b,c,d,e"));
    CHECK(f, "sees the transaction's own writes, backward", !strcmp(keys_backward(t, cf), "e,d,c,b,a"));
    tidesdb_txn_delete(t, cf, S("b"));
    put_text(t, cf, "d", "mine");
    CHECK(f, "does not see keys that the transaction deleted", !strcmp(keys_forward(t, cf), "a,c,d,e"));
    tidesdb_iter_t *it = open_iter(t, cf);
    REQUIRE(it);
    uint8_t *value = NULL;
    size_t size = 0;
    CHECK(f, "sees the transaction's own overwrite",
          tidesdb_iter_seek(it, S("d")) == 0 && !tidesdb_iter_value(it, &value, &size) && size == 4 && !memcmp(value, "mine", 4));
    tidesdb_iter_free(it);
    CHECK(f, "others do not see uncommitted writes", !strcmp(family_keys(x->db, cf), "b,d"));
    tidesdb_txn_rollback(t);
    tidesdb_txn_free(t);
}

static void test_many(fixture_t *x)
{
    tidesdb_column_family_t *cf = make_family(x->db, "many");
    REQUIRE(cf && fill(x->db, cf, 0, 4000) == 0 && flush_and_wait(cf) == 0 && fill(x->db, cf, 2000, 6000) == 0);
    REQUIRE(flush_and_wait(cf) == 0 && fill(x->db, cf, 6000, 7000) == 0);
    tidesdb_txn_t *t = NULL;
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0);
    tidesdb_iter_t *it = open_iter(t, cf);
    REQUIRE(it);
    int n = 0, ordered = 1, right = 1;
    for (tidesdb_iter_seek_to_first(it); tidesdb_iter_valid(it); tidesdb_iter_next(it), n++)
    {
        uint8_t *key = NULL, *value = NULL;
        size_t size = 0, value_size = 0;
        char expected[32], text[32];
        if (tidesdb_iter_key_value(it, &key, &size, &value, &value_size)) break;
        snprintf(expected, sizeof expected, "key%06d", n);
        snprintf(text, sizeof text, "value%06d", n);
        ordered &= size == 9 && !memcmp(key, expected, 9);
        right &= value_size == 11 && !memcmp(value, text, 11);
    }
    EQ("tidesdb_iter_next", "merges memory and several files: every key once", n, 7000);
    CHECK("tidesdb_iter_next", "merges memory and several files: in order, right values", ordered && right);
    for (n = 0, tidesdb_iter_seek_to_last(it); tidesdb_iter_valid(it); tidesdb_iter_prev(it)) n++;
    EQ("tidesdb_iter_seek_to_last", "after a full scan, a second one in the other direction sees every key", n, 7000);
    tidesdb_iter_free(it);
    it = open_iter(t, cf);
    REQUIRE(it);
    for (n = 0, tidesdb_iter_seek_to_last(it); tidesdb_iter_valid(it); tidesdb_iter_prev(it)) n++;
    EQ("tidesdb_iter_prev", "merges memory and several files: every key once", n, 7000);
    tidesdb_iter_free(it);
    it = open_iter(t, cf);
    REQUIRE(it);
    int wrong = 0;
    for (int i = 0; i < 7000; i += 97)
    {
        char key[32];
        snprintf(key, sizeof key, "key%06d", i);
        wrong += tidesdb_iter_seek(it, (uint8_t *)key, 9) || !iter_at(it, key);
        wrong += tidesdb_iter_seek_for_prev(it, (uint8_t *)key, 9) || !iter_at(it, key);
    }
    EQ("tidesdb_iter_seek", "many seeks over memory and files", wrong, 0);
    for (n = 0, tidesdb_iter_seek(it, S("key0012")); tidesdb_iter_valid(it); tidesdb_iter_next(it), n++)
    {
        uint8_t *key = NULL;
        size_t size = 0;
        if (tidesdb_iter_key(it, &key, &size) || memcmp(key, "key0012", 7)) break;
    }
    EQ("tidesdb_iter_seek", "a prefix scan finds its keys", n, 100);
    tidesdb_iter_t *second = open_iter(t, cf);
    tidesdb_iter_seek_to_first(second);
    tidesdb_iter_seek_to_last(it);
    CHECK("tidesdb_iter_new", "several iterators of one transaction are independent", iter_at(second, "key000000") && iter_at(it, "key006999"));
    tidesdb_iter_free(second);
    tidesdb_iter_free(it);
    tidesdb_txn_free(t);
}

void test_iterators(void)
{
    fixture_t x = fixture_open();
    REQUIRE(x.cf);
    static const char *const pairs[][2] = {{"d", "dd"}, {"b", "bb"}, {"j", "jj"}, {"f", "ff"}, {"h", "hh"}};
    for (int i = 0; i < 5; i++) REQUIRE(put1(x.db, x.cf, pairs[i][0], pairs[i][1]) == 0);
    tidesdb_txn_t *t = NULL;
    REQUIRE(tidesdb_txn_begin(x.db, &t) == 0);
    test_arguments(&x, t);
    tidesdb_txn_free(t);
    test_empty(&x);
    test_walks(&x, "from memory");
    REQUIRE(flush_and_wait(x.cf) == 0);
    test_walks(&x, "from disk");
    test_borrowed(&x);
    test_snapshot(&x);
    test_own_writes(&x);
    test_many(&x);
    fixture_close(&x);
}
