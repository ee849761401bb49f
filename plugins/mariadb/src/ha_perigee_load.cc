// Bulk loads: ALTER TABLE by copy and CREATE TABLE ... SELECT write to a table that no other connection sees. A load replaces equal
// keys silently, so that duplicates must be found before.
#include "ha_perigee.h"

#include "ha_perigee_load.h"

using perigee::Bytes;

namespace {

// Keys that were seen since the last part of a load was finished are kept in memory up to this size.
constexpr size_t MAX_SEEN_BYTES = 64 << 20;
constexpr size_t SEEN_OVERHEAD = 64;

}  // namespace

// Begins a load if the statement allows it; else rows are written in the transaction.
int ha_perigee::begin_load() {
  bool reads_while_writing = table->s->long_unique_table || table->s->period.unique_keys;
  if (m_load || m_no_rollback || m_ttl_field || reads_while_writing) return 0;
  pgb_status status = pgb_load_begin(m_share->table(), &m_load);
  if (status != PGB_OK) {
    m_load = nullptr;
    return status_error(status);
  }
  m_load_checks.clear();
  m_loaded_rows = 0;
  for (uint i = 0; i < m_indexes.size(); i++)
    if (m_indexes[i].codec.unique()) m_load_checks.emplace_back(new LoadCheck{i, true, {}, {}, 0});
  return 0;
}

int ha_perigee::end_load(bool commit) {
  pgb_load *load = m_load;
  m_load = nullptr;
  m_load_checks.clear();
  if (!commit) {
    pgb_load_abort(load);
    return 0;
  }
  if (int error = status_error(pgb_load_finish(load))) return error;
  m_share->add_records(static_cast<int64_t>(m_loaded_rows));
  return m_share->write_auto_increment();
}

// Finishes the load so far, so that its keys can be looked up, and begins the next.
int ha_perigee::continue_load() {
  pgb_load *load = m_load;
  m_load = nullptr;
  if (int error = status_error(pgb_load_finish(load))) return error;
  for (std::unique_ptr<LoadCheck> &check : m_load_checks) {
    check->seen.clear();
    check->seen_bytes = 0;
  }
  return status_error(pgb_load_begin(m_share->table(), &m_load));
}

// Finds out whether a key was loaded before. As long as keys ascend, only the last one can be equal.
int ha_perigee::check_load(LoadCheck *check, pgb_slice key, bool *duplicate) {
  *duplicate = false;
  if (check->ascending) {
    int order = check->last.empty() ? 1 : perigee::compare_slices(key, check->last.slice());
    *duplicate = order == 0;
    if (order >= 0) return 0;
    check->ascending = false;
    if (int error = continue_load()) return error;
  } else if (check->seen_bytes > MAX_SEEN_BYTES) {
    if (int error = continue_load()) return error;
  }
  if (check->seen.count(std::string(reinterpret_cast<const char *>(key.data), key.size))) {
    *duplicate = true;
    return 0;
  }
  pgb_slice value;
  pgb_status status = pgb_get(nullptr, nullptr, m_share->table(), key, m_check_buffer, &value);
  *duplicate = status == PGB_OK;
  return status == PGB_OK || status == PGB_NOT_FOUND ? 0 : status_error(status);
}

// Encodes a row and reports a duplicate.
int ha_perigee::check_load_row(const uchar *record) {
  primary_key_of_record(record, &m_new_primary);
  for (uint i = 0; i < m_indexes.size(); i++) {
    Index &index = m_indexes[i];
    index.key.clear();
    index.value.clear();
    if (i == table->s->primary_key) {
      index.key.assign(m_new_primary.slice());
      index.checked = true;
    } else {
      index.checked = index.codec.encode_entry(record, m_new_primary.slice(), &index.key, &index.value);
    }
  }
  for (std::unique_ptr<LoadCheck> &check : m_load_checks) {
    const Index &index = m_indexes[check->index];
    bool duplicate;
    if (!index.checked) continue;  // a column is NULL
    if (int error = check_load(check.get(), index.key.slice(), &duplicate)) return error;
    if (duplicate) return report_duplicate(check->index, pgb_slice{nullptr, 0});
  }
  return 0;
}

int ha_perigee::load_row(const uchar *record) {
  if (int error = check_load_row(record)) return error;
  for (std::unique_ptr<LoadCheck> &check : m_load_checks) {
    const Index &index = m_indexes[check->index];
    if (!index.checked) continue;
    if (check->ascending) {
      check->last.assign(index.key.slice());
    } else {
      check->seen.emplace(reinterpret_cast<const char *>(index.key.data()), index.key.size());
      check->seen_bytes += index.key.size() + SEEN_OVERHEAD;
    }
  }
  m_rows.pack(record, &m_row);
  pgb_status status = pgb_load_put(m_load, m_new_primary.slice(), m_row.slice(), 0);
  for (uint i = 0; i < m_indexes.size() && status == PGB_OK; i++)
    if (i != table->s->primary_key) status = pgb_load_put(m_load, m_indexes[i].key.slice(), m_indexes[i].value.slice(), 0);
  if (status != PGB_OK) return status_error(status);
  m_loaded_rows++;
  return 0;
}
