/* A child of fork uses its parent's handles: every call must be refused, the parent's data must not change, and the parent continues. */
#include "common.h"
#include <sys/wait.h>
static int hooked; static int hook(const tidesdb_commit_op_t *ops, int n, uint64_t seq, void *ctx) { (void)ops; (void)seq; (void)ctx; hooked += n; return 0; }
static tidesdb_t *db; static tidesdb_column_family_t *cf; static tidesdb_txn_t *txn; static tidesdb_iter_t *it;
#define REFUSED(call) do { int c_ = (call); if (c_ != TDB_ERR_INVALID_DB) { fprintf(stderr, "FAULT: in the child %s returned %d, %s\n", #call, c_, perigee_last_error()); _exit(1); } } while (0)
static void child(const char *path)
{
    uint8_t *v; size_t n; tidesdb_txn_t *t = NULL; tidesdb_iter_t *i = NULL; char **names; int count; tidesdb_t *again = NULL;
    tidesdb_column_family_config_t f = tidesdb_default_column_family_config();
    tidesdb_config_t c = tidesdb_default_config();
    alarm(30);
    REFUSED(tidesdb_txn_begin(db, &t));
    REFUSED(tidesdb_txn_put(txn, cf, (uint8_t *)"c", 1, (uint8_t *)"child", 5, -1));
    REFUSED(tidesdb_txn_get(txn, cf, (uint8_t *)"a", 1, &v, &n));
    REFUSED(tidesdb_txn_delete(txn, cf, (uint8_t *)"a", 1));
    REFUSED(tidesdb_txn_commit(txn));
    REFUSED(tidesdb_txn_rollback(txn));
    REFUSED(tidesdb_iter_new(txn, cf, &i));
    REFUSED(tidesdb_iter_next(it));
    REFUSED(tidesdb_iter_key(it, &v, &n));
    REFUSED(tidesdb_create_column_family(db, "of_child", &f));
    REFUSED(tidesdb_drop_column_family(db, "users"));
    REFUSED(tidesdb_list_column_families(db, &names, &count));
    REFUSED(tidesdb_flush_memtable(cf));
    REFUSED(tidesdb_cf_set_commit_hook(cf, hook, NULL));
    if (tidesdb_get_column_family(db, "users")) { fprintf(stderr, "FAULT: the child got a column family\n"); _exit(1); }
    tidesdb_iter_free(it);
    tidesdb_txn_free(txn);
    REFUSED(tidesdb_close(db));
    c.db_path = (char *)path; c.log_level = TDB_LOG_NONE;
    if (tidesdb_open(&c, &again) != TDB_ERR_LOCKED) { fprintf(stderr, "FAULT: the child opened its parent's database\n"); _exit(1); }
    /* The child can use a database of its own. */
    again = db_open(fresh("of-child"));
    OK(tidesdb_create_column_family(again, "own", &f));
    put(again, tidesdb_get_column_family(again, "own"), "k", 1, "v", 1);
    OK(tidesdb_close(again));
    _exit(0);
}
int main(void)
{
    const char *path = fresh("fork"); alarm(60);
    db = db_open(path);
    tidesdb_column_family_config_t f = tidesdb_default_column_family_config();
    OK(tidesdb_create_column_family(db, "users", &f));
    cf = tidesdb_get_column_family(db, "users");
    put(db, cf, "a", 1, "1", 1);
    OK(tidesdb_txn_begin(db, &txn));
    OK(tidesdb_txn_put(txn, cf, (uint8_t *)"b", 1, (uint8_t *)"2", 1, -1));
    OK(tidesdb_iter_new(txn, cf, &it)); OK(tidesdb_iter_seek_to_first(it));
    for (int i = 0; i < 3; i++) {
        int status = 0; pid_t pid = fork();
        if (pid == 0) child(path);
        WANT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %d", status);
        /* The parent's lock is still held, also for a third process. */
        uint8_t *v; size_t n;
        OK(tidesdb_iter_key(it, &v, &n)); WANT(n == 1 && *v == 'a', "the parent's iterator moved");
    }
    tidesdb_iter_free(it);
    OK(tidesdb_txn_commit(txn)); tidesdb_txn_free(txn);
    put(db, cf, "d", 1, "4", 1);
    OK(tidesdb_close(db));
    db = db_open(path);
    cf = tidesdb_get_column_family(db, "users");
    OK(tidesdb_txn_begin(db, &txn));
    for (const char *k = "abd"; *k; k++) { uint8_t *v; size_t n; OK(tidesdb_txn_get(txn, cf, (uint8_t *)k, 1, &v, &n)); tidesdb_free(v); }
    { uint8_t *v; size_t n; WANT(tidesdb_txn_get(txn, cf, (uint8_t *)"c", 1, &v, &n) == TDB_ERR_NOT_FOUND, "a write of the child is visible"); }
    tidesdb_txn_free(txn);
    OK(tidesdb_close(db));
    return 0;
}
