/* Perigee for C++17: classes over perigee.h that release themselves, with errors as exceptions. Header-only; link with
 * -lperigee.
 *
 *     perigee::Database db("moon.db");
 *     perigee::Family family = db.default_family();
 *     family.put("moon", "full");
 *     if (std::optional<std::string> value = family.get("moon")) std::cout << *value << '\n';
 *     for (auto [key, value] : family.prefix("mo")) std::cout << key << ' ' << value << '\n';
 *
 * Keys and values are std::string_view, which may contain any bytes. Objects can be moved, but not copied, and may be destroyed
 * in any order. A moved-from object refers to nothing: calls with it throw. Functions throw perigee::Error; destructors do not
 * throw. A missing key is not an error. What each function does, its errors and its thread safety are documented at the
 * function of perigee.h that it calls. */
#ifndef PERIGEE_HPP
#define PERIGEE_HPP

#include <perigee.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace perigee {

/* An error: code, description, and where it happened. */
class Error : public std::exception {
public:
    /* Takes over an error of the C interface and frees it. `code` counts if `error` is NULL. */
    Error(perigee_code code, perigee_error *error)
        : code_(code), text_(error ? perigee_error_text(error) : perigee_code_name(code)),
          offset_(perigee_error_offset(error)), os_error_(perigee_error_os_error(error)),
          retryable_(perigee_error_is_retryable(error) != 0)
    {
        if (const char *file = perigee_error_file(error)) file_ = file;
        if (const char *family = perigee_error_family(error)) family_ = family;
        size_t size = 0;
        if (const void *key = perigee_error_key(error, &size)) key_ = std::string(static_cast<const char *>(key), size);
        perigee_error_free(error);
    }
    perigee_code code() const noexcept { return code_; }
    const char *what() const noexcept override { return text_.c_str(); }
    /* The damaged or unreadable file, and the offset in it. */
    const std::optional<std::string> &file() const noexcept { return file_; }
    std::optional<std::uint64_t> offset() const noexcept
    {
        return offset_ < 0 ? std::nullopt : std::optional<std::uint64_t>(static_cast<std::uint64_t>(offset_));
    }
    /* errno, or 0. */
    int os_error() const noexcept { return os_error_; }
    /* The column family and key of a conflict. */
    const std::optional<std::string> &family() const noexcept { return family_; }
    const std::optional<std::string> &key() const noexcept { return key_; }
    bool is_retryable() const noexcept { return retryable_; }

private:
    perigee_code code_;
    std::string text_;
    std::optional<std::string> file_, family_, key_;
    std::int64_t offset_;
    int os_error_;
    bool retryable_;
};

