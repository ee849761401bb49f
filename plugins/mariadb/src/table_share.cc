#include "table_share.h"

#include "key_codec.h"
#include "transaction.h"

#include <algorithm>
#include <unordered_map>

namespace perigee {

namespace {

// Shares of all open tables by name.
struct Registry {
  std::mutex mutex;
  std::unordered_map<std::string, TableShare *> shares;
};

Registry &registry() {
  static Registry *instance = new Registry;  // outlives all threads
  return *instance;
}

constexpr uint64_t COUNTED_RECORDS = 20000;  // tables up to this size are counted when they are opened
constexpr uint64_t SAMPLED_GROUPS = 40;      // different values of a key prefix in a sample
constexpr uint64_t COUNTED_GROUP = 100;      // larger groups are estimated from metadata
constexpr uint STATISTICS_VERSION = 1;
constexpr uint64_t FREQUENT_COUNTER_US = 100000;  // writes of an AUTO_INCREMENT counter in this interval double what is stored ahead
constexpr uint64_t COUNTER_AHEAD_MAX = 1023;      // values stored ahead of an AUTO_INCREMENT counter

// A cursor that is closed at the end of the scope.
class OpenCursor {
 public:
  OpenCursor() = default;
  ~OpenCursor() { close(); }
  OpenCursor(const OpenCursor &) = delete;
  OpenCursor &operator=(const OpenCursor &) = delete;
  int open(pgb_table *table, pgb_slice begin, pgb_slice end) {
    close();
    pgb_status status = pgb_cursor_open(nullptr, nullptr, table, begin, end, &m_cursor);
    return status == PGB_OK ? 0 : to_handler_error(status);
  }
  pgb_cursor *get() const { return m_cursor; }

 private:
  void close() {
    if (m_cursor) pgb_cursor_close(m_cursor);
    m_cursor = nullptr;
  }
  pgb_cursor *m_cursor = nullptr;
};

// A pinned value that is released at the end of the scope.
class PinnedValue {
 public:
  PinnedValue() : m_buffer(pgb_buffer_new()) {}
  ~PinnedValue() { pgb_buffer_free(m_buffer); }
  PinnedValue(const PinnedValue &) = delete;
  PinnedValue &operator=(const PinnedValue &) = delete;
  pgb_status get(pgb_table *table, pgb_slice key) { return pgb_get(nullptr, nullptr, table, key, m_buffer, &value); }
  pgb_slice value{nullptr, 0};

