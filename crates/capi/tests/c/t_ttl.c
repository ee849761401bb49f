/* Time to live: absolute seconds, -1 for none, past and future, across flush, reopen and overwrite. */
#include "harness.h"

void test_ttl(void)
{
    const char *f = "tidesdb_txn_put";
    fixture_t x = fixture_open();
    REQUIRE(x.cf);
    time_t now = time(NULL);
    RC(f, "ttl: a future time is accepted", put1_ttl(x.db, x.cf, "future", "v", now + 1000), 0);
    CHECK(f, "ttl: a future time is visible", has(x.db, x.cf, "future", "v"));
    RC(f, "ttl: a past time is accepted", put1_ttl(x.db, x.cf, "past", "v", now - 1000), 0);
    CHECK(f, "ttl: a past time is not found", lacks(x.db, x.cf, "past"));
    REQUIRE(put1_ttl(x.db, x.cf, "none", "v", -1) == 0);
    CHECK(f, "ttl: -1 never expires", has(x.db, x.cf, "none", "v"));
    REQUIRE(put1_ttl(x.db, x.cf, "zero", "v", 0) == 0);
    CHECK(f, "ttl: 0 never expires", has(x.db, x.cf, "zero", "v"));
    REQUIRE(put1_ttl(x.db, x.cf, "hidden", "old", -1) == 0 && put1_ttl(x.db, x.cf, "hidden", "new", now - 5) == 0);
    CHECK(f, "ttl: an expired overwrite does not uncover the older value", lacks(x.db, x.cf, "hidden"));
    REQUIRE(put1_ttl(x.db, x.cf, "revived", "old", now - 5) == 0 && put1_ttl(x.db, x.cf, "revived", "new", -1) == 0);
    CHECK(f, "ttl: a later put without a ttl makes the key visible again", has(x.db, x.cf, "revived", "new"));
    tidesdb_txn_t *t = NULL;
    REQUIRE(tidesdb_txn_begin(x.db, &t) == 0);
    RC("tidesdb_txn_contains", "does not find an expired key", tidesdb_txn_contains(t, x.cf, S("past")), TDB_ERR_NOT_FOUND);
    tidesdb_txn_free(t);
    /* Visible until its second. The reads count only if they ended before that second: on a slow machine, retry with more time. */
    int visible = 0, listed = 0;
    for (int seconds = 2, in_time = 0; !in_time && seconds < 1000; seconds *= 2)
    {
        time_t end = time(NULL) + seconds;
        REQUIRE(put1_ttl(x.db, x.cf, "soon on disk", "v", end) == 0);
        flush_and_wait(x.cf);
        REQUIRE(put1_ttl(x.db, x.cf, "soon", "v", end) == 0);
        visible = has(x.db, x.cf, "soon", "v") && has(x.db, x.cf, "soon on disk", "v");
        listed = !strcmp(family_keys(x.db, x.cf), "future,none,revived,soon,soon on disk,zero");
        in_time = time(NULL) < end;
    }
    CHECK(f, "ttl: visible until its second", visible);
    CHECK("tidesdb_iter_next", "skips expired keys", listed);
    /* TidesDB's clock for this is updated by a background thread, so it may be late. */
    for (int i = 0; i < 1000000 && !(lacks(x.db, x.cf, "soon") && lacks(x.db, x.cf, "soon on disk")); i++) usleep(1000);
    CHECK(f, "ttl: expired after its second, in memory", lacks(x.db, x.cf, "soon"));
    CHECK(f, "ttl: expired after its second, on disk", lacks(x.db, x.cf, "soon on disk"));
    CHECK("tidesdb_iter_next", "skips keys that expired meanwhile", !strcmp(family_keys(x.db, x.cf), "future,none,revived,zero"));
    fixture_reopen(&x);
    REQUIRE(x.cf);
    CHECK(f, "ttl: an expired key stays expired across a reopen", lacks(x.db, x.cf, "soon") && lacks(x.db, x.cf, "past"));
    CHECK(f, "ttl: a future time survives a reopen", has(x.db, x.cf, "future", "v"));
    RC("tidesdb_purge_cf", "with expired keys", tidesdb_purge_cf(x.cf), 0);
    CHECK(f, "ttl: the right keys remain after compaction", !strcmp(family_keys(x.db, x.cf), "future,none,revived,zero"));
    fixture_close(&x);
}
