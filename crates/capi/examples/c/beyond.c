/* A tour of perigee.h: features beyond TidesDB's interface.
 *
 *     cc beyond.c $(pkg-config --cflags --libs tidesdb) -o beyond && ./beyond /tmp/beyond-db
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidesdb/perigee.h>

static void check(int code, const char *what)
{
    if (code == TDB_SUCCESS) return;
    fprintf(stderr, "%s: code %d, %s\n", what, code, perigee_last_error());
    exit(1);
}
#define DO(call) check(call, #call)
#define B(text)  (const uint8_t *)(text), strlen(text)

/* A user-defined merge operator: keeps the longer of two texts. */
static int longer(const uint8_t *key, size_t key_size, const uint8_t *left, size_t left_size, const uint8_t *right,
                  size_t right_size, void (*append)(void *, const uint8_t *, size_t), void *out, void *ctx)
{
    (void)key, (void)key_size, (void)ctx;
    if (left && left_size >= right_size)
        append(out, left, left_size);
    else
        append(out, right, right_size);
    return 0;
}

static void expect(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key, const char *wanted)
{
    tidesdb_txn_t *txn;
    uint8_t *value = NULL;
    size_t size = 0;
    int code;

    DO(tidesdb_txn_begin(db, &txn));
    code = tidesdb_txn_get(txn, cf, B(key), &value, &size);
    tidesdb_txn_free(txn);
    if (!wanted ? code != TDB_ERR_NOT_FOUND : code != 0 || size != strlen(wanted) || memcmp(value, wanted, size) != 0)
    {
        fprintf(stderr, "%s: expected %s, got code %d\n", key, wanted ? wanted : "nothing", code);
        exit(1);
    }
    tidesdb_free(value);
}

