#include "index_builder.h"

#include "ddl.h"
#include "transaction.h"

namespace perigee {

namespace {

constexpr uint64_t ROWS_BETWEEN_KILL_CHECKS = 1024;

}  // namespace

IndexBuilder::IndexBuilder(handler *file, pgb_table *family, TABLE *altered, const TableDefinition &definition)
    : m_file(file),
      m_thd(altered->in_use),
      m_family(family),
      m_altered(altered),
      m_definition(definition),
      m_buffer(pgb_buffer_new()) {}

IndexBuilder::~IndexBuilder() {
  pgb_buffer_free(m_buffer);
  if (m_state) pgb_snapshot_release(m_state);
}

void IndexBuilder::add_index(KEY *key, uint8_t number) {
  if (m_indexes.empty()) {
    if (m_definition.hidden_primary_key)
      m_primary.init_hidden();
    else
      m_primary.init(m_altered, m_altered->key_info + m_altered->s->primary_key, PRIMARY_INDEX, nullptr);
  }
  std::unique_ptr<NewIndex> index(new NewIndex);
  index->key = key;
  index->codec.init(m_altered, key, number, &m_primary);
  m_indexes.push_back(std::move(index));
}

bool IndexBuilder::report(int error) {
  if (error && !m_thd->is_error()) m_file->print_error(error, MYF(0));
  return true;
}

// Reports that the row in the record buffer of the altered table has the same unique key as another.
int IndexBuilder::report_duplicate(KEY *key) {
  print_keydup_error(m_altered, key, MYF(0));
  return HA_ERR_FOUND_DUPP_KEY;
}

// Calls visit for each row, unpacked into the record buffer, until it returns true. Returns its error or a handler error.
int IndexBuilder::for_each_row(bool (IndexBuilder::*visit)(pgb_slice, int *)) {
  Bytes begin, end;
  m_primary.begin(&begin);
  m_primary.end(&end);
  pgb_cursor *cursor = nullptr;
  int error = report_status("ALTER TABLE", pgb_cursor_open(nullptr, m_state, m_family, begin.slice(), end.slice(), &cursor));
  if (error) return error;
  pgb_slice key, value;
  pgb_status status = pgb_cursor_first(cursor, &key, &value);
  for (uint64_t rows = 0; status == PGB_OK; rows++) {
    m_expiry = pgb_cursor_expiry(cursor);
    error = m_rows.unpack(key, value, m_altered->record[0]);
    if (!error && rows % ROWS_BETWEEN_KILL_CHECKS == 0 && thd_killed(m_thd)) error = HA_ERR_ABORTED_BY_USER;
    if (error || (this->*visit)(key, &error)) break;
    status = pgb_cursor_next(cursor, &key, &value);
  }
  pgb_cursor_close(cursor);
  if (!error && status != PGB_OK && status != PGB_NOT_FOUND) error = report_status("ALTER TABLE", status);
  return error;
}

bool IndexBuilder::load_entries(pgb_slice primary_key, int *error) {
  m_row_count++;
  for (const auto &index : m_indexes) {
    m_key.clear();
    m_value.clear();
    index->codec.encode_entry(m_altered->record[0], primary_key, &m_key, &m_value);
    *error = report_status("ALTER TABLE", pgb_load_put(m_load, m_key.slice(), m_value.slice(), m_expiry));
    if (*error) return true;
  }
  return false;
}

int IndexBuilder::count_entries(const KeyCodec &codec, uint64_t *count) {
  Bytes begin, end;
  codec.begin(&begin);
  codec.end(&end);
  *count = 0;
  pgb_cursor *cursor = nullptr;
  int error = report_status("ALTER TABLE", pgb_cursor_open(nullptr, nullptr, m_family, begin.slice(), end.slice(), &cursor));
  if (error) return error;
  pgb_slice key, value;
  pgb_status status = pgb_cursor_first(cursor, &key, &value);
  while (status == PGB_OK) {
    ++*count;
    if (*count % ROWS_BETWEEN_KILL_CHECKS == 0 && thd_killed(m_thd)) break;
    status = pgb_cursor_next(cursor, &key, &value);
  }
  pgb_cursor_close(cursor);
  if (status == PGB_OK) return HA_ERR_ABORTED_BY_USER;
  return status == PGB_NOT_FOUND ? 0 : report_status("ALTER TABLE", status);
}

// Reports a duplicate if the entry of a unique index for the row in the record buffer belongs to another row.
bool IndexBuilder::check_duplicates(pgb_slice primary_key, int *error) {
  for (const auto &index : m_indexes) {
    m_key.clear();
    m_value.clear();
    if (!index->codec.encode_entry(m_altered->record[0], primary_key, &m_key, &m_value)) continue;
    pgb_slice entry;
    const pgb_status status = pgb_get(nullptr, nullptr, m_family, m_key.slice(), m_buffer, &entry);
    if (status != PGB_OK) {
      *error = status == PGB_NOT_FOUND ? HA_ERR_CRASHED : report_status("ALTER TABLE", status);
      return true;
    }
    m_found_primary.clear();
    const bool valid = index->codec.primary_key_of_entry(m_key.slice(), entry, &m_found_primary);
    if (valid && compare_slices(m_found_primary.slice(), primary_key) == 0) continue;
    *error = report_duplicate(index->key);
    return true;
  }
  return false;
}

// Rows with the same unique key have only one entry after the load: then there are fewer entries than rows.
bool IndexBuilder::verify_unique() {
  bool complete = true;
  for (const auto &index : m_indexes) {
    if (!index->codec.unique()) continue;
    uint64_t count;
    const int error = count_entries(index->codec, &count);
    if (error) return report(error);
    complete &= count == m_row_count;
  }
  if (complete) return false;
  const int error = for_each_row(&IndexBuilder::check_duplicates);
  return error ? report(error) : false;  // rows have expired since they were counted
}

bool IndexBuilder::build() {
  if (m_indexes.empty()) return false;
  // Without a signal: the handler of an altered table is not open.
  m_altered->column_bitmaps_set_no_signal(&m_altered->s->all_set, &m_altered->s->all_set);
  int error = m_rows.init(m_altered, &m_definition, &m_primary);
  if (!error) error = report_status("ALTER TABLE", pgb_snapshot_take(engine, &m_state));
  if (!error) error = report_status("ALTER TABLE", pgb_load_begin(m_family, &m_load));
  if (error) return report(error);
  error = for_each_row(&IndexBuilder::load_entries);
  if (error) {
    pgb_load_abort(m_load);
    return report(error);
  }
  error = report_status("ALTER TABLE", pgb_load_finish(m_load));
  if (error) return report(error);
  return verify_unique();
}

}  // namespace perigee
