/* The hook of one column family waits for a lock of the program; a thread that holds this lock commits to another one, with or
 * without a hook: it waited for the first hook forever. */
#include "common.h"
#include <signal.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; static atomic_int inside, ran_a, ran_b; static pthread_t of_b; static tidesdb_t *db; static tidesdb_column_family_t *a, *b, *plain;
static int hook_a(const tidesdb_commit_op_t *ops, int n, uint64_t seq, void *ctx) { (void)ops; (void)n; (void)seq; (void)ctx; inside = 1; pthread_mutex_lock(&lock); ran_a++; pthread_mutex_unlock(&lock); return 0; }
static int hook_b(const tidesdb_commit_op_t *ops, int n, uint64_t seq, void *ctx) { (void)ops; (void)n; (void)seq; (void)ctx; of_b = pthread_self(); ran_b++; return 0; }
static void *writer(void *x) { (void)x; put(db, a, "k", 1, "1", 1); WANT(ran_a == 1, "a commit returned before its hook had run"); return NULL; }
static void late(int s) { (void)s; static const char text[] = "FAULT: a commit waits for the hook of another column family\n"; if (write(2, text, sizeof text - 1)) {} _exit(1); }
int main(void)
{
    tidesdb_column_family_config_t f = tidesdb_default_column_family_config(); pthread_t t;
    signal(SIGALRM, late); alarm(20);
    db = db_open(fresh("hook-lock"));
    OK(tidesdb_create_column_family(db, "a", &f)); OK(tidesdb_create_column_family(db, "b", &f)); OK(tidesdb_create_column_family(db, "plain", &f));
    a = tidesdb_get_column_family(db, "a"); b = tidesdb_get_column_family(db, "b"); plain = tidesdb_get_column_family(db, "plain");
    OK(tidesdb_cf_set_commit_hook(a, hook_a, NULL)); OK(tidesdb_cf_set_commit_hook(b, hook_b, NULL));
    pthread_mutex_lock(&lock);
    pthread_create(&t, NULL, writer, NULL);
    while (!inside) usleep(100);
    put(db, plain, "k", 1, "2", 1);
    put(db, b, "k", 1, "3", 1);
    WANT(ran_b == 1 && pthread_equal(of_b, pthread_self()), "the hook of b ran %d times, or on another thread", (int)ran_b);
    pthread_mutex_unlock(&lock);
    pthread_join(t, NULL);
    OK(tidesdb_close(db));
    return 0;
}