namespace detail {

/* Calls a function of the C interface, with a place for the error as its last argument. */
template <class Function, class... Arguments> void call(Function function, Arguments... arguments)
{
    perigee_error *error = nullptr;
    perigee_code code = function(arguments..., &error);
    if (code != PERIGEE_OK) throw Error(code, error);
}

/* A handle that is released when this is destroyed. */
template <class T, void (*release)(T *)> class Handle {
public:
    Handle() noexcept = default;
    explicit Handle(T *handle) noexcept : handle_(handle) {}
    Handle(Handle &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Handle &operator=(Handle &&other) noexcept
    {
        if (this != &other) {
            release(handle_);
            handle_ = std::exchange(other.handle_, nullptr);
        }
        return *this;
    }
    ~Handle() { release(handle_); }
    T *get() const noexcept { return handle_; }
    /* Gives the handle away. */
    T *take() noexcept { return std::exchange(handle_, nullptr); }
    /* Returns a place for a new handle. */
    T **out() noexcept
    {
        release(std::exchange(handle_, nullptr));
        return &handle_;
    }

private:
    T *handle_ = nullptr;
};

/* Closes a database without reporting an error. */
inline void close(perigee_db *db) { perigee_db_close(db, nullptr); }

/* Frees memory of the library. */
class Memory {
public:
    explicit Memory(void *memory) noexcept : memory_(memory) {}
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory() { perigee_free(memory_); }

private:
    void *memory_;
};

inline std::string_view view(const void *data, size_t size) { return {static_cast<const char *>(data), size}; }

/* Returns the text that a function returns, and frees it. */
template <class Function, class... Arguments> std::string text(Function function, Arguments... arguments)
{
    char *text = nullptr;
    call(function, arguments..., &text);
    Memory memory(text);
    return text;
}

} // namespace detail

/* The version of the library. */
inline std::string_view library_version() { return perigee_library_version(); }

/* Durability of a commit. */
enum class Durability {
    Default = PERIGEE_DURABILITY_DEFAULT,
    Full = PERIGEE_DURABILITY_FULL,
    None = PERIGEE_DURABILITY_NONE
};

/* Options of a database and its column families, set by name. Calls can be chained. */
class Options {
public:
    Options() { detail::call(perigee_options_new, handle_.out()); }
    Options &set(const std::string &name, const std::string &value) &
    {
        detail::call(perigee_options_set, get(), name.c_str(), value.c_str());
        return *this;
    }
    Options &set_family(const std::string &family, const std::string &name, const std::string &value) &
    {
        detail::call(perigee_options_set_family, get(), family.c_str(), name.c_str(), value.c_str());
        return *this;
    }
    Options &&set(const std::string &name, const std::string &value) && { return std::move(set(name, value)); }
    Options &&set_family(const std::string &family, const std::string &name, const std::string &value) &&
    {
        return std::move(set_family(family, name, value));
    }
    void load_file(const std::string &path) { detail::call(perigee_options_load_file, get(), path.c_str()); }
    void load_text(const std::string &toml) { detail::call(perigee_options_load_text, get(), toml.c_str()); }
    std::string text() const { return detail::text(perigee_options_text, get()); }
    void add_comparator(const std::string &name, perigee_compare_function compare, void *context = nullptr)
    {
        detail::call(perigee_options_add_comparator, get(), name.c_str(), compare, context);
    }
    void add_merge_operator(const std::string &name, perigee_merge_function merge, void *context = nullptr)
    {
        detail::call(perigee_options_add_merge_operator, get(), name.c_str(), merge, context);
    }
    void add_encryption_key(std::uint32_t version, std::string_view key)
    {
        detail::call(perigee_options_add_encryption_key, get(), version, key.data(), key.size());
    }
    perigee_options *get() const noexcept { return handle_.get(); }

private:
    detail::Handle<perigee_options, perigee_options_release> handle_;
};

/* A range of keys. The keys must outlive it. */
class Range {
public:
    /* All keys. */
    Range() noexcept : range_{nullptr, 0, nullptr, 0, 0} {}
    /* From `lower` on and before `upper`. */
    Range(std::string_view lower, std::string_view upper) noexcept
        : range_{data(lower), lower.size(), data(upper), upper.size(), 0}
    {
    }
    /* From `lower` on. */
    static Range from(std::string_view lower) noexcept
    {
        Range range;
        range.range_.lower = data(lower);
        range.range_.lower_size = lower.size();
        return range;
    }
    /* Before `upper`. */
    static Range until(std::string_view upper) noexcept
    {
        Range range;
        range.range_.upper = data(upper);
        range.range_.upper_size = upper.size();
        return range;
    }
    /* The keys that begin with `prefix`. */
    static Range prefix(std::string_view prefix) noexcept
    {
        Range range = from(prefix);
        range.range_.flags = PERIGEE_PREFIX;
        return range;
    }
    /* Without the lower bound itself. */
    Range &&lower_exclusive() &&
    {
        range_.flags |= PERIGEE_LOWER_EXCLUSIVE;
        return std::move(*this);
    }
    /* With the upper bound itself. */
    Range &&upper_inclusive() &&
    {
        range_.flags |= PERIGEE_UPPER_INCLUSIVE;
        return std::move(*this);
    }
    const perigee_range *get() const noexcept { return &range_; }

private:
    /* NULL would mean no bound. */
    static const char *data(std::string_view key) noexcept { return key.data() ? key.data() : ""; }
    perigee_range range_;
};

/* A value that is not copied; empty() if the key does not exist. */
class PinnedValue {
public:
    PinnedValue() noexcept : pinned_() {}
    PinnedValue(PinnedValue &&other) noexcept : pinned_(std::exchange(other.pinned_, perigee_pinned())) {}
    PinnedValue &operator=(PinnedValue &&other) noexcept
    {
        std::swap(pinned_, other.pinned_);
        return *this;
    }
    ~PinnedValue() { perigee_pinned_release(&pinned_); }
    /* True if the key exists. */
    explicit operator bool() const noexcept { return pinned_.data != nullptr; }
    /* The bytes, valid as long as this object. */
    std::string_view operator*() const noexcept { return detail::view(pinned_.data, pinned_.size); }
    /* Returns a place for a new value. */
    perigee_pinned *out() noexcept
    {
        perigee_pinned_release(&pinned_);
        return &pinned_;
    }

private:
    perigee_pinned pinned_;
};

/* A key and its value, valid until the iterator moves. */
struct Entry {
    std::string_view key;
    std::string_view value;
};

/* A position in a range of a column family. `for (auto [key, value] : iterator)` visits all entries in order. */
class Iterator {
public:
    /* Each returns true if the iterator is on an entry afterwards. */
    bool first() { return move(perigee_iterator_first); }
    bool last() { return move(perigee_iterator_last); }
    bool next() { return move(perigee_iterator_next); }
    bool prev() { return move(perigee_iterator_prev); }
    bool seek(std::string_view key) { return seek(perigee_iterator_seek, key); }
    bool seek_for_prev(std::string_view key) { return seek(perigee_iterator_seek_for_prev, key); }
    void keys_only(bool on = true) { detail::call(perigee_iterator_set_keys_only, handle_.get(), on ? 1 : 0); }
    bool is_valid() const noexcept { return entry_.key != nullptr; }
    /* The key, and the value, of the entry that it is on; empty if it is on none. */
    std::string_view key() const noexcept { return detail::view(entry_.key, entry_.key_size); }
    std::string_view value() const noexcept { return detail::view(entry_.value, entry_.value_size); }

