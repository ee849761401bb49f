/* The C++ wrapper: every class, errors as exceptions, moves, destruction in any order. */
#include <cstdio>
#include <cstdlib>
#include <perigee.hpp>
#include <stdexcept>
#include <thread>

static int checks;
#define CHECK(what)                                                              \
    do {                                                                         \
        checks++;                                                                \
        if (!(what)) {                                                           \
            std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #what); \
            std::exit(1);                                                        \
        }                                                                        \
    } while (0)

/* Calls a function that must throw an error with this code. Returns the error. */
template <class Call> static perigee::Error thrown(perigee_code code, Call call)
{
    try {
        call();
    } catch (const perigee::Error &error) {
        if (error.code() != code) std::fprintf(stderr, "%s\n", error.what());
        CHECK(error.code() == code);
        return error;
    }
    CHECK(!"nothing was thrown");
    std::abort();
}

using namespace std::chrono_literals;

static void families(perigee::Database &db)
{
    perigee::Family tides = db.create_family("tides", perigee::Options().set_family("tides", "compression", "zstd 3"));
    CHECK(tides.name() == "tides" && tides.option("compression") == "zstd 3");
    tides.set_option("compression", "lz4");
    CHECK(db.family("tides").option("compression") == "lz4");
    CHECK((db.family_names() == std::vector<std::string>{"default", "tides"}));
    tides.put("06:12", "high");
    tides.put("12:31", "low");
    tides.put("session", "alice", 1h);
    tides.put(std::string("k\0y", 3), std::string_view());
    CHECK(tides.get("06:12") == "high" && !tides.get("none") && tides.get(std::string("k\0y", 3)) == "");
    CHECK(tides.contains("session") && !tides.contains("none"));
    auto many = tides.get_many({"12:31", "none"});
    CHECK(many.size() == 2 && many[0] == "low" && !many[1]);

    perigee::PinnedValue pinned = tides.get_pinned("12:31"), moved;
    CHECK(pinned && *pinned == "low" && !tides.get_pinned("none"));
    moved = std::move(pinned);
    CHECK(moved && *moved == "low");
    perigee::PinnedValue third(std::move(moved));
    CHECK(*third == "low");

    perigee::Snapshot snapshot = db.snapshot();
    tides.put("12:31", "lower");
    CHECK(tides.get(snapshot, "12:31") == "low" && tides.get("12:31") == "lower" && snapshot.sequence() > 0);
    std::string seen;
    for (auto [key, value] : tides.iterate(snapshot, perigee::Range("0", "2")))
        seen += std::string(key) + "=" + std::string(value) + " ";
    CHECK(seen == "06:12=high 12:31=low ");
    seen.clear();
    for (perigee::Entry entry : tides.prefix("s")) seen += entry.key;
    CHECK(seen == "session");
    for (perigee::Entry entry : tides.prefix("none")) CHECK(entry.key == "there is none");
    perigee::Iterator it = tides.iterate(perigee::Range::from("06:12").lower_exclusive());
    CHECK(it.last() && it.key() == "session" && it.prev() && it.prev() && it.key() == "12:31" && !it.prev());
    CHECK(it.key().empty() && it.seek("1") && it.value() == "lower" && it.seek_for_prev("2") && it.key() == "12:31");
    it.keys_only();
    CHECK(it.first() && it.value().empty());
    it = tides.iterate(perigee::Range::until("12:31").upper_inclusive());
    CHECK(it.first() && it.next() && it.key() == "12:31" && !it.next());

    CHECK(tides.compare_and_swap("leader", std::nullopt, "node 1") && !tides.compare_and_swap("leader", std::nullopt, "x"));
    CHECK(tides.compare_and_swap("leader", "node 1", std::nullopt) && !tides.contains("leader"));
    tides.erase("06:12");
    CHECK(!tides.contains("06:12"));
    tides.erase_range(perigee::Range());
    CHECK(!tides.iterate().first());
    db.drop_family("tides");
    CHECK(thrown(PERIGEE_NOT_FOUND, [&] { tides.put("k", "v"); }).what() != std::string());
}

