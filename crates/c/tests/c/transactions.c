/* Transactions: isolation, conflicts, locks, savepoints, abort, two-phase commit. */
#include "check.h"

static int txn_value_is(perigee_transaction *txn, perigee_family *family, const char *key, const char *value)
{
    void *data;
    size_t size;
    int is;
    OK(perigee_transaction_get(txn, family, key, strlen(key), &data, &size, &e));
    is = value == NULL ? data == NULL : data != NULL && size == strlen(value) && memcmp(data, value, size) == 0;
    perigee_free(data);
    return is;
}

static void txn_put(perigee_transaction *txn, perigee_family *family, const char *key, const char *value)
{
    OK(perigee_transaction_put(txn, family, key, strlen(key), value, strlen(value), &e));
}

static void conflict(perigee_db *db, perigee_family *f)
{
    perigee_transaction *one, *two;
    perigee_error *error;
    uint64_t sequence;
    size_t size;

    put(f, "account", "100");
    OK(perigee_transaction_begin(db, NULL, &one, &e));
    OK(perigee_transaction_begin(db, NULL, &two, &e));
    CHECK(txn_value_is(one, f, "account", "100") && txn_value_is(two, f, "account", "100"));
    txn_put(one, f, "account", "70");
    CHECK(txn_value_is(one, f, "account", "70") && value_is(f, NULL, "account", "100"));
    txn_put(two, f, "account", "50");
    OK(perigee_transaction_commit(one, PERIGEE_DURABILITY_DEFAULT, &sequence, &e));
    CHECK(sequence > 0 && value_is(f, NULL, "account", "70"));
    CHECK(perigee_transaction_commit(two, PERIGEE_DURABILITY_DEFAULT, NULL, &error) == PERIGEE_CONFLICT);
    CHECK(strcmp(perigee_error_family(error), "default") == 0 && perigee_error_is_retryable(error));
    CHECK(memcmp(perigee_error_key(error, &size), "account", 7) == 0 && size == 7);
    perigee_error_free(error);
    FAILS(PERIGEE_INVALID_ARGUMENT, "", perigee_transaction_put(two, f, "account", 7, "1", 1, &e));
    OK(perigee_transaction_reset(two, &e));
    CHECK(txn_value_is(two, f, "account", "70"));
    txn_put(two, f, "account", "20");
    OK(perigee_transaction_commit(two, PERIGEE_DURABILITY_NONE, NULL, &e));
    CHECK(value_is(f, NULL, "account", "20"));
    perigee_transaction_release(one);
    perigee_transaction_release(two);
}

