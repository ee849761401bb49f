/* perigee_writer_*, perigee_value_*: a long value is written and read in parts, and is not held in memory. */
#include "common.h"
static size_t resident(void)
{
    size_t total = 0, pages = 0; FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%zu %zu", &total, &pages) != 2) exit(1);
    fclose(f); return pages * (size_t)sysconf(_SC_PAGESIZE);
}
static void fill(uint8_t *part, size_t n, unsigned seed) { for (size_t i = 0; i < n; i++) part[i] = (uint8_t)((seed = seed * 1103515245u + 12345u) >> 16); }
enum { PART = 100000, PARTS = 1000 };
static int calls; static int hook(const tidesdb_commit_op_t *ops, int n, uint64_t seq, void *ctx) { (void)ops; (void)seq; (void)ctx; calls += n; return 0; }
int main(void)
{
    static uint8_t part[PART], got[PART]; tidesdb_t *db = db_open(fresh("parts")); tidesdb_column_family_config_t f = tidesdb_default_column_family_config();
    tidesdb_txn_t *t; perigee_writer_t *w; perigee_value_t *v; uint64_t size; size_t n; const uint8_t *data;
    alarm(600); OK(tidesdb_create_column_family(db, "f", &f)); tidesdb_column_family_t *cf = tidesdb_get_column_family(db, "f");
    size_t before = resident();
    OK(tidesdb_txn_begin(db, &t)); OK(perigee_writer_new(t, cf, (uint8_t *)"film", 4, 0, 0, &w));
    for (unsigned i = 0; i < PARTS; i++) { fill(part, PART, i); OK(perigee_writer_append(w, part, PART)); }
    OK(perigee_writer_finish(w)); OK(tidesdb_txn_commit(t)); OK(tidesdb_txn_reset(t, TDB_ISOLATION_SNAPSHOT));
    OK(perigee_value_open(t, cf, (uint8_t *)"film", 4, &v, &size)); WANT(size == (uint64_t)PART * PARTS, "%llu bytes", (unsigned long long)size);
    for (unsigned i = 0; i < PARTS; i += 7) {
        fill(part, PART, i); OK(perigee_value_read(v, (uint64_t)i * PART, got, PART, &n)); WANT(n == PART && !memcmp(part, got, PART), "part %u", i);
    }
    OK(perigee_value_read(v, size - 10, got, PART, &n)); WANT(n == 10, "%zu bytes at the end", n);
    OK(perigee_value_read(v, size + 10, got, PART, &n)); WANT(n == 0, "%zu bytes after the end", n);
    WANT(resident() < before + (60u << 20), "%zu MiB of memory", (resident() - before) >> 20);
    OK(perigee_value_data(v, &data, &n)); WANT(n == size && !memcmp(data + (size_t)994 * PART, (fill(part, PART, 994), part), PART), "the whole value");
    perigee_value_free(v);
    /* Expiry, a writer that is given up, and one whose transaction has ended. */
    OK(perigee_writer_new(t, cf, (uint8_t *)"gone", 4, 1, 0, &w)); for (int i = 0; i < 20; i++) OK(perigee_writer_append(w, part, PART));
    OK(perigee_writer_finish(w)); OK(tidesdb_txn_commit(t)); OK(tidesdb_txn_reset(t, TDB_ISOLATION_SNAPSHOT));
    WANT(perigee_value_open(t, cf, (uint8_t *)"gone", 4, &v, &size) == TDB_ERR_NOT_FOUND, "it has expired");
    OK(perigee_writer_new(t, cf, (uint8_t *)"k", 1, 0, 0, &w)); OK(perigee_writer_append(w, part, PART)); perigee_writer_free(w);
    OK(perigee_writer_new(t, cf, (uint8_t *)"k", 1, 0, 0, &w)); for (int i = 0; i < 20; i++) OK(perigee_writer_append(w, part, PART));
    OK(tidesdb_txn_commit(t)); WANT(perigee_writer_finish(w) != 0, "the transaction has ended");
    OK(tidesdb_txn_reset(t, TDB_ISOLATION_SNAPSHOT)); OK(perigee_writer_finish(w)); OK(tidesdb_txn_commit(t)); perigee_writer_free(w);
    OK(tidesdb_txn_reset(t, TDB_ISOLATION_SNAPSHOT)); OK(perigee_value_open(t, cf, (uint8_t *)"k", 1, &v, &size)); WANT(size == 20 * PART, "finished later"); perigee_value_free(v);
    /* A hook gets the operation, so the value is kept in memory. */
    tidesdb_txn_free(t); OK(tidesdb_cf_set_commit_hook(cf, hook, NULL)); OK(tidesdb_txn_begin(db, &t));
    OK(perigee_writer_new(t, cf, (uint8_t *)"hooked", 6, 0, 0, &w)); for (int i = 0; i < 20; i++) OK(perigee_writer_append(w, part, PART));
    OK(perigee_writer_finish(w)); OK(tidesdb_txn_commit(t)); WANT(calls == 1, "%d operations reported", calls);
    tidesdb_txn_free(t); OK(tidesdb_close(db)); return 0;
}
