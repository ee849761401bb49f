/* The five isolation levels: what each one sees, which commits it refuses; savepoints. */
#include "harness.h"

static const char *begin_f = "tidesdb_txn_begin_with_isolation", *commit_f = "tidesdb_txn_commit";

static tidesdb_txn_t *begin(fixture_t *x, int level)
{
    tidesdb_txn_t *t = NULL;
    tidesdb_txn_begin_with_isolation(x->db, level, &t);
    return t;
}

static void test_visibility(fixture_t *x)
{
    static const struct
    {
        int level;
        int sees_later;
        const char *behaviour;
    } cases[] = {
        {TDB_ISOLATION_READ_UNCOMMITTED, 1, "READ_UNCOMMITTED sees later commits of others"},
        {TDB_ISOLATION_READ_COMMITTED, 1, "READ_COMMITTED sees later commits of others"},
        {TDB_ISOLATION_REPEATABLE_READ, 0, "REPEATABLE_READ keeps the values as of its start"},
        {TDB_ISOLATION_SNAPSHOT, 0, "SNAPSHOT keeps the values as of its start"},
        {TDB_ISOLATION_SERIALIZABLE, 0, "SERIALIZABLE keeps the values as of its start"},
    };
    for (int i = 0; i < 5; i++)
    {
        REQUIRE(put1(x->db, x->cf, "seen", "old") == 0);
        delete1(x->db, x->cf, "new");
        tidesdb_txn_t *t = begin(x, cases[i].level);
        REQUIRE(t && txn_has(t, x->cf, "seen", "old"));
        REQUIRE(put1(x->db, x->cf, "seen", "later") == 0 && put1(x->db, x->cf, "new", "n") == 0);
        CHECK(begin_f, cases[i].behaviour, txn_has(t, x->cf, "seen", cases[i].sees_later ? "later" : "old"));
        if (cases[i].sees_later)
            CHECK(begin_f, "the two lower levels see new keys of others", txn_has(t, x->cf, "new", "n"));
        else
        {
            CHECK(begin_f, "the three higher levels see no new keys of others", txn_lacks(t, x->cf, "new"));
            CHECK(begin_f, "the three higher levels return the same value again", txn_has(t, x->cf, "seen", "old"));
            REQUIRE(delete1(x->db, x->cf, "seen") == 0);
            CHECK(begin_f, "the three higher levels keep keys that others delete", txn_has(t, x->cf, "seen", "old"));
            flush_and_wait(x->cf);
            CHECK(begin_f, "a snapshot survives a flush", txn_has(t, x->cf, "seen", "old"));
        }
        tidesdb_txn_free(t);
    }
    REQUIRE(put1(x->db, x->cf, "seen", "old") == 0);
    tidesdb_txn_t *t = NULL;
    REQUIRE(tidesdb_txn_begin(x->db, &t) == 0 && txn_has(t, x->cf, "seen", "old"));
    REQUIRE(put1(x->db, x->cf, "seen", "later") == 0);
    CHECK("tidesdb_txn_begin", "is READ_COMMITTED", txn_has(t, x->cf, "seen", "later"));
    tidesdb_txn_free(t);
}

static int second_writer(fixture_t *x, int level)
{
    tidesdb_txn_t *a = begin(x, level), *b = begin(x, level);
    put_text(a, x->cf, "both wrote", "a");
    put_text(b, x->cf, "both wrote", "b");
    int first = tidesdb_txn_commit(a), second = tidesdb_txn_commit(b);
    tidesdb_txn_free(a), tidesdb_txn_free(b);
    return first ? -100 : second;
}

static void test_writers(fixture_t *x)
{
    RC(commit_f, "READ_UNCOMMITTED: two writers of a key both commit", second_writer(x, 0), 0);
    CHECK(commit_f, "READ_UNCOMMITTED: the last writer wins", has(x->db, x->cf, "both wrote", "b"));
    RC(commit_f, "READ_COMMITTED: two writers of a key both commit", second_writer(x, 1), 0);
    CHECK(commit_f, "READ_COMMITTED: the last writer wins", has(x->db, x->cf, "both wrote", "b"));
    RC(commit_f, "SNAPSHOT: the first committer wins", second_writer(x, 3), TDB_ERR_CONFLICT);
    CHECK(commit_f, "SNAPSHOT: the loser's write is not applied", has(x->db, x->cf, "both wrote", "a"));
    RC(commit_f, "SERIALIZABLE: the first committer wins", second_writer(x, 4), TDB_ERR_CONFLICT);
    CHECK(commit_f, "SERIALIZABLE: the loser's write is not applied", has(x->db, x->cf, "both wrote", "a"));
    tidesdb_txn_t *a = begin(x, TDB_ISOLATION_SNAPSHOT), *b = begin(x, TDB_ISOLATION_SNAPSHOT);
    put_text(a, x->cf, "disjoint a", "1");
    put_text(b, x->cf, "disjoint b", "1");
    CHECK(commit_f, "SNAPSHOT: writers of different keys both commit",
          tidesdb_txn_commit(a) == 0 && tidesdb_txn_commit(b) == 0);
    tidesdb_txn_free(a), tidesdb_txn_free(b);
    REQUIRE(put1(x->db, x->cf, "to delete", "1") == 0);
    a = begin(x, TDB_ISOLATION_SNAPSHOT), b = begin(x, TDB_ISOLATION_SNAPSHOT);
    tidesdb_txn_delete(a, x->cf, S("to delete"));
    put_text(b, x->cf, "to delete", "2");
    REQUIRE(tidesdb_txn_commit(a) == 0);
    RC(commit_f, "SNAPSHOT: a delete counts as a write", tidesdb_txn_commit(b), TDB_ERR_CONFLICT);
    RC("tidesdb_txn_reset", "after a conflict", ({
           tidesdb_txn_rollback(b);
           tidesdb_txn_reset(b, TDB_ISOLATION_SNAPSHOT);
       }),
       0);
    put_text(b, x->cf, "to delete", "2");
    RC(commit_f, "a refused transaction can be retried", tidesdb_txn_commit(b), 0);
    tidesdb_txn_free(a), tidesdb_txn_free(b);
}