 private:
  pgb_buffer *m_buffer;
};

const uchar primary_begin_byte[] = {PRIMARY_INDEX};
const uchar primary_end_byte[] = {PRIMARY_INDEX + 1};
const pgb_slice primary_begin{primary_begin_byte, 1};
const pgb_slice primary_end{primary_end_byte, 1};

void put_double(Bytes *out, double value) {
  float8store(out->room(8), value);
  out->advance(8);
}

}  // namespace

// ---- statistics ----

void TableStatistics::serialize(Bytes *out) const {
  out->clear();
  put_varint(out, STATISTICS_VERSION);
  put_varint(out, records);
  put_varint(out, average_row_size);
  put_varint(out, indexes.size());
  for (const IndexStatistics &index : indexes) {
    put_varint(out, index.name.size());
    out->append(index.name.data(), index.name.size());
    put_varint(out, index.records_per_key.size());
    for (double value : index.records_per_key) put_double(out, value);
  }
}

bool TableStatistics::parse(pgb_slice bytes) {
  const uchar *at = bytes.data, *end = bytes.data + bytes.size;
  uint64_t version, count;
  if (!get_varint(&at, end, &version) || version != STATISTICS_VERSION) return false;
  if (!get_varint(&at, end, &records) || !get_varint(&at, end, &average_row_size)) return false;
  if (!get_varint(&at, end, &count)) return false;
  indexes.clear();
  for (; count > 0; count--) {
    IndexStatistics index;
    uint64_t size, columns;
    if (!get_varint(&at, end, &size) || size > static_cast<uint64_t>(end - at)) return false;
    index.name.assign(reinterpret_cast<const char *>(at), static_cast<size_t>(size));
    at += size;
    if (!get_varint(&at, end, &columns) || columns * 8 > static_cast<uint64_t>(end - at)) return false;
    for (; columns > 0; columns--) {
      double value;
      float8get(value, at);
      index.records_per_key.push_back(value);
      at += 8;
    }
    indexes.push_back(std::move(index));
  }
  analyzed = true;
  return true;
}

// Average number of entries with the same first `columns` columns, from up to `groups` groups (0: all).
static int records_per_prefix(pgb_table *table, const KeyCodec &codec, uint columns, uint64_t groups, double *out) {
  Bytes begin, end, prefix, next;
  codec.begin(&begin);
  codec.end(&end);
  OpenCursor cursor;
  if (int error = cursor.open(table, begin.slice(), end.slice())) return error;
  uint64_t entries = 0, found = 0;
  pgb_slice key, value;
  pgb_status status = pgb_cursor_first(cursor.get(), &key, &value);
  while (status == PGB_OK && (groups == 0 || found < groups)) {
    prefix.assign(pgb_slice{key.data, codec.prefix_size(key, columns)});
    found++;
    uint64_t size = 0;
    for (; status == PGB_OK && starts_with(key, prefix.slice()) && (groups == 0 || size < COUNTED_GROUP); size++)
      status = pgb_cursor_next(cursor.get(), &key, &value);
    if (status == PGB_OK && starts_with(key, prefix.slice())) {
      next.assign(prefix.slice());
      successor(&next);
      uint64_t estimate = 0, bytes = 0;
      status = pgb_estimate_range(table, prefix.slice(), next.slice(), &estimate, &bytes);
      if (status == PGB_OK) status = pgb_cursor_seek(cursor.get(), next.slice(), &key, &value);
      if (estimate > size) size = estimate;
    }
    entries += size;
  }
  if (status != PGB_OK && status != PGB_NOT_FOUND) return to_handler_error(status);
  *out = found ? static_cast<double>(entries) / static_cast<double>(found) : 1.0;
  return 0;
}

// Average size of rows with their keys, from the first rows.
static int average_row_size(pgb_table *table, uint64_t *out) {
  OpenCursor cursor;
  if (int error = cursor.open(table, primary_begin, primary_end)) return error;
  uint64_t rows = 0, bytes = 0;
  pgb_slice key, value;
  pgb_status status = pgb_cursor_first(cursor.get(), &key, &value);
  for (; status == PGB_OK && rows < 1000; rows++) {
    bytes += key.size + value.size;
    status = pgb_cursor_next(cursor.get(), &key, &value);
  }
  *out = rows ? bytes / rows : 0;
  return status == PGB_OK || status == PGB_NOT_FOUND ? 0 : to_handler_error(status);
}

int TableShare::collect_statistics(TABLE *table, uint64_t groups, TableStatistics *out) {
  std::shared_ptr<const TableDefinition> definition = this->definition();
  KeyCodec primary;
  if (table->s->primary_key != MAX_KEY)
    primary.init(table, table->key_info + table->s->primary_key, PRIMARY_INDEX, nullptr);
  else
    primary.init_hidden();
  for (uint i = 0; i < table->s->keys; i++) {
    const KEY *key = table->key_info + i;
    uint8_t number = definition->index_number(key->name.str, key->name.length);
    if (!number) continue;
    KeyCodec codec;
    codec.init(table, key, number, i == table->s->primary_key ? nullptr : &primary);
    IndexStatistics index;
    index.name.assign(key->name.str, key->name.length);
    for (uint columns = 1; columns <= key->user_defined_key_parts; columns++) {
      double value = 1.0;
      bool unique_part = (key->flags & HA_NOSAME) && columns == key->user_defined_key_parts;
      if (!unique_part)
        if (int error = records_per_prefix(m_table, codec, columns, groups, &value)) return error;
      index.records_per_key.push_back(value);
    }
    out->indexes.push_back(std::move(index));
  }
  out->records = records();
  return average_row_size(m_table, &out->average_row_size);
}

std::shared_ptr<const TableStatistics> TableShare::statistics(TABLE *table) {
  std::shared_ptr<const TableStatistics> current;
  {
    std::lock_guard<std::mutex> guard(m_mutex);
    current = m_statistics;
  }
  uint64_t changes = m_changes.load(std::memory_order_relaxed);
  uint64_t since = changes - m_changes_at_sample.load(std::memory_order_relaxed);
  bool outdated = since > 200 && since > records() / 10;
  if (current && (current->analyzed || !outdated)) return current;
  m_changes_at_sample.store(changes, std::memory_order_relaxed);
  auto sampled = std::make_shared<TableStatistics>();
  if (collect_statistics(table, SAMPLED_GROUPS, sampled.get())) return current ? current : sampled;
  std::lock_guard<std::mutex> guard(m_mutex);
  m_statistics = sampled;
  return sampled;
}

int TableShare::analyze(TABLE *table, uint64_t groups) {
  auto collected = std::make_shared<TableStatistics>();
  int error = count_records();
  if (!error) error = collect_statistics(table, groups, collected.get());
  if (error) return error;
  collected->analyzed = true;
  Bytes bytes;
  collected->serialize(&bytes);
  pgb_status status = pgb_put_direct(m_table, statistics_key, bytes.slice(), PGB_NO_SYNC);
  if (status != PGB_OK) return to_handler_error(status);
  m_changes_at_sample.store(m_changes.load());
  std::lock_guard<std::mutex> guard(m_mutex);
  m_statistics = collected;
  return 0;
}

uint64_t TableShare::records() const {
  int64_t records = m_records.load(std::memory_order_relaxed);
  return records > 0 ? static_cast<uint64_t>(records) : 0;
}

int TableShare::count_records() {
  uint64_t entries = 0, bytes = 0;
  pgb_status status = pgb_estimate_range(m_table, primary_begin, primary_end, &entries, &bytes);
  if (status != PGB_OK) return to_handler_error(status);
  if (entries <= COUNTED_RECORDS) {
    OpenCursor cursor;
    if (int error = cursor.open(m_table, primary_begin, primary_end)) return error;
    uint64_t counted = 0;
    pgb_slice key, value;
    status = pgb_cursor_first(cursor.get(), &key, &value);
    for (; status == PGB_OK && counted <= COUNTED_RECORDS; counted++)
      status = pgb_cursor_next(cursor.get(), &key, &value);
    if (status != PGB_OK && status != PGB_NOT_FOUND) return to_handler_error(status);
    if (status == PGB_NOT_FOUND || counted > entries) entries = counted;
  }
  m_records.store(static_cast<int64_t>(entries), std::memory_order_relaxed);
  return 0;
}

// ---- open and close ----

std::string TableShare::family_name(const char *path) {
  if (path[0] == '.' && (path[1] == '/' || path[1] == '\\')) return std::string(path + 2);
  const char *file = path;
  for (const char *p = path; *p; p++)
    if (*p == '/' || *p == '\\') file = p + 1;
  return std::string(temporary_prefix()) + file;
}

int TableShare::acquire(const std::string &name, const TABLE *table, TableShare **out) {
  Registry &all = registry();
  {
    std::lock_guard<std::mutex> guard(all.mutex);
    auto found = all.shares.find(name);
    if (found != all.shares.end()) {
      found->second->retain();
      *out = found->second;
      return 0;
    }
  }
  TableShare *share = new TableShare;
  if (int error = share->open(name, table)) {
    delete share;
    return error;
  }
  std::lock_guard<std::mutex> guard(all.mutex);
  auto inserted = all.shares.emplace(name, share);
  if (!inserted.second) {  // another thread was faster
    delete share;
    share = inserted.first->second;
    share->retain();
  } else {
    share->m_registered = true;
    // Read here, because a share that was released in the meantime may have advanced the counter.
    if (int error = share->read_auto_increment()) {
      all.shares.erase(inserted.first);
      delete share;
      return error;
    }
  }
  *out = share;
  return 0;
}

void TableShare::release() {
  Registry &all = registry();
  std::lock_guard<std::mutex> guard(all.mutex);
  if (m_references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (m_registered) {
    write_auto_increment();
    all.shares.erase(m_name);
  }
  delete this;
}

void TableShare::invalidate(const std::string &name) {
  Registry &all = registry();
  std::lock_guard<std::mutex> guard(all.mutex);
  auto found = all.shares.find(name);
  if (found == all.shares.end()) return;
  found->second->write_auto_increment();
  found->second->m_registered = false;
  all.shares.erase(found);
}

bool TableShare::is_current() {
  std::lock_guard<std::mutex> guard(registry().mutex);
  return m_registered;
}

TableShare::~TableShare() {
  if (m_table) pgb_table_release(m_table);
}

int TableShare::open(const std::string &name, const TABLE *table) {
  m_name = name;
  pgb_status status = pgb_table_open(engine, name.data(), name.size(), &m_table);
  if (status == PGB_TABLE_MISSING || status == PGB_NOT_FOUND) return HA_ERR_NO_SUCH_TABLE;
  if (status != PGB_OK) return to_handler_error(status);
  int error = read_definition(table);
  if (!error) error = read_statistics();
  if (!error) error = count_records();
  if (!error && m_definition->hidden_primary_key) error = find_last_row_id();
  return error;
}

int TableShare::read_definition(const TABLE *table) {
  PinnedValue stored;
  pgb_status status = stored.get(m_table, definition_key);
  auto definition = std::make_shared<TableDefinition>();
  if (status == PGB_OK) {
    if (int error = definition->parse(stored.value)) return error;
    m_definition = definition;
    return 0;
  }
  if (status != PGB_NOT_FOUND) return to_handler_error(status);
  if (!table) return HA_ERR_NO_SUCH_TABLE;
  return write_definition(TableDefinition::for_new_table(table), PGB_SYNC);
}

int TableShare::write_definition(const TableDefinition &definition, pgb_durability durability) {
  Bytes bytes;
  definition.serialize(&bytes);
  pgb_status status = pgb_put_direct(m_table, definition_key, bytes.slice(), durability);
  if (status != PGB_OK) return to_handler_error(status);
  std::lock_guard<std::mutex> guard(m_mutex);
  m_definition = std::make_shared<TableDefinition>(definition);
  return 0;
}

std::shared_ptr<const TableDefinition> TableShare::definition() const {
  std::lock_guard<std::mutex> guard(m_mutex);
  return m_definition;
}

int TableShare::read_statistics() {
  PinnedValue stored;
  pgb_status status = stored.get(m_table, statistics_key);
  if (status == PGB_NOT_FOUND) return 0;
  if (status != PGB_OK) return to_handler_error(status);
  auto statistics = std::make_shared<TableStatistics>();
  if (statistics->parse(stored.value)) m_statistics = statistics;  // else a sample is taken
  return 0;
}

int TableShare::find_last_row_id() {
  OpenCursor cursor;
  if (int error = cursor.open(m_table, primary_begin, primary_end)) return error;
  pgb_slice key, value;
  pgb_status status = pgb_cursor_last(cursor.get(), &key, &value);
  if (status == PGB_NOT_FOUND) return 0;
  if (status != PGB_OK) return to_handler_error(status);
  if (key.size != 9) return HA_ERR_CRASHED;
  m_row_id.store(mi_uint8korr(key.data + 1) + 1);
  return 0;
}

// ---- AUTO_INCREMENT ----

int TableShare::read_auto_increment() {
  PinnedValue stored;
  pgb_status status = stored.get(m_table, auto_increment_key);
  if (status == PGB_NOT_FOUND) return 0;
  if (status != PGB_OK) return to_handler_error(status);
  if (stored.value.size != 8) return HA_ERR_CRASHED;
  const uint64_t counter = mi_uint8korr(stored.value.data);
  m_auto_increment_stored.store(counter, std::memory_order_relaxed);
  raise_auto_increment(counter);
  return 0;
}

uint64_t TableShare::reserve_auto_increment(uint64_t offset, uint64_t increment, uint64_t count) {
  if (increment == 0) increment = 1;
  if (offset == 0 || offset > increment) offset = 1;
  if (count == 0) count = 1;
  uint64_t counter = m_auto_increment.load(std::memory_order_relaxed);
  for (;;) {
    uint64_t first = offset;
    if (counter > offset) {
      uint64_t steps = (counter - offset) / increment + ((counter - offset) % increment ? 1 : 0);
      if (steps > (ULONGLONG_MAX - offset) / increment) return ULONGLONG_MAX;
      first = offset + steps * increment;
    }
    if (first == ULONGLONG_MAX) return first;
    uint64_t next = count > (ULONGLONG_MAX - first) / increment ? ULONGLONG_MAX : first + count * increment;
    // The next value in the sequence of another increment may be less: only what is reserved is skipped.
    if (next != ULONGLONG_MAX) next -= increment - 1;
    if (m_auto_increment.compare_exchange_weak(counter, next, std::memory_order_relaxed)) return first;
  }
}

bool TableShare::raise_auto_increment(uint64_t next) {
  uint64_t counter = m_auto_increment.load(std::memory_order_relaxed);
  while (counter < next)
    if (m_auto_increment.compare_exchange_weak(counter, next, std::memory_order_relaxed)) return true;
  return false;
}

int TableShare::set_auto_increment(uint64_t next) {
  if (next == 0) next = 1;
  m_auto_increment.store(next, std::memory_order_relaxed);
  {
    std::lock_guard<std::mutex> guard(m_auto_increment_mutex);
    m_auto_increment_stored.store(0, std::memory_order_relaxed);
  }
  return write_auto_increment();
}

int TableShare::store_auto_increment(uint64_t value) {
  uchar bytes[8];
  mi_int8store(bytes, value);
  pgb_status status = pgb_put_direct(m_table, auto_increment_key, pgb_slice{bytes, sizeof(bytes)}, PGB_NO_SYNC);
  if (status != PGB_OK) return to_handler_error(status);
  m_auto_increment_stored.store(value, std::memory_order_relaxed);
  return 0;
}

int TableShare::write_auto_increment() {
  std::lock_guard<std::mutex> guard(m_auto_increment_mutex);
  const uint64_t counter = m_auto_increment.load(std::memory_order_relaxed);
  const uint64_t stored = m_auto_increment_stored.load(std::memory_order_relaxed);
  if (counter == stored || (counter == 1 && stored == 0)) return 0;
  return store_auto_increment(counter);
}

int TableShare::cover_auto_increment() {
  const auto covered = [this](uint64_t counter) {
    return counter <= m_auto_increment_stored.load(std::memory_order_relaxed);
  };
  if (covered(m_auto_increment.load(std::memory_order_relaxed))) return 0;
  std::lock_guard<std::mutex> guard(m_auto_increment_mutex);
  const uint64_t counter = m_auto_increment.load(std::memory_order_relaxed);
  if (covered(counter)) return 0;
  const uint64_t now = microsecond_interval_timer();
  const bool frequent = now - m_auto_increment_written_us < FREQUENT_COUNTER_US;
  m_auto_increment_ahead = frequent ? std::min(2 * m_auto_increment_ahead + 1, COUNTER_AHEAD_MAX) : 0;
  m_auto_increment_written_us = now;
  return store_auto_increment(counter + std::min(m_auto_increment_ahead, uint64_t{ULONGLONG_MAX} - counter));
}

}  // namespace perigee
