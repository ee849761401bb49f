/* must_exist: a failed open must not create the path. */
#include "common.h"
int main(void)
{
    const char *p = fresh("must"); tidesdb_config_t c = tidesdb_default_config(); perigee_options_t o = perigee_default_options(); tidesdb_t *a; struct stat st;
    c.db_path = (char *)p; c.log_to_file = 1; o.must_exist = 1;
    WANT(perigee_open(&c, &o, &a), "opened"); WANT(stat(p, &st), "an open with must_exist created a directory");
    return 0;
}
