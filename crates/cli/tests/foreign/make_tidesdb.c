/* Makes a database through a library with TidesDB's C interface: `make LIBRARY DIR UNIFIED < commands`.
 *   family NAME COMPARATOR BTREE COMPRESSION   makes a family; what follows is put into it
 *   use NAME                                   goes on with a family that is there
 *   put KEY VALUE UNTIL                        key and value in hexadecimal; seconds since 1970 or -1
 *   many N LENGTH                              N entries of 16-byte keys and values of LENGTH bytes, every third ending in a day
 *   flush                                      flushes the family
 *   walk                                       reads it all, and says how many entries and how much CPU time
 *   back                                       the same from its end
 *   leave                                      ends the process without closing anything
 *   wait                                       closes nothing until stdin ends */
#include "tidesdb9.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void *lib;
static void *f(const char *name) {
    void *p = dlsym(lib, name);
    if (!p) fprintf(stderr, "no %s\n", name), exit(2);
    return p;
}
static void must(int code, const char *what) { if (code) fprintf(stderr, "%s: %d\n", what, code), exit(2); }
static size_t unhex(const char *s, uint8_t *to) {
    size_t n = 0;
    for (; s[0] && s[1]; s += 2) { unsigned b; sscanf(s, "%2x", &b); to[n++] = (uint8_t)b; }
    return n;
}
static int mine(const uint8_t *a, size_t n, const uint8_t *b, size_t m, void *ctx) {
    int (*memcmp_)(const uint8_t *, size_t, const uint8_t *, size_t, void *) = f("tidesdb_comparator_memcmp");
    return memcmp_(a, n, b, m, ctx);
}

int main(int argc, char **argv) {
    if (argc != 4 || !(lib = dlopen(argv[1], RTLD_NOW))) return fprintf(stderr, "%s\n", dlerror()), 2;
    ((int (*)(void *, void *, void *, void *))f("tidesdb_init"))(0, 0, 0, 0);
    config_t c = ((config_t(*)(void))f("tidesdb_default_config"))();
    c.path = argv[2], c.unified_memtable = atoi(argv[3]), c.log_level = 99;
    void *db, *cf = NULL, *txn = NULL, *it;
    must(((int (*)(config_t *, void **))f("tidesdb_open"))(&c, &db), "open");
    must(((int (*)(void *, const char *, void *, void *, void *))f("tidesdb_register_comparator"))(db, "mine", mine, 0, 0), "mine");
    int (*begin)(void *, void **) = f("tidesdb_txn_begin");
    int (*put)(void *, void *, const uint8_t *, size_t, const uint8_t *, size_t, int64_t) = f("tidesdb_txn_put");
    int (*commit)(void *) = f("tidesdb_txn_commit");
    void (*done)(void *) = f("tidesdb_txn_free");
    static char word[64], name[256], comparator[64], key[300000], value[300000];
    static uint8_t k[150000], v[150000];
    while (scanf("%63s", word) == 1) {
        if (!strcmp(word, "family")) {
            int btree, compression;
            if (scanf("%255s %63s %d %d", name, comparator, &btree, &compression) != 4) return 2;
            family_config_t config = ((family_config_t(*)(void))f("tidesdb_default_column_family_config"))();
            strcpy(config.comparator, comparator), config.btree = btree, config.compression = compression;
            must(((int (*)(void *, const char *, void *))f("tidesdb_create_column_family"))(db, name, &config), name);
            cf = ((void *(*)(void *, const char *))f("tidesdb_get_column_family"))(db, name);
        } else if (!strcmp(word, "use")) {
            if (scanf("%255s", name) != 1) return 2;
            cf = ((void *(*)(void *, const char *))f("tidesdb_get_column_family"))(db, name);
        } else if (!strcmp(word, "put")) {
            long until;
            if (scanf("%299999s %299999s %ld", key, value, &until) != 3) return 2;
            size_t n = unhex(key, k), m = unhex(value, v);
            k[n] = 0;
            must(begin(db, &txn), "begin");
            must(put(txn, cf, k, n, v, m, until), "put");
            must(commit(txn), "commit"), done(txn);
        } else if (!strcmp(word, "many")) {
            long count, length;
            if (scanf("%ld %ld", &count, &length) != 2) return 2;
            must(begin(db, &txn), "begin");
            for (long i = 0; i < count; i++) {
                snprintf(key, sizeof key, "key%013ld", i * 7919 % count);
                uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15 + 1;
                for (long j = 0; j < length; j++) x ^= x << 13, x ^= x >> 7, x ^= x << 17, v[j] = (uint8_t)('a' + x % 26);
                must(put(txn, cf, (uint8_t *)key, 16, v, (size_t)length, i % 3 ? -1 : time(0) + 86400 + i), "put");
                if (i % 1000 == 999) must(commit(txn), "commit"), done(txn), must(begin(db, &txn), "begin");
            }
            must(commit(txn), "commit"), done(txn);
        } else if (!strcmp(word, "flush")) {
            must(((int (*)(void *))f("tidesdb_flush_memtable"))(cf), "flush");
            do usleep(100000); while (((int (*)(void *))f("tidesdb_is_flushing"))(cf));
        } else if (!strcmp(word, "walk") || !strcmp(word, "back")) {
            long n = 0;
            int back = word[0] == 'b';
            clock_t from = clock();
            struct timespec a, b;
            clock_gettime(CLOCK_MONOTONIC, &a);
            must(begin(db, &txn), "begin");
            must(((int (*)(void *, void *, void **))f("tidesdb_iter_new"))(txn, cf, &it), "iter_new");
            int (*valid)(void *) = f("tidesdb_iter_valid"), (*next)(void *) = f(back ? "tidesdb_iter_prev" : "tidesdb_iter_next");
            int (*get_key)(void *, uint8_t **, size_t *) = f("tidesdb_iter_key"), (*get_value)(void *, uint8_t **, size_t *) = f("tidesdb_iter_value");
            for (((int (*)(void *))f(back ? "tidesdb_iter_seek_to_last" : "tidesdb_iter_seek_to_first"))(it); valid(it); next(it), n++) {
                uint8_t *p; size_t len;
                get_key(it, &p, &len), get_value(it, &p, &len);
            }
            ((void (*)(void *))f("tidesdb_iter_free"))(it), done(txn);
            clock_gettime(CLOCK_MONOTONIC, &b);
            printf("%ld entries, %.2f s, %.2f s of CPU\n", n, (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9,
                   (double)(clock() - from) / CLOCKS_PER_SEC);
        } else if (!strcmp(word, "leave")) {
            fflush(stdout), _exit(0);
        } else if (!strcmp(word, "wait")) {
            printf("open\n"), fflush(stdout);
        } else return 2;
    }
    must(((int (*)(void *))f("tidesdb_close"))(db), "close");
    return 0;
}