int main(int argc, char **argv)
{
    tidesdb_config_t config = tidesdb_default_config();
    tidesdb_column_family_config_t family = tidesdb_default_column_family_config();
    perigee_options_t options = perigee_default_options();
    perigee_merge_operator_t operator= { "longer", longer, NULL };
    tidesdb_t *db;
    tidesdb_column_family_t *cf, *counters;
    tidesdb_txn_t *txn, *other;
    uint64_t before, errors;

    config.db_path = argc > 1 ? argv[1] : "beyond-db";
    config.log_level = TDB_LOG_WARN;
    options.log_retention = 16 << 20;
    options.history_operations = 1000;
    options.num_merge_operators = 1;
    options.merge_operators = &operator;
    DO(perigee_open(&config, &options, &db));
    printf("perigee %s\n", perigee_version());
    family.sync_mode = TDB_SYNC_FULL;
    if (!tidesdb_get_column_family(db, "texts"))
    {
        DO(tidesdb_create_column_family(db, "texts", &family));
        DO(tidesdb_create_column_family(db, "counters", &family));
    }
    cf = tidesdb_get_column_family(db, "texts");
    counters = tidesdb_get_column_family(db, "counters");
    DO(perigee_cf_set_merge_operator(cf, "user:longer"));
    DO(perigee_cf_set_merge_operator(counters, "counter"));

    /* Merges: writes without a prior read. */
    DO(tidesdb_txn_begin(db, &txn));
    DO(perigee_txn_merge(txn, cf, B("word"), B("neap")));
    DO(perigee_txn_merge(txn, cf, B("word"), B("spring tide")));
    DO(perigee_txn_merge(txn, cf, B("word"), B("ebb")));
    for (int64_t one = 1, i = 0; i < 3; i++)
        DO(perigee_txn_merge(txn, counters, B("visits"), (const uint8_t *)&one, sizeof one));
    DO(tidesdb_txn_put(txn, cf, B("log/1"), B("a"), -1));
    DO(tidesdb_txn_put(txn, cf, B("log/2"), B("b"), -1));
    DO(perigee_txn_commit(txn, &before));
    expect(db, cf, "word", "spring tide");
    printf("merged, up to operation %llu\n", (unsigned long long)before);

    /* Deletes a range in one operation; a named snapshot still contains it. */
    DO(perigee_snapshot_create(db, "before the purge", NULL));
    DO(tidesdb_txn_reset(txn, TDB_ISOLATION_SNAPSHOT));
    DO(perigee_txn_delete_prefix(txn, cf, B("log/")));
    DO(perigee_txn_delete_range(txn, cf, B("x"), B("z")));
    DO(tidesdb_txn_commit(txn));
    expect(db, cf, "log/1", NULL);
    {
        perigee_snapshot_t *snapshot, *past;
        uint8_t *value;
        size_t size;

        DO(perigee_snapshot_open(db, "before the purge", &snapshot));
        DO(perigee_snapshot_get(snapshot, cf, B("log/1"), &value, &size));
        tidesdb_free(value);
        DO(perigee_snapshot_at(db, before, &past)); /* the state at a sequence number: needs history_operations */
        printf("snapshots at %llu and %llu\n", (unsigned long long)perigee_snapshot_seq(snapshot),
               (unsigned long long)perigee_snapshot_seq(past));
        perigee_snapshot_free(past);
        perigee_snapshot_free(snapshot);
        DO(perigee_snapshot_drop(db, "before the purge"));
    }

    /* Locks: the second transaction waits, here for at most a millisecond. */
    {
        perigee_txn_options_t pessimist = perigee_txn_default_options();
        uint8_t *value;
        size_t size;

        pessimist.pessimistic = 1;
        pessimist.lock_timeout_us = 1000;
        tidesdb_txn_free(txn);
        DO(perigee_txn_begin(db, &pessimist, &txn));
        DO(perigee_txn_begin(db, &pessimist, &other));
        DO(perigee_txn_get_for_update(txn, cf, B("word"), PERIGEE_LOCK_EXCLUSIVE, &value, &size));
        tidesdb_free(value);
        if (perigee_txn_lock(other, cf, B("word"), PERIGEE_LOCK_SHARED) != TDB_ERR_BUSY) return 1;
        printf("locked: %s\n", perigee_last_error());
        tidesdb_txn_free(other);
        DO(tidesdb_txn_put(txn, cf, B("word"), B("tide"), -1));
    }

    /* Two-phase commit: prepare, then commit by the identifier. */
    DO(perigee_txn_prepare(txn, B("transfer 7")));
    tidesdb_txn_free(txn);
    {
        perigee_prepared_t *list;
        size_t count;

        DO(perigee_list_prepared(db, &list, &count));
        printf("undecided: %zu, the first is \"%.*s\"\n", count, (int)list[0].gid_size, list[0].gid);
        tidesdb_free(list);
    }
    DO(perigee_commit_prepared(db, B("transfer 7"), NULL));

    /* Reads and writes a value in parts. */
    expect(db, cf, "word", "tide");
    DO(tidesdb_txn_begin(db, &txn));
    {
        perigee_writer_t *writer;
        perigee_value_t *value;
        uint8_t part[1000];
        uint64_t size;
        size_t got, all = 0;

        DO(perigee_writer_new(txn, cf, B("film"), 0, 0, &writer));
        memset(part, '*', sizeof part);
        for (int i = 0; i < 100; i++) DO(perigee_writer_append(writer, part, sizeof part));
        DO(perigee_writer_finish(writer));
        DO(tidesdb_txn_commit(txn));
        DO(tidesdb_txn_reset(txn, TDB_ISOLATION_SNAPSHOT));
        DO(perigee_value_open(txn, cf, B("film"), &value, &size));
        do
        {
            DO(perigee_value_read(value, all, part, sizeof part, &got));
            all += got;
        } while (got > 0);
        printf("%zu of %llu bytes in parts\n", all, (unsigned long long)size);
        perigee_value_free(value);
    }

    /* The change feed: all changes in commit order. */
    {
        perigee_feed_t *feed;
        const perigee_change_t *change;
        size_t commits = 0, operations = 0, families = 0;

        DO(perigee_changes_new(db, 0, &feed));
        while (perigee_changes_next(feed, 0, &change) == TDB_SUCCESS)
        {
            if (change->kind != 0)
                families++;
            else
                commits++, operations += change->num_ops;
        }
        printf("change feed: %zu commits with %zu operations, %zu changes of column families\n", commits, operations, families);
        perigee_changes_free(feed);
    }
    {
        char *json;

        DO(perigee_stats_json(db, &json));
        printf("statistics: %zu bytes of JSON\n", strlen(json));
        tidesdb_free(json);
    }
    DO(perigee_verify(db, &errors));
    tidesdb_txn_free(txn);
    DO(tidesdb_close(db));
    return 0;
}