    /* The iterator of a range-based for loop. */
    class Position {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = Entry;
        using difference_type = std::ptrdiff_t;
        using pointer = const Entry *;
        using reference = Entry;
        explicit Position(Iterator *iterator) noexcept : iterator_(iterator) {}
        Entry operator*() const noexcept { return {iterator_->key(), iterator_->value()}; }
        Position &operator++()
        {
            if (!iterator_->next()) iterator_ = nullptr;
            return *this;
        }
        bool operator==(const Position &other) const noexcept { return iterator_ == other.iterator_; }
        bool operator!=(const Position &other) const noexcept { return iterator_ != other.iterator_; }

    private:
        Iterator *iterator_;
    };
    Position begin() { return Position(first() ? this : nullptr); }
    Position end() noexcept { return Position(nullptr); }

    perigee_iterator **out() noexcept { return handle_.out(); }

private:
    template <class Function> bool move(Function function)
    {
        detail::call(function, handle_.get(), &entry_);
        return is_valid();
    }
    template <class Function> bool seek(Function function, std::string_view key)
    {
        detail::call(function, handle_.get(), static_cast<const void *>(key.data()), key.size(), &entry_);
        return is_valid();
    }
    detail::Handle<perigee_iterator, perigee_iterator_release> handle_;
    perigee_entry entry_{};
};

/* A consistent view of all column families. */
class Snapshot {
public:
    std::uint64_t sequence() const noexcept { return perigee_snapshot_sequence(get()); }
    perigee_snapshot *get() const noexcept { return handle_.get(); }
    perigee_snapshot **out() noexcept { return handle_.out(); }

private:
    detail::Handle<perigee_snapshot, perigee_snapshot_release> handle_;
};

/* A column family. The reads take a snapshot, by default none: the newest state. */
class Family {
public:
    std::string name() const { return detail::text(perigee_family_name, get()); }
    std::string option(const std::string &name) const { return detail::text(perigee_family_option, get(), name.c_str()); }
    void set_option(const std::string &name, const std::string &value)
    {
        detail::call(perigee_family_set_option, get(), name.c_str(), value.c_str());
    }

    void put(std::string_view key, std::string_view value)
    {
        detail::call(perigee_put, get(), data(key), key.size(), data(value), value.size());
    }
    void put(std::string_view key, std::string_view value, std::chrono::milliseconds ttl)
    {
        auto ms = static_cast<std::uint64_t>(ttl.count() < 0 ? 0 : ttl.count());
        detail::call(perigee_put_with_ttl, get(), data(key), key.size(), data(value), value.size(), ms);
    }
    void erase(std::string_view key) { detail::call(perigee_delete, get(), data(key), key.size()); }
    void erase_range(const Range &range) { detail::call(perigee_delete_range, get(), range.get()); }
    void merge(std::string_view key, std::string_view operand)
    {
        detail::call(perigee_merge, get(), data(key), key.size(), data(operand), operand.size());
    }
    /* Returns true if the value was `expected` (nullopt: the key did not exist) and was replaced (nullopt: deleted). */
    bool compare_and_swap(std::string_view key, std::optional<std::string_view> expected,
                          std::optional<std::string_view> value)
    {
        int swapped = 0;
        detail::call(perigee_compare_and_swap, get(), data(key), key.size(), bytes(expected), size(expected), bytes(value),
                     size(value), &swapped);
        return swapped != 0;
    }

