/* A database that waits for its comparator, and cannot be opened when it comes (another handle has it): who registers must hear it. */
#include "common.h"
static int cmp(const uint8_t *a, size_t n, const uint8_t *b, size_t m, void *c) { int r = memcmp(a, b, n < m ? n : m); (void)c; return r ? r : (n > m) - (n < m); }
int main(void)
{
    const char *p = fresh("hides"); tidesdb_column_family_config_t f = tidesdb_default_column_family_config(); strcpy(f.comparator_name, "c");
    tidesdb_t *a = db_open(p), *b; OK(tidesdb_register_comparator(a, "c", cmp, NULL, NULL)); OK(tidesdb_create_column_family(a, "f", &f)); OK(tidesdb_close(a));
    a = db_open(p); b = db_open(p);
    OK(tidesdb_register_comparator(a, "c", cmp, NULL, NULL));
    int r = tidesdb_register_comparator(b, "c", cmp, NULL, NULL); tidesdb_txn_t *t; int q = tidesdb_txn_begin(b, &t);
    fprintf(stderr, "register %d, begin %d (%s)\n", r, q, perigee_last_error());
    WANT(r == TDB_ERR_LOCKED || q == TDB_ERR_LOCKED, "nobody says that the database is locked");
    return 0;
}
