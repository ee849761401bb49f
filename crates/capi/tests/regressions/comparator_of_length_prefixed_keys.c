/* Keys that begin with their length: the probe keys of the comparator's fingerprint made such a function read beyond their memory,
 * and the bytes there decided whether the database could be opened again. */
#include "common.h"
static int prefixed(const uint8_t *a, size_t n, const uint8_t *b, size_t m, void *ctx)
{
    uint16_t x, y; int r; (void)n; (void)m; (void)ctx;
    memcpy(&x, a, 2); memcpy(&y, b, 2);
    r = memcmp(a + 2, b + 2, x < y ? x : y);
    return r ? r : (x > y) - (x < y);
}
static tidesdb_t *deeper(int n, const char *p) { char pad[64]; memset(pad, n, sizeof pad); tidesdb_t *db; if (n) { db = deeper(n - 1, p); if (pad[3] == 77) puts(""); return db; }
    db = db_open(p); OK(tidesdb_register_comparator(db, "prefixed", prefixed, NULL, NULL)); return db; }
int main(int argc, char **argv)
{
    const char *p = fresh("prefixed"); (void)argv;
    tidesdb_t *db = deeper(argc > 1 ? atoi(argv[1]) : 0, p);
    if (argc == 1) {
        tidesdb_column_family_config_t f = tidesdb_default_column_family_config();
        strcpy(f.comparator_name, "prefixed");
        OK(tidesdb_create_column_family(db, "f", &f));
    }
    WANT(tidesdb_get_column_family(db, "f"), "the column family no longer exists: %s", perigee_last_error());
    return tidesdb_close(db);
}
