#include "documented.h"
int main(int argc, char **argv)
{
    char *p = at(argv[1], "ro"); gone(p); tidesdb_t *d = open_(p), *r = 0;
    tidesdb_column_family_t *f = cf_(d, "f", "");
    CHECK(put(d, f, "k", 1, "v") == 0);
    tidesdb_column_family_config_t c = tidesdb_default_column_family_config(); c.write_buffer_size = 1 << 20;
    CHECK(tidesdb_cf_update_runtime_config(f, &c, 0) == 0);
    CHECK(tidesdb_sync_wal(f) == 0);
    tidesdb_config_t oc = conf(p); perigee_options_t o = perigee_default_options(); o.read_only = 1;
    CHECK(perigee_open(&oc, &o, &r) == 0); if (r) tidesdb_close(r); /* beside the writer */
    tidesdb_close(d); r = 0;
    CHECK(perigee_open(&oc, &o, &r) == 0); if (r) tidesdb_close(r);
    tidesdb_close(open_(p)); r = 0; oc.unified_memtable = 1; oc.unified_memtable_write_buffer_size = 4 << 20;
    CHECK(perigee_open(&oc, &o, &r) == 0); if (r) tidesdb_close(r);
    char *q = at(argv[1], "missing"); gone(q); oc = conf(q); oc.log_to_file = 1; o = perigee_default_options(); o.must_exist = 1; r = 0;
    CHECK(perigee_open(&oc, &o, &r) != 0);
    CHECK(access(q, F_OK) != 0); /* nothing was created */
    return failed;
}
