/* A tour of the C API: the basic operations, one function per step.
 *
 *   cc -std=c11 tour.c $(pkg-config --cflags --libs tidesdb) -o tour && ./tour /tmp/tour
 */
#include <tidesdb/db.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Expands a string to the arguments (bytes, length) of the API. */
#define BYTES(text) (const uint8_t *)(text), strlen(text)

static void must(int code, const char *what)
{
    if (code == TDB_SUCCESS) return;
    fprintf(stderr, "%s: error %d\n", what, code);
    exit(1);
}

static tidesdb_t *open_database(const char *path)
{
    tidesdb_config_t config = tidesdb_default_config();
    config.db_path = (char *)path;
    config.log_level = TDB_LOG_WARN;
    tidesdb_t *db = NULL;
    must(tidesdb_open(&config, &db), "open");
    return db;
}

/* A column family is a separate key space with its own settings. It is created once and persists. */
static tidesdb_column_family_t *family(tidesdb_t *db, const char *name, const char *comparator)
{
    tidesdb_column_family_t *cf = tidesdb_get_column_family(db, name);
    if (cf) return cf;
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    config.compression_algorithm = TDB_COMPRESS_LZ4;
    if (comparator) snprintf(config.comparator_name, sizeof config.comparator_name, "%s", comparator);
    must(tidesdb_create_column_family(db, name, &config), "create a column family");
    return tidesdb_get_column_family(db, name);
}

/* All reads and writes use transactions, which are atomic. */
static void write_and_read(tidesdb_t *db, tidesdb_column_family_t *cf)
{
    tidesdb_txn_t *txn = NULL;
    must(tidesdb_txn_begin(db, &txn), "begin");
    must(tidesdb_txn_put(txn, cf, BYTES("apple"), BYTES("red"), -1), "put");
    must(tidesdb_txn_put(txn, cf, BYTES("banana"), BYTES("yellow"), -1), "put");
    must(tidesdb_txn_put(txn, cf, BYTES("cherry"), BYTES("dark red"), -1), "put");
    must(tidesdb_txn_commit(txn), "commit");

    /* A transaction can be reused, here with a snapshot of the data. */
    must(tidesdb_txn_reset(txn, TDB_ISOLATION_SNAPSHOT), "reset");
    uint8_t *value = NULL;
    size_t size = 0;
    must(tidesdb_txn_get(txn, cf, BYTES("banana"), &value, &size), "get");
    printf("banana is %.*s\n", (int)size, (char *)value);
    tidesdb_free(value);
    if (tidesdb_txn_get(txn, cf, BYTES("durian"), &value, &size) == TDB_ERR_NOT_FOUND) printf("durian not found\n");
    tidesdb_txn_free(txn);
}

/* Keys and values of an iterator are borrowed: they are valid until it moves. */
static void iterate(tidesdb_t *db, tidesdb_column_family_t *cf)
{
    tidesdb_txn_t *txn = NULL;
    tidesdb_iter_t *it = NULL;
    uint8_t *key, *value;
    size_t key_size, value_size;
    must(tidesdb_txn_begin(db, &txn), "begin");
    must(tidesdb_iter_new(txn, cf, &it), "iterator");
    printf("from b on:");
    for (tidesdb_iter_seek(it, BYTES("b")); tidesdb_iter_valid(it); tidesdb_iter_next(it))
        if (tidesdb_iter_key_value(it, &key, &key_size, &value, &value_size) == TDB_SUCCESS)
            printf(" %.*s=%.*s", (int)key_size, (char *)key, (int)value_size, (char *)value);
    printf("\nbackward:");
    for (tidesdb_iter_seek_to_last(it); tidesdb_iter_valid(it); tidesdb_iter_prev(it))
        if (tidesdb_iter_key(it, &key, &key_size) == TDB_SUCCESS) printf(" %.*s", (int)key_size, (char *)key);
    printf("\n");
    tidesdb_iter_free(it);
    tidesdb_txn_free(txn);
}

