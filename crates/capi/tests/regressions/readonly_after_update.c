/* A read-only open after settings were changed without storing them. */
#include "common.h"
int main(void)
{
    const char *p = fresh("ro"); tidesdb_t *db = db_open(p); tidesdb_config_t c = tidesdb_default_config(); perigee_options_t o = perigee_default_options();
    tidesdb_column_family_config_t f = tidesdb_default_column_family_config();
    OK(tidesdb_create_column_family(db, "f", &f)); f.write_buffer_size = 8 << 20;
    OK(tidesdb_cf_update_runtime_config(tidesdb_get_column_family(db, "f"), &f, 0)); OK(tidesdb_close(db));
    c.db_path = (char *)p; o.read_only = 1; c.log_level = TDB_LOG_WARN;
    int r = perigee_open(&c, &o, &db); WANT(!r, "read-only open: %d, %s", r, perigee_last_error());
    return 0;
}
