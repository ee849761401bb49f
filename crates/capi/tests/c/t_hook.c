/* Commit hooks: their arguments, per column family, their order, removal, their return value. */
#include "harness.h"

typedef struct
{
    int calls, ops, deletes, null_values, returns;
    uint64_t last_seq;
    int ordered;
    time_t ttl;
    char text[400];
} hook_calls_t;

static int record(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    hook_calls_t *received = ctx;
    received->ordered &= received->calls == 0 || seq > received->last_seq;
    received->last_seq = seq;
    received->calls++;
    for (int i = 0; i < count; i++)
    {
        size_t at = strlen(received->text);
        received->ops++;
        received->deletes += ops[i].is_delete == 1;
        received->null_values += ops[i].value == NULL && ops[i].value_size == 0;
        received->ttl = ops[i].ttl;
        snprintf(received->text + at, sizeof received->text - at, "%s%.*s%s%.*s", at ? "," : "", (int)ops[i].key_size,
                 ops[i].key, ops[i].is_delete ? "!" : "=", (int)ops[i].value_size, ops[i].value ? (const char *)ops[i].value : "");
    }
    return received->returns;
}

static const hook_calls_t no_calls = {.ordered = 1};

void test_hooks(void)
{
    const char *f = "tidesdb_cf_set_commit_hook";
    fixture_t x = fixture_open();
    REQUIRE(x.cf);
    hook_calls_t received = no_calls, other_received = no_calls;
    RC(f, "NULL family is an invalid argument", tidesdb_cf_set_commit_hook(NULL, record, &received), TDB_ERR_INVALID_ARGS);
    RC(f, "sets", tidesdb_cf_set_commit_hook(x.cf, record, &received), 0);
    REQUIRE(put1(x.db, x.cf, "a", "1") == 0);
    EQ(f, "fires once for a commit, before the commit returns", received.calls, 1);
    CHECK(f, "passes key and value", !strcmp(received.text, "a=1"));
    EQ(f, "a put has no delete flag", received.deletes, 0);
    CHECK(f, "the sequence number is not zero", received.last_seq > 0);

    tidesdb_txn_t *t = NULL;
    REQUIRE(tidesdb_txn_begin(x.db, &t) == 0);
    received = no_calls;
    put_text(t, x.cf, "b", "2");
    put_text(t, x.cf, "c", "3");
    tidesdb_txn_delete(t, x.cf, S("a"));
    EQ(f, "does not fire before the commit", received.calls, 0);
    REQUIRE(tidesdb_txn_commit(t) == 0);
    tidesdb_txn_free(t);
    EQ(f, "passes all operations of a commit in one call", received.calls, 1);
    EQ(f, "counts the operations", received.ops, 3);
    CHECK(f, "passes every operation", strstr(received.text, "b=2") && strstr(received.text, "c=3") && strstr(received.text, "a!"));
    EQ(f, "a delete has its flag", received.deletes, 1);
    EQ(f, "a delete has a NULL value of length 0", received.null_values, 1);

    received = no_calls;
    time_t soon = time(NULL) + 500;
    REQUIRE(put1_ttl(x.db, x.cf, "t", "v", soon) == 0);
    EQ(f, "passes the ttl", received.ttl, soon);
    received = no_calls;
    REQUIRE(put1_ttl(x.db, x.cf, "t", "v", -1) == 0);
    CHECK(f, "a missing ttl is passed as 0 or less", received.ttl <= 0);
    received = no_calls;
    REQUIRE(tidesdb_txn_begin(x.db, &t) == 0 && tidesdb_txn_single_delete(t, x.cf, S("t")) == 0 && tidesdb_txn_commit(t) == 0);
    tidesdb_txn_free(t);
    EQ(f, "a single delete is passed as a delete", received.deletes, 1);

    received = no_calls;
    REQUIRE(tidesdb_txn_begin(x.db, &t) == 0);
    put_text(t, x.cf, "rolled", "x");
    tidesdb_txn_rollback(t);
    tidesdb_txn_free(t);
    EQ(f, "does not fire for a rollback", received.calls, 0);
    tidesdb_txn_t *a = NULL, *b = NULL;
    REQUIRE(tidesdb_txn_begin_with_isolation(x.db, TDB_ISOLATION_SNAPSHOT, &a) == 0);
    REQUIRE(tidesdb_txn_begin_with_isolation(x.db, TDB_ISOLATION_SNAPSHOT, &b) == 0);
    put_text(a, x.cf, "fought", "a"), put_text(b, x.cf, "fought", "b");
    REQUIRE(tidesdb_txn_commit(a) == 0 && tidesdb_txn_commit(b) == TDB_ERR_CONFLICT);
    tidesdb_txn_free(a), tidesdb_txn_free(b);
    EQ(f, "does not fire for a conflict", received.calls, 1);

    tidesdb_column_family_t *other = make_family(x.db, "other");
    REQUIRE(other && tidesdb_cf_set_commit_hook(other, record, &other_received) == 0);
    received = no_calls;
    REQUIRE(put1(x.db, x.cf, "only", "cf") == 0);
    EQ(f, "fires for its own family only", other_received.calls, 0);
    received = no_calls;
    REQUIRE(tidesdb_txn_begin(x.db, &t) == 0);
    put_text(t, x.cf, "m", "1"), put_text(t, other, "n", "2");
    REQUIRE(tidesdb_txn_commit(t) == 0);
    tidesdb_txn_free(t);
    CHECK(f, "a commit to two families fires once for each", received.calls == 1 && other_received.calls == 1);
    CHECK(f, "each hook gets its own family's operations", !strcmp(received.text, "m=1") && !strcmp(other_received.text, "n=2"));
    CHECK(f, "both hooks get the same sequence number", received.last_seq == other_received.last_seq);

    received = no_calls;
    for (int i = 0; i < 20; i++) REQUIRE(put1(x.db, x.cf, "again", "x") == 0);
    EQ(f, "fires for every commit", received.calls, 20);
    CHECK(f, "sequence numbers only grow", received.ordered);
    received = no_calls;
    received.returns = 5;
    RC("tidesdb_txn_commit", "succeeds although a hook returns an error", put1(x.db, x.cf, "refused", "x"), 0);
    CHECK(f, "a non-zero return does not undo the commit", has(x.db, x.cf, "refused", "x"));
    received = no_calls;
    RC(f, "NULL removes the hook", tidesdb_cf_set_commit_hook(x.cf, NULL, NULL), 0);
    REQUIRE(put1(x.db, x.cf, "quiet", "x") == 0);
    EQ(f, "does not fire when removed", received.calls, 0);

    received = no_calls;
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    config.commit_hook_fn = record;
    config.commit_hook_ctx = &received;
    REQUIRE(tidesdb_create_column_family(x.db, "born with one", &config) == 0);
    tidesdb_column_family_t *born = tidesdb_get_column_family(x.db, "born with one");
    REQUIRE(born && put1(x.db, born, "k", "v") == 0);
    EQ("tidesdb_create_column_family", "a hook in the configuration fires", received.calls, 1);
    fixture_reopen(&x);
    born = tidesdb_get_column_family(x.db, "born with one");
    received = no_calls;
    REQUIRE(born && put1(x.db, born, "k", "v") == 0);
    EQ(f, "hooks do not survive a close", received.calls, 0);
    config.commit_hook_fn = record;
    config.commit_hook_ctx = &received;
    REQUIRE(tidesdb_cf_update_runtime_config(born, &config, 0) == 0 && put1(x.db, born, "k", "v") == 0);
    EQ("tidesdb_cf_update_runtime_config", "sets the commit hook", received.calls, 1);
    fixture_close(&x);
}