/* A part of a transaction can be rolled back. */
static void savepoint(tidesdb_t *db, tidesdb_column_family_t *cf)
{
    tidesdb_txn_t *txn = NULL;
    must(tidesdb_txn_begin(db, &txn), "begin");
    must(tidesdb_txn_put(txn, cf, BYTES("date"), BYTES("brown"), -1), "put");
    must(tidesdb_txn_savepoint(txn, "before the mistake"), "savepoint");
    must(tidesdb_txn_delete(txn, cf, BYTES("apple")), "delete");
    must(tidesdb_txn_rollback_to_savepoint(txn, "before the mistake"), "roll back");
    must(tidesdb_txn_commit(txn), "commit");
    must(tidesdb_txn_reset(txn, TDB_ISOLATION_READ_COMMITTED), "reset");
    printf("apple is %s\n", tidesdb_txn_contains(txn, cf, BYTES("apple")) == TDB_SUCCESS ? "still there" : "gone");
    tidesdb_txn_free(txn);
}

/* An entry may expire: at an absolute time in seconds. -1 means never. */
static void time_to_live(tidesdb_t *db, tidesdb_column_family_t *cf)
{
    tidesdb_txn_t *txn = NULL;
    must(tidesdb_txn_begin(db, &txn), "begin");
    must(tidesdb_txn_put(txn, cf, BYTES("session"), BYTES("open"), time(NULL) + 3600), "put");
    must(tidesdb_txn_put(txn, cf, BYTES("old session"), BYTES("open"), time(NULL) - 1), "put");
    must(tidesdb_txn_commit(txn), "commit");
    must(tidesdb_txn_reset(txn, TDB_ISOLATION_READ_COMMITTED), "reset");
    printf("session: %d, old session: %d\n", tidesdb_txn_contains(txn, cf, BYTES("session")),
           tidesdb_txn_contains(txn, cf, BYTES("old session")));
    tidesdb_txn_free(txn);
}

/* Called for each commit to its column family, with all operations of the commit. */
static int print_commit(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)seq;
    for (int i = 0; i < count; i++)
        printf("%s: %s %.*s\n", (const char *)ctx, ops[i].is_delete ? "delete" : "put", (int)ops[i].key_size,
               (const char *)ops[i].key);
    return 0;
}

/* A user-defined comparator: by length, then by bytes. Register it right after every open: a database whose column
 * families use it becomes available once it is registered. */
static int by_length(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, void *ctx)
{
    (void)ctx;
    if (a_size != b_size) return a_size < b_size ? -1 : 1;
    return memcmp(a, b, a_size);
}

static void statistics(tidesdb_column_family_t *cf)
{
    tidesdb_stats_t *stats = NULL;
    must(tidesdb_purge_cf(cf), "flush and compact");
    must(tidesdb_get_stats(cf, &stats), "statistics");
    printf("column family %s: %llu keys in %d levels\n", stats->config->name, (unsigned long long)stats->total_keys,
           stats->num_levels);
    tidesdb_free_stats(stats);
}

int main(int count, char **arguments)
{
    tidesdb_t *db = open_database(count > 1 ? arguments[1] : "./tour.db");
    must(tidesdb_register_comparator(db, "by length", by_length, NULL, NULL), "register");
    tidesdb_column_family_t *fruits = family(db, "fruits", NULL);
    write_and_read(db, fruits);
    iterate(db, fruits);
    savepoint(db, fruits);
    time_to_live(db, fruits);

    tidesdb_column_family_t *words = family(db, "words", "by length");
    must(tidesdb_cf_set_commit_hook(words, print_commit, "commit"), "hook");
    write_and_read(db, words);
    must(tidesdb_cf_set_commit_hook(words, NULL, NULL), "hook");

    statistics(fruits);
    must(tidesdb_close(db), "close");
    return 0;
}
