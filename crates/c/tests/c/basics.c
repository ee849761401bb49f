/* Databases, column families, reads, writes, batches, iterators, time to live, merges. */
#include "check.h"

static void reads(perigee_db *db, perigee_family *family)
{
    perigee_pinned pinned, many[4];
    perigee_bytes keys[4] = {{"b", 1}, {"none", 4}, {"empty", 5}, {"a", 1}};
    perigee_snapshot *snapshot;
    void *value;
    char buffer[4] = "....";
    size_t size;
    int found;
    uint64_t n, bytes;

    put(family, "a", "1");
    put(family, "b", "twenty-two");
    put(family, "empty", "");
    CHECK(value_is(family, NULL, "a", "1") && value_is(family, NULL, "empty", "") && value_is(family, NULL, "none", NULL));
    OK(perigee_get(family, NULL, "b", 1, &value, NULL, &e)); /* the size is optional */
    CHECK(memcmp(value, "twenty-two", 10) == 0);
    perigee_free(value);

    OK(perigee_get_pinned(family, NULL, "b", 1, &pinned, &e));
    CHECK(pinned.size == 10 && memcmp(pinned.data, "twenty-two", 10) == 0);
    put(family, "b", "22");
    CHECK(memcmp(pinned.data, "twenty-two", 10) == 0);
    perigee_pinned_release(&pinned);
    CHECK(pinned.data == NULL);
    perigee_pinned_release(&pinned); /* no effect */
    OK(perigee_get_pinned(family, NULL, "none", 4, &pinned, &e));
    CHECK(pinned.data == NULL && pinned.size == 0);
    perigee_pinned_release(&pinned);
    OK(perigee_get_pinned(family, NULL, "empty", 5, &pinned, &e));
    CHECK(pinned.data != NULL && pinned.size == 0);
    perigee_pinned_release(&pinned);

    put(family, "b", "twenty-two");
    OK(perigee_get_into(family, NULL, "b", 1, buffer, 3, &size, &found, &e));
    CHECK(found == 1 && size == 10 && memcmp(buffer, "twe.", 4) == 0);
    OK(perigee_get_into(family, NULL, "b", 1, NULL, 0, &size, &found, &e));
    CHECK(found == 1 && size == 10);
    OK(perigee_get_into(family, NULL, "none", 4, buffer, 4, &size, &found, &e));
    CHECK(found == 0 && size == 0);

    OK(perigee_db_snapshot(db, &snapshot, &e));
    put(family, "a", "later");
    OK(perigee_get_many(family, snapshot, keys, 4, many, &e));
    CHECK(many[0].size == 10 && many[1].data == NULL && many[2].data != NULL && many[2].size == 0);
    CHECK(many[3].size == 1 && memcmp(many[3].data, "1", 1) == 0);
    for (int i = 0; i < 4; i++) perigee_pinned_release(&many[i]);
    OK(perigee_get_many(family, NULL, NULL, 0, NULL, &e));
    CHECK(value_is(family, snapshot, "a", "1") && value_is(family, NULL, "a", "later"));
    OK(perigee_contains(family, snapshot, "a", 1, &found, &e));
    CHECK(found == 1);
    perigee_snapshot_release(snapshot);
    OK(perigee_contains(family, NULL, "none", 4, &found, &e));
    CHECK(found == 0);
    OK(perigee_estimate(family, NULL, &n, &bytes, &e));
    CHECK(n >= 3 && n < 100);
    OK(perigee_delete(family, "empty", 5, &e));
    OK(perigee_delete(family, "never there", 11, &e));
    CHECK(value_is(family, NULL, "empty", NULL));
    /* Keys and values are bytes. */
    OK(perigee_put(family, "k\0y", 3, "v\0\0", 3, &e));
    OK(perigee_get(family, NULL, "k\0y", 3, &value, &size, &e));
    CHECK(size == 3 && memcmp(value, "v\0\0", 3) == 0);
    perigee_free(value);
    OK(perigee_single_delete(family, "k\0y", 3, &e));
}

