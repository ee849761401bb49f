/* An allocator that fails at the n-th call and counts live blocks. */
#include "common.h"
static atomic_long left = -1, live;
static void *my(size_t n) { if (left >= 0 && left-- == 0) return NULL; char *p = malloc(n + 16); live++; memcpy(p, "MARKMARK", 8); return p + 16; }
static void *myc(size_t a, size_t b) { void *p = my(a * b); if (p) memset(p, 0, a * b); return p; }
static void *myr(void *p, size_t n) { (void)p; (void)n; abort(); }
static void myf(void *p) { if (!p) return; char *q = (char *)p - 16; if (memcmp(q, "MARKMARK", 8)) { fprintf(stderr, "FAULT: freed a block of another allocator\n"); abort(); } live--; free(q); }
int main(void)
{
    WANT(!tidesdb_init(my, myc, myr, myf), "init"); tidesdb_t *db = db_open(fresh("alloc")); tidesdb_column_family_config_t f = tidesdb_default_column_family_config(); char nm[9];
    for (int i = 0; i < 5; i++) { sprintf(nm, "f%d", i); OK(tidesdb_create_column_family(db, nm, &f)); }
    tidesdb_column_family_t *cf = tidesdb_get_column_family(db, "f1"); put(db, cf, "k", 1, "v", 1); tidesdb_txn_t *t; OK(tidesdb_txn_begin(db, &t)); OK(tidesdb_txn_put(t, cf, (uint8_t *)"p", 1, (uint8_t *)"v", 1, -1)); OK(perigee_txn_prepare(t, (uint8_t *)"gid", 3)); tidesdb_txn_free(t); OK(tidesdb_txn_begin(db, &t));
    for (int at = 0; at < 8; at++) {
        char **names = (void *)1; int n = 7, r; uint8_t *v; size_t vn; tidesdb_stats_t *s = (void *)1; char *j; perigee_prepared_t *l; size_t ln;
        left = at; r = tidesdb_list_column_families(db, &names, &n); WANT(at >= 6 ? r == 0 : r == TDB_ERR_MEMORY && !names && !n, "list %d: %d", at, r); if (!r) { for (int i = 0; i < n; i++) tidesdb_free(names[i]); tidesdb_free(names); }
        left = at; r = tidesdb_txn_get(t, cf, (uint8_t *)"k", 1, &v, &vn); if (!r) tidesdb_free(v); else WANT(r == TDB_ERR_MEMORY, "get %d", r);
        left = at; r = tidesdb_get_stats(cf, &s); if (!r) tidesdb_free_stats(s); else WANT(r == TDB_ERR_MEMORY && !s, "stats %d", r);
        left = at; r = perigee_stats_json(db, &j); if (!r) tidesdb_free(j); left = at; r = perigee_list_prepared(db, &l, &ln); if (!r) tidesdb_free(l); left = at; r = perigee_txn_get_for_update(t, cf, (uint8_t *)"k", 1, 2, &v, &vn); if (!r) tidesdb_free(v);
        left = -1; WANT(live == 0, "%ld blocks leaked at %d", (long)live, at);
    }
    OK(perigee_rollback_prepared(db, (uint8_t *)"gid", 3)); tidesdb_txn_free(t); return tidesdb_close(db);
}