/* Reads a key, changes it through another transaction, writes another key, commits. */
static int reader_overtaken(fixture_t *x, int level, int tracked)
{
    put1(x->db, x->cf, "read", "old");
    tidesdb_txn_t *t = begin(x, level);
    uint8_t *value = NULL;
    size_t size = 0;
    int rc = tracked ? tidesdb_txn_get(t, x->cf, S("read"), &value, &size)
                     : tidesdb_txn_get_notrack(t, x->cf, S("read"), &value, &size);
    if (rc == 0) tidesdb_free(value);
    if (!tracked) tidesdb_txn_contains(t, x->cf, S("read"));
    put1(x->db, x->cf, "read", "changed");
    put_text(t, x->cf, "written by the reader", "1");
    rc = tidesdb_txn_commit(t);
    tidesdb_txn_free(t);
    return rc;
}

/* Two transactions read both keys; each writes a different one. */
static int write_skew(fixture_t *x, int level)
{
    put1(x->db, x->cf, "left", "1"), put1(x->db, x->cf, "right", "1");
    tidesdb_txn_t *a = begin(x, level), *b = begin(x, level);
    txn_has(a, x->cf, "left", "1"), txn_has(a, x->cf, "right", "1");
    txn_has(b, x->cf, "left", "1"), txn_has(b, x->cf, "right", "1");
    put_text(a, x->cf, "left", "0");
    put_text(b, x->cf, "right", "0");
    int first = tidesdb_txn_commit(a), second = tidesdb_txn_commit(b);
    tidesdb_txn_free(a), tidesdb_txn_free(b);
    return first ? -100 : second;
}

static void test_readers(fixture_t *x)
{
    RC(commit_f, "READ_UNCOMMITTED: a reader of a changed key commits", reader_overtaken(x, 0, 1), 0);
    RC(commit_f, "READ_COMMITTED: a reader of a changed key commits", reader_overtaken(x, 1, 1), 0);
    RC(commit_f, "REPEATABLE_READ: a reader of a changed key is refused", reader_overtaken(x, 2, 1), TDB_ERR_CONFLICT);
    RC(commit_f, "SNAPSHOT: a reader of a changed key commits", reader_overtaken(x, 3, 1), 0);
    RC("tidesdb_txn_get_notrack", "REPEATABLE_READ: the read is not part of the conflict check", reader_overtaken(x, 2, 0), 0);
    RC("tidesdb_txn_get_notrack", "SERIALIZABLE: the read is not part of the conflict check", reader_overtaken(x, 4, 0), 0);
    RC(commit_f, "SNAPSHOT: write skew is allowed", write_skew(x, 3), 0);
    RC(commit_f, "SERIALIZABLE: write skew is refused", write_skew(x, 4), TDB_ERR_CONFLICT);
    CHECK(commit_f, "SERIALIZABLE: of two transactions with write skew one commits",
          has(x->db, x->cf, "left", "0") && has(x->db, x->cf, "right", "1"));
    tidesdb_txn_t *t = begin(x, TDB_ISOLATION_SERIALIZABLE);
    txn_has(t, x->cf, "left", "0");
    put1(x->db, x->cf, "left", "5");
    RC(commit_f, "SERIALIZABLE: a transaction without writes commits", tidesdb_txn_commit(t), 0);
    tidesdb_txn_free(t);
}

void test_isolation(void)
{
    fixture_t x = fixture_open();
    REQUIRE(x.cf);
    test_visibility(&x);
    test_writers(&x);
    test_readers(&x);
    fixture_close(&x);
}

