/* Large values, bulk loads, change feed, named snapshots, checkpoints, backups, statistics, options with functions. */
#include "check.h"

static void streams(perigee_db *db, perigee_family *f)
{
    perigee_stream_writer *writer;
    perigee_stream_reader *reader;
    perigee_transaction *txn;
    unsigned char part[5000];
    uint64_t size, expires;
    size_t got;
    int found;

    for (size_t i = 0; i < sizeof part; i++) part[i] = (unsigned char)(i * 7);
    OK(perigee_stream_writer_open(f, "video", 5, 3600000, &writer, &e));
    for (int i = 0; i < 500; i++) OK(perigee_stream_writer_append(writer, part, sizeof part, &e));
    CHECK(value_is(f, NULL, "video", NULL));
    OK(perigee_stream_writer_finish(writer, NULL, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "ended", perigee_stream_writer_append(writer, part, 1, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "ended", perigee_stream_writer_finish(writer, NULL, &e));
    perigee_stream_writer_release(writer);
    OK(perigee_get_expiry(f, NULL, "video", 5, &expires, &found, &e));
    CHECK(found && expires > 0);

    OK(perigee_stream_reader_open(f, NULL, "video", 5, &reader, &size, &e));
    CHECK(size == 2500000);
    OK(perigee_delete(f, "video", 5, &e)); /* the reader still has it */
    memset(part, 0, sizeof part);
    OK(perigee_stream_reader_read(reader, 1234567, part, sizeof part, &got, &e));
    CHECK(got == sizeof part);
    for (size_t i = 0; i < sizeof part; i++) CHECK(part[i] == (unsigned char)((1234567 + i) % 5000 * 7));
    OK(perigee_stream_reader_read(reader, 2499990, part, sizeof part, &got, &e));
    CHECK(got == 10);
    OK(perigee_stream_reader_read(reader, 9999999, part, sizeof part, &got, &e));
    CHECK(got == 0);
    perigee_stream_reader_release(reader);
    OK(perigee_stream_reader_open(f, NULL, "video", 5, &reader, NULL, &e));
    CHECK(reader == NULL);

    OK(perigee_transaction_begin(db, NULL, &txn, &e));
    OK(perigee_stream_writer_open(f, "in txn", 6, 0, &writer, &e));
    OK(perigee_stream_writer_append(writer, "ab", 2, &e));
    OK(perigee_stream_writer_append(writer, "c", 1, &e));
    OK(perigee_stream_writer_finish(writer, txn, &e));
    perigee_stream_writer_release(writer);
    CHECK(value_is(f, NULL, "in txn", NULL));
    OK(perigee_transaction_commit(txn, 0, NULL, &e));
    perigee_transaction_release(txn);
    CHECK(value_is(f, NULL, "in txn", "abc"));
}

static void loads(perigee_db *db)
{
    perigee_family *f;
    perigee_load *load;
    uint64_t entries;
    char key[16];
    OK(perigee_db_create_family(db, "loaded", NULL, &f, &e));
    OK(perigee_load_begin(f, &load, &e));
    for (int i = 9999; i >= 0; i--) {
        snprintf(key, sizeof key, "%05d", i);
        OK(perigee_load_put(load, key, 5, key, 5, &e));
    }
    CHECK(value_is(f, NULL, "00000", NULL));
    OK(perigee_load_finish(load, &entries, &e));
    CHECK(entries == 10000 && value_is(f, NULL, "00000", "00000") && value_is(f, NULL, "09999", "09999"));
    FAILS(PERIGEE_INVALID_ARGUMENT, "ended", perigee_load_put(load, "k", 1, "v", 1, &e));
    perigee_load_release(load);
    OK(perigee_load_begin(f, &load, &e));
    OK(perigee_load_put(load, "dropped", 7, "", 0, &e));
    perigee_load_release(load);
    CHECK(value_is(f, NULL, "dropped", NULL));
    perigee_family_release(f);
}

static void feed(perigee_db *db, perigee_family *f)
{
    perigee_feed *feed;
    perigee_family *created;
    perigee_batch *batch;
    const perigee_change *change;
    const perigee_operation *ops;
    perigee_range range = {"r1", 2, "r5", 2, PERIGEE_LOWER_EXCLUSIVE | PERIGEE_UPPER_INCLUSIVE};
    uint64_t since, position;

    OK(perigee_db_sync(db, &e));
    OK(perigee_db_sequence(db, &since, &e));
    OK(perigee_feed_open(db, since, &feed, &e));
    OK(perigee_feed_next(feed, 0, &change, &e));
    CHECK(change == NULL);
    OK(perigee_db_create_family(db, "watched", NULL, &created, &e));
    OK(perigee_batch_new(&batch, &e));
    OK(perigee_batch_put_until(batch, created, "p", 1, "value", 5, 4102444800000u, &e));
    OK(perigee_batch_delete(batch, f, "d", 1, &e));
    OK(perigee_batch_delete_range(batch, f, &range, &e));
    OK(perigee_batch_delete_range(batch, created, NULL, &e));
    OK(perigee_db_write(db, batch, PERIGEE_DURABILITY_FULL, NULL, &e));
    perigee_batch_release(batch);
    OK(perigee_db_rename_family(db, "watched", "renamed", &e));

    OK(perigee_feed_next(feed, 60000, &change, &e));
    CHECK(change && change->kind == PERIGEE_CHANGE_FAMILY_CREATED && strcmp(change->family, "watched") == 0);
    CHECK(change->family_id > 0 && change->operation_count == 0);
    OK(perigee_feed_next(feed, 60000, &change, &e));
    CHECK(change && change->kind == PERIGEE_CHANGE_COMMIT && change->operation_count == 4);
    CHECK(change->first_sequence > since && change->sequence == change->first_sequence + 3);
    position = change->position;
    ops = change->operations;
    CHECK(ops[0].kind == PERIGEE_OPERATION_PUT && strcmp(ops[0].family, "watched") == 0);
    CHECK(ops[0].sequence == change->first_sequence);
    CHECK(ops[0].key_size == 1 && ops[0].value_size == 5 && memcmp(ops[0].value, "value", 5) == 0);
    CHECK(ops[0].expires_ms == 4102444800000u && ops[1].kind == PERIGEE_OPERATION_DELETE && ops[1].value_size == 0);
    CHECK(strcmp(ops[1].family, "default") == 0 && memcmp(ops[1].key, "d", 1) == 0 && ops[1].expires_ms == 0);
    CHECK(ops[2].kind == PERIGEE_OPERATION_DELETE_RANGE && memcmp(ops[2].key, "r1", 2) == 0 && ops[2].value_size >= 2);
    CHECK(ops[3].kind == PERIGEE_OPERATION_DELETE_RANGE && ops[3].key == NULL && ops[3].value == NULL);
    CHECK(strcmp(ops[3].family, "watched") == 0);
    OK(perigee_feed_next(feed, 60000, &change, &e));
    CHECK(change && change->kind == PERIGEE_CHANGE_FAMILY_RENAMED);
    CHECK(strcmp(change->family, "renamed") == 0 && strcmp(change->from, "watched") == 0);
    OK(perigee_feed_next(feed, 1, &change, &e));
    CHECK(change == NULL);
    perigee_feed_release(feed);
    OK(perigee_feed_open(db, position, &feed, &e)); /* continues behind the commit */
    OK(perigee_feed_next(feed, 60000, &change, &e));
    CHECK(change && change->kind == PERIGEE_CHANGE_FAMILY_RENAMED);
    perigee_feed_release(feed);
    perigee_family_release(created);
}

static void snapshots(perigee_db *db, perigee_family *f)
{
    perigee_snapshot *snapshot;
    uint64_t sequence;
    put(f, "moon", "new");
    OK(perigee_db_create_named_snapshot(db, "before", &sequence, &e));
    put(f, "moon", "full");
    OK(perigee_db_open_named_snapshot(db, "before", &snapshot, &e));
    CHECK(perigee_snapshot_sequence(snapshot) == sequence && value_is(f, snapshot, "moon", "new"));
    perigee_snapshot_release(snapshot);
    OK(perigee_db_snapshot_at(db, sequence, &snapshot, &e));
    CHECK(value_is(f, snapshot, "moon", "new"));
    perigee_snapshot_release(snapshot);
    OK(perigee_db_drop_named_snapshot(db, "before", &e));
    FAILS(PERIGEE_NOT_FOUND, "before", perigee_db_open_named_snapshot(db, "before", &snapshot, &e));
    CHECK(snapshot == NULL);
    CHECK(perigee_db_snapshot_at(db, 1u << 30, &snapshot, NULL) != PERIGEE_OK && snapshot == NULL);
}

static void copies(perigee_db *db, perigee_family *f)
{
    perigee_range range = {"a", 1, "b", 1, 0};
    perigee_db *copy;
    perigee_family *g;
    uint64_t generation, damaged, sequence;
    char *text;

    put(f, "copied", "yes");
    OK(perigee_db_flush(db, NULL, &e));
    OK(perigee_db_compact(db, f, &range, &e));
    OK(perigee_db_compact(db, f, NULL, &e));
    OK(perigee_db_compact(db, NULL, NULL, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "column family", perigee_db_compact(db, NULL, &range, &e));
    OK(perigee_db_purge(db, f, &e));
    OK(perigee_db_purge(db, NULL, &e));
    OK(perigee_db_set_background_rate(db, 1 << 30, &e));
    OK(perigee_db_set_background_rate(db, 0, &e));
    OK(perigee_db_wait_idle(db, &e));
    OK(perigee_db_checkpoint(db, path_of("checkpoint"), &sequence, &e));
    FAILS(PERIGEE_ALREADY_EXISTS, "", perigee_db_checkpoint(db, path_of("checkpoint"), NULL, &e));
    OK(perigee_db_backup(db, path_of("backup"), &generation, &e));
    CHECK(generation == 1 && sequence > 0);
    put(f, "copied", "twice");
    OK(perigee_db_backup(db, path_of("backup"), &generation, &e));
    CHECK(generation == 2);
    OK(perigee_backup_verify(path_of("backup"), 0, &damaged, &e));
    CHECK(damaged == 0);
    OK(perigee_backup_restore(path_of("backup"), 1, path_of("restored"), &e));
    FAILS(PERIGEE_NOT_FOUND, "", perigee_backup_restore(path_of("backup"), 7, path_of("other"), &e));
    copy = open_db("restored", NULL);
    g = default_family(copy);
    CHECK(value_is(g, NULL, "copied", "yes"));
    perigee_family_release(g);
    OK(perigee_db_close(copy, &e));
    copy = open_db("checkpoint", NULL);
    g = default_family(copy);
    CHECK(value_is(g, NULL, "copied", "yes"));
    perigee_family_release(g);
    OK(perigee_db_close(copy, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "", perigee_backup_prune(path_of("backup"), 0, &e));
    OK(perigee_backup_prune(path_of("backup"), 1, &e));
    FAILS(PERIGEE_NOT_FOUND, "", perigee_backup_verify(path_of("backup"), 1, NULL, &e));

    OK(perigee_db_stats_json(db, &text, &e));
    CHECK(text[0] == '{' && strstr(text, "last_sequence"));
    perigee_free(text);
    OK(perigee_db_metrics(db, &text, &e));
    CHECK(strstr(text, "# TYPE") && strstr(text, "# EOF"));
    perigee_free(text);
}

static int compare_numbers(const void *a, size_t a_size, const void *b, size_t b_size, void *context)
{
    size_t n = a_size < b_size ? a_size : b_size;
    int by_bytes;
    ++*(int *)context;
    if (a_size != b_size) return a_size < b_size ? -1 : 1;
    by_bytes = n ? memcmp(a, b, n) : 0;
    return by_bytes;
}

/* Keeps the longer operand; refuses "bad"; calls the library, which must refuse that. */
static int merge_longest(const void *key, size_t key_size, const void *left, size_t left_size, const void *right,
                         size_t right_size, void (*append)(void *, const void *, size_t), void *out, void *context)
{
    (void)key; (void)key_size;
    if (right_size == 3 && memcmp(right, "bad", 3) == 0) return 7;
    FAILS(PERIGEE_INVALID_ARGUMENT, "merge operator", perigee_put((perigee_family *)context, "k", 1, "v", 1, &e));
    if (left != NULL && left_size >= right_size) append(out, left, left_size);
    else {
        append(out, right, 1);
        append(out, (const char *)right + 1, right_size - 1);
    }
    return 0;
}

static int lines;
static void count_lines(int level, const char *line, void *context)
{
    if (level >= PERIGEE_LOG_INFO && strlen(line) > 5 && context == &lines) __sync_fetch_and_add(&lines, 1);
}

static void functions(void)
{
    perigee_options *options;
    perigee_family *words, *merged, *other;
    perigee_db *db;
    perigee_iterator *it;
    perigee_range prefix = {"a", 1, NULL, 0, PERIGEE_PREFIX};
    unsigned char key[32] = {1, 2, 3};
    void *value;
    size_t size;
    static int compared;
    char *text;

    OK(perigee_options_new(&options, &e));
    OK(perigee_options_add_comparator(options, "short-first", compare_numbers, &compared, &e));
    OK(perigee_options_add_merge_operator(options, "longest", merge_longest, NULL, &e));
    OK(perigee_options_set_family(options, "words", "comparator", "user:short-first", &e));
    OK(perigee_options_set_family(options, "merged", "merge_operator", "user:longest", &e));
    OK(perigee_options_set_log_listener(options, PERIGEE_LOG_INFO, count_lines, &lines, &e));
    OK(perigee_options_set(options, "durability", "interval 100 ms", &e));
    OK(perigee_options_set(options, "memory_budget", "268435456", &e));
    OK(perigee_options_text(options, &text, &e));
    CHECK(strstr(text, "durability = \"interval 100 ms\"") && strstr(text, "memory_budget = \"256 MiB\""));
    CHECK(strstr(text, "comparator = \"user:short-first\""));
    perigee_free(text);
    OK(perigee_options_add_encryption_key(options, 3, key, sizeof key, &e));

    db = open_db("functions", options);
    OK(perigee_db_family(db, "words", &words, &e));
    OK(perigee_db_family(db, "merged", &merged, &e));
    put(words, "aaa", "");
    put(words, "b", "");
    put(words, "cc", "");
    OK(perigee_iterator_open(words, NULL, NULL, &it, &e));
    CHECK(strcmp(keys_of(it, 0), "b cc aaa") == 0 && compared > 0);
    perigee_iterator_release(it);
    FAILS(PERIGEE_INVALID_ARGUMENT, "prefix", perigee_iterator_open(words, NULL, &prefix, &it, &e));
    OK(perigee_merge(merged, "k", 1, "ab", 2, &e));
    OK(perigee_merge(merged, "k", 1, "xyz", 3, &e));
    OK(perigee_merge(merged, "k", 1, "c", 1, &e));
    CHECK(value_is(merged, NULL, "k", "xyz"));
    OK(perigee_merge(merged, "k", 1, "bad", 3, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "returned 7", perigee_get(merged, NULL, "k", 1, &value, &size, &e));
    OK(perigee_delete(merged, "k", 1, &e));
    perigee_family_release(words);
    perigee_family_release(merged);
    OK(perigee_db_flush(db, NULL, &e));
    OK(perigee_db_close(db, &e));
    CHECK(lines > 0);
    CHECK(perigee_db_open(path_of("functions"), NULL, &db, NULL) != PERIGEE_OK); /* no key, no comparator */
    db = open_db("functions", options);
    OK(perigee_db_family(db, "words", &other, &e));
    CHECK(value_is(other, NULL, "aaa", ""));
    perigee_family_release(other);
    OK(perigee_db_close(db, &e));

    /* An options file. */
    OK(perigee_options_load_text(options, "[database]\nread_only = true\n", &e));
    OK(perigee_options_text(options, &text, &e));
    CHECK(strstr(text, "read_only = true") && strstr(text, "durability = \"full\"") && !strstr(text, "[family."));
    perigee_free(text);
    FILE *file = fopen(path_of("options.toml"), "w");
    CHECK(file && fputs("[family.\"a b\"]\nblock_bytes = \"8 KiB\"\n", file) >= 0 && fclose(file) == 0);
    OK(perigee_options_load_file(options, path_of("options.toml"), &e));
    OK(perigee_options_set(options, "history", "10 min", &e));
    perigee_options *fresh = options;
    OK(perigee_options_new(&fresh, &e));
    OK(perigee_options_load_file(fresh, path_of("options.toml"), &e));
    db = open_db("from file", fresh);
    OK(perigee_db_family(db, "a b", &other, &e));
    OK(perigee_family_option(other, "block_bytes", &text, &e));
    CHECK(strcmp(text, "8 KiB") == 0);
    perigee_free(text);
    perigee_family_release(other);
    OK(perigee_db_close(db, &e));
    perigee_options_release(fresh);
    perigee_options_release(options);
}

int main(int argc, char **argv)
{
    perigee_options *options;
    perigee_db *db;
    perigee_family *f;
    begin(argc, argv);
    OK(perigee_options_new(&options, &e));
    OK(perigee_options_set(options, "log_retention", "64 MiB", &e));
    OK(perigee_options_set(options, "history", "10000 operations", &e));
    db = open_db("maintenance", options);
    perigee_options_release(options);
    f = default_family(db);
    streams(db, f);
    loads(db);
    feed(db, f);
    snapshots(db, f);
    copies(db, f);
    perigee_family_release(f);
    OK(perigee_db_close(db, &e));
    functions();
    return end();
}
