// Inserts, updates and deletes. All duplicates are found before anything is written, so that a row that is refused leaves nothing
// behind.
#include "ha_perigee.h"

using perigee::Bytes;
using perigee::KeyCodec;

// ---- keys and duplicates ----

// Encodes the primary key of a record; of a table without one: takes the next row id.
void ha_perigee::primary_key_of_record(const uchar *record, Bytes *out) {
  out->clear();
  if (!m_primary->hidden()) {
    m_primary->encode_record(record, out);
    return;
  }
  uchar key[9];
  key[0] = perigee::PRIMARY_INDEX;
  uint64_t id = m_share->next_row_id();
  mi_int8store(key + 1, id);
  out->append(key, sizeof(key));
}

// Notes which key has a duplicate and where (HA_DUPLICATE_POS).
int ha_perigee::report_duplicate(uint index, pgb_slice primary_key) {
  m_error_key = errkey = index;
  if (dup_ref && primary_key.size) store_position(primary_key, dup_ref);
  return HA_ERR_FOUND_DUPP_KEY;
}

// Locks a primary key that is to be inserted, and reports a row that has it.
int ha_perigee::check_primary(pgb_slice key) {
  pgb_slice row;
  pgb_status status = pgb_get_locked(m_trx, m_share->table(), key, PGB_LOCK_INSERT, m_check_buffer, &row);
  if (likely(status == PGB_NOT_FOUND)) return 0;
  return status == PGB_OK ? report_duplicate(table->s->primary_key, key) : status_error(status);
}

// Locks the new entry of a unique index, and reports a row that has the key.
int ha_perigee::check_unique(uint index) {
  pgb_slice key = m_indexes[index].key.slice(), value;
  pgb_status status = pgb_get_locked(m_trx, m_share->table(), key, PGB_LOCK_INSERT, m_check_buffer, &value);
  if (likely(status == PGB_NOT_FOUND)) return 0;
  if (status != PGB_OK) return status_error(status);
  Bytes owner;
  if (!m_indexes[index].codec.primary_key_of_entry(key, value, &owner)) return HA_ERR_CRASHED;
  return report_duplicate(index, owner.slice());
}

// When a row expires, in milliseconds since 1970: by the TTL column. 0: by the table's TTL, or never.
uint64_t ha_perigee::expiry_of(const uchar *record) const {
  if (likely(!m_ttl_field)) return 0;
  my_ptrdiff_t difference = record - table->record[0];
  m_ttl_field->move_field_offset(difference);
  uint64_t milliseconds = 0;
  if (!m_ttl_field->is_null()) {
    MYSQL_TIME time;
    if (m_ttl_field->cmp_type() != TIME_RESULT) {
      longlong seconds = m_ttl_field->val_int();
      milliseconds = seconds > 0 ? static_cast<uint64_t>(seconds) * 1000 : 1;
    } else if (!m_ttl_field->get_date(&time, date_mode_t(0))) {
      uint error = 0;
      my_time_t seconds = TIME_to_timestamp(ha_thd(), &time, &error);
      milliseconds = static_cast<uint64_t>(seconds) * 1000 + time.second_part / 1000;
      if (milliseconds == 0) milliseconds = 1;
    }
  }
  m_ttl_field->move_field_offset(-difference);
  return milliseconds;
}

// Raises the AUTO_INCREMENT counter above the value in a record.
void ha_perigee::note_auto_increment_value(const uchar *record) {
  Field *field = table->found_next_number_field;
  if (!field) return;
  my_ptrdiff_t difference = record - table->record[0];
  field->move_field_offset(difference);
  longlong value = field->is_real_null() ? 0 : field->val_int();
  field->move_field_offset(-difference);
  bool positive = value > 0 || (value < 0 && (field->flags & UNSIGNED_FLAG));
  if (!positive) return;
  uint64_t next = static_cast<uint64_t>(value);
  if (next != ULONGLONG_MAX) next++;
  if (m_share->raise_auto_increment(next) && m_transaction && !m_load && !m_no_rollback)
    m_transaction->note_auto_increment(m_share);
}