void test_savepoints(void)
{
    const char *save = "tidesdb_txn_savepoint", *back = "tidesdb_txn_rollback_to_savepoint",
               *release = "tidesdb_txn_release_savepoint";
    const int bad = TDB_ERR_INVALID_ARGS;
    fixture_t x = fixture_open();
    REQUIRE(x.cf && put1(x.db, x.cf, "base", "0") == 0);
    tidesdb_txn_t *t = begin(&x, 1);
    REQUIRE(t);
    RC(save, "NULL transaction is an invalid argument", tidesdb_txn_savepoint(NULL, "a"), bad);
    RC(save, "NULL name is an invalid argument", tidesdb_txn_savepoint(t, NULL), bad);
    RC(back, "NULL transaction is an invalid argument", tidesdb_txn_rollback_to_savepoint(NULL, "a"), bad);
    RC(back, "NULL name is an invalid argument", tidesdb_txn_rollback_to_savepoint(t, NULL), bad);
    RC(release, "NULL transaction is an invalid argument", tidesdb_txn_release_savepoint(NULL, "a"), bad);
    RC(release, "NULL name is an invalid argument", tidesdb_txn_release_savepoint(t, NULL), bad);
    RC(back, "an absent name is not found", tidesdb_txn_rollback_to_savepoint(t, "absent"), TDB_ERR_NOT_FOUND);
    RC(release, "an absent name is not found", tidesdb_txn_release_savepoint(t, "absent"), TDB_ERR_NOT_FOUND);

    put_text(t, x.cf, "s1", "1");
    RC(save, "creates", tidesdb_txn_savepoint(t, "one"), 0);
    put_text(t, x.cf, "s2", "2");
    put_text(t, x.cf, "s1", "changed");
    tidesdb_txn_delete(t, x.cf, S("base"));
    RC(save, "several names", tidesdb_txn_savepoint(t, "two"), 0);
    put_text(t, x.cf, "s3", "3");
    RC(back, "succeeds", tidesdb_txn_rollback_to_savepoint(t, "two"), 0);
    CHECK(back, "discards later writes", txn_lacks(t, x.cf, "s3"));
    CHECK(back, "keeps earlier writes", txn_has(t, x.cf, "s2", "2"));
    RC(back, "to an outer one", tidesdb_txn_rollback_to_savepoint(t, "one"), 0);
    CHECK(back, "an outer one discards more", txn_lacks(t, x.cf, "s2"));
    CHECK(back, "undoes overwrites", txn_has(t, x.cf, "s1", "1"));
    CHECK(back, "undoes deletes", txn_has(t, x.cf, "base", "0"));
    RC(back, "an inner savepoint is removed with the outer one", tidesdb_txn_rollback_to_savepoint(t, "two"), TDB_ERR_NOT_FOUND);
    put_text(t, x.cf, "s4", "4");
    RC(commit_f, "works after a rollback to a savepoint", tidesdb_txn_commit(t), 0);
    CHECK(back, "discarded writes are not committed",
          has(x.db, x.cf, "s1", "1") && has(x.db, x.cf, "s4", "4") && lacks(x.db, x.cf, "s2") && has(x.db, x.cf, "base", "0"));
    RC(save, "after the commit is an invalid argument", tidesdb_txn_savepoint(t, "late"), bad);
    CHECK(back, "after the commit is an error", tidesdb_txn_rollback_to_savepoint(t, "one") != 0);
    REQUIRE(tidesdb_txn_reset(t, 1) == 0);
    CHECK(back, "removes the savepoint itself", ({
              tidesdb_txn_savepoint(t, "first"), tidesdb_txn_savepoint(t, "used");
              int rc = tidesdb_txn_rollback_to_savepoint(t, "used");
              rc == 0 && tidesdb_txn_rollback_to_savepoint(t, "used") == TDB_ERR_NOT_FOUND;
          }));
    tidesdb_txn_rollback(t);
    REQUIRE(tidesdb_txn_reset(t, 1) == 0);
    RC(back, "savepoints end with the transaction", tidesdb_txn_rollback_to_savepoint(t, "one"), TDB_ERR_NOT_FOUND);

    put_text(t, x.cf, "m1", "1");
    REQUIRE(tidesdb_txn_savepoint(t, "moved") == 0);
    put_text(t, x.cf, "m2", "2");
    RC(save, "an existing name is moved", tidesdb_txn_savepoint(t, "moved"), 0);
    put_text(t, x.cf, "m3", "3");
    REQUIRE(tidesdb_txn_rollback_to_savepoint(t, "moved") == 0);
    CHECK(save, "a moved savepoint keeps writes before its new position",
          txn_has(t, x.cf, "m2", "2") && txn_lacks(t, x.cf, "m3"));
    REQUIRE(tidesdb_txn_savepoint(t, "released") == 0);
    put_text(t, x.cf, "m4", "4");
    RC(release, "succeeds", tidesdb_txn_release_savepoint(t, "released"), 0);
    CHECK(release, "rolls nothing back", txn_has(t, x.cf, "m4", "4"));
    RC(release, "a released name is not found", tidesdb_txn_release_savepoint(t, "released"), TDB_ERR_NOT_FOUND);
    RC(back, "a released name is not found", tidesdb_txn_rollback_to_savepoint(t, "released"), TDB_ERR_NOT_FOUND);
    tidesdb_txn_free(t);
    fixture_close(&x);
}
