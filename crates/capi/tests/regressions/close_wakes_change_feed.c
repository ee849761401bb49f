/* A close of the database wakes a waiting change feed, whose call returns an error. */
#include "common.h"
static perigee_feed_t *feed; static int code; static double woke;
static void *w(void *x) { const perigee_change_t *c; (void)x; do code = perigee_changes_next(feed, 3600000000, &c); while (!code); woke = now(); return NULL; }
int main(void)
{
    pthread_t t; tidesdb_t *db = db_open(fresh("feed")); alarm(600); OK(perigee_changes_new(db, 0, &feed));
    pthread_create(&t, NULL, w, NULL); usleep(300000); double t0 = now(); OK(tidesdb_close(db)); fprintf(stderr, "close %.2f s\n", now() - t0);
    pthread_join(t, NULL); fprintf(stderr, "woke after %.2f s, code %d\n", woke - t0, code); perigee_changes_free(feed);
    /* A feed that was not woken would sleep for an hour: the alarm ends the test first. */
    WANT(code, "the woken call returned success");
    return 0;
}
