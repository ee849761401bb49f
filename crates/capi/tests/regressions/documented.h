/* Shared by the programs documented_*.c, which check what the documentation of a function or option says: the argument is a directory for databases. Exit status 0: success, 1: the fault is back. */
#include <tidesdb/db.h>
#include <tidesdb/perigee.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static int failed;
#define CHECK(x) do { if (!(x)) { printf("line %d: %s   (%s)\n", __LINE__, #x, perigee_last_error()); failed = 1; } } while (0)
static char *at(const char *dir, const char *name) { char *p = malloc(512); snprintf(p, 512, "%s/%s", dir, name); return p; }
static void gone(const char *p) { char b[600]; snprintf(b, 600, "rm -rf %s", p); system(b); }
static tidesdb_config_t conf(char *p) { tidesdb_config_t c = tidesdb_default_config(); c.db_path = p; c.log_level = TDB_LOG_NONE; return c; }
static tidesdb_t *open_(char *p) { tidesdb_config_t c = conf(p); tidesdb_t *d = 0; tidesdb_open(&c, &d); return d; }
static tidesdb_column_family_t *cf_(tidesdb_t *d, const char *name, const char *cmp)
{ tidesdb_column_family_config_t c = tidesdb_default_column_family_config(); strcpy(c.comparator_name, cmp); tidesdb_create_column_family(d, name, &c); return tidesdb_get_column_family(d, name); }
static int put(tidesdb_t *d, tidesdb_column_family_t *f, const void *k, size_t n, const char *v)
{ tidesdb_txn_t *t = 0; int r = tidesdb_txn_begin(d, &t); if (r) return r; r = tidesdb_txn_put(t, f, k, n, (const uint8_t *)v, strlen(v), 0); if (!r) r = tidesdb_txn_commit(t); tidesdb_txn_free(t); return r; }
static int has(tidesdb_t *d, tidesdb_column_family_t *f, const void *k, size_t n, const char *v)
{ tidesdb_txn_t *t = 0; uint8_t *x = 0; size_t m = 0; if (tidesdb_txn_begin(d, &t)) return 0; int r = tidesdb_txn_get(t, f, k, n, &x, &m); int ok = r == 0 && m == strlen(v) && !memcmp(x, v, m); tidesdb_free(x); tidesdb_txn_free(t); return ok; }