    /* The value; nullopt if the key does not exist. */
    std::optional<std::string> get(std::string_view key) const { return get(nullptr, key); }
    std::optional<std::string> get(const Snapshot &snapshot, std::string_view key) const
    {
        return get(snapshot.get(), key);
    }
    /* The value without a copy. */
    PinnedValue get_pinned(std::string_view key) const { return get_pinned(nullptr, key); }
    PinnedValue get_pinned(const Snapshot &snapshot, std::string_view key) const
    {
        return get_pinned(snapshot.get(), key);
    }
    /* The values of many keys, from the same state. */
    std::vector<std::optional<std::string>> get_many(const std::vector<std::string_view> &keys) const
    {
        std::vector<perigee_bytes> wanted;
        for (std::string_view key : keys) wanted.push_back({key.data(), key.size()});
        std::vector<perigee_pinned> found(keys.size());
        detail::call(perigee_get_many, get(), static_cast<perigee_snapshot *>(nullptr), wanted.data(), wanted.size(),
                     found.data());
        std::vector<std::optional<std::string>> values;
        for (perigee_pinned &pinned : found) {
            values.emplace_back();
            if (pinned.data) values.back() = std::string(detail::view(pinned.data, pinned.size));
            perigee_pinned_release(&pinned);
        }
        return values;
    }
    bool contains(std::string_view key) const
    {
        int found = 0;
        detail::call(perigee_contains, get(), static_cast<perigee_snapshot *>(nullptr), data(key), key.size(), &found);
        return found != 0;
    }

    /* Iterators over a range, as of now or of a snapshot. */
    Iterator iterate(const Range &range = Range()) const { return iterate(nullptr, range); }
    Iterator iterate(const Snapshot &snapshot, const Range &range = Range()) const { return iterate(snapshot.get(), range); }
    Iterator prefix(std::string_view prefix) const { return iterate(nullptr, Range::prefix(prefix)); }

