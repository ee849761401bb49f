/* Commit hooks: what they are told, per family, their order, switching off, their return value. */
#include "harness.h"

typedef struct
{
    int calls, ops, deletes, null_values, returns;
    uint64_t last_seq;
    int ordered;
    time_t ttl;
    char text[400];
} heard_t;

static int hear(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    heard_t *heard = ctx;
    heard->ordered &= heard->calls == 0 || seq > heard->last_seq;
    heard->last_seq = seq;
    heard->calls++;
    for (int i = 0; i < count; i++)
    {
        size_t at = strlen(heard->text);
        heard->ops++;
        heard->deletes += ops[i].is_delete == 1;
        heard->null_values += ops[i].value == NULL && ops[i].value_size == 0;
        heard->ttl = ops[i].ttl;
        snprintf(heard->text + at, sizeof heard->text - at, "%s%.*s%s%.*s", at ? "," : "", (int)ops[i].key_size,
                 ops[i].key, ops[i].is_delete ? "!" : "=", (int)ops[i].value_size, ops[i].value ? (const char *)ops[i].value : "");
    }
    return heard->returns;
}

static const heard_t silence = {.ordered = 1};

void test_hooks(void)
{
    const char *f = "tidesdb_cf_set_commit_hook";
    fixture_t x = fixture_open();
    REQUIRE(x.cf);
    heard_t heard = silence, other_heard = silence;
    RC(f, "NULL family is an invalid argument", tidesdb_cf_set_commit_hook(NULL, hear, &heard), TDB_ERR_INVALID_ARGS);
    RC(f, "sets", tidesdb_cf_set_commit_hook(x.cf, hear, &heard), 0);
    REQUIRE(put1(x.db, x.cf, "a", "1") == 0);
    EQ(f, "fires once for a commit, before the commit returns", heard.calls, 1);
    CHECK(f, "gives key and value", !strcmp(heard.text, "a=1"));
    EQ(f, "a put has no delete flag", heard.deletes, 0);
    CHECK(f, "the sequence number is not zero", heard.last_seq > 0);

    tidesdb_txn_t *t = NULL;
    REQUIRE(tidesdb_txn_begin(x.db, &t) == 0);
    heard = silence;
    put_text(t, x.cf, "b", "2");
    put_text(t, x.cf, "c", "3");
    tidesdb_txn_delete(t, x.cf, S("a"));
    EQ(f, "does not fire before the commit", heard.calls, 0);
    REQUIRE(tidesdb_txn_commit(t) == 0);
    tidesdb_txn_free(t);
    EQ(f, "gives all operations of a commit in one call", heard.calls, 1);
    EQ(f, "counts the operations", heard.ops, 3);
    CHECK(f, "gives every operation", strstr(heard.text, "b=2") && strstr(heard.text, "c=3") && strstr(heard.text, "a!"));
    EQ(f, "a delete has its flag", heard.deletes, 1);
    EQ(f, "a delete has a NULL value of length 0", heard.null_values, 1);

    heard = silence;
    time_t soon = time(NULL) + 500;
    REQUIRE(put1_ttl(x.db, x.cf, "t", "v", soon) == 0);
    EQ(f, "gives the ttl", heard.ttl, soon);
    heard = silence;
    REQUIRE(put1_ttl(x.db, x.cf, "t", "v", -1) == 0);
    CHECK(f, "no ttl is told as none", heard.ttl <= 0);
    heard = silence;
    REQUIRE(tidesdb_txn_begin(x.db, &t) == 0 && tidesdb_txn_single_delete(t, x.cf, S("t")) == 0 && tidesdb_txn_commit(t) == 0);
    tidesdb_txn_free(t);
    EQ(f, "a single delete is told as a delete", heard.deletes, 1);

    heard = silence;
    REQUIRE(tidesdb_txn_begin(x.db, &t) == 0);
    put_text(t, x.cf, "rolled", "x");
    tidesdb_txn_rollback(t);
    tidesdb_txn_free(t);
    EQ(f, "does not fire for a rollback", heard.calls, 0);
    tidesdb_txn_t *a = NULL, *b = NULL;
    REQUIRE(tidesdb_txn_begin_with_isolation(x.db, TDB_ISOLATION_SNAPSHOT, &a) == 0);
    REQUIRE(tidesdb_txn_begin_with_isolation(x.db, TDB_ISOLATION_SNAPSHOT, &b) == 0);
    put_text(a, x.cf, "fought", "a"), put_text(b, x.cf, "fought", "b");
    REQUIRE(tidesdb_txn_commit(a) == 0 && tidesdb_txn_commit(b) == TDB_ERR_CONFLICT);
    tidesdb_txn_free(a), tidesdb_txn_free(b);
    EQ(f, "does not fire for a conflict", heard.calls, 1);

    tidesdb_column_family_t *other = make_family(x.db, "other");
    REQUIRE(other && tidesdb_cf_set_commit_hook(other, hear, &other_heard) == 0);
    heard = silence;
    REQUIRE(put1(x.db, x.cf, "only", "cf") == 0);
    EQ(f, "fires for its own family only", other_heard.calls, 0);
    heard = silence;
    REQUIRE(tidesdb_txn_begin(x.db, &t) == 0);
    put_text(t, x.cf, "m", "1"), put_text(t, other, "n", "2");
    REQUIRE(tidesdb_txn_commit(t) == 0);
    tidesdb_txn_free(t);
    CHECK(f, "a commit to two families fires once for each", heard.calls == 1 && other_heard.calls == 1);
    CHECK(f, "each hook gets its own family's operations", !strcmp(heard.text, "m=1") && !strcmp(other_heard.text, "n=2"));
    CHECK(f, "both hooks are told the same sequence number", heard.last_seq == other_heard.last_seq);

    heard = silence;
    for (int i = 0; i < 20; i++) REQUIRE(put1(x.db, x.cf, "again", "x") == 0);
    EQ(f, "fires for every commit", heard.calls, 20);
    CHECK(f, "sequence numbers only grow", heard.ordered);
    heard = silence;
    heard.returns = 5;
    RC("tidesdb_txn_commit", "succeeds although a hook returns an error", put1(x.db, x.cf, "refused", "x"), 0);
    CHECK(f, "a non-zero return does not undo the commit", has(x.db, x.cf, "refused", "x"));
    heard = silence;
    RC(f, "NULL switches off", tidesdb_cf_set_commit_hook(x.cf, NULL, NULL), 0);
    REQUIRE(put1(x.db, x.cf, "quiet", "x") == 0);
    EQ(f, "does not fire when switched off", heard.calls, 0);

    heard = silence;
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    config.commit_hook_fn = hear;
    config.commit_hook_ctx = &heard;
    REQUIRE(tidesdb_create_column_family(x.db, "born with one", &config) == 0);
    tidesdb_column_family_t *born = tidesdb_get_column_family(x.db, "born with one");
    REQUIRE(born && put1(x.db, born, "k", "v") == 0);
    EQ("tidesdb_create_column_family", "a hook in the configuration fires", heard.calls, 1);
    fixture_reopen(&x);
    born = tidesdb_get_column_family(x.db, "born with one");
    heard = silence;
    REQUIRE(born && put1(x.db, born, "k", "v") == 0);
    EQ(f, "hooks do not outlast a close", heard.calls, 0);
    config.commit_hook_fn = hear;
    config.commit_hook_ctx = &heard;
    REQUIRE(tidesdb_cf_update_runtime_config(born, &config, 0) == 0 && put1(x.db, born, "k", "v") == 0);
    EQ("tidesdb_cf_update_runtime_config", "sets the commit hook", heard.calls, 1);
    fixture_close(&x);
}