static void all_operations(perigee_db *db, perigee_family *f)
{
    perigee_transaction *txn;
    perigee_iterator *it;
    perigee_pinned pinned, many[2];
    perigee_bytes keys[2] = {{"t1", 2}, {"x", 1}};
    perigee_range range = {"t", 1, NULL, 0, PERIGEE_PREFIX};
    int found;
    uint64_t expires;

    put(f, "t1", "1");
    put(f, "t2", "2");
    OK(perigee_transaction_begin(db, NULL, &txn, &e));
    txn_put(txn, f, "t3", "3");
    OK(perigee_transaction_delete(txn, f, "t1", 2, &e));
    OK(perigee_transaction_single_delete(txn, f, "t2", 2, &e));
    OK(perigee_transaction_put_until(txn, f, "t4", 2, "4", 1, 4102444800000u, &e));
    OK(perigee_transaction_iterator(txn, f, &range, &it, &e));
    CHECK(strcmp(keys_of(it, 0), "t3 t4") == 0 && strcmp(keys_of(it, 1), "t4 t3") == 0);
    OK(perigee_transaction_contains(txn, f, "t1", 2, &found, &e));
    CHECK(found == 0);
    OK(perigee_transaction_get_pinned(txn, f, "t3", 2, &pinned, &e));
    CHECK(pinned.size == 1 && *(const char *)pinned.data == '3');
    perigee_pinned_release(&pinned);
    OK(perigee_transaction_savepoint(txn, "one", &e));
    OK(perigee_transaction_delete_range(txn, f, &range, &e));
    OK(perigee_transaction_contains(txn, f, "t3", 2, &found, &e));
    CHECK(found == 0);
    OK(perigee_transaction_rollback_to(txn, "one", &e));
    OK(perigee_transaction_contains(txn, f, "t3", 2, &found, &e));
    CHECK(found == 1);
    OK(perigee_transaction_release_savepoint(txn, "one", &e));
    FAILS(PERIGEE_NOT_FOUND, "one", perigee_transaction_rollback_to(txn, "one", &e));
    OK(perigee_transaction_get_many(txn, f, keys, 2, many, &e));
    CHECK(many[0].data == NULL && many[1].data == NULL);
    FAILS(PERIGEE_INVALID_ARGUMENT, "merge", perigee_transaction_merge(txn, f, "m", 1, "x", 1, &e));
    OK(perigee_transaction_commit(txn, 0, NULL, &e));
    perigee_iterator_release(it);
    perigee_transaction_release(txn);
    CHECK(value_is(f, NULL, "t1", NULL) && value_is(f, NULL, "t2", NULL) && value_is(f, NULL, "t3", "3"));
    OK(perigee_get_expiry(f, NULL, "t4", 2, &expires, &found, &e));
    CHECK(found && expires == 4102444800000u);

    OK(perigee_transaction_begin(db, NULL, &txn, &e));
    txn_put(txn, f, "rolled back", "");
    OK(perigee_transaction_rollback(txn, &e));
    CHECK(value_is(f, NULL, "rolled back", NULL));
    FAILS(PERIGEE_INVALID_ARGUMENT, "", perigee_transaction_commit(txn, 0, NULL, &e));
    OK(perigee_transaction_reset(txn, &e));
    txn_put(txn, f, "released", "");
    perigee_transaction_release(txn);
    CHECK(value_is(f, NULL, "released", NULL));
}

/* Each of two transactions reads what the other one writes. Returns the result of the second commit. */
static perigee_code write_skew(perigee_db *db, perigee_family *f, const perigee_transaction_options *options)
{
    perigee_transaction *one, *two;
    perigee_code code;
    OK(perigee_delete(f, "doctor 1", 8, &e));
    OK(perigee_delete(f, "doctor 2", 8, &e));
    OK(perigee_transaction_begin(db, options, &one, &e));
    OK(perigee_transaction_begin(db, options, &two, &e));
    CHECK(txn_value_is(one, f, "doctor 2", NULL) && txn_value_is(two, f, "doctor 1", NULL));
    txn_put(one, f, "doctor 1", "off");
    txn_put(two, f, "doctor 2", "off");
    OK(perigee_transaction_commit(one, 0, NULL, &e));
    code = perigee_transaction_commit(two, 0, NULL, NULL);
    perigee_transaction_release(one);
    perigee_transaction_release(two);
    return code;
}