    perigee_family *get() const noexcept { return handle_.get(); }
    perigee_family **out() noexcept { return handle_.out(); }

private:
    static const void *data(std::string_view bytes) noexcept { return bytes.data(); }
    static const void *bytes(std::optional<std::string_view> value) noexcept
    {
        if (!value) return nullptr;
        return value->data() ? value->data() : "";
    }
    static size_t size(std::optional<std::string_view> value) noexcept { return value ? value->size() : 0; }
    std::optional<std::string> get(perigee_snapshot *snapshot, std::string_view key) const
    {
        PinnedValue value = get_pinned(snapshot, key);
        return value ? std::optional<std::string>(*value) : std::nullopt;
    }
    PinnedValue get_pinned(perigee_snapshot *snapshot, std::string_view key) const
    {
        PinnedValue value;
        detail::call(perigee_get_pinned, get(), snapshot, data(key), key.size(), value.out());
        return value;
    }
    Iterator iterate(perigee_snapshot *snapshot, const Range &range) const
    {
        Iterator iterator;
        detail::call(perigee_iterator_open, get(), snapshot, range.get(), iterator.out());
        return iterator;
    }
    detail::Handle<perigee_family, perigee_family_release> handle_;
};

/* Writes that are committed atomically by Database::write. */
class Batch {
public:
    Batch() { detail::call(perigee_batch_new, handle_.out()); }
    void put(const Family &family, std::string_view key, std::string_view value)
    {
        detail::call(perigee_batch_put, get(), family.get(), bytes(key), key.size(), bytes(value), value.size());
    }
    void erase(const Family &family, std::string_view key)
    {
        detail::call(perigee_batch_delete, get(), family.get(), bytes(key), key.size());
    }
    void erase_range(const Family &family, const Range &range)
    {
        detail::call(perigee_batch_delete_range, get(), family.get(), range.get());
    }
    void merge(const Family &family, std::string_view key, std::string_view operand)
    {
        detail::call(perigee_batch_merge, get(), family.get(), bytes(key), key.size(), bytes(operand), operand.size());
    }
    size_t size() const noexcept { return perigee_batch_count(get()); }
    void clear() { detail::call(perigee_batch_clear, get()); }
    perigee_batch *get() const noexcept { return handle_.get(); }

private:
    static const void *bytes(std::string_view bytes) noexcept { return bytes.data(); }
    detail::Handle<perigee_batch, perigee_batch_release> handle_;
};

/* Options of a transaction, with the defaults of the library. */
struct TransactionOptions : perigee_transaction_options {
    TransactionOptions() { perigee_transaction_options_init(this); }
};

/* A transaction. Rolled back when it is destroyed, unless it was committed. */
class Transaction {
public:
    std::optional<std::string> get(const Family &family, std::string_view key)
    {
        PinnedValue value;
        detail::call(perigee_transaction_get_pinned, get(), family.get(), bytes(key), key.size(), value.out());
        return value ? std::optional<std::string>(*value) : std::nullopt;
    }
    std::optional<std::string> get_for_update(const Family &family, std::string_view key,
                                              perigee_lock_mode mode = PERIGEE_LOCK_MODE_EXCLUSIVE)
    {
        void *value = nullptr;
        size_t size = 0;
        detail::call(perigee_transaction_get_for_update, get(), family.get(), bytes(key), key.size(), mode, &value, &size);
        detail::Memory memory(value);
        return value ? std::optional<std::string>(detail::view(value, size)) : std::nullopt;
    }
    bool contains(const Family &family, std::string_view key)
    {
        int found = 0;
        detail::call(perigee_transaction_contains, get(), family.get(), bytes(key), key.size(), &found);
        return found != 0;
    }
    Iterator iterate(const Family &family, const Range &range = Range())
    {
        Iterator iterator;
        detail::call(perigee_transaction_iterator, get(), family.get(), range.get(), iterator.out());
        return iterator;
    }
    void put(const Family &family, std::string_view key, std::string_view value)
    {
        detail::call(perigee_transaction_put, get(), family.get(), bytes(key), key.size(), bytes(value), value.size());
    }
    void erase(const Family &family, std::string_view key)
    {
        detail::call(perigee_transaction_delete, get(), family.get(), bytes(key), key.size());
    }
    void erase_range(const Family &family, const Range &range)
    {
        detail::call(perigee_transaction_delete_range, get(), family.get(), range.get());
    }
    void merge(const Family &family, std::string_view key, std::string_view operand)
    {
        detail::call(perigee_transaction_merge, get(), family.get(), bytes(key), key.size(), bytes(operand), operand.size());
    }
    void savepoint(const std::string &name) { detail::call(perigee_transaction_savepoint, get(), name.c_str()); }
    void rollback_to(const std::string &name) { detail::call(perigee_transaction_rollback_to, get(), name.c_str()); }
    void release_savepoint(const std::string &name)
    {
        detail::call(perigee_transaction_release_savepoint, get(), name.c_str());
    }
    /* Returns the sequence number of the last operation. */
    std::uint64_t commit(Durability durability = Durability::Default)
    {
        std::uint64_t sequence = 0;
        detail::call(perigee_transaction_commit, get(), static_cast<int>(durability), &sequence);
        return sequence;
    }
    void rollback() { detail::call(perigee_transaction_rollback, get()); }
    void reset() { detail::call(perigee_transaction_reset, get()); }
    void prepare(std::string_view gid) { detail::call(perigee_transaction_prepare, get(), bytes(gid), gid.size()); }
    perigee_transaction *get() const noexcept { return handle_.get(); }
    perigee_transaction **out() noexcept { return handle_.out(); }

private:
    static const void *bytes(std::string_view bytes) noexcept { return bytes.data(); }
    detail::Handle<perigee_transaction, perigee_transaction_release> handle_;
};

/* An open database. Closed when it is destroyed; call close() to learn whether everything is durable. */
class Database {
public:
    explicit Database(const std::string &path) { open(path, nullptr); }
    Database(const std::string &path, const Options &options) { open(path, options.get()); }
    void close() { detail::call(perigee_db_close, handle_.take()); }
    void sync() { detail::call(perigee_db_sync, get()); }