// Records during an index build that the transaction has written a row, which it has locked.
int ha_perigee::log_change(pgb_slice primary_key) {
  if (likely(!m_share->logs_changes())) return 0;
  uchar number[8];
  mi_int8store(number, m_share->next_change_number());
  m_change_key.clear();
  m_change_key.push(perigee::CHANGE_LOG_INDEX);
  m_change_key.append(primary_key.data + 1, primary_key.size - 1);
  const pgb_slice value{number, sizeof(number)};
  return status_error(pgb_trx_put_locked(m_trx, m_share->table(), m_change_key.slice(), value, PGB_NEVER));
}

// ---- insert ----

// Writes an entry of a secondary index. check_unique() has locked its key if it must be unique.
int ha_perigee::put_entry(const Index &index) {
  pgb_slice key = index.key.slice(), value = index.value.slice();
  pgb_status status = index.checked
                          ? pgb_trx_put_locked(m_trx, m_share->table(), key, value, m_expiry)
                          : pgb_trx_put(m_trx, m_share->table(), key, value, m_expiry);
  return status_error(status);
}

int ha_perigee::insert_row(const uchar *record) {
  primary_key_of_record(record, &m_new_primary);
  bool hidden = m_primary->hidden();
  if (!hidden)
    if (int error = check_primary(m_new_primary.slice())) return error;
  for (uint i = 0; i < m_indexes.size(); i++) {
    if (i == table->s->primary_key) continue;
    Index &index = m_indexes[i];
    index.key.clear();
    index.value.clear();
    index.checked = index.codec.encode_entry(record, m_new_primary.slice(), &index.key, &index.value);
    if (index.checked)
      if (int error = check_unique(i)) return error;
  }
  m_expiry = expiry_of(record);
  m_rows.pack(record, &m_row);
  pgb_slice key = m_new_primary.slice(), row = m_row.slice();
  pgb_status status = hidden ? pgb_trx_put(m_trx, m_share->table(), key, row, m_expiry)
                             : pgb_trx_put_locked(m_trx, m_share->table(), key, row, m_expiry);
  if (status != PGB_OK) return status_error(status);
  for (uint i = 0; i < m_indexes.size(); i++) {
    if (i == table->s->primary_key) continue;
    if (int error = put_entry(m_indexes[i])) return error;
  }
  m_position = m_new_primary.slice();
  m_position_in_entry = false;
  return log_change(key);
}

int ha_perigee::write_row(const uchar *buf) {
  if (table->next_number_field && buf == table->record[0]) {
    if (int error = update_auto_increment()) return error;
    if (m_reserved_rows) m_reserved_rows--;
  }
  int error;
  if (m_load) {
    error = load_row(buf);
  } else if (m_no_rollback) {
    primary_key_of_record(buf, &m_new_primary);
    error = write_without_rollback(buf, m_new_primary.slice());
  } else {
    error = begin_write();
    if (!error) error = insert_row(buf);
  }
  if (error) return error;
  note_auto_increment_value(buf);
  if (!m_load) m_share->add_records(1);
  return 0;
}

// Writes the row of a SEQUENCE: outside of the transaction, so that a rollback does not give numbers out twice.
int ha_perigee::write_without_rollback(const uchar *record, pgb_slice primary_key) {
  m_rows.pack(record, &m_row);
  return status_error(pgb_put_direct(m_share->table(), primary_key, m_row.slice(), PGB_NO_SYNC));
}

// ---- update ----

// Encodes the entries that change, and looks for duplicates of the new row.
int ha_perigee::prepare_update(const uchar *old_data, const uchar *new_data, bool moved) {
  if (moved)
    if (int error = check_primary(m_new_primary.slice())) return error;
  for (uint i = 0; i < m_indexes.size(); i++) {
    Index &index = m_indexes[i];
    index.changed = false;
    if (i == table->s->primary_key) continue;
    if (!moved && !m_ttl_field && index.codec.same_columns(old_data, new_data)) continue;
    index.key.clear();
    index.value.clear();
    index.old_key.clear();
    m_old_value.clear();
    index.codec.encode_entry(old_data, m_old_primary.slice(), &index.old_key, &m_old_value);
    index.checked = index.codec.encode_entry(new_data, m_new_primary.slice(), &index.key, &index.value);
    bool same_key = perigee::compare_slices(index.key.slice(), index.old_key.slice()) == 0;
    if (same_key && !m_ttl_field && perigee::compare_slices(index.value.slice(), m_old_value.slice()) == 0) continue;
    index.changed = true;
    if (same_key) {  // the key exists: gap locks of others do not matter
      index.old_key.clear();
      pgb_status status = pgb_lock_key(m_trx, m_share->table(), index.key.slice(), PGB_LOCK_EXCLUSIVE);
      if (status != PGB_OK) return status_error(status);
      index.checked = true;
    } else if (index.checked) {
      if (int error = check_unique(i)) return error;
    }
  }
  return 0;
}

