// CHECK TABLE: rows can be read, and every row has its entry in every index. EXTENDED also looks up the row of each entry.
#include "ha_perigee.h"

#include <stdarg.h>

using perigee::Bytes;
using perigee::KeyCodec;

// Reports damage as a warning of the statement and in the error log.
int ha_perigee::report_damage(THD *thd, const char *format, ...) {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  my_vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "PERIGEE: %s", text);
  sql_print_error("PERIGEE: table %s: %s", m_share->name().c_str(), text);
  return HA_ADMIN_CORRUPT;
}

// Unpacks a row and looks up its index entries.
int ha_perigee::check_row(pgb_slice key, pgb_slice row, bool extended) {
  uchar *record = table->record[0];
  if (m_rows.unpack(key, row, record)) return report_damage(ha_thd(), "a row of the primary index cannot be read");
  if (!m_primary->hidden()) {
    primary_key_of_record(record, &m_new_primary);
    if (perigee::compare_slices(m_new_primary.slice(), key)) return report_damage(ha_thd(), "a row has a wrong primary key");
  }
  for (uint i = 0; extended && i < m_indexes.size(); i++) {
    if (i == table->s->primary_key) continue;
    Index &index = m_indexes[i];
    index.key.clear();
    index.value.clear();
    index.codec.encode_entry(record, key, &index.key, &index.value);
    pgb_slice value;
    pgb_status status = pgb_get(m_trx, m_read_view, m_share->table(), index.key.slice(), m_check_buffer, &value);
    if (status != PGB_OK && status != PGB_NOT_FOUND) return HA_ADMIN_FAILED;
    if (status == PGB_NOT_FOUND) return report_damage(ha_thd(), "index %s lacks the entry of a row", table->key_info[i].name.str);
    if (perigee::compare_slices(value, index.value.slice()))
      return report_damage(ha_thd(), "index %s has a wrong entry for a row", table->key_info[i].name.str);
  }
  return HA_ADMIN_OK;
}

int ha_perigee::check_rows(THD *thd, bool extended, uint64_t *rows) {
  m_scan_index = MAX_KEY;
  m_primary->begin(&m_scan.begin);
  m_primary->end(&m_scan.end);
  if (open_cursor(Direction::FORWARD)) return HA_ADMIN_FAILED;
  pgb_slice key, row;
  pgb_status status = pgb_cursor_first(m_scan.cursor, &key, &row);
  for (; status == PGB_OK; status = pgb_cursor_next(m_scan.cursor, &key, &row)) {
    if (thd_kill_level(thd) != THD_IS_NOT_KILLED) return HA_ADMIN_FAILED;
    int result = check_row(key, row, extended);
    if (result != HA_ADMIN_OK) return result;
    ++*rows;
  }
  if (status == PGB_NOT_FOUND) return HA_ADMIN_OK;
  return status == PGB_CORRUPTION ? report_damage(thd, "%s", pgb_last_error()) : static_cast<int>(HA_ADMIN_FAILED);
}

// Looks up the row of an index entry, and encodes the entry again.
int ha_perigee::check_entry(uint index_number, pgb_slice key, pgb_slice value) {
  Index &index = m_indexes[index_number];
  const char *name = table->key_info[index_number].name.str;
  m_old_primary.clear();
  if (!index.codec.primary_key_of_entry(key, value, &m_old_primary))
    return report_damage(ha_thd(), "index %s has an entry that cannot be read", name);
  pgb_slice row;
  pgb_status status = pgb_get(m_trx, m_read_view, m_share->table(), m_old_primary.slice(), m_row_buffer, &row);
  if (status == PGB_NOT_FOUND) return report_damage(ha_thd(), "index %s has an entry without a row", name);
  if (status != PGB_OK) return HA_ADMIN_FAILED;
  if (m_rows.unpack(m_old_primary.slice(), row, table->record[0]))
    return report_damage(ha_thd(), "a row of the primary index cannot be read");
  index.key.clear();
  index.value.clear();
  index.codec.encode_entry(table->record[0], m_old_primary.slice(), &index.key, &index.value);
  if (perigee::compare_slices(key, index.key.slice()))
    return report_damage(ha_thd(), "index %s has an entry that does not belong to its row", name);
  return HA_ADMIN_OK;
}

int ha_perigee::check_index(THD *thd, uint index, bool extended, uint64_t rows) {
  m_scan_index = index;
  const KeyCodec &codec = codec_of(index);
  codec.begin(&m_scan.begin);
  codec.end(&m_scan.end);
  if (open_cursor(Direction::FORWARD)) return HA_ADMIN_FAILED;
  uint64_t entries = 0;
  pgb_slice key, value;
  pgb_status status = pgb_cursor_first(m_scan.cursor, &key, &value);
  for (; status == PGB_OK; status = pgb_cursor_next(m_scan.cursor, &key, &value)) {
    if (thd_kill_level(thd) != THD_IS_NOT_KILLED) return HA_ADMIN_FAILED;
    entries++;
    int result = extended ? check_entry(index, key, value) : static_cast<int>(HA_ADMIN_OK);
    if (result != HA_ADMIN_OK) return result;
  }
  if (status == PGB_CORRUPTION) return report_damage(thd, "%s", pgb_last_error());
  if (status != PGB_NOT_FOUND) return HA_ADMIN_FAILED;
  if (entries != rows)
    return report_damage(thd, "index %s has %llu entries, but the table has %llu rows", table->key_info[index].name.str,
                         static_cast<ulonglong>(entries), static_cast<ulonglong>(rows));
  return HA_ADMIN_OK;
}

int ha_perigee::check(THD *thd, HA_CHECK_OPT *options) {
  if (options->flags & T_QUICK) return HA_ADMIN_OK;
  if (begin_read()) return HA_ADMIN_FAILED;
  m_rows.select_columns(nullptr);
  m_chosen_columns = nullptr;
  bool extended = (options->flags & T_EXTEND) != 0;
  uint64_t rows = 0;
  // Rows with a time to live may expire between the scans.
  int result = check_rows(thd, extended, &rows);
  for (uint i = 0; result == HA_ADMIN_OK && i < m_indexes.size(); i++)
    if (i != table->s->primary_key) result = check_index(thd, i, extended, rows);
  close_cursor();
  return result;
}
