/* Opening another database without a log file, or a failed open, must not change the log file of the first database. */
#include "common.h"
int main(int argc, char **argv)
{
    const char *p = fresh("log"); char log[300], buf[4000] = ""; (void)argv;
    tidesdb_config_t c = tidesdb_default_config(); tidesdb_t *a, *b = NULL;
    c.db_path = (char *)p; c.log_to_file = 1; c.log_level = TDB_LOG_INFO; OK(tidesdb_open(&c, &a));
    if (argc > 1) { WANT(tidesdb_open(&c, &b) != 0, "twice open"); }
    else { c.db_path = (char *)fresh("log2"); c.log_to_file = 0; OK(tidesdb_open(&c, &b)); }
    tidesdb_log_write(TDB_LOG_WARN, __FILE__, __LINE__, "marker %d", 42);
    snprintf(log, sizeof log, "%s/LOG", p); FILE *f = fopen(log, "r"); WANT(f, "no log"); if (fread(buf, 1, sizeof buf - 1, f)) {}
    WANT(strstr(buf, "marker 42"), "the line is not in the file of the only database with log_to_file");
    return 0;
}
