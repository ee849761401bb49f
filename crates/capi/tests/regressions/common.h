/* Shared by the regression programs of this directory. They exit with 0 on success, and with 1 and a message if the fault is back.
 * Databases are created in the directory FOUND_DIR. */
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <tidesdb/perigee.h>
#define OK(call) do { int c_ = (call); if (c_) { fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #call, c_, perigee_last_error()); exit(1); } } while (0)
#define WANT(what, ...) do { if (!(what)) { fprintf(stderr, "FAULT: " __VA_ARGS__); fputc('\n', stderr); exit(1); } } while (0)
static inline const char *fresh(const char *name)
{
    static char path[8][256]; static int n; char *p = path[n++ & 7], cmd[400];
    snprintf(p, 256, "%s/%s", getenv("FOUND_DIR") ? getenv("FOUND_DIR") : ".", name);
    snprintf(cmd, sizeof cmd, "rm -rf %s", p); if (system(cmd)) {}
    return p;
}
static inline tidesdb_t *db_open(const char *path)
{
    tidesdb_config_t c = tidesdb_default_config(); tidesdb_t *db;
    c.db_path = (char *)path; c.log_level = TDB_LOG_WARN;
    OK(tidesdb_open(&c, &db)); return db;
}
static inline double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static inline void put(tidesdb_t *db, tidesdb_column_family_t *cf, const void *k, size_t n, const void *v, size_t m)
{
    tidesdb_txn_t *t; OK(tidesdb_txn_begin(db, &t)); OK(tidesdb_txn_put(t, cf, k, n, v, m, -1)); OK(tidesdb_txn_commit(t)); tidesdb_txn_free(t);
}
