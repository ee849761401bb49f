/* A fake of TidesDB's library: the functions that the importer uses, over sorted arrays stored in one
 * file per column family. Its iterator has a different layout. The environment variable FAKE selects
 * a fault:
 *   hidden     iterators contain no expiry time
 *   shifting   the expiry time is at another offset for flushed entries
 *   strange    the expiry time is at another offset for keys that begin with '!'
 *   garbled    entries whose key begins with '!' have an implausible expiry time
 *   broken     an iterator fails after the first entry of the column family "users"
 *   deadly     an iterator kills the process there
 *   forgetful  every second iteration over "users" lacks its last entry
 *   locked     open reports that the database is open in another process
 *   blind      the column family "users" is not opened
 *   misshapen  the default settings are implausible */
#include "tidesdb9.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef int (*compare_t)(const uint8_t *, size_t, const uint8_t *, size_t, void *);
typedef struct { uint8_t *key, *value; size_t nkey, nvalue; int64_t until; int flushed; } entry_t;
typedef struct { char name[128], dir[4000]; family_config_t config; entry_t *all; size_t n; int walks; } family_t;
typedef struct { char path[3000]; family_t *families[16]; int n; struct { char name[64]; compare_t f; } orders[16]; int norders; } db_t;
/* The current entry of an iterator: the expiry time follows the key. */
typedef struct { long kind; const uint8_t *value; size_t nvalue; const uint8_t *key; size_t nkey; int64_t until, elsewhere; } shown_t;
typedef struct { long mark; family_t *family; shown_t *shown[2]; shown_t *now; size_t at, end; int valid; } iter_t;
typedef struct { db_t *db; struct { family_t *family; entry_t entry; } puts[100000]; int n; } txn_t;

static int wrong(const char *what) { const char *e = getenv("FAKE"); return e && !strcmp(e, what); }

#define ORDER(name) int tidesdb_comparator_##name(const uint8_t *a, size_t n, const uint8_t *b, size_t m, void *ctx)
ORDER(memcmp) { (void)ctx; int c = memcmp(a, b, n < m ? n : m); return c ? c : (n > m) - (n < m); }
ORDER(reverse_memcmp) { return -tidesdb_comparator_memcmp(a, n, b, m, ctx); }
ORDER(lexicographic) { (void)ctx, (void)n, (void)m; return strcmp((const char *)a, (const char *)b); }
ORDER(uint64) {
    uint64_t x, y;
    if (n != 8 || m != 8) return tidesdb_comparator_memcmp(a, n, b, m, ctx);
    memcpy(&x, a, 8), memcpy(&y, b, 8);
    return (x > y) - (x < y);
}
ORDER(int64) {
    int64_t x, y;
    if (n != 8 || m != 8) return tidesdb_comparator_memcmp(a, n, b, m, ctx);
    memcpy(&x, a, 8), memcpy(&y, b, 8);
    return (x > y) - (x < y);
}
ORDER(case_insensitive) {
    (void)ctx;
    for (size_t i = 0; i < n && i < m; i++) {
        int x = a[i] >= 'A' && a[i] <= 'Z' ? a[i] + 32 : a[i], y = b[i] >= 'A' && b[i] <= 'Z' ? b[i] + 32 : b[i];
        if (x != y) return x - y;
    }
    return (n > m) - (n < m);
}

int tidesdb_init(void *a, void *b, void *c, void *d) { (void)a, (void)b, (void)c, (void)d; return 0; }
void tidesdb_free(void *p) { free(p); }

config_t tidesdb_default_config(void) {
    config_t c;
    memset(&c, 0, sizeof c);
    c.flush_threads = c.compaction_threads = 2, c.block_cache = 64 << 20;
    return c;
}

family_config_t tidesdb_default_column_family_config(void) {
    family_config_t c;
    memset(&c, 0, sizeof c);
    c.write_buffer = 8 << 20, c.level_ratio = 10, c.min_levels = 1, c.value_threshold = 512, c.compression = 2, c.bloom = 1;
    c.bloom_rate = 0.01, c.sync = 2, c.sync_interval_us = 128000, c.skip_list_levels = 12, c.skip_list_probability = 0.25;
    c.isolation = wrong("misshapen") ? 99 : 1, c.min_disk = 100 << 20;
    return c;
}

static compare_t comparator(db_t *db, const char *name) {
    for (int i = 0; i < db->norders; i++) if (!strcmp(db->orders[i].name, name)) return db->orders[i].f;
    return tidesdb_comparator_memcmp;
}

