/* A tour of the C interface of Perigee:
 *
 *     cc tour.c $(pkg-config --cflags --libs perigee) -o tour && ./tour DIRECTORY
 */
#include <perigee.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the description of an error. */
static void fail(const char *what, perigee_error *error)
{
    fprintf(stderr, "%s: %s\n", what, perigee_error_text(error));
    perigee_error_free(error);
    exit(1);
}

/* Opens a database with options, and creates a column family in it. */
static perigee_db *open_database(const char *path, perigee_family **tides)
{
    perigee_options *options;
    perigee_error *error;
    perigee_db *db;

    if (perigee_options_new(&options, &error) || perigee_options_set(options, "memory_budget", "64 MiB", &error) ||
        perigee_options_set_family(options, "tides", "compression", "zstd 3", &error))
        fail("options", error);
    if (perigee_db_open(path, options, &db, &error)) fail(path, error);
    if (perigee_db_family_or_create(db, "tides", options, tides, &error)) fail("tides", error);
    perigee_options_release(options);
    return db;
}

/* Several writes, committed as one. */
static void write_batch(perigee_db *db, perigee_family *tides)
{
    perigee_batch *batch;
    perigee_error *error;

    if (perigee_batch_new(&batch, &error) || perigee_batch_put(batch, tides, "06:12", 5, "high", 4, &error) ||
        perigee_batch_put(batch, tides, "12:31", 5, "low", 3, &error) ||
        perigee_batch_put(batch, tides, "18:40", 5, "high", 4, &error) ||
        perigee_db_write(db, batch, PERIGEE_DURABILITY_FULL, NULL, &error))
        fail("batch", error);
    perigee_batch_release(batch);
}

/* A copied value, and one that is only pinned. */
static void read_values(perigee_family *tides)
{
    perigee_error *error;
    perigee_pinned pinned;
    void *value;
    size_t size;

    if (perigee_get(tides, NULL, "12:31", 5, &value, &size, &error)) fail("get", error);
    if (value != NULL) printf("12:31 is %.*s\n", (int)size, (const char *)value);
    perigee_free(value);
    if (perigee_get_pinned(tides, NULL, "13:00", 5, &pinned, &error)) fail("get", error);
    if (pinned.data == NULL) puts("13:00 is neither");
    perigee_pinned_release(&pinned);
}

/* All entries from 06:00 on and before 13:00. */
static void iterate(perigee_family *tides)
{
    perigee_range range = {"06:00", 5, "13:00", 5, 0};
    perigee_iterator *it;
    perigee_entry entry;
    perigee_error *error;

    if (perigee_iterator_open(tides, NULL, &range, &it, &error)) fail("iterator", error);
    for (perigee_iterator_first(it, &entry, &error); entry.key; perigee_iterator_next(it, &entry, &error))
        printf("%.*s %.*s\n", (int)entry.key_size, (const char *)entry.key, (int)entry.value_size,
               (const char *)entry.value);
    if (error) fail("iterator", error); /* the loop also ends at an error */
    perigee_iterator_release(it);
}

/* Adds 1 to a counter, whatever other transactions do meanwhile. Returns the number of retries. */
static int count(perigee_db *db, perigee_family *tides)
{
    perigee_transaction *txn;
    perigee_error *error;
    void *value;
    int retries = 0;

    if (perigee_transaction_begin(db, NULL, &txn, &error)) fail("begin", error);
    for (;;) {
        long long n = 0;
        char text[24];
        size_t size;
        if (perigee_transaction_get(txn, tides, "visits", 6, &value, &size, &error)) fail("get", error);
        if (value != NULL && size < sizeof text) {
            memcpy(text, value, size);
            text[size] = 0;
            n = atoll(text);
        }
        perigee_free(value);
        snprintf(text, sizeof text, "%lld", n + 1);
        if (perigee_transaction_put(txn, tides, "visits", 6, text, strlen(text), &error)) fail("put", error);
        switch (perigee_transaction_commit(txn, PERIGEE_DURABILITY_DEFAULT, NULL, &error)) {
        case PERIGEE_OK:
            perigee_transaction_release(txn);
            return retries;
        case PERIGEE_CONFLICT:
            perigee_error_free(error);
            retries++;
            if (perigee_transaction_reset(txn, &error)) fail("reset", error);
            break;
        default:
            fail("commit", error);
        }
    }
}

int main(int argc, char **argv)
{
    perigee_family *tides;
    perigee_error *error;
    perigee_db *db;

    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    printf("Perigee %s\n", perigee_library_version());
    db = open_database(argv[1], &tides);
    write_batch(db, tides);
    read_values(tides);
    iterate(tides);
    printf("%d retries after conflicts\n", count(db, tides));
    perigee_family_release(tides);
    if (perigee_db_close(db, &error)) fail("close", error);
    return 0;
}