static void families(perigee_db *db)
{
    perigee_family *a, *b, *c;
    perigee_options *options;
    char **names, *text;
    size_t count;

    OK(perigee_options_new(&options, &e));
    OK(perigee_options_set_family(options, "a", "compression", "zstd 3", &e));
    OK(perigee_options_set_family(options, "a", "memtable_bytes", "1048576", &e));
    OK(perigee_db_create_family(db, "a", options, &a, &e));
    OK(perigee_db_family_or_create(db, "a", NULL, &b, &e));
    OK(perigee_db_create_family(db, "c c", options, &c, &e));
    perigee_options_release(options);
    OK(perigee_family_option(b, "compression", &text, &e));
    CHECK(strcmp(text, "zstd 3") == 0);
    perigee_free(text);
    OK(perigee_family_option(b, "memtable_bytes", &text, &e));
    CHECK(strcmp(text, "1 MiB") == 0);
    perigee_free(text);
    OK(perigee_family_option(c, "memtable_bytes", &text, &e));
    CHECK(strcmp(text, "64 MiB") == 0);
    perigee_free(text);
    OK(perigee_family_set_option(a, "compression", "lz4", &e));
    OK(perigee_family_option(b, "compression", &text, &e));
    CHECK(strcmp(text, "lz4") == 0);
    perigee_free(text);
    OK(perigee_family_option(b, "memtable_bytes", &text, &e));
    CHECK(strcmp(text, "1 MiB") == 0);
    perigee_free(text);
    FAILS(PERIGEE_INVALID_ARGUMENT, "compression", perigee_family_option(b, "compresion", &text, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "", perigee_family_set_option(b, "compression", "gzip", &e));
    FAILS(PERIGEE_ALREADY_EXISTS, "", perigee_db_create_family(db, "a", NULL, &b, &e));

    put(a, "k", "in a");
    CHECK(value_is(c, NULL, "k", NULL));
    OK(perigee_db_rename_family(db, "a", "z", &e));
    OK(perigee_family_name(a, &text, &e));
    CHECK(strcmp(text, "z") == 0);
    perigee_free(text);
    OK(perigee_db_family_names(db, &names, &count, &e));
    CHECK(count == 3 && strcmp(names[0], "c c") == 0 && strcmp(names[1], "default") == 0 && strcmp(names[2], "z") == 0);
    perigee_free(names);
    OK(perigee_db_clear_family(db, "z", &e));
    CHECK(value_is(a, NULL, "k", NULL));
    OK(perigee_db_drop_family(db, "z", &e));
    FAILS(PERIGEE_NOT_FOUND, "", perigee_put(a, "k", 1, "v", 1, &e));
    FAILS(PERIGEE_NOT_FOUND, "", perigee_db_family(db, "z", &b, &e));
    CHECK(b == NULL);
    FAILS(PERIGEE_INVALID_ARGUMENT, "default", perigee_db_drop_family(db, "default", &e));
    perigee_family_release(a);
    perigee_family_release(c);
}

static void batches(perigee_db *db)
{
    perigee_family *f, *g;
    perigee_batch *batch, *copy;
    uint64_t first, second;
    perigee_range range = {"d", 1, "f", 1, 0};

    OK(perigee_db_create_family(db, "f", NULL, &f, &e));
    OK(perigee_db_create_family(db, "g", NULL, &g, &e));
    put(f, "d1", "old");
    put(f, "e1", "old");
    put(f, "f1", "old");
    OK(perigee_batch_new(&batch, &e));
    OK(perigee_batch_put(batch, f, "a", 1, "1", 1, &e));
    OK(perigee_batch_put(batch, g, "b", 1, "2", 1, &e));
    OK(perigee_batch_delete_range(batch, f, &range, &e));
    OK(perigee_batch_put_until(batch, g, "long", 4, "x", 1, 4102444800000u, &e));
    OK(perigee_batch_delete(batch, f, "f1", 2, &e));
    CHECK(perigee_batch_count(batch) == 5 && value_is(f, NULL, "a", NULL));
    OK(perigee_batch_copy(batch, &copy, &e));
    OK(perigee_db_write(db, batch, PERIGEE_DURABILITY_NONE, &first, &e));
    CHECK(perigee_batch_count(batch) == 0 && perigee_batch_count(copy) == 5);
    perigee_batch_release(copy);
    CHECK(value_is(f, NULL, "a", "1") && value_is(g, NULL, "b", "2") && value_is(g, NULL, "long", "x"));
    CHECK(value_is(f, NULL, "d1", NULL) && value_is(f, NULL, "e1", NULL) && value_is(f, NULL, "f1", NULL));
    OK(perigee_batch_single_delete(batch, f, "a", 1, &e));
    OK(perigee_batch_clear(batch, &e));
    CHECK(perigee_batch_count(batch) == 0);
    OK(perigee_batch_single_delete(batch, f, "a", 1, &e));
    OK(perigee_db_write(db, batch, PERIGEE_DURABILITY_FULL, NULL, &e));
    OK(perigee_db_sequence(db, &second, &e));
    CHECK(second == first + 1 && value_is(f, NULL, "a", NULL));
    FAILS(PERIGEE_INVALID_ARGUMENT, "durability", perigee_db_write(db, batch, 9, NULL, &e));
    perigee_batch_release(batch);
    perigee_family_release(f);
    perigee_family_release(g);
}

static void iterators(perigee_db *db)
{
    static const char *const all[] = {"a1", "a2", "b1", "b2", "b3", "c1", NULL};
    perigee_family *f;
    perigee_iterator *it;
    perigee_snapshot *snapshot;
    perigee_entry entry;
    perigee_range range = {"a2", 2, "b3", 2, 0};

    OK(perigee_db_create_family(db, "iterators", NULL, &f, &e));
    for (int i = 0; all[i]; i++) put(f, all[i], all[i] + 1);
    OK(perigee_db_snapshot(db, &snapshot, &e));
    OK(perigee_iterator_open(f, NULL, NULL, &it, &e));
    put(f, "later", "");
    CHECK(strcmp(keys_of(it, 0), "a1 a2 b1 b2 b3 c1") == 0 && strcmp(keys_of(it, 1), "c1 b3 b2 b1 a2 a1") == 0);
    OK(perigee_iterator_next(it, &entry, &e)); /* stays on no entry */
    CHECK(entry.key == NULL && entry.key_size == 0 && entry.value == NULL && entry.value_size == 0);
    OK(perigee_iterator_seek(it, "b", 1, &entry, &e));
    CHECK(entry_is(&entry, "b1", "1"));
    OK(perigee_iterator_next(it, &entry, &e));
    OK(perigee_iterator_prev(it, &entry, &e));
    CHECK(entry_is(&entry, "b1", "1"));
    OK(perigee_iterator_seek_for_prev(it, "b", 1, &entry, &e));
    CHECK(entry_is(&entry, "a2", "2"));
    OK(perigee_iterator_set_keys_only(it, 1, &e));
    OK(perigee_iterator_next(it, &entry, &e));
    CHECK(entry.key_size == 2 && entry.value == NULL && entry.value_size == 0);
    OK(perigee_iterator_set_keys_only(it, 0, &e));
    OK(perigee_iterator_next(it, &entry, &e));
    CHECK(entry_is(&entry, "b2", "2"));
    perigee_iterator_release(it);

    OK(perigee_iterator_open(f, snapshot, &range, &it, &e));
    CHECK(strcmp(keys_of(it, 0), "a2 b1 b2") == 0);
    perigee_iterator_release(it);
    range.flags = PERIGEE_LOWER_EXCLUSIVE | PERIGEE_UPPER_INCLUSIVE;
    OK(perigee_iterator_open(f, snapshot, &range, &it, &e));
    CHECK(strcmp(keys_of(it, 1), "b3 b2 b1") == 0);
    perigee_iterator_release(it);
    range.upper = NULL;
    range.upper_size = 0;
    OK(perigee_iterator_open(f, snapshot, &range, &it, &e));
    CHECK(strcmp(keys_of(it, 0), "b1 b2 b3 c1") == 0);
    perigee_iterator_release(it);
    range.lower = "b";
    range.lower_size = 1;
    range.flags = PERIGEE_PREFIX;
    OK(perigee_iterator_open(f, snapshot, &range, &it, &e));
    perigee_snapshot_release(snapshot); /* the iterator stays usable */
    CHECK(strcmp(keys_of(it, 0), "b1 b2 b3") == 0 && strcmp(keys_of(it, 1), "b3 b2 b1") == 0);
    perigee_iterator_release(it);
    OK(perigee_delete_range(f, &range, &e));
    OK(perigee_iterator_open(f, NULL, NULL, &it, &e));
    CHECK(strcmp(keys_of(it, 0), "a1 a2 c1 later") == 0);
    perigee_iterator_release(it);
    OK(perigee_delete_range(f, NULL, &e));
    OK(perigee_iterator_open(f, NULL, NULL, &it, &e));
    CHECK(strcmp(keys_of(it, 0), "") == 0);
    perigee_iterator_release(it);
    perigee_family_release(f);
}

static void special_writes(perigee_db *db)
{
    perigee_family *f;
    perigee_options *options;
    uint64_t expires, now = (uint64_t)time(NULL) * 1000;
    int found, swapped;
    unsigned char one[8] = {1}, *sum;
    size_t size;
    void *value;

    OK(perigee_options_new(&options, &e));
    OK(perigee_options_set_family(options, "special", "merge_operator", "counter", &e));
    OK(perigee_db_create_family(db, "special", options, &f, &e));
    perigee_options_release(options);

    OK(perigee_put_with_ttl(f, "session", 7, "alice", 5, 3600000, &e));
    OK(perigee_get_expiry(f, NULL, "session", 7, &expires, &found, &e));
    CHECK(found == 1 && expires > now + 3500000 && expires < now + 3700000);
    put(f, "session", "bob");
    OK(perigee_get_expiry(f, NULL, "session", 7, &expires, &found, &e));
    CHECK(found == 1 && expires == 0);
    OK(perigee_get_expiry(f, NULL, "none", 4, &expires, &found, &e));
    CHECK(found == 0 && expires == 0);

    for (int i = 0; i < 3; i++) OK(perigee_merge(f, "n", 1, one, 8, &e));
    OK(perigee_get(f, NULL, "n", 1, &value, &size, &e));
    sum = (unsigned char *)value;
    CHECK(size == 8 && sum[0] == 3 && sum[1] == 0);
    perigee_free(value);
    FAILS(PERIGEE_INVALID_ARGUMENT, "", perigee_merge(f, "n", 1, "bad", 3, &e));

    OK(perigee_compare_and_swap(f, "leader", 6, NULL, 0, "node 1", 6, &swapped, &e));
    CHECK(swapped == 1);
    OK(perigee_compare_and_swap(f, "leader", 6, NULL, 0, "node 2", 6, &swapped, &e));
    CHECK(swapped == 0 && value_is(f, NULL, "leader", "node 1"));
    OK(perigee_compare_and_swap(f, "leader", 6, "node 1", 6, "", 0, &swapped, &e));
    CHECK(swapped == 1 && value_is(f, NULL, "leader", ""));
    OK(perigee_compare_and_swap(f, "leader", 6, "", 0, NULL, 0, &swapped, &e));
    CHECK(swapped == 1 && value_is(f, NULL, "leader", NULL));
    perigee_family_release(f);
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    CHECK(strcmp(perigee_library_version(), "0.1.0") == 0);
    perigee_db *db = open_db("basics", NULL);
    perigee_family *family = default_family(db);
    reads(db, family);
    perigee_family_release(family);
    families(db);
    batches(db);
    iterators(db);
    special_writes(db);
    OK(perigee_db_sync(db, &e));
    OK(perigee_db_close(db, &e));
    db = open_db("basics", NULL);
    family = default_family(db);
    CHECK(value_is(family, NULL, "a", "later"));
    perigee_family_release(family);
    OK(perigee_db_close(db, &e));
    return end();
}
