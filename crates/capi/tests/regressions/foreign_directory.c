/* A directory of TidesDB 9 was opened as an empty database, and files were created in it. */
#include "common.h"
static void make(const char *dir, const char *file)
{
    char path[600]; snprintf(path, sizeof path, "%s/%s", dir, file);
    char *slash = strrchr(path, '/'); *slash = 0; mkdir(dir, 0755); mkdir(path, 0755); *slash = '/';
    FILE *f = fopen(path, "w"); WANT(f, "%s", path); fputs("theirs", f); fclose(f);
}
static void refused(const char *dir, const char *says)
{
    char cmd[600], before[200] = "", after[200] = ""; FILE *p;
    snprintf(cmd, sizeof cmd, "cd %s && find . -type f | sort | xargs cksum | cksum", dir);
    p = popen(cmd, "r"); WANT(p && fgets(before, sizeof before, p), "cksum"); pclose(p);
    for (int to_file = 0; to_file < 2; to_file++) {
        tidesdb_config_t c = tidesdb_default_config(); tidesdb_t *db = NULL;
        c.db_path = (char *)dir; c.log_level = TDB_LOG_NONE; c.log_to_file = to_file;
        int code = tidesdb_open(&c, &db);
        WANT(code == TDB_ERR_INVALID_ARGS && !db, "%s: %d", dir, code);
        WANT(strstr(perigee_last_error(), says), "%s: %s", dir, perigee_last_error());
    }
    p = popen(cmd, "r"); WANT(p && fgets(after, sizeof after, p), "cksum"); pclose(p);
    WANT(!strcmp(before, after), "%s was changed", dir);
}
int main(void)
{
    const char *d = fresh("tidesdb"); make(d, "LOCK"); make(d, "LOG"); make(d, "users/config.ini"); make(d, "users/MANIFEST"); refused(d, "perigee import --tidesdb-lib");
    d = fresh("rocksdb"); make(d, "CURRENT"); make(d, "IDENTITY"); make(d, "MANIFEST-000005"); refused(d, "--from-rocksdb");
    d = fresh("lmdb"); make(d, "data.mdb"); refused(d, "--from-lmdb");
    d = fresh("other"); make(d, "letter.txt"); refused(d, "letter.txt");
    /* A directory that contains only the log file of this library is not foreign. */
    d = fresh("own"); make(d, "LOG");
    tidesdb_config_t c = tidesdb_default_config(); tidesdb_t *db = NULL;
    c.db_path = (char *)d; c.log_to_file = 1;
    OK(tidesdb_open(&c, &db)); OK(tidesdb_close(db)); OK(tidesdb_open(&c, &db)); OK(tidesdb_close(db));
    return 0;
}
