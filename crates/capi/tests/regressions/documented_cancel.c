#include "documented.h"
/* "Flushes are left untouched": writes must continue after tidesdb_cancel_background_work, as in TidesDB. */
int main(int argc, char **argv)
{
    char *p = at(argv[1], "cancel"); gone(p); tidesdb_t *d = open_(p);
    tidesdb_column_family_config_t c = tidesdb_default_column_family_config(); c.write_buffer_size = 8192;
    tidesdb_create_column_family(d, "f", &c); tidesdb_column_family_t *f = tidesdb_get_column_family(d, "f");
    CHECK(tidesdb_cancel_background_work(d) == 0);
    char k[16], v[600]; memset(v, 'z', 599); v[599] = 0; int r = 0, i;
    for (i = 0; i < 2000 && !r; i++) { sprintf(k, "k%d", i); r = put(d, f, k, strlen(k), v); }
    printf("%d puts, then %d\n", i, r); CHECK(r == 0);
    tidesdb_close(d); return failed;
}
