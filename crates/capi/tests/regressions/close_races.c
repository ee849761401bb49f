/* Double close, double open, open while closing. */
#include "common.h"
static tidesdb_t *db; static atomic_int good, opened; static const char *path; static pthread_barrier_t bar;
static void *cl(void *x) { (void)x; pthread_barrier_wait(&bar); if (!tidesdb_close(db)) good++; return NULL; }
static void *op(void *x) { tidesdb_config_t c = tidesdb_default_config(); (void)x; c.db_path = (char *)path; c.log_level = TDB_LOG_NONE; pthread_barrier_wait(&bar); tidesdb_t *d; int r = tidesdb_open(&c, &d); if (!r) { opened++; db = d; } else WANT(r == TDB_ERR_LOCKED, "open: %d %s", r, perigee_last_error()); return NULL; }
int main(void)
{
    path = fresh("races"); pthread_barrier_init(&bar, NULL, 2); alarm(600); pthread_t t[2];
    for (int i = 0; i < 100; i++) {
        opened = good = 0; for (int j = 0; j < 2; j++) pthread_create(t + j, NULL, op, NULL); for (int j = 0; j < 2; j++) pthread_join(t[j], NULL); WANT(opened == 1, "opened %d", (int)opened);
        for (int j = 0; j < 2; j++) pthread_create(t + j, NULL, cl, NULL); for (int j = 0; j < 2; j++) pthread_join(t[j], NULL); WANT(good == 1, "closed %d", (int)good);
    }
    return 0;
}
