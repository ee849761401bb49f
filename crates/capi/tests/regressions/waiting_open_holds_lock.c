/* A database that waits for its comparator holds its lock: a second open is refused at once, not when the comparator is registered. */
#include "common.h"
static int cmp(const uint8_t *a, size_t n, const uint8_t *b, size_t m, void *c) { int r = memcmp(a, b, n < m ? n : m); (void)c; return r ? r : (n > m) - (n < m); }
int main(void)
{
    const char *p = fresh("hides"); tidesdb_column_family_config_t f = tidesdb_default_column_family_config(); strcpy(f.comparator_name, "c");
    tidesdb_t *a = db_open(p), *b; OK(tidesdb_register_comparator(a, "c", cmp, NULL, NULL)); OK(tidesdb_create_column_family(a, "f", &f)); OK(tidesdb_close(a));
    a = db_open(p);
    tidesdb_config_t second = tidesdb_default_config(); second.db_path = (char *)p; second.log_level = TDB_LOG_NONE;
    int r = tidesdb_open(&second, &b);
    WANT(r == TDB_ERR_LOCKED, "a second handle of a waiting database: %d (%s)", r, perigee_last_error());
    OK(tidesdb_register_comparator(a, "c", cmp, NULL, NULL));
    WANT(tidesdb_get_column_family(a, "f"), "the column family is missing: %s", perigee_last_error());
    return 0;
}
