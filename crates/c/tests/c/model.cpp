/* Random operations, compared with a std::map: puts, deletes, ranges with all kinds of bounds, batches, transactions with
 * savepoints, snapshots, iterators in both directions, flushes and reopening. */
#include <cstdio>
#include <cstdlib>
#include <map>
#include <perigee.hpp>
#include <random>

using Map = std::map<std::string, std::string>;

static long checks;
#define CHECK(what)                                                                                \
    do {                                                                                           \
        checks++;                                                                                  \
        if (!(what)) {                                                                             \
            std::fprintf(stderr, "%s:%d: not true: %s (seed %u)\n", __FILE__, __LINE__, #what, seed); \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

static unsigned seed;
static std::mt19937 generator;

static unsigned random_below(unsigned n) { return static_cast<unsigned>(generator() % n); }

static std::string random_key()
{
    std::string key;
    for (unsigned size = 1 + random_below(3); size > 0; size--) key += "ab\0\xff"[random_below(4)];
    return key;
}

static std::string random_value()
{
    return std::string(random_below(4) ? random_below(40) : 2000, 'x') + std::to_string(generator());
}

/* A range with random bounds, and the same as a predicate. */
struct RandomRange {
    std::string lower, upper;
    bool has_lower, has_upper, is_prefix;
    perigee_range range;
    RandomRange()
        : lower(random_key()), upper(random_key()), has_lower(random_below(4) > 0), has_upper(random_below(4) > 0),
          is_prefix(random_below(4) == 0), range()
    {
        if (is_prefix) has_lower = true;
        if (lower > upper) std::swap(lower, upper); /* deletes refuse the other order, */
        if (lower == upper) upper += "b";           /* and one key without itself */
        if (has_lower) range.lower = lower.data(), range.lower_size = lower.size();
        if (has_upper) range.upper = upper.data(), range.upper_size = upper.size();
        range.flags = random_below(4);
        if (is_prefix) range.flags |= PERIGEE_PREFIX;
    }
    bool contains(const std::string &key) const
    {
        if (is_prefix) return key.compare(0, lower.size(), lower) == 0;
        if (has_lower && (range.flags & PERIGEE_LOWER_EXCLUSIVE ? key <= lower : key < lower)) return false;
        return !has_upper || (range.flags & PERIGEE_UPPER_INCLUSIVE ? key <= upper : key < upper);
    }
    void erase_from(Map &map) const
    {
        for (auto it = map.begin(); it != map.end();) it = contains(it->first) ? map.erase(it) : std::next(it);
    }
    Map select(const Map &map) const
    {
        Map selected;
        for (const auto &entry : map)
            if (contains(entry.first)) selected.insert(entry);
        return selected;
    }
};

static void call(perigee_code code)
{
    CHECK(code == PERIGEE_OK);
}

/* Compares all entries of an iterator, and random seeks in it. */
static void compare(perigee_iterator *handle, const Map &expected)
{
    perigee_entry entry;
    auto is = [&](Map::const_iterator it) {
        if (it == expected.end()) return entry.key == nullptr;
        return entry.key != nullptr && it->first == perigee::detail::view(entry.key, entry.key_size) &&
               it->second == perigee::detail::view(entry.value, entry.value_size);
    };
    auto before = [&](Map::const_iterator it) { return it == expected.begin() ? expected.end() : std::prev(it); };
    call(perigee_iterator_first(handle, &entry, nullptr));
    for (auto it = expected.begin();; ++it) {
        CHECK(is(it));
        if (it == expected.end()) break;
        call(perigee_iterator_next(handle, &entry, nullptr));
    }
    call(perigee_iterator_last(handle, &entry, nullptr));
    for (auto it = before(expected.end());; it = before(it)) {
        CHECK(is(it));
        if (it == expected.end()) break;
        call(perigee_iterator_prev(handle, &entry, nullptr));
    }
    for (int i = 0; i < 3; i++) {
        std::string key = random_key();
        call(perigee_iterator_seek(handle, key.data(), key.size(), &entry, nullptr));
        auto it = expected.lower_bound(key);
        CHECK(is(it));
        if (it != expected.end() && random_below(2)) {
            call(perigee_iterator_prev(handle, &entry, nullptr));
            CHECK(is(before(it)));
        }
        call(perigee_iterator_seek_for_prev(handle, key.data(), key.size(), &entry, nullptr));
        CHECK(is(before(expected.upper_bound(key))));
    }
    perigee_iterator_release(handle);
}

static void change(perigee::Family &family, Map &map)
{
    std::string key = random_key(), value = random_value();
    RandomRange range;
    switch (random_below(5)) {
    case 0:
        family.erase(key);
        map.erase(key);
        break;
    case 1:
        call(perigee_delete_range(family.get(), &range.range, nullptr));
        range.erase_from(map);
        break;
    default:
        family.put(key, value);
        map[key] = value;
    }
}

static void change_in_batch(perigee::Database &db, perigee::Family &family, Map &map)
{
    perigee::Batch batch;
    for (unsigned n = random_below(6); n > 0; n--) {
        std::string key = random_key(), value = random_value();
        RandomRange range;
        switch (random_below(4)) {
        case 0:
            batch.erase(family, key);
            map.erase(key);
            break;
        case 1:
            call(perigee_batch_delete_range(batch.get(), family.get(), &range.range, nullptr));
            range.erase_from(map);
            break;
        default:
            batch.put(family, key, value);
            map[key] = value;
        }
    }
    db.write(batch, perigee::Durability::None);
}

static void change_in_transaction(perigee::Database &db, perigee::Family &family, Map &map)
{
    perigee::Transaction txn = db.begin();
    Map mine = map, saved = map;
    txn.savepoint("s");
    for (unsigned n = random_below(8); n > 0; n--) {
        std::string key = random_key(), value = random_value();
        RandomRange range;
        perigee_iterator *it;
        switch (random_below(7)) {
        case 0:
            txn.erase(family, key);
            mine.erase(key);
            break;
        case 1:
            call(perigee_transaction_delete_range(txn.get(), family.get(), &range.range, nullptr));
            range.erase_from(mine);
            break;
        case 2:
            txn.savepoint("s");
            saved = mine;
            break;
        case 3:
            txn.rollback_to("s");
            mine = saved;
            break;
        case 4:
            call(perigee_transaction_iterator(txn.get(), family.get(), &range.range, &it, nullptr));
            compare(it, range.select(mine));
            break;
        default:
            txn.put(family, key, value);
            mine[key] = value;
        }
        auto found = mine.find(key);
        CHECK(txn.get(family, key) == (found == mine.end() ? std::nullopt : std::optional<std::string>(found->second)));
    }
    if (random_below(3)) {
        txn.commit(perigee::Durability::None);
        map = mine;
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    for (seed = 1; seed <= 6; seed++) {
        generator.seed(seed);
        std::string path = std::string(argv[1]) + "/" + std::to_string(seed);
        perigee::Options options;
        options.set("durability", "none");
        Map map, then;
        perigee::Database db(path, options);
        perigee::Family family = db.default_family();
        perigee::Snapshot snapshot = db.snapshot();
        for (int step = 0; step < 400; step++) {
            RandomRange range;
            perigee_iterator *it;
            switch (random_below(12)) {
            case 0:
                snapshot = db.snapshot();
                then = map;
                break;
            case 1:
                call(perigee_iterator_open(family.get(), snapshot.get(), &range.range, &it, nullptr));
                compare(it, range.select(then));
                break;
            case 2:
                call(perigee_iterator_open(family.get(), nullptr, &range.range, &it, nullptr));
                compare(it, range.select(map));
                break;
            case 3:
                change_in_batch(db, family, map);
                break;
            case 4:
                change_in_transaction(db, family, map);
                break;
            case 5:
                if (random_below(8) == 0) db.flush();
                break;
            case 6:
                if (random_below(40) == 0) {
                    db.close();
                    db = perigee::Database(path, options);
                    family = db.default_family();
                    snapshot = db.snapshot();
                    then = map;
                }
                break;
            default:
                change(family, map);
            }
            std::string key = random_key();
            auto found = map.find(key);
            CHECK(family.get(key) == (found == map.end() ? std::nullopt : std::optional<std::string>(found->second)));
        }
        db.verify();
    }
    std::printf("%ld checks\n", checks);
    return 0;
}
