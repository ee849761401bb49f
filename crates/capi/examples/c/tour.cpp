// The tour in C++17: handles with destructors, errors as exceptions, keys and values as string views. The namespace is a
// complete minimal wrapper that can be copied into other programs.
//
//   c++ -std=c++17 tour.cpp $(pkg-config --cflags --libs tidesdb) -o tour && ./tour /tmp/tour
#include <tidesdb/db.h>

#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace store
{
struct error : std::runtime_error
{
    int code;
    error(int code, const std::string &what) : std::runtime_error(what + ": error " + std::to_string(code)), code(code) {}
};

inline void must(int code, const char *what)
{
    if (code != TDB_SUCCESS) throw error(code, what);
}

inline const uint8_t *bytes(std::string_view text) { return reinterpret_cast<const uint8_t *>(text.data()); }

template <auto Free>
struct deleter
{
    template <class T>
    void operator()(T *handle) const { Free(handle); }
};

using database = std::unique_ptr<tidesdb_t, deleter<tidesdb_close>>;
using family = tidesdb_column_family_t *;  // Valid as long as the database is open.

inline database open(std::string path)
{
    tidesdb_config_t config = tidesdb_default_config();
    config.db_path = path.data();
    config.log_level = TDB_LOG_WARN;
    tidesdb_t *db = nullptr;
    must(tidesdb_open(&config, &db), "open");
    return database(db);
}

inline family open_family(const database &db, const std::string &name)
{
    if (family cf = tidesdb_get_column_family(db.get(), name.c_str())) return cf;
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    must(tidesdb_create_column_family(db.get(), name.c_str(), &config), "create a column family");
    return tidesdb_get_column_family(db.get(), name.c_str());
}

class transaction
{
    std::unique_ptr<tidesdb_txn_t, deleter<tidesdb_txn_free>> txn;

   public:
    explicit transaction(const database &db, tidesdb_isolation_level_t level = TDB_ISOLATION_READ_COMMITTED)
    {
        tidesdb_txn_t *fresh = nullptr;
        must(tidesdb_txn_begin_with_isolation(db.get(), level, &fresh), "begin");
        txn.reset(fresh);
    }
    void put(family cf, std::string_view key, std::string_view value, time_t expires = -1)
    {
        must(tidesdb_txn_put(txn.get(), cf, bytes(key), key.size(), bytes(value), value.size(), expires), "put");
    }
    void remove(family cf, std::string_view key) { must(tidesdb_txn_delete(txn.get(), cf, bytes(key), key.size()), "delete"); }
    std::optional<std::string> get(family cf, std::string_view key)
    {
        uint8_t *value = nullptr;
        size_t size = 0;
        int code = tidesdb_txn_get(txn.get(), cf, bytes(key), key.size(), &value, &size);
        if (code == TDB_ERR_NOT_FOUND) return std::nullopt;
        must(code, "get");
        std::unique_ptr<uint8_t, deleter<tidesdb_free>> owned(value);
        return std::string(reinterpret_cast<char *>(value), size);
    }
    void savepoint(const char *name) { must(tidesdb_txn_savepoint(txn.get(), name), "savepoint"); }
    void roll_back_to(const char *name) { must(tidesdb_txn_rollback_to_savepoint(txn.get(), name), "roll back"); }
    // Returns true if committed, and false on a conflict, which the caller may retry.
    bool commit()
    {
        int code = tidesdb_txn_commit(txn.get());
        if (code != TDB_ERR_CONFLICT) must(code, "commit");
        return code == TDB_SUCCESS;
    }
    // Calls `see(key, value)` for every entry whose key begins with the prefix; the views are valid during the call.
    template <class See>
    void each(family cf, std::string_view prefix, See see)
    {
        tidesdb_iter_t *fresh = nullptr;
        must(tidesdb_iter_new(txn.get(), cf, &fresh), "iterator");
        std::unique_ptr<tidesdb_iter_t, deleter<tidesdb_iter_free>> it(fresh);
        int code = prefix.empty() ? tidesdb_iter_seek_to_first(fresh) : tidesdb_iter_seek(fresh, bytes(prefix), prefix.size());
        for (; code == TDB_SUCCESS && tidesdb_iter_valid(fresh); code = tidesdb_iter_next(fresh))
        {
            uint8_t *key, *value;
            size_t key_size, value_size;
            must(tidesdb_iter_key_value(fresh, &key, &key_size, &value, &value_size), "entry");
            std::string_view name(reinterpret_cast<char *>(key), key_size);
            if (name.substr(0, prefix.size()) != prefix) break;
            see(name, std::string_view(reinterpret_cast<char *>(value), value_size));
        }
    }
};
}  // namespace store

int main(int count, char **arguments)
try
{
    auto db = store::open(count > 1 ? arguments[1] : "./tour-cpp.db");
    auto users = store::open_family(db, "users");

    store::transaction write(db);
    write.put(users, "user:1", "Ada");
    write.put(users, "user:2", "Grace");
    write.put(users, "session:1", "until tomorrow", time(nullptr) + 86400);
    write.savepoint("before");
    write.remove(users, "user:1");
    write.roll_back_to("before");
    if (!write.commit()) return 1;

    store::transaction read(db, TDB_ISOLATION_SNAPSHOT);
    std::cout << "user:2 is " << read.get(users, "user:2").value_or("not found") << "\n";
    std::cout << "user:3 is " << read.get(users, "user:3").value_or("not found") << "\n";
    read.each(users, "user:", [](auto key, auto value) { std::cout << key << " = " << value << "\n"; });

    // Two transactions write the same key: at SNAPSHOT the second commit fails and can be retried.
    store::transaction first(db, TDB_ISOLATION_SNAPSHOT), second(db, TDB_ISOLATION_SNAPSHOT);
    first.put(users, "user:1", "Ada Lovelace");
    second.put(users, "user:1", "Ada King");
    std::cout << "first " << first.commit() << ", second " << second.commit() << "\n";
    return 0;
}
catch (const store::error &failed)
{
    std::cerr << failed.what() << "\n";
    return 1;
}