int ha_perigee::apply_update(const uchar *new_data, bool moved) {
  m_expiry = expiry_of(new_data);
  m_rows.pack(new_data, &m_row);
  pgb_status status = PGB_OK;
  if (moved) status = pgb_trx_delete_locked(m_trx, m_share->table(), m_old_primary.slice());
  if (status == PGB_OK)
    status = pgb_trx_put_locked(m_trx, m_share->table(), m_new_primary.slice(), m_row.slice(), m_expiry);
  if (status != PGB_OK) return status_error(status);
  for (const Index &index : m_indexes) {
    if (!index.changed) continue;
    if (!index.old_key.empty()) {
      status = pgb_trx_delete(m_trx, m_share->table(), index.old_key.slice());
      if (status != PGB_OK) return status_error(status);
    }
    if (int error = put_entry(index)) return error;
  }
  if (moved)
    if (int error = log_change(m_old_primary.slice())) return error;
  return log_change(m_new_primary.slice());
}

// Updates the row that was read last. It is locked, because statements that write lock what they read.
int ha_perigee::update_row(const uchar *old_data, const uchar *new_data) {
  pgb_slice current = current_primary_key();
  if (m_no_rollback) return current.data ? write_without_rollback(new_data, current) : HA_ERR_CRASHED;
  if (int error = begin_write()) return error;
  if (m_primary->hidden()) {
    if (!current.data) return HA_ERR_WRONG_COMMAND;
    m_old_primary.assign(current);
  } else {
    primary_key_of_record(old_data, &m_old_primary);
  }
  bool same_key = m_primary->hidden() || m_primary->same_columns(old_data, new_data);
  if (same_key && !m_ttl_field && m_rows.same_values(old_data, new_data)) return HA_ERR_RECORD_IS_THE_SAME;
  if (same_key)
    m_new_primary.assign(m_old_primary.slice());
  else
    primary_key_of_record(new_data, &m_new_primary);
  bool moved = perigee::compare_slices(m_old_primary.slice(), m_new_primary.slice()) != 0;
  int error = prepare_update(old_data, new_data, moved);
  if (!error) error = apply_update(new_data, moved);
  if (error) return error;
  if (moved) m_position = m_new_primary.slice();
  if (table->found_next_number_field) note_auto_increment_value(new_data);
  return 0;
}

// ---- delete ----

// Deletes the row that was read last, which is locked.
int ha_perigee::delete_row(const uchar *buf) {
  if (int error = begin_write()) return error;
  if (m_primary->hidden()) {
    pgb_slice current = current_primary_key();
    if (!current.data) return HA_ERR_WRONG_COMMAND;
    m_old_primary.assign(current);
  } else {
    primary_key_of_record(buf, &m_old_primary);
  }
  pgb_status status = pgb_trx_delete_locked(m_trx, m_share->table(), m_old_primary.slice());
  if (status != PGB_OK) return status_error(status);
  for (uint i = 0; i < m_indexes.size(); i++) {
    if (i == table->s->primary_key) continue;
    m_old_key.clear();
    m_old_value.clear();
    m_indexes[i].codec.encode_entry(buf, m_old_primary.slice(), &m_old_key, &m_old_value);
    status = pgb_trx_delete(m_trx, m_share->table(), m_old_key.slice());
    if (status != PGB_OK) return status_error(status);
  }
  if (int error = log_change(m_old_primary.slice())) return error;
  m_share->add_records(-1);
  return 0;
}