int tidesdb_register_comparator(db_t *db, const char *name, compare_t f, const char *text, void *ctx) {
    (void)text, (void)ctx;
    strcpy(db->orders[db->norders].name, name);
    db->orders[db->norders++].f = f;
    for (int i = 0; i < db->n; i++) (void)i;
    return 0;
}

static void insert(db_t *db, family_t *f, entry_t e) {
    compare_t order = comparator(db, f->config.comparator);
    size_t i = 0;
    while (i < f->n && order(f->all[i].key, f->all[i].nkey, e.key, e.nkey, NULL) < 0) i++;
    if (i < f->n && !order(f->all[i].key, f->all[i].nkey, e.key, e.nkey, NULL)) { f->all[i] = e; return; }
    f->all = realloc(f->all, (f->n + 1) * sizeof e);
    memmove(f->all + i + 1, f->all + i, (f->n - i) * sizeof e);
    f->all[i] = e, f->n++;
}

static family_t *add(db_t *db, const char *name, const family_config_t *config) {
    family_t *f = calloc(1, sizeof *f);
    strcpy(f->name, name);
    snprintf(f->dir, sizeof f->dir, "%s/%s", db->path, name);
    f->config = *config;
    return db->families[db->n++] = f;
}

static void reread(db_t *db, family_t *f) {
    char path[4096];
    snprintf(path, sizeof path, "%s/data", f->dir);
    FILE *file = fopen(path, "rb");
    uint64_t head[4];
    while (file && fread(head, sizeof head, 1, file) == 1) {
        entry_t e = {malloc(head[0] + 1), malloc(head[1] + 1), head[0], head[1], (int64_t)head[2], (int)head[3]};
        if (fread(e.key, 1, head[0], file) != head[0] || fread(e.value, 1, head[1], file) != head[1]) abort();
        insert(db, f, e);
    }
    if (file) fclose(file);
}

int tidesdb_open(const config_t *config, db_t **out) {
    if (wrong("locked") && !strstr(config->path, "probes")) return -12;
    db_t *db = *out = calloc(1, sizeof *db);
    strcpy(db->path, config->path);
    static const char *names[] = {"memcmp", "lexicographic", "uint64", "int64", "reverse", "case_insensitive"};
    compare_t all[] = {tidesdb_comparator_memcmp, tidesdb_comparator_lexicographic, tidesdb_comparator_uint64,
                       tidesdb_comparator_int64, tidesdb_comparator_reverse_memcmp, tidesdb_comparator_case_insensitive};
    for (int i = 0; i < 6; i++) tidesdb_register_comparator(db, names[i], all[i], NULL, NULL);
    mkdir(db->path, 0755);
    DIR *dir = opendir(db->path);
    for (struct dirent *d; (d = readdir(dir));) {
        char path[4096], line[512];
        snprintf(path, sizeof path, "%s/%s/config.ini", db->path, d->d_name);
        FILE *ini = d->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!ini) continue;
        family_config_t c = tidesdb_default_column_family_config();
        while (fgets(line, sizeof line, ini)) sscanf(line, "comparator_name = %63s", c.comparator);
        fclose(ini);
        if (wrong("blind") && !strcmp(d->d_name, "users")) continue;
        reread(db, add(db, d->d_name, &c));
    }
    closedir(dir);
    /* Like the real library, it writes to the directory that it opens. */
    char path[4096];
    snprintf(path, sizeof path, "%s/LOCK", db->path);
    FILE *lock = fopen(path, "w");
    if (lock) fclose(lock);
    return 0;
}

int tidesdb_create_column_family(db_t *db, const char *name, const family_config_t *config) {
    char path[4096];
    family_t *f = add(db, name, config);
    mkdir(f->dir, 0755);
    snprintf(path, sizeof path, "%s/config.ini", f->dir);
    FILE *ini = fopen(path, "w");
    fprintf(ini, "[%s]\ncompression_algorithm = LZ4\ncomparator_name = %s\n", name, config->comparator);
    return fclose(ini);
}

family_t *tidesdb_get_column_family(db_t *db, const char *name) {
    for (int i = 0; i < db->n; i++) if (!strcmp(db->families[i]->name, name)) return db->families[i];
    return NULL;
}

int tidesdb_list_column_families(db_t *db, char ***names, int *count) {
    *names = malloc(16 * sizeof **names);
    for (*count = 0; *count < db->n; ++*count) (*names)[*count] = strdup(db->families[*count]->name);
    return 0;
}

