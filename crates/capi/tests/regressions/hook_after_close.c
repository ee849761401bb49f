/* After tidesdb_close (or a drop of the column family, or the removal of the hook) has returned, the hook's context may be freed. */
#include "common.h"
static tidesdb_t *db; static tidesdb_column_family_t *cf; static atomic_int inside, gone, late;
static int hook(const tidesdb_commit_op_t *ops, int n, uint64_t seq, void *ctx)
{ (void)ops; (void)n; (void)seq; (void)ctx; inside = 1; usleep(700000); if (gone) late = 1; return 0; }
static void *writer(void *x) { (void)x; put(db, cf, "k", 1, "v", 1); return NULL; }
int main(int argc, char **argv)
{
    pthread_t t; const char *how = argc > 1 ? argv[1] : "close";
    tidesdb_column_family_config_t f = tidesdb_default_column_family_config();
    db = db_open(fresh("hookclose")); OK(tidesdb_create_column_family(db, "f", &f)); cf = tidesdb_get_column_family(db, "f");
    OK(tidesdb_cf_set_commit_hook(cf, hook, NULL));
    pthread_create(&t, NULL, writer, NULL);
    while (!inside) usleep(1000);
    if (*how == 'c') OK(tidesdb_close(db));
    if (*how == 'd') OK(tidesdb_drop_column_family(db, "f"));
    if (*how == 'n') OK(tidesdb_cf_set_commit_hook(cf, NULL, NULL));
    gone = 1; pthread_join(t, NULL);
    WANT(!late, "%s returned while the hook was running", how);
    return 0;
}
