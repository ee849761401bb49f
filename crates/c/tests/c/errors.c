/* Errors: NULL and invalid arguments of every kind, released handles, closing in every order, damaged files, forks. */
#include "check.h"
#include <dirent.h>
#include <errno.h>

static void null_arguments(perigee_db *db, perigee_family *f)
{
    perigee_error *error;
    perigee_family *family = (perigee_family *)1;
    perigee_batch *batch;
    perigee_iterator *it;
    perigee_range range = {"a", 1, NULL, 3, 0};
    perigee_pinned pinned;
    perigee_bytes keys[2] = {{"a", 1}, {NULL, 5}};
    perigee_pinned many[2];
    void *value;
    size_t size;
    int found;

    FAILS(PERIGEE_INVALID_ARGUMENT, "NULL", perigee_db_open(NULL, NULL, &db, &e));
    CHECK(db == NULL);
    FAILS(PERIGEE_INVALID_ARGUMENT, "NULL", perigee_db_open("x", NULL, NULL, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "handle", perigee_db_default_family(NULL, &family, &e));
    CHECK(family == NULL);
    FAILS(PERIGEE_INVALID_ARGUMENT, "handle", perigee_put(NULL, "k", 1, "v", 1, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "1 bytes is NULL", perigee_put(f, NULL, 1, "v", 1, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "2 bytes is NULL", perigee_put(f, "k", 1, NULL, 2, &e));
    OK(perigee_put(f, "null", 4, NULL, 0, &e));
    CHECK(value_is(f, NULL, "null", ""));
    FAILS(PERIGEE_INVALID_ARGUMENT, "result is NULL", perigee_get(f, NULL, "k", 1, NULL, &size, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "result is NULL", perigee_contains(f, NULL, "k", 1, NULL, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "result is NULL", perigee_get_pinned(f, NULL, "k", 1, NULL, &e));
    put(f, "v", "v");
    FAILS(PERIGEE_INVALID_ARGUMENT, "buffer is NULL", perigee_get_into(f, NULL, "v", 1, NULL, 1, &size, &found, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "result is NULL", perigee_get_into(f, NULL, "v", 1, NULL, 0, &size, NULL, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "5 bytes is NULL", perigee_get_many(f, NULL, keys, 2, many, &e));
    CHECK(many[0].data == NULL && many[1].data == NULL);
    FAILS(PERIGEE_INVALID_ARGUMENT, "array", perigee_get_many(f, NULL, NULL, 2, many, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "result", perigee_get_many(f, NULL, keys, 1, NULL, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "too many", perigee_get_many(f, NULL, keys, (size_t)-1, many, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "65537", perigee_put(f, "k", 65537, "v", 1, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "3 bytes is NULL", perigee_delete_range(f, &range, &e));
    range.flags = 64;
    FAILS(PERIGEE_INVALID_ARGUMENT, "0x40", perigee_delete_range(f, &range, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "result", perigee_iterator_open(f, NULL, NULL, NULL, &e));
    OK(perigee_iterator_open(f, NULL, NULL, &it, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "result", perigee_iterator_first(it, NULL, &e));
    /* A handle of another kind. */
    FAILS(PERIGEE_INVALID_ARGUMENT, "another kind", perigee_put((perigee_family *)(void *)it, "k", 1, "v", 1, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "another kind", perigee_get(f, (perigee_snapshot *)(void *)f, "k", 1, &value, &size, &e));
    CHECK(value == NULL && size == 0);
    perigee_iterator_release((perigee_iterator *)(void *)f); /* no effect */
    CHECK(value_is(f, NULL, "null", ""));
    perigee_iterator_release(it);
    perigee_iterator_release(it); /* no effect */
    /* The details are optional, and need not be initialized. */
    CHECK(perigee_put(NULL, "k", 1, "v", 1, NULL) == PERIGEE_INVALID_ARGUMENT);
    error = (perigee_error *)(uintptr_t)0xdead;
    CHECK(perigee_get_pinned(f, NULL, "none", 4, &pinned, &error) == PERIGEE_OK && error == NULL);
    OK(perigee_batch_new(&batch, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "handle", perigee_batch_put(batch, NULL, "k", 1, "v", 1, &e));
    CHECK(perigee_batch_count(batch) == 0 && perigee_batch_count(NULL) == 0);
    perigee_batch_release(batch);
    FAILS(PERIGEE_INVALID_ARGUMENT, "freed", perigee_batch_put(batch, f, "k", 1, "v", 1, &e));
}

static void null_releases(void)
{
    perigee_options_release(NULL);
    perigee_family_release(NULL);
    perigee_pinned_release(NULL);
    perigee_batch_release(NULL);
    perigee_iterator_release(NULL);
    perigee_snapshot_release(NULL);
    perigee_transaction_release(NULL);
    perigee_stream_reader_release(NULL);
    perigee_stream_writer_release(NULL);
    perigee_load_release(NULL);
    perigee_feed_release(NULL);
    perigee_error_free(NULL);
    perigee_free(NULL);
    perigee_transaction_options_init(NULL);
    OK(perigee_db_close(NULL, &e));
    CHECK(perigee_error_code(NULL) == PERIGEE_OK && perigee_error_text(NULL)[0] == 0 && perigee_error_message(NULL)[0] == 0);
    CHECK(perigee_error_file(NULL) == NULL && perigee_error_offset(NULL) == -1 && perigee_error_os_error(NULL) == 0);
    CHECK(perigee_error_family(NULL) == NULL && perigee_error_key(NULL, NULL) == NULL && !perigee_error_is_retryable(NULL));
    CHECK(strcmp(perigee_code_name(PERIGEE_CONFLICT), "conflict") == 0 && strcmp(perigee_code_name(77), "unknown code") == 0);
    CHECK(perigee_snapshot_sequence(NULL) == 0);
}

static void option_errors(void)
{
    perigee_options *options;
    perigee_db *db;
    char *text;
    OK(perigee_options_new(&options, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "memory_budget", perigee_options_set(options, "memory_budge", "1 GiB", &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "purple", perigee_options_set(options, "durability", "purple", &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "name of an option", perigee_options_set(options, "x\"\n[family.y]", "1", &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "", perigee_options_set(options, "memory_budget", "-5", &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "text is NULL", perigee_options_set(options, "memory_budget", NULL, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "handle", perigee_options_set(NULL, "memory_budget", "1 GiB", &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "", perigee_options_load_text(options, "[database\n", &e));
    FAILS(PERIGEE_NOT_FOUND, "", perigee_options_load_file(options, path_of("no file"), &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "32", perigee_options_add_encryption_key(options, 1, "short", 5, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "level", perigee_options_set_log_listener(options, 9, NULL, NULL, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "NULL", perigee_options_add_comparator(options, "x", NULL, NULL, &e));
    OK(perigee_options_set(options, "create_if_missing", "false", &e));
    OK(perigee_options_text(options, &text, &e));
    CHECK(strstr(text, "create_if_missing = false") != NULL);
    perigee_free(text);
    FAILS(PERIGEE_NOT_FOUND, "", perigee_db_open(path_of("missing"), options, &db, &e));
    CHECK(db == NULL && access(path_of("missing"), F_OK) != 0);
    perigee_options_release(options);
    FAILS(PERIGEE_INVALID_ARGUMENT, "freed", perigee_db_open(path_of("missing"), options, &db, &e));
}

static void locked_and_read_only(void)
{
    perigee_options *options;
    perigee_db *db = open_db("locked", NULL), *other;
    perigee_family *f;
    FAILS(PERIGEE_LOCKED, "", perigee_db_open(path_of("locked"), NULL, &other, &e));
    OK(perigee_options_new(&options, &e));
    OK(perigee_options_set(options, "read_only", "true", &e));
    OK(perigee_db_open(path_of("locked"), options, &other, &e));
    perigee_options_release(options);
    f = default_family(other);
    FAILS(PERIGEE_READ_ONLY, "", perigee_put(f, "k", 1, "v", 1, &e));
    perigee_family_release(f);
    OK(perigee_db_close(other, &e));
    OK(perigee_db_close(db, &e));
}

/* Everything that belongs to a database, released after it was closed. */
static void closing_order(void)
{
    perigee_db *db = open_db("closing", NULL), *second;
    perigee_family *f = default_family(db), *f2;
    perigee_batch *batch;
    perigee_iterator *it;
    perigee_snapshot *snapshot;
    perigee_transaction *txn;
    perigee_stream_writer *writer;
    perigee_load *load;
    perigee_feed *feed;
    perigee_pinned pinned;
    perigee_entry entry;
    const perigee_change *change;
    void *value;
    size_t size;

    put(f, "a", "1");
    put(f, "b", "2");
    OK(perigee_batch_new(&batch, &e));
    OK(perigee_batch_put(batch, f, "k", 1, "v", 1, &e));
    OK(perigee_iterator_open(f, NULL, NULL, &it, &e));
    OK(perigee_iterator_first(it, &entry, &e));
    OK(perigee_db_snapshot(db, &snapshot, &e));
    OK(perigee_transaction_begin(db, NULL, &txn, &e));
    OK(perigee_transaction_put(txn, f, "t", 1, "v", 1, &e));
    OK(perigee_stream_writer_open(f, "w", 1, 0, &writer, &e));
    OK(perigee_load_begin(f, &load, &e));
    OK(perigee_feed_open(db, 0, &feed, &e));
    OK(perigee_get_pinned(f, NULL, "a", 1, &pinned, &e));
    OK(perigee_db_close(db, &e));

    CHECK(entry_is(&entry, "a", "1") && memcmp(pinned.data, "1", 1) == 0);
    FAILS(PERIGEE_INVALID_ARGUMENT, "freed", perigee_db_close(db, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "freed", perigee_db_write(db, batch, 0, NULL, &e));
    FAILS(PERIGEE_CLOSED, "", perigee_put(f, "k", 1, "v", 1, &e));
    FAILS(PERIGEE_CLOSED, "", perigee_get(f, NULL, "a", 1, &value, &size, &e));
    FAILS(PERIGEE_CLOSED, "", perigee_get(f, snapshot, "a", 1, &value, &size, &e));
    FAILS(PERIGEE_CLOSED, "", perigee_transaction_commit(txn, 0, NULL, &e));
    FAILS(PERIGEE_CLOSED, "", perigee_iterator_seek(it, "b", 1, &entry, &e));
    CHECK(entry.key == NULL);
    FAILS(PERIGEE_CLOSED, "", perigee_feed_next(feed, 0, &change, &e));
    /* The database can be opened again while the old handles exist; they do not refer to the new one. */
    second = open_db("closing", NULL);
    FAILS(PERIGEE_CLOSED, "", perigee_put(f, "k", 1, "v", 1, &e));
    f2 = default_family(second);
    FAILS(PERIGEE_INVALID_ARGUMENT, "another open database", perigee_transaction_put(txn, f2, "k", 1, "v", 1, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "another open database", perigee_get(f2, snapshot, "a", 1, &value, &size, &e));
    perigee_family_release(f2);
    perigee_pinned_release(&pinned);
    perigee_feed_release(feed);
    perigee_load_release(load);
    perigee_stream_writer_release(writer);
    perigee_transaction_release(txn);
    perigee_snapshot_release(snapshot);
    perigee_iterator_release(it);
    perigee_batch_release(batch);
    perigee_family_release(f);
    f = default_family(second);
    CHECK(value_is(f, NULL, "t", NULL) && value_is(f, NULL, "b", "2"));
    OK(perigee_db_close(second, &e));
    perigee_family_release(f);
}

/* The error of a damaged file names it, with the offset. */
static void damage(void)
{
    perigee_db *db = open_db("damaged", NULL);
    perigee_family *f = default_family(db);
    perigee_error *error;
    char key[16], name[600] = "";
    struct dirent *entry;
    DIR *dir;
    FILE *file;
    uint64_t damaged;
    char *report;
    int byte;

    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "key %06d", i);
        put(f, key, "a value of some length");
    }
    OK(perigee_db_flush(db, f, &e));
    OK(perigee_db_verify(db, &damaged, &e));
    CHECK(damaged == 0);
    perigee_family_release(f);
    OK(perigee_db_close(db, &e));
    dir = opendir(path_of("damaged"));
    CHECK(dir != NULL);
    while ((entry = readdir(dir)) != NULL)
        if (strstr(entry->d_name, ".klog")) snprintf(name, sizeof name, "%s/%s", path_of("damaged"), entry->d_name);
    closedir(dir);
    file = fopen(name, "r+b");
    CHECK(file != NULL && fseek(file, 200, SEEK_SET) == 0);
    byte = fgetc(file);
    CHECK(fseek(file, 200, SEEK_SET) == 0 && fputc(byte ^ 0x10, file) != EOF && fclose(file) == 0);

    db = open_db("damaged", NULL);
    CHECK(perigee_db_verify(db, &damaged, &error) == PERIGEE_CORRUPTION && damaged == 1);
    CHECK(perigee_error_code(error) == PERIGEE_CORRUPTION && !perigee_error_is_retryable(error));
    CHECK(strstr(name, perigee_error_file(error)) != NULL && strstr(perigee_error_file(error), ".klog") != NULL);
    CHECK(perigee_error_offset(error) >= 0 && perigee_error_offset(error) <= 200);
    CHECK(strstr(perigee_error_text(error), perigee_error_file(error)) && strstr(perigee_error_text(error), "offset"));
    CHECK(strncmp(perigee_error_text(error), "corruption: ", 12) == 0);
    CHECK(strncmp(perigee_error_message(error), "corruption: ", 12) != 0);
    perigee_error_free(error);
    OK(perigee_db_close(db, &e));
    OK(perigee_repair(path_of("damaged"), path_of("repaired"), &report, &e));
    CHECK(strstr(report, "lost: ") && strstr(report, ".klog") && strstr(report, "column family \"default\""));
    perigee_free(report);
    db = open_db("repaired", NULL);
    OK(perigee_db_verify(db, NULL, &e));
    OK(perigee_db_close(db, &e));
}

static void operating_system(void)
{
    perigee_db *db;
    perigee_error *error;
    CHECK(perigee_db_open("/dev/null/none", NULL, &db, &error) != PERIGEE_OK && db == NULL);
    CHECK(perigee_error_os_error(error) == ENOTDIR);
    CHECK(strstr(perigee_error_text(error), "Not a directory"));
    perigee_error_free(error);
}

static void forked_child(void)
{
    perigee_db *db = open_db("forked", NULL);
    perigee_family *f = default_family(db);
    pid_t child;
    int status;
    put(f, "k", "v");
    child = fork();
    if (child == 0) {
        FAILS(PERIGEE_CLOSED, "fork", perigee_put(f, "k", 1, "w", 1, &e));
        perigee_family_release(f);
        FAILS(PERIGEE_CLOSED, "fork", perigee_db_close(db, &e));
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(value_is(f, NULL, "k", "v"));
    put(f, "k", "w");
    perigee_family_release(f);
    OK(perigee_db_close(db, &e));
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    perigee_db *db = open_db("errors", NULL);
    perigee_family *f = default_family(db);
    null_arguments(db, f);
    perigee_family_release(f);
    OK(perigee_db_close(db, &e));
    null_releases();
    option_errors();
    locked_and_read_only();
    closing_order();
    damage();
    operating_system();
    forked_child();
    return end();
}