static void option_checks(perigee_db *db, perigee_family *f)
{
    perigee_transaction_options options;
    perigee_transaction *txn;
    memset(&options, 0, sizeof options);
    FAILS(PERIGEE_INVALID_ARGUMENT, "perigee_transaction_options_init", perigee_transaction_begin(db, &options, &txn, &e));
    perigee_transaction_options_init(&options);
    CHECK(options.lock_timeout_us == 1000000);
    options.isolation = 9;
    FAILS(PERIGEE_INVALID_ARGUMENT, "9", perigee_transaction_begin(db, &options, &txn, &e));
    options.isolation = PERIGEE_ISOLATION_SERIALIZABLE;
    options.read_only = 1;
    OK(perigee_transaction_begin(db, &options, &txn, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "read-only", perigee_transaction_put(txn, f, "k", 1, "v", 1, &e));
    perigee_transaction_release(txn);
    options.read_only = 0;
    options.max_bytes = 100;
    OK(perigee_transaction_begin(db, &options, &txn, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "", perigee_transaction_put(txn, f, "k", 1, base_directory, 101, &e));
    perigee_transaction_release(txn);
    options.max_bytes = 0;
    CHECK(write_skew(db, f, NULL) == PERIGEE_OK);
    CHECK(write_skew(db, f, &options) == PERIGEE_CONFLICT);
}

static void locks(perigee_db *db, perigee_family *f)
{
    perigee_transaction_options options;
    perigee_transaction *one, *two;
    perigee_range range = {"s10", 3, "s20", 3, 0};
    void *value;
    size_t size;
    int unlocked;

    perigee_transaction_options_init(&options);
    options.pessimistic = 1;
    options.lock_timeout_us = 0;
    put(f, "seat", "free");
    OK(perigee_transaction_begin(db, &options, &one, &e));
    OK(perigee_transaction_begin(db, &options, &two, &e));
    OK(perigee_transaction_get_for_update(one, f, "seat", 4, PERIGEE_LOCK_MODE_EXCLUSIVE, &value, &size, &e));
    CHECK(size == 4 && memcmp(value, "free", 4) == 0);
    perigee_free(value);
    FAILS(PERIGEE_BUSY, "", perigee_transaction_put(two, f, "seat", 4, "bob", 3, &e));
    FAILS(PERIGEE_BUSY, "", perigee_transaction_lock(two, f, "seat", 4, PERIGEE_LOCK_MODE_SHARED, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "lock_mode", perigee_transaction_lock(two, f, "seat", 4, 0, &e));
    OK(perigee_transaction_unlock(one, f, "seat", 4, &unlocked, &e));
    CHECK(unlocked == 1);
    OK(perigee_transaction_lock(two, f, "seat", 4, PERIGEE_LOCK_MODE_SHARED, &e));
    OK(perigee_transaction_lock(one, f, "seat", 4, PERIGEE_LOCK_MODE_SHARED, &e));
    OK(perigee_transaction_lock_range(one, f, &range, PERIGEE_LOCK_MODE_EXCLUSIVE, &e));
    FAILS(PERIGEE_BUSY, "", perigee_transaction_put(two, f, "s15", 3, "bob", 3, &e));
    OK(perigee_transaction_put(two, f, "s20", 3, "bob", 3, &e));
    perigee_transaction_release(one);
    OK(perigee_transaction_put(two, f, "s15", 3, "bob", 3, &e));
    OK(perigee_transaction_commit(two, 0, NULL, &e));
    perigee_transaction_release(two);
}

struct waiting {
    perigee_transaction *txn;
    perigee_family *family;
};

static void *wait_for_lock(void *argument)
{
    struct waiting *w = (struct waiting *)argument;
    FAILS(PERIGEE_ABORTED, "", perigee_transaction_lock(w->txn, w->family, "held", 4, PERIGEE_LOCK_MODE_EXCLUSIVE, &e));
    return NULL;
}

static void *wait_until_cancelled(void *argument)
{
    struct waiting *w = (struct waiting *)argument;
    FAILS(PERIGEE_INTERRUPTED, "", perigee_transaction_lock(w->txn, w->family, "held", 4, PERIGEE_LOCK_MODE_EXCLUSIVE, &e));
    return NULL;
}

static void cancel_a_wait(perigee_db *db, perigee_family *f)
{
    perigee_transaction *holder, *txn;
    struct waiting w;
    pthread_t thread;
    int cancelled;

    OK(perigee_transaction_begin(db, NULL, &holder, &e));
    OK(perigee_transaction_lock(holder, f, "held", 4, PERIGEE_LOCK_MODE_EXCLUSIVE, &e));
    OK(perigee_transaction_begin(db, NULL, &txn, &e));
    OK(perigee_transaction_set_lock_timeout(txn, 0, &e));
    FAILS(PERIGEE_BUSY, "", perigee_transaction_lock(txn, f, "held", 4, PERIGEE_LOCK_MODE_SHARED, &e));
    OK(perigee_transaction_set_lock_timeout(txn, 600000000, &e));
    OK(perigee_transaction_cancel_wait(txn, &cancelled, &e));
    CHECK(cancelled == 0);
    w.txn = txn;
    w.family = f;
    CHECK(pthread_create(&thread, NULL, wait_until_cancelled, &w) == 0);
    while (!cancelled) OK(perigee_transaction_cancel_wait(txn, &cancelled, &e));
    CHECK(pthread_join(thread, NULL) == 0);
    txn_put(txn, f, "goes on", "1");
    OK(perigee_transaction_commit(txn, 0, NULL, &e));
    perigee_transaction_release(txn);
    perigee_transaction_release(holder);
}

static void abort_from_another_thread(perigee_db *db, perigee_family *f)
{
    perigee_transaction_options options;
    perigee_transaction *holder, *txn;
    struct waiting w;
    pthread_t thread;
    int aborted;

    perigee_transaction_options_init(&options);
    options.lock_timeout_us = 600000000;
    OK(perigee_transaction_begin(db, NULL, &holder, &e));
    OK(perigee_transaction_lock(holder, f, "held", 4, PERIGEE_LOCK_MODE_EXCLUSIVE, &e));
    OK(perigee_transaction_begin(db, &options, &txn, &e));
    w.txn = txn;
    w.family = f;
    CHECK(pthread_create(&thread, NULL, wait_for_lock, &w) == 0);
    OK(perigee_transaction_abort(txn, &aborted, &e)); /* before or while the thread waits */
    CHECK(aborted == 1 && pthread_join(thread, NULL) == 0);
    FAILS(PERIGEE_ABORTED, "", perigee_transaction_put(txn, f, "k", 1, "v", 1, &e));
    OK(perigee_transaction_reset(txn, &e));
    txn_put(txn, f, "after abort", "1");
    OK(perigee_transaction_commit(txn, 0, NULL, &e));
    OK(perigee_transaction_abort(txn, &aborted, &e));
    CHECK(aborted == 0);
    FAILS(PERIGEE_INVALID_ARGUMENT, "", perigee_transaction_abort(NULL, NULL, &e));
    perigee_transaction_release(txn);
    perigee_transaction_release(holder);
}

static void two_phases(perigee_db *db, perigee_family *f)
{
    perigee_transaction *txn;
    perigee_prepared *list;
    size_t count;
    uint64_t sequence;

    OK(perigee_db_list_prepared(db, &list, &count, &e));
    CHECK(list == NULL && count == 0);
    for (int i = 0; i < 2; i++) {
        OK(perigee_transaction_begin(db, NULL, &txn, &e));
        txn_put(txn, f, i ? "second" : "first", "prepared");
        OK(perigee_transaction_prepare(txn, i ? "gid 2" : "gid 1", 5, &e));
        FAILS(PERIGEE_INVALID_ARGUMENT, "", perigee_transaction_commit(txn, 0, NULL, &e));
        perigee_transaction_release(txn);
    }
    perigee_family_release(f);
    OK(perigee_db_close(db, &e));

    db = open_db("transactions", NULL);
    f = default_family(db);
    OK(perigee_db_list_prepared(db, &list, &count, &e));
    CHECK(count == 2 && list[0].gid_size == 5 && list[1].gid_size == 5 && list[0].operations == 1);
    CHECK(memcmp(list[0].gid, "gid ", 4) == 0 && memcmp(list[1].gid, "gid ", 4) == 0 && list[1].bytes > 0);
    CHECK(memcmp(list[0].gid, list[1].gid, 5) != 0 && list[0].prepared_ms > 1600000000000u);
    perigee_free(list);
    CHECK(value_is(f, NULL, "first", NULL));
    FAILS(PERIGEE_CONFLICT, "", perigee_put(f, "first", 5, "other", 5, &e));
    OK(perigee_db_commit_prepared(db, "gid 1", 5, &sequence, &e));
    CHECK(sequence > 0 && value_is(f, NULL, "first", "prepared"));
    OK(perigee_db_rollback_prepared(db, "gid 2", 5, &e));
    CHECK(value_is(f, NULL, "second", NULL));
    FAILS(PERIGEE_NOT_FOUND, "", perigee_db_commit_prepared(db, "gid 2", 5, NULL, &e));
    FAILS(PERIGEE_INVALID_ARGUMENT, "255", perigee_db_commit_prepared(db, "gid", 300, NULL, &e));
    perigee_family_release(f);
    OK(perigee_db_close(db, &e));
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    perigee_db *db = open_db("transactions", NULL);
    perigee_family *f = default_family(db);
    conflict(db, f);
    all_operations(db, f);
    option_checks(db, f);
    locks(db, f);
    cancel_a_wait(db, f);
    abort_from_another_thread(db, f);
    two_phases(db, f);
    return end();
}
