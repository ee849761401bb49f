/* Several threads: writers in several column families, concurrent readers, hooks, maintenance under load. */
#include "harness.h"

enum
{
    WRITERS = 4,
    KEYS = 2000
};

typedef struct
{
    fixture_t *x;
    tidesdb_column_family_t *cf;
    int number, failures;
    volatile int *stop;
} worker_t;

static void *write_keys(void *argument)
{
    worker_t *w = argument;
    for (int i = 0; i < KEYS; i++)
    {
        char key[32];
        snprintf(key, sizeof key, "w%d-%06d", w->number, i);
        w->failures += put1(w->x->db, w->cf, key, key) != 0;
    }
    return NULL;
}

static void *read_keys(void *argument)
{
    worker_t *w = argument;
    for (int i = 0; i < KEYS; i++)
    {
        char key[32], value[32];
        snprintf(key, sizeof key, "key%06d", i % 500);
        snprintf(value, sizeof value, "value%06d", i % 500);
        w->failures += !has(w->x->db, w->cf, key, value);
    }
    return NULL;
}

static void *walk_keys(void *argument)
{
    worker_t *w = argument;
    do
    {
        tidesdb_txn_t *t = NULL;
        tidesdb_iter_t *it = NULL;
        int n = 0;
        if (tidesdb_txn_begin(w->x->db, &t) || tidesdb_iter_new(t, w->cf, &it)) return w->failures++, NULL;
        for (tidesdb_iter_seek(it, S("key")); tidesdb_iter_valid(it); tidesdb_iter_next(it))
        {
            uint8_t *key = NULL;
            size_t size = 0;
            if (tidesdb_iter_key(it, &key, &size) || memcmp(key, "key", 3)) break;
            n++;
        }
        w->failures += n != 500;
        tidesdb_iter_free(it);
        tidesdb_txn_free(t);
    } while (!*w->stop);
    return NULL;
}

/* Increments a counter in one key, and retries on a conflict. */
static void *count_up(void *argument)
{
    worker_t *w = argument;
    for (int done = 0; done < 100;)
    {
        tidesdb_txn_t *t = NULL;
        uint8_t *value = NULL;
        size_t size = 0;
        long n = 0;
        if (tidesdb_txn_begin_with_isolation(w->x->db, TDB_ISOLATION_SNAPSHOT, &t)) return w->failures++, NULL;
        if (tidesdb_txn_get(t, w->cf, S("counter"), &value, &size) == 0 && size == sizeof n) memcpy(&n, value, size);
        tidesdb_free(value);
        n++;
        int rc = tidesdb_txn_put(t, w->cf, S("counter"), (uint8_t *)&n, sizeof n, -1);
        if (rc == 0) rc = tidesdb_txn_commit(t);
        if (rc == 0) done++;
        else if (rc != TDB_ERR_CONFLICT) return w->failures++, NULL;
        tidesdb_txn_free(t);
    }
    return NULL;
}

static void *maintain(void *argument)
{
    worker_t *w = argument;
    while (!*w->stop)
    {
        tidesdb_stats_t *s = NULL;
        tidesdb_db_stats_t d;
        w->failures += tidesdb_flush_memtable(w->cf) != 0;
        w->failures += tidesdb_get_stats(w->cf, &s) != 0;
        if (s) tidesdb_free_stats(s);
        w->failures += tidesdb_get_db_stats(w->x->db, &d) != 0;
        w->failures += tidesdb_sync_wal(w->cf) != 0;
        usleep(20000);
    }
    return NULL;
}

void test_threads(void)
{
    fixture_t x = fixture_open();
    REQUIRE(x.cf && fill(x.db, x.cf, 0, 500) == 0);
    tidesdb_column_family_t *second = make_family(x.db, "second");
    REQUIRE(second);
    volatile int stop = 0;
    worker_t writers[WRITERS], reader = {&x, x.cf, 0, 0, &stop}, walker = reader, keeper = reader, counters[3];
    pthread_t threads[WRITERS], read_thread, walk_thread, keep_thread, count_threads[3];
    for (int i = 0; i < WRITERS; i++)
    {
        writers[i] = (worker_t){&x, i & 1 ? second : x.cf, i, 0, &stop};
        pthread_create(&threads[i], NULL, write_keys, &writers[i]);
    }
    pthread_create(&read_thread, NULL, read_keys, &reader);
    pthread_create(&walk_thread, NULL, walk_keys, &walker);
    pthread_create(&keep_thread, NULL, maintain, &keeper);
    int failed = 0, missing = 0;
    for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL), failed += writers[i].failures;
    pthread_join(read_thread, NULL);
    stop = 1;
    pthread_join(walk_thread, NULL);
    pthread_join(keep_thread, NULL);
    EQ("tidesdb_txn_commit", "four writers in two families: every commit succeeds", failed, 0);
    EQ("tidesdb_txn_get", "reads concurrent with writers find all keys", reader.failures, 0);
    EQ("tidesdb_iter_next", "scans concurrent with writers see every old key once", walker.failures, 0);
    EQ("tidesdb_flush_memtable", "flushes and statistics concurrent with writers succeed", keeper.failures, 0);
    for (int w = 0; w < WRITERS; w++)
        for (int i = 0; i < KEYS; i += 7)
        {
            char key[32];
            snprintf(key, sizeof key, "w%d-%06d", w, i);
            missing += !has(x.db, writers[w].cf, key, key);
        }
    EQ("tidesdb_txn_commit", "four writers in two families: every write is found", missing, 0);
    for (int i = 0; i < 3; i++)
    {
        counters[i] = (worker_t){&x, second, i, 0, &stop};
        pthread_create(&count_threads[i], NULL, count_up, &counters[i]);
    }
    for (failed = 0, missing = 0; missing < 3; missing++) pthread_join(count_threads[missing], NULL), failed += counters[missing].failures;
    EQ("tidesdb_txn_commit", "SNAPSHOT counters: only conflicts fail a commit", failed, 0);
    tidesdb_txn_t *t = NULL;
    uint8_t *value = NULL;
    size_t size = 0;
    long n = 0;
    REQUIRE(tidesdb_txn_begin(x.db, &t) == 0 && tidesdb_txn_get(t, second, S("counter"), &value, &size) == 0 && size == sizeof n);
    memcpy(&n, value, sizeof n);
    tidesdb_free(value);
    tidesdb_txn_free(t);
    EQ("tidesdb_txn_commit", "SNAPSHOT counters: no increment is lost", n, 300);
    fixture_reopen(&x);
    second = x.db ? tidesdb_get_column_family(x.db, "second") : NULL;
    CHECK("tidesdb_open", "writes of many threads survive a reopen", second && has(x.db, second, "w3-001999", "w3-001999"));
    fixture_close(&x);
}
