/* Statistics of a column family while another thread renames it. */
#include "common.h"
static tidesdb_t *db; static atomic_int stop;
static void *ren(void *x) { (void)x; while (!stop) { OK(tidesdb_rename_column_family(db, "f", "g")); OK(tidesdb_rename_column_family(db, "g", "f")); } return NULL; }
int main(void)
{
    tidesdb_column_family_config_t f = tidesdb_default_column_family_config(); pthread_t t; alarm(600); tidesdb_stats_t *s; int bad = 0;
    db = db_open(fresh("ren")); OK(tidesdb_create_column_family(db, "f", &f)); tidesdb_column_family_t *cf = tidesdb_get_column_family(db, "f");
    pthread_create(&t, NULL, ren, NULL); for (int i = 0; i < 3000; i++) { int r = tidesdb_get_stats(cf, &s); if (r) { bad++; } else tidesdb_free_stats(s); } stop = 1; pthread_join(t, NULL);
    WANT(!bad, "%d of 3000 calls reported a dropped column family: %s", bad, perigee_last_error()); return 0;
}
