#include "documented.h"
/* Second argument, optional: a directory on a file system with less than 100 MB free (mount -t tmpfs -o size=64m tmpfs DIR). */
int main(int argc, char **argv)
{
    tidesdb_column_family_config_t c = tidesdb_default_column_family_config();
    if (argc > 2)
    {
        char *s = at(argv[2], "small"); gone(s); tidesdb_t *d = open_(s); c.min_disk_space = 0;
        CHECK(tidesdb_create_column_family(d, "f", &c) == 0); tidesdb_close(d);
    }
    char *p = at(argv[1], "space"); gone(p); tidesdb_t *d = open_(p); tidesdb_column_family_t *f = cf_(d, "f", "");
    c.min_disk_space = (uint64_t)1 << 60;
    CHECK(tidesdb_create_column_family(d, "greedy", &c) == 0);
    CHECK(put(d, f, "k", 1, "v") == TDB_ERR_IO);
    CHECK(tidesdb_drop_column_family(d, "greedy") == 0);
    CHECK(put(d, f, "k", 1, "v") == 0);
    tidesdb_close(d); return failed;
}
