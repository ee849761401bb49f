/* Many threads on the same handles; a close while calls are in progress. */
#include "check.h"

enum { THREADS = 6, ROUNDS = 400 };

struct shared {
    perigee_db *db;
    perigee_family *family;
    perigee_batch *batch;
    perigee_iterator *iterator;
    int number;
    volatile int *stop;
};

static void *work(void *argument)
{
    struct shared *s = (struct shared *)argument;
    char key[32];
    perigee_entry entry;
    for (int i = 0; i < ROUNDS; i++) {
        int size = snprintf(key, sizeof key, "%d/%d", s->number, i);
        OK(perigee_put(s->family, key, (size_t)size, key, (size_t)size, &e));
        CHECK(value_is(s->family, NULL, key, key));
        OK(perigee_batch_put(s->batch, s->family, "batch", 5, key, (size_t)size, &e)); /* one batch, all threads */
        OK(perigee_iterator_seek(s->iterator, key, (size_t)size, &entry, &e));         /* one iterator, all threads */
        if (i % 50 == 0) OK(perigee_db_write(s->db, s->batch, PERIGEE_DURABILITY_NONE, NULL, &e));
    }
    return NULL;
}

/* Calls until the database is closed. */
static void *until_closed(void *argument)
{
    struct shared *s = (struct shared *)argument;
    for (int i = 0;; i++) {
        perigee_error *error;
        perigee_code code = perigee_put(s->family, "k", 1, "v", 1, &error);
        if (code == PERIGEE_OK && i % 100 == 0) code = perigee_db_flush(s->db, s->family, &error);
        if (code != PERIGEE_OK) {
            if (code != PERIGEE_CLOSED && code != PERIGEE_INVALID_ARGUMENT) {
                fprintf(stderr, "after the close: %s\n", perigee_error_text(error));
                exit(1);
            }
            perigee_error_free(error);
            return NULL;
        }
    }
}

int main(int argc, char **argv)
{
    perigee_options *options;
    pthread_t threads[THREADS];
    struct shared s[THREADS];
    perigee_iterator *it;
    uint64_t keys = 0;
    perigee_entry entry;

    begin(argc, argv);
    OK(perigee_options_new(&options, &e));
    OK(perigee_options_set(options, "durability", "none", &e));
    memset(s, 0, sizeof s);
    s[0].db = open_db("threads", options);
    s[0].family = default_family(s[0].db);
    OK(perigee_batch_new(&s[0].batch, &e));
    OK(perigee_iterator_open(s[0].family, NULL, NULL, &s[0].iterator, &e));
    for (int i = 0; i < THREADS; i++) {
        s[i] = s[0];
        s[i].number = i;
        CHECK(pthread_create(&threads[i], NULL, work, &s[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    OK(perigee_iterator_open(s[0].family, NULL, NULL, &it, &e));
    OK(perigee_iterator_first(it, &entry, &e));
    while (entry.key != NULL) {
        keys++;
        OK(perigee_iterator_next(it, &entry, &e));
    }
    CHECK(keys == THREADS * ROUNDS + 1);
    perigee_iterator_release(it);
    perigee_iterator_release(s[0].iterator);
    perigee_batch_release(s[0].batch);

    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, until_closed, &s[i]) == 0);
    usleep(20000);
    OK(perigee_db_close(s[0].db, &e));
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    perigee_family_release(s[0].family);
    s[0].db = open_db("threads", options);
    OK(perigee_db_verify(s[0].db, NULL, &e));
    OK(perigee_db_close(s[0].db, &e));
    perigee_options_release(options);
    return end();
}
