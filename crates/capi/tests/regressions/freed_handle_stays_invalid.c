/* A freed handle must not refer to another transaction. */
#include "common.h"
int main(void)
{
    tidesdb_t *db = db_open(fresh("stale")); tidesdb_txn_t *old, *t; double t0 = now();
    OK(tidesdb_txn_begin(db, &old)); tidesdb_txn_free(old);
    for (long i = 1; i < 3000000; i++) {
        OK(tidesdb_txn_begin(db, &t));
        WANT(t != old, "after %ld transactions (%.1f s) the stale handle refers to another transaction", i, now() - t0);
        tidesdb_txn_free(t);
    }
    return 0;
}
