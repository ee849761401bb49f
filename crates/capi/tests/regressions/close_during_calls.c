/* tidesdb_close must finish although other threads keep calling the library until it has returned. */
#include "common.h"
static tidesdb_t *db; static atomic_long calls;
static void *busy(void *x) { tidesdb_txn_t *t; (void)x; while (!tidesdb_txn_begin(db, &t)) { tidesdb_txn_free(t); calls++; } return NULL; }
static void *busy2(void *x) { tidesdb_db_stats_t s; (void)x; while (!tidesdb_get_db_stats(db, &s)) calls++; return NULL; }
int main(int argc, char **argv)
{
    pthread_t th[16]; int n = 8; (void)argv;
    db = db_open(fresh("starve"));
    for (int i = 0; i < n; i++) pthread_create(&th[i], NULL, argc > 1 ? busy2 : busy, NULL);
    usleep(200000);
    double t0 = now(); alarm(600);
    OK(tidesdb_close(db));
    double took = now() - t0;
    for (int i = 0; i < n; i++) pthread_join(th[i], NULL);
    fprintf(stderr, "close took %.3f s, %ld calls\n", took, (long)calls);
    WANT(took < 60, "close waited %.1f s", took);
    return 0;
}
