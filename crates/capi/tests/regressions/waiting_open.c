/* An open that waits for a comparator held no lock and listed no column family: another process could open the database meanwhile. */
#include "common.h"
#include <sys/wait.h>
static int backward(const uint8_t *a, size_t n, const uint8_t *b, size_t m, void *ctx) { (void)ctx; int c = memcmp(a, b, n < m ? n : m); return c ? -c : (n < m) - (n > m); }
/* Returns true if another process cannot open the database. */
static int locked(const char *self, const char *path)
{
    int status = 0; pid_t pid = fork();
    if (pid == 0) { execl(self, self, "second", path, (char *)NULL); _exit(99); }
    WANT(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "the second process ended with %d", status);
    return WEXITSTATUS(status) == 12;
}
int main(int argc, char **argv)
{
    tidesdb_column_family_config_t f = tidesdb_default_column_family_config();
    alarm(60);
    if (argc == 3) {
        tidesdb_config_t c = tidesdb_default_config(); tidesdb_t *db = NULL;
        c.db_path = argv[2]; c.log_level = TDB_LOG_NONE;
        return -tidesdb_open(&c, &db);
    }
    const char *path = fresh("waiting"); char self[512]; ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    WANT(len > 0, "no /proc"); self[len] = 0;
    tidesdb_t *db = db_open(path);
    OK(tidesdb_create_column_family(db, "plain", &f));
    OK(tidesdb_register_comparator(db, "backward", backward, NULL, NULL));
    strcpy(f.comparator_name, "backward");
    OK(tidesdb_create_column_family(db, "users", &f));
    put(db, tidesdb_get_column_family(db, "users"), "a", 1, "1", 1);
    OK(tidesdb_close(db));
    WANT(!locked(self, path), "a closed database is locked");
    db = db_open(path);
    WANT(locked(self, path), "a second process opened a database that waits for a comparator");
    char **names = NULL; int count = 0, plain = 0, users = 0;
    OK(tidesdb_list_column_families(db, &names, &count));
    for (int i = 0; i < count; i++) { plain += !strcmp(names[i], "plain"); users += !strcmp(names[i], "users"); tidesdb_free(names[i]); }
    tidesdb_free(names);
    WANT(count == 2 && plain == 1 && users == 1, "%d column families are listed", count);
    WANT(!tidesdb_get_column_family(db, "plain"), "a column family is available before its comparator is registered");
    WANT(strstr(perigee_last_error(), "backward"), "the error does not name the comparator: %s", perigee_last_error());
    WANT(locked(self, path), "the lock was lost in a refused call");
    OK(tidesdb_register_comparator(db, "backward", backward, NULL, NULL));
    WANT(tidesdb_get_column_family(db, "users") && tidesdb_get_column_family(db, "plain"), "a column family is missing");
    WANT(locked(self, path), "the lock was not handed over");
    OK(tidesdb_close(db));
    /* Closing the waiting database releases the lock. */
    db = db_open(path);
    OK(tidesdb_close(db));
    WANT(!locked(self, path), "a database closed while waiting is locked");
    return 0;
}