int tidesdb_get_stats(family_t *f, stats_t **out) {
    stats_t *s = *out = calloc(1, sizeof *s);
    s->config = malloc(sizeof *s->config);
    *s->config = f->config;
    s->total_keys = f->n;
    return 0;
}
void tidesdb_free_stats(stats_t *s) { free(s->config), free(s); }

int tidesdb_txn_begin(db_t *db, txn_t **txn) { *txn = calloc(1, sizeof **txn); (*txn)->db = db; return 0; }
void tidesdb_txn_free(txn_t *txn) { free(txn); }

int tidesdb_txn_put(txn_t *t, family_t *f, const uint8_t *k, size_t n, const uint8_t *v, size_t m, int64_t until) {
    entry_t e = {malloc(n + 1), malloc(m + 1), n, m, until, 0};
    memcpy(e.key, k, n), memcpy(e.value, v, m), e.key[n] = 0;
    t->puts[t->n].family = f, t->puts[t->n++].entry = e;
    return 0;
}
int tidesdb_txn_commit(txn_t *t) {
    for (int i = 0; i < t->n; i++) insert(t->db, t->puts[i].family, t->puts[i].entry);
    return 0;
}

static void store(family_t *f) {
    char path[4096];
    snprintf(path, sizeof path, "%s/data", f->dir);
    FILE *file = fopen(path, "wb");
    for (size_t i = 0; i < f->n; i++) {
        entry_t *e = f->all + i;
        uint64_t head[4] = {e->nkey, e->nvalue, (uint64_t)e->until, (uint64_t)e->flushed};
        fwrite(head, sizeof head, 1, file), fwrite(e->key, 1, e->nkey, file), fwrite(e->value, 1, e->nvalue, file);
    }
    fclose(file);
}
int tidesdb_flush_memtable(family_t *f) {
    char path[4096];
    for (size_t i = 0; i < f->n; i++) f->all[i].flushed = 1;
    store(f);
    snprintf(path, sizeof path, "%s/L1_0.klog", f->dir);
    return fclose(fopen(path, "w"));
}
int tidesdb_is_flushing(family_t *f) { (void)f; return 0; }
int tidesdb_close(db_t *db) {
    for (int i = 0; i < db->n; i++) store(db->families[i]);
    return 0;
}

int tidesdb_iter_new(txn_t *t, family_t *f, iter_t **out) {
    (void)t;
    iter_t *it = *out = calloc(1, sizeof *it);
    it->family = f, it->mark = 4711, it->end = f->n;
    it->shown[0] = calloc(1, sizeof(shown_t)), it->shown[1] = calloc(1, sizeof(shown_t));
    f->walks++;
    if (wrong("forgetful") && !strcmp(f->name, "users") && f->walks % 2 == 0 && f->n) it->end--;
    return 0;
}
void tidesdb_iter_free(iter_t *it) { free(it->shown[0]), free(it->shown[1]), free(it); }

static int stand(iter_t *it) {
    it->valid = it->at < it->end;
    if (!it->valid) return -3;
    entry_t *e = it->family->all + it->at;
    shown_t *s = it->now = it->shown[it->at % 2];
    int odd = e->nkey && e->key[0] == '!';
    memset(s, 0x11, sizeof *s);
    s->key = e->key, s->nkey = e->nkey, s->value = e->value, s->nvalue = e->nvalue, s->until = e->until;
    if (wrong("hidden")) s->until ^= 0x5555555555;
    if (wrong("shifting") && e->flushed) s->elsewhere = e->until, s->until = 1;
    if (wrong("strange") && odd) s->key = NULL;
    if (wrong("garbled") && odd) s->until = 12345;
    return 0;
}
int tidesdb_iter_seek_to_first(iter_t *it) { it->at = 0; return stand(it); }
int tidesdb_iter_next(iter_t *it) {
    if (wrong("broken") && !strcmp(it->family->name, "users")) return -4;
    if (wrong("deadly") && !strcmp(it->family->name, "users")) raise(SIGKILL);
    it->at++;
    return stand(it);
}
int tidesdb_iter_seek_to_last(iter_t *it) { it->at = it->end - 1; return stand(it); }
int tidesdb_iter_prev(iter_t *it) { it->at--; return stand(it); }
int tidesdb_iter_valid(iter_t *it) { return it->valid; }
int tidesdb_iter_key(iter_t *it, uint8_t **k, size_t *n) {
    entry_t *e = it->family->all + it->at;
    *k = e->key, *n = e->nkey;
    return 0;
}
int tidesdb_iter_value(iter_t *it, uint8_t **v, size_t *n) {
    *v = (uint8_t *)it->now->value, *n = it->now->nvalue;
    return 0;
}