    Family default_family() const { return family_by(perigee_db_default_family); }
    Family family(const std::string &name) const { return family_by(perigee_db_family, name.c_str()); }
    Family create_family(const std::string &name) { return create(name, nullptr); }
    Family create_family(const std::string &name, const Options &options) { return create(name, options.get()); }
    Family family_or_create(const std::string &name)
    {
        return family_by(perigee_db_family_or_create, name.c_str(), static_cast<perigee_options *>(nullptr));
    }
    Family family_or_create(const std::string &name, const Options &options)
    {
        return family_by(perigee_db_family_or_create, name.c_str(), options.get());
    }
    void drop_family(const std::string &name) { detail::call(perigee_db_drop_family, get(), name.c_str()); }
    std::vector<std::string> family_names() const
    {
        char **names = nullptr;
        size_t count = 0;
        detail::call(perigee_db_family_names, get(), &names, &count);
        detail::Memory memory(names);
        return std::vector<std::string>(names, names + count);
    }

    /* Commits a batch and empties it. Returns the sequence number of its last operation. */
    std::uint64_t write(Batch &batch, Durability durability = Durability::Default)
    {
        std::uint64_t sequence = 0;
        detail::call(perigee_db_write, get(), batch.get(), static_cast<int>(durability), &sequence);
        return sequence;
    }
    Snapshot snapshot() const
    {
        Snapshot snapshot;
        detail::call(perigee_db_snapshot, get(), snapshot.out());
        return snapshot;
    }
    Transaction begin() { return begin(nullptr); }
    Transaction begin(const TransactionOptions &options) { return begin(&options); }
    /* Calls work(transaction) and commits; after a conflict again, up to `attempts` times. If `work` throws, the transaction is
     * rolled back. Returns what `work` returns. */
    template <class Work> auto transact(Work work, int attempts = 100) -> decltype(work(std::declval<Transaction &>()))
    {
        Transaction transaction = begin();
        for (int attempt = 1;; attempt++) {
            try {
                return run(transaction, work);
            } catch (const Error &error) {
                if (error.code() != PERIGEE_CONFLICT || attempt >= attempts) throw;
            }
            transaction.reset();
        }
    }

    void flush() { detail::call(perigee_db_flush, get(), static_cast<perigee_family *>(nullptr)); }
    void compact()
    {
        detail::call(perigee_db_compact, get(), static_cast<perigee_family *>(nullptr),
                     static_cast<const perigee_range *>(nullptr));
    }
    void checkpoint(const std::string &directory)
    {
        detail::call(perigee_db_checkpoint, get(), directory.c_str(), static_cast<std::uint64_t *>(nullptr));
    }
    /* Returns the generation. */
    std::uint64_t backup(const std::string &directory)
    {
        std::uint64_t generation = 0;
        detail::call(perigee_db_backup, get(), directory.c_str(), &generation);
        return generation;
    }
    /* Throws the error of the first damaged file. */
    void verify() { detail::call(perigee_db_verify, get(), static_cast<std::uint64_t *>(nullptr)); }
    std::string stats_json() const { return detail::text(perigee_db_stats_json, get()); }
    std::string metrics() const { return detail::text(perigee_db_metrics, get()); }
    perigee_db *get() const noexcept { return handle_.get(); }

private:
    void open(const std::string &path, perigee_options *options)
    {
        detail::call(perigee_db_open, path.c_str(), options, handle_.out());
    }
    template <class Function, class... Arguments> Family family_by(Function function, Arguments... arguments) const
    {
        Family family;
        detail::call(function, get(), arguments..., family.out());
        return family;
    }
    Family create(const std::string &name, perigee_options *options)
    {
        return family_by(perigee_db_create_family, name.c_str(), options);
    }
    Transaction begin(const perigee_transaction_options *options)
    {
        Transaction transaction;
        detail::call(perigee_transaction_begin, get(), options, transaction.out());
        return transaction;
    }
    template <class Work> static auto run(Transaction &transaction, Work &work) -> decltype(work(transaction))
    {
        if constexpr (std::is_void_v<decltype(work(transaction))>) {
            work(transaction);
            transaction.commit();
        } else {
            auto result = work(transaction);
            transaction.commit();
            return result;
        }
    }
    detail::Handle<perigee_db, detail::close> handle_;
};

} // namespace perigee

#endif
