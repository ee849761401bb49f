/* perigee_value_data: the value stays pinned until it is freed, whatever happens to the key or the transaction. */
#include "common.h"
int main(void)
{
    tidesdb_column_family_config_t f = tidesdb_default_column_family_config(); static char big[200000]; memset(big, 'x', sizeof big); alarm(600);
    for (int sz = 0; sz < 3; sz++) for (int flushed = 0; flushed < 2; flushed++) {
        const char *p = fresh("held"); tidesdb_t *db = db_open(p); tidesdb_txn_t *t; perigee_value_t *v; uint64_t n; const uint8_t *d; size_t dn; size_t len = (size_t[]){30, 3000, 200000}[sz];
        OK(tidesdb_create_column_family(db, "f", &f)); tidesdb_column_family_t *cf = tidesdb_get_column_family(db, "f");
        if (flushed) { put(db, cf, "k", 1, big, len); OK(tidesdb_flush_memtable(cf)); }
        OK(tidesdb_txn_begin(db, &t)); if (!flushed) OK(tidesdb_txn_put(t, cf, (uint8_t *)"k", 1, (uint8_t *)big, len, -1));
        OK(perigee_value_open(t, cf, (uint8_t *)"k", 1, &v, &n)); OK(perigee_value_data(v, &d, &dn));
#define SAME(w) WANT(n == len && dn == len && !memcmp(d, big, len), "%s: %zu %d", w, len, flushed)
        SAME("open"); if (!flushed) { OK(tidesdb_txn_put(t, cf, (uint8_t *)"k", 1, (uint8_t *)"y", 1, -1)); SAME("overwrite"); OK(tidesdb_txn_rollback(t)); SAME("rollback"); }
        tidesdb_txn_free(t); SAME("txn_free"); put(db, cf, "k", 1, "z", 1); OK(tidesdb_flush_memtable(cf)); OK(tidesdb_compact(cf)); OK(tidesdb_purge(db)); SAME("compact"); OK(tidesdb_drop_column_family(db, "f")); SAME("drop"); OK(tidesdb_close(db)); SAME("close");
        db = db_open(p); SAME("reopen"); OK(tidesdb_close(db)); SAME("close2"); perigee_value_free(v); perigee_value_free(v);
    }
    return 0;
}
