/* Two threads register comparators with a database that waits for one of them; both must be usable then. */
#include "common.h"
static int cmp(const uint8_t *a, size_t n, const uint8_t *b, size_t m, void *c) { int r = memcmp(a, b, n < m ? n : m); (void)c; return r ? r : (n > m) - (n < m); }
static int rev(const uint8_t *a, size_t n, const uint8_t *b, size_t m, void *c) { return -cmp(a, n, b, m, c); }
static tidesdb_t *db; static pthread_barrier_t bar;
static void *one(void *x) { (void)x; pthread_barrier_wait(&bar); OK(tidesdb_register_comparator(db, "one", cmp, NULL, NULL)); return NULL; }
static void *two(void *x) { (void)x; pthread_barrier_wait(&bar); OK(tidesdb_register_comparator(db, "two", rev, NULL, NULL)); return NULL; }
static atomic_int same; static void *three(void *x) { pthread_barrier_wait(&bar); if (!tidesdb_register_comparator(db, "same", x, NULL, NULL)) same++; return NULL; }
int main(void)
{
    const char *p = fresh("learn"); alarm(600); pthread_barrier_init(&bar, NULL, 2);
    tidesdb_column_family_config_t f = tidesdb_default_column_family_config(); strcpy(f.comparator_name, "one");
    db = db_open(p); OK(tidesdb_register_comparator(db, "one", cmp, NULL, NULL)); OK(tidesdb_create_column_family(db, "f", &f)); OK(tidesdb_close(db));
    int bad = 0;
    for (int i = 0; i < 20; i++) {
        pthread_t t[2]; char n[20]; db = db_open(p);
        pthread_create(t, NULL, one, NULL); pthread_create(t + 1, NULL, two, NULL); pthread_join(t[0], NULL); pthread_join(t[1], NULL);
        WANT(tidesdb_get_column_family(db, "f"), "round %d: not open: %s", i, perigee_last_error());
        strcpy(f.comparator_name, "two"); sprintf(n, "g%d", i);
        int r = tidesdb_create_column_family(db, n, &f); if (r) { if (!bad++) fprintf(stderr, "round %d: %d %s\n", i, r, perigee_last_error()); }
        else OK(tidesdb_drop_column_family(db, n));
        same = 0; pthread_create(t, NULL, three, cmp); pthread_create(t + 1, NULL, three, rev); pthread_join(t[0], NULL); pthread_join(t[1], NULL);
        if (same == 2) { static int s; if (!s++) fprintf(stderr, "round %d: two functions under one name\n", i); }
        OK(tidesdb_close(db));
    }
    WANT(!bad, "%d rounds of 20: a registered comparator was refused for a new column family", bad);
    return 0;
}
