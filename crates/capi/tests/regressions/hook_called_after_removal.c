/* No call of a hook begins after the hook was removed, its column family dropped or its database closed. */
#include "common.h"
static tidesdb_t *db; static tidesdb_column_family_t *cf; static atomic_long called, late; static atomic_int stop, gone;
static int hook(const tidesdb_commit_op_t *ops, int n, uint64_t seq, void *ctx) { (void)ops; (void)n; (void)seq; (void)ctx; if (gone) late++; called++; usleep(1000); return 0; }
static void *wr(void *x) { tidesdb_txn_t *t; (void)x; while (!stop) { if (tidesdb_txn_begin(db, &t)) break; int r = tidesdb_txn_put(t, cf, (uint8_t *)"w", 1, (uint8_t *)"v", 1, -1); if (!r) r = tidesdb_txn_commit(t); tidesdb_txn_free(t); if (r) break; } return NULL; }
int main(int argc, char **argv)
{
    pthread_t t[3]; alarm(600); const char *how = argc > 1 ? argv[1] : "null";
    tidesdb_column_family_config_t f = tidesdb_default_column_family_config();
    db = db_open(fresh("late")); OK(tidesdb_create_column_family(db, "f", &f)); cf = tidesdb_get_column_family(db, "f"); OK(tidesdb_cf_set_commit_hook(cf, hook, NULL));
    for (int i = 0; i < 3; i++) pthread_create(t + i, NULL, wr, NULL);
    while (called < 300) usleep(1000); stop = 1; usleep(50000);
    if (*how == 'n') OK(tidesdb_cf_set_commit_hook(cf, NULL, NULL)); 
    if (*how == 'd') OK(tidesdb_drop_column_family(db, "f"));
    if (*how == 'c') OK(tidesdb_close(db));
    gone = 1; usleep(1000000);
    WANT(!late, "%s: within a second %ld calls of the hook began after it had returned", how, (long)late);
    return 0;
}
