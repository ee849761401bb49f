#include "documented.h"
#include <dirent.h>
/* Damage in the small table of the settings: salvage_readonly must still read all data. */
int main(int argc, char **argv)
{
    char *p = at(argv[1], "salv"); gone(p); tidesdb_t *d = open_(p); tidesdb_column_family_t *f = cf_(d, "f", ""); char k[16];
    for (int i = 0; i < 2000; i++) { sprintf(k, "k%d", i); put(d, f, k, strlen(k), "v"); }
    CHECK(tidesdb_purge(d) == 0); tidesdb_close(d);
    char *small = 0; long least = 1 << 30; struct dirent *e; DIR *l = opendir(p);
    while ((e = readdir(l))) if (strstr(e->d_name, ".klog")) { char *q = at(p, e->d_name); FILE *x = fopen(q, "r"); fseek(x, 0, 2); if (ftell(x) < least) { least = ftell(x); small = q; } fclose(x); }
    FILE *x = fopen(small, "r+"); for (int i = 0; i < 200; i++) fputc(0x5a, x); fclose(x);
    tidesdb_config_t oc = conf(p); perigee_options_t o = perigee_default_options(); o.salvage_readonly = 1; d = 0;
    CHECK(perigee_open(&oc, &o, &d) == 0);
    if (d) { CHECK(has(d, tidesdb_get_column_family(d, "f"), "k1", 2, "v")); tidesdb_close(d); }
    return failed;
}