static void batches_and_transactions(perigee::Database &db)
{
    perigee::Family f = db.default_family();
    perigee::Batch batch;
    batch.put(f, "alice", "100");
    batch.put(f, "bob", "0");
    batch.erase(f, "carol");
    batch.erase_range(f, perigee::Range::prefix("x"));
    CHECK(batch.size() == 4 && db.write(batch, perigee::Durability::None) > 0 && batch.size() == 0);

    perigee::Transaction one = db.begin(), two = db.begin();
    CHECK(one.get(f, "alice") == "100" && !one.get(f, "dave") && one.contains(f, "bob"));
    one.put(f, "alice", "70");
    two.put(f, "alice", "50");
    one.savepoint("s");
    one.erase(f, "bob");
    one.rollback_to("s");
    one.release_savepoint("s");
    int entries = 0;
    for (auto [key, value] : one.iterate(f)) entries += !key.empty() && !value.empty();
    CHECK(entries == 2 && one.commit() > 0);
    perigee::Error conflict = thrown(PERIGEE_CONFLICT, [&] { two.commit(); });
    CHECK(conflict.key() == "alice" && conflict.family() == "default" && conflict.is_retryable() && !conflict.file());
    two = db.begin(); /* the old one is released */
    two.rollback();

    /* Every increment of every thread counts. */
    auto increment = [&] {
        for (int i = 0; i < 50; i++)
            db.transact([&](perigee::Transaction &t) {
                t.put(f, "n", std::to_string(std::stoi(t.get(f, "n").value_or("0")) + 1));
            }, 1000000);
    };
    std::thread other(increment);
    increment();
    other.join();
    CHECK(f.get("n") == "100");
    CHECK(db.transact([&](perigee::Transaction &t) { return *t.get(f, "n"); }) == "100");
    try {
        db.transact([&](perigee::Transaction &t) { t.put(f, "n", "0"); throw std::runtime_error("stop"); });
    } catch (const std::runtime_error &) {
        checks++;
    }
    CHECK(f.get("n") == "100");

    perigee::TransactionOptions options;
    options.pessimistic = 1;
    options.lock_timeout_us = 0;
    perigee::Transaction holder = db.begin(options), waiter = db.begin(options);
    CHECK(holder.get_for_update(f, "n") == "100" && !holder.get_for_update(f, "none"));
    thrown(PERIGEE_BUSY, [&] { waiter.put(f, "n", "1"); });
}

static void errors_and_lifetimes(const std::string &path)
{
    perigee::Error missing = thrown(PERIGEE_NOT_FOUND, [&] {
        perigee::Database(path + "/none", perigee::Options().set("create_if_missing", "false"));
    });
    CHECK(std::string(missing.what()).find("none") != std::string::npos && !missing.offset());
    thrown(PERIGEE_INVALID_ARGUMENT, [] { perigee::Options().set("no_option", "1"); });

    perigee::Family f;
    perigee::Iterator it;
    perigee::PinnedValue value;
    {
        perigee::Database db(path + "/lifetimes");
        f = db.default_family();
        f.put("k", "v");
        it = f.iterate();
        value = f.get_pinned("k");
        perigee::Database moved(std::move(db));
        thrown(PERIGEE_INVALID_ARGUMENT, [&] { db.default_family(); });
        CHECK(moved.default_family().contains("k"));
    }
    CHECK(*value == "v");
    thrown(PERIGEE_CLOSED, [&] { f.get("k"); });
    thrown(PERIGEE_CLOSED, [&] { it.first(); });
    perigee::Database again(path + "/lifetimes");
    again.close();
    again.close(); /* no effect */
    thrown(PERIGEE_INVALID_ARGUMENT, [&] { again.sync(); });
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    std::string path = argv[1];
    CHECK(perigee::library_version() == "0.1.0");
    {
        perigee::Options options;
        options.set("memory_budget", "64 MiB").set("durability", "none");
        CHECK(options.text().find("memory_budget = \"64 MiB\"") != std::string::npos);
        perigee::Database db(path + "/wrapper", options);
        families(db);
        batches_and_transactions(db);
        db.flush();
        db.compact();
        db.checkpoint(path + "/copy");
        CHECK(db.backup(path + "/backup") == 1 && db.stats_json()[0] == '{' && db.metrics().size() > 1000);
        db.verify();
        db.sync();
        db.close();
    }
    errors_and_lifetimes(path);
    std::printf("%d checks\n", checks);
    return 0;
}
