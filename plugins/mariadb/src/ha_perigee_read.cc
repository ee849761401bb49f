// Index and table scans, positions.
#include "ha_perigee.h"

#include "index_builds.h"

#include <algorithm>

using perigee::Bytes;
using perigee::KeyCodec;

namespace {

// Consistent index_read calls from here on share a cursor over the whole index.
constexpr uint LOOKUPS_WITH_OWN_CURSOR = 2;
// A locking scan that may not read its whole range locks the gaps of this many entries first (with a smaller LIMIT, of so
// many), then of 64 and 256, then of the rest: it must not wait for inserts far behind its rows.
constexpr uint64_t FIRST_CHUNK = 16;
constexpr uint CHUNKS = 3;

}  // namespace

// ---- what a read returns ----

// Must precede every read: takes the read view or the transaction, and chooses the columns.
int ha_perigee::prepare_read() {
  if (m_lock == LockMode::NONE ? !m_read_view : !m_trx) {
    if (int error = begin_read()) return error;
  }
  if (unlikely(m_chosen_columns != table->read_set)) choose_columns();
  return 0;
}

// True if an entry of the scanned index has every column that the statement reads.
bool ha_perigee::entry_is_enough() const {
  if (m_lock != LockMode::NONE || !m_scan.active || is_primary(m_scan_index)) return false;
  const Index &index = m_indexes[m_scan_index];
  const bool keyread_on = keyread < MAX_KEY;
  for (uint i = 0; i < table->s->fields; i++) {
    if (!bitmap_is_set(table->read_set, i) || index.has_column[i]) continue;
    // The server computes virtual columns from others, except in keyread.
    if (keyread_on || m_rows.has_column(i)) return false;
  }
  return true;
}

// Statements that write need whole rows; others only their read set.
void ha_perigee::choose_columns() {
  bool all = m_writes && thd_sql_command(ha_thd()) != SQLCOM_SELECT;
  m_rows.select_columns(all ? nullptr : table->read_set);
  m_entry_is_enough = !all && entry_is_enough();
  m_chosen_columns = table->read_set;
}

void ha_perigee::column_bitmaps_signal() { m_chosen_columns = nullptr; }

// ---- locks ----

// Keeps others from inserting into a range before it is read.
int ha_perigee::lock_gap(pgb_slice begin, pgb_slice end) {
  if (m_lock == LockMode::NONE || !m_locks_gaps) return 0;
  return status_error(pgb_lock_range(m_trx, m_share->table(), begin, end, PGB_LOCK_GAP));
}

// Locks a key for the statement and reads its newest value. *locked_key keeps it for unlock_row.
int ha_perigee::lock_and_get(pgb_slice key, Bytes *locked_key, pgb_buffer *buffer, pgb_slice *value) {
  locked_key->assign(key);
  pgb_lock_mode mode = m_lock == LockMode::EXCLUSIVE ? PGB_LOCK_EXCLUSIVE : PGB_LOCK_SHARED;
  pgb_status status = pgb_get_locked(m_trx, m_share->table(), locked_key->slice(), mode, buffer, value);
  if (likely(status == PGB_OK)) return 0;
  if (status == PGB_NOT_FOUND) {
    if (!m_locks_gaps) pgb_unlock_key(m_trx, m_share->table(), locked_key->slice());
    locked_key->clear();
    return SKIP_ENTRY;
  }
  locked_key->clear();
  if (status == PGB_LOCK_TIMEOUT && m_skip_locked) return SKIP_ENTRY;
  return status_error(status);
}

// With perigee_snapshot_isolation, a locked row must be the one that the transaction's read view shows.
int ha_perigee::check_row_unchanged(pgb_slice primary_key) {
  pgb_snapshot *view = m_transaction->conflict_view();
  if (likely(!view)) return 0;
  uint8_t unchanged = 1;
  pgb_status status = pgb_is_unchanged(view, m_share->table(), primary_key, &unchanged);
  if (status != PGB_OK) return status_error(status);
  if (unchanged) return 0;
  ha_thd()->mark_transaction_to_rollback(true);
  return HA_ERR_RECORD_CHANGED;
}

void ha_perigee::unlock_entry() {
  if (!m_locks_gaps && !m_locked_entry.empty()) pgb_unlock_key(m_trx, m_share->table(), m_locked_entry.slice());
  m_locked_entry.clear();
}

// READ COMMITTED keeps no locks on rows that do not match.
void ha_perigee::unlock_row() {
  if (m_lock == LockMode::NONE || m_locks_gaps || !m_trx) return;
  if (!m_locked_row.empty()) pgb_unlock_key(m_trx, m_share->table(), m_locked_row.slice());
  m_locked_row.clear();
  unlock_entry();
}

// ---- rows ----

// Reads a row by its primary key, which must stay valid as long as the row.
int ha_perigee::read_row(uchar *buf, pgb_slice primary_key) {
  pgb_slice row;
  if (m_lock == LockMode::NONE) {
    pgb_status status = pgb_get(m_trx, m_read_view, m_share->table(), primary_key, m_row_buffer, &row);
    if (unlikely(status != PGB_OK)) return status == PGB_NOT_FOUND ? static_cast<int>(SKIP_ENTRY) : status_error(status);
    m_position = primary_key;
  } else {
    int error = lock_and_get(primary_key, &m_locked_row, m_row_buffer, &row);
    if (!error || (error == SKIP_ENTRY && !m_skip_locked)) {
      if (int conflict = check_row_unchanged(primary_key)) return conflict;
    }
    if (error) return error;
    m_position = m_locked_row.slice();
  }
  m_position_in_entry = false;
  return m_rows.unpack(m_position, row, buf);
}

// Evaluates the pushed index condition on an entry: 0, SKIP_ENTRY or a handler error.
int ha_perigee::check_condition(uchar *buf, pgb_slice key, pgb_slice value) {
  if (!pushed_idx_cond || pushed_idx_cond_keyno != m_scan_index || buf != table->record[0]) return 0;
  if (!m_indexes[m_scan_index].codec.decode_entry(key, value, buf)) return HA_ERR_CRASHED;
  switch (handler_index_cond_check(this)) {
    case CHECK_POS: return 0;
    case CHECK_NEG: return SKIP_ENTRY;
    case CHECK_OUT_OF_RANGE: return HA_ERR_END_OF_FILE;
    case CHECK_ABORTED_BY_USER: return HA_ERR_ABORTED_BY_USER;
    default: return HA_ERR_INTERNAL_ERROR;
  }
}

// Locks an index entry and its row, and reads the row.
int ha_perigee::read_secondary_locked(uchar *buf, pgb_slice key) {
  pgb_slice value;
  if (int error = lock_and_get(key, &m_locked_entry, m_entry_buffer, &value)) return error;
  if (int error = check_condition(buf, m_locked_entry.slice(), value)) {
    if (error == SKIP_ENTRY) unlock_entry();
    return error;
  }
  m_position_buffer.clear();
  if (!m_indexes[m_scan_index].codec.primary_key_of_entry(m_locked_entry.slice(), value, &m_position_buffer))
    return HA_ERR_CRASHED;
  int error = read_row(buf, m_position_buffer.slice());
  if (error == SKIP_ENTRY) unlock_entry();
  return error;
}

// Reads the row of an index entry, or only the entry.
int ha_perigee::read_secondary(uchar *buf, pgb_slice key, pgb_slice value) {
  if (m_lock != LockMode::NONE) return read_secondary_locked(buf, key);
  if (int error = check_condition(buf, key, value)) return error;
  const KeyCodec &codec = m_indexes[m_scan_index].codec;
  if (m_entry_is_enough) {
    m_scan.key = key;
    m_scan.value = value;
    m_position_in_entry = true;
    return codec.decode_entry(key, value, buf) ? 0 : HA_ERR_CRASHED;
  }
  m_position_buffer.clear();
  if (unlikely(!codec.primary_key_of_entry(key, value, &m_position_buffer))) return HA_ERR_CRASHED;
  return read_row(buf, m_position_buffer.slice());
}

// Reads what the cursor found.
int ha_perigee::read_entry(uchar *buf, pgb_slice key, pgb_slice value) {
  if (!is_primary(m_scan_index)) return read_secondary(buf, key, value);
  if (m_lock != LockMode::NONE) return read_row(buf, key);
  m_position = key;
  m_position_in_entry = false;
  return m_rows.unpack(key, value, buf);
}

// ---- cursors ----

void ha_perigee::close_cursor() {
  if (m_scan.cursor) pgb_cursor_close(m_scan.cursor);
  m_scan.cursor = nullptr;
  m_scan.key = m_scan.value = pgb_slice{nullptr, 0};
  m_scan.whole_index = false;
  m_position = pgb_slice{nullptr, 0};
  m_position_in_entry = false;
}

// Opens a cursor over the bounds of the scan, which may have no entries between them. Gaps are locked before.
int ha_perigee::open_cursor(Direction direction) {
  close_cursor();
  m_scan.detached = false;
  m_scan.chunked = false;
  if (unlikely(perigee::compare_slices(m_scan.begin.slice(), m_scan.end.slice()) > 0)) m_scan.end.assign(m_scan.begin.slice());
  if (m_lock != LockMode::NONE && m_locks_gaps) {
    int error = limit_to_chunk(direction);
    if (!error) error = lock_gap(m_scan.begin.slice(), m_scan.end.slice());
    if (error) return error;
  }
  m_scan.view = m_lock == LockMode::NONE ? m_read_view : nullptr;
  return status_error(pgb_cursor_open(m_trx, m_scan.view, m_share->table(), m_scan.begin.slice(), m_scan.end.slice(),
                                      &m_scan.cursor));
}

// True if the statement may end before it has read the range of the scan. A range with an end is read to it, unless there is
// a LIMIT; backward scans find the largest key, or belong to an ORDER BY.
bool ha_perigee::may_end_early(Direction direction) const {
  if (direction == Direction::BACKWARD || statement_limit() != HA_POS_ERROR) return true;
  Bytes end;
  codec_of(m_scan_index).end(&end);
  return perigee::compare_slices(end.slice(), m_scan.end.slice()) == 0;
}

// Rows that the statement reads at most, by its LIMIT; HA_POS_ERROR: all.
ha_rows ha_perigee::statement_limit() const {
  const LEX *lex = ha_thd()->lex;
  if (!lex->first_select_lex()->limit_params.explicit_limit) return HA_POS_ERROR;
  return lex->unit.lim.get_select_limit();
}

// Reduces the bounds of a scan that may end early to the next chunk.
int ha_perigee::limit_to_chunk(Direction direction) {
  const bool forward = direction == Direction::FORWARD;
  if (m_scan.chunks >= CHUNKS || !may_end_early(direction)) return 0;
  uint64_t entries = FIRST_CHUNK << (2 * m_scan.chunks);
  if (m_scan.chunks++ == 0) entries = std::clamp<uint64_t>(statement_limit(), 1, FIRST_CHUNK);
  m_scan.rest.assign(forward ? m_scan.end.slice() : m_scan.begin.slice());
  pgb_cursor *cursor = nullptr;
  pgb_status status =
      pgb_cursor_open(m_trx, nullptr, m_share->table(), m_scan.begin.slice(), m_scan.end.slice(), &cursor);
  pgb_slice key, value;
  if (status == PGB_OK) status = forward ? pgb_cursor_first(cursor, &key, &value) : pgb_cursor_last(cursor, &key, &value);
  for (uint64_t i = 1; status == PGB_OK && i < entries; i++)
    status = forward ? pgb_cursor_next(cursor, &key, &value) : pgb_cursor_prev(cursor, &key, &value);
  if (status == PGB_OK) {
    m_scan.chunked = true;
    m_scan.chunk_direction = direction;
    Bytes &edge = forward ? m_scan.end : m_scan.begin;
    edge.assign(key);
    if (forward) edge.push(0);
  }
  if (cursor) pgb_cursor_close(cursor);
  return status == PGB_NOT_FOUND ? 0 : status_error(status);
}

// Continues behind a chunk. *status is that of its first entry.
int ha_perigee::open_next_chunk(pgb_status *status) {
  const bool forward = m_scan.chunk_direction == Direction::FORWARD;
  if (forward) {
    m_scan.begin.assign(m_scan.end.slice());
    m_scan.end.assign(m_scan.rest.slice());
  } else {
    m_scan.end.assign(m_scan.begin.slice());
    m_scan.begin.assign(m_scan.rest.slice());
  }
  if (int error = open_cursor(m_scan.chunk_direction)) return error;
  *status = forward ? pgb_cursor_first(m_scan.cursor, &m_scan.key, &m_scan.value)
                    : pgb_cursor_last(m_scan.cursor, &m_scan.key, &m_scan.value);
  return 0;
}

// True if the open cursor can be used for any read of the index.
bool ha_perigee::can_reuse_cursor() const {
  return m_scan.cursor && m_scan.whole_index && m_lock == LockMode::NONE && m_scan.view == m_read_view && m_read_view;
}

// Makes the cursor span the whole index.
int ha_perigee::open_whole_index(Direction direction) {
  m_scan.detached = false;
  if (can_reuse_cursor()) return 0;
  codec_of(m_scan_index).begin(&m_scan.begin);
  codec_of(m_scan_index).end(&m_scan.end);
  int error = open_cursor(direction);
  m_scan.whole_index = error == 0;
  return error;
}

int ha_perigee::start_scan(uint index) {
  if (int error = begin_read()) return error;
  if (m_read_view && !is_primary(index) && m_transaction->read_view_epoch() < m_indexes[index].built_at)
    return HA_ERR_TABLE_DEF_CHANGED;
  if (m_scan_index != index) {
    close_cursor();
    m_scan_index = index;
    m_scan.lookups = 0;
  }
  m_scan.active = true;
  m_scan.fresh = true;
  m_scan.detached = true;
  m_scan.unique_read = false;
  m_scan.at_end = false;
  m_scan.chunked = false;
  m_scan.chunks = 0;
  m_scan.within_range = false;
  m_scan.last_key.clear();
  m_scan.limit.clear();
  m_scan.prefix.clear();
  m_chosen_columns = nullptr;
  return 0;
}

// The cursor stays open if the last row may have BLOBs, which are valid until the next read.
void ha_perigee::end_scan() {
  m_scan.active = false;
  m_chosen_columns = nullptr;
  if (!table->s->blob_fields && !can_reuse_cursor()) close_cursor();
}

// Closes the cursor of a scan that HANDLER continues in a later statement.
void ha_perigee::suspend_scan() {
  if (m_scan.cursor && !m_scan.detached) {
    m_scan.last_is_bound = !m_scan.key.data;
    if (m_scan.key.data)
      m_scan.last_key.assign(m_scan.key);
    else
      m_scan.last_key.assign(m_scan.past_end ? m_scan.end.slice() : m_scan.begin.slice());
  }
  close_cursor();
  m_scan.detached = true;
}

// ---- moving ----

// Reads from where the cursor was moved until an entry is for the statement. `same`: only within m_scan.prefix.
int ha_perigee::fetch(uchar *buf, pgb_status status, Direction direction, bool same) {
  for (;;) {
    if (unlikely(status == PGB_NOT_FOUND && m_scan.chunked && m_scan.chunk_direction == direction)) {
      if (int error = open_next_chunk(&status)) return error;
      continue;
    }
    if (unlikely(status != PGB_OK)) {
      m_scan.key = m_scan.value = pgb_slice{nullptr, 0};
      m_scan.past_end = direction == Direction::FORWARD;
      return status == PGB_NOT_FOUND ? HA_ERR_END_OF_FILE : status_error(status);
    }
    if (!m_scan.limit.empty() && perigee::compare_slices(m_scan.key, m_scan.limit.slice()) >= 0) return HA_ERR_END_OF_FILE;
    if (same && !perigee::starts_with(m_scan.key, m_scan.prefix.slice())) return HA_ERR_END_OF_FILE;
    int error = read_entry(buf, m_scan.key, m_scan.value);
    if (likely(error != SKIP_ENTRY)) return error;
    if (thd_kill_level(ha_thd()) != THD_IS_NOT_KILLED) return HA_ERR_ABORTED_BY_USER;
    status = direction == Direction::FORWARD ? pgb_cursor_next(m_scan.cursor, &m_scan.key, &m_scan.value)
                                             : pgb_cursor_prev(m_scan.cursor, &m_scan.key, &m_scan.value);
  }
}

// Reads the next or previous entry.
int ha_perigee::step(uchar *buf, Direction direction, bool same) {
  if (int error = prepare_read()) return error;
  if (unlikely(m_scan.at_end && m_scan.direction != direction && !same)) return scan_whole_index(buf, direction);
  m_scan.direction = direction;
  if (unlikely(!m_scan.cursor || m_scan.detached)) return resume(buf, direction, same);
  pgb_status status = direction == Direction::FORWARD ? pgb_cursor_next(m_scan.cursor, &m_scan.key, &m_scan.value)
                                                      : pgb_cursor_prev(m_scan.cursor, &m_scan.key, &m_scan.value);
  int error = fetch(buf, status, direction, same);
  if (error == HA_ERR_END_OF_FILE && !same) return continue_outside(buf, direction);
  return error;
}

// Continues behind last_key with a new cursor.
int ha_perigee::resume(uchar *buf, Direction direction, bool same) {
  const KeyCodec &codec = codec_of(m_scan_index);
  if (m_scan.last_key.empty()) return scan_whole_index(buf, direction);
  m_scan.begin.clear();
  m_scan.end.clear();
  if (direction == Direction::FORWARD) {
    m_scan.begin.assign(m_scan.last_key.slice());
    if (!m_scan.last_is_bound) m_scan.begin.push(0);
    if (same) {
      m_scan.end.assign(m_scan.prefix.slice());
      perigee::successor(&m_scan.end);
    } else {
      codec.end(&m_scan.end);
    }
  } else {
    codec.begin(&m_scan.begin);
    m_scan.end.assign(m_scan.last_key.slice());
  }
  if (perigee::compare_slices(m_scan.begin.slice(), m_scan.end.slice()) >= 0) {
    m_scan.at_end = !same;
    return HA_ERR_END_OF_FILE;
  }
  if (int error = open_cursor(direction)) return error;
  pgb_status status = direction == Direction::FORWARD ? pgb_cursor_first(m_scan.cursor, &m_scan.key, &m_scan.value)
                                                      : pgb_cursor_last(m_scan.cursor, &m_scan.key, &m_scan.value);
  int error = fetch(buf, status, direction, same);
  m_scan.at_end = error == HA_ERR_END_OF_FILE && !same;
  return error;
}

// The cursor is at its end: continues in the rest of the index, if the statement may want it.
int ha_perigee::continue_outside(uchar *buf, Direction direction) {
  if (m_scan.within_range || !m_scan.limit.empty()) return HA_ERR_END_OF_FILE;
  m_scan.at_end = true;  // unless the rest of the index has entries
  if (m_scan.whole_index) return HA_ERR_END_OF_FILE;
  const KeyCodec &codec = codec_of(m_scan_index);
  if (direction == Direction::FORWARD) {
    m_search.assign(m_scan.end.slice());
    codec.end(&m_scan.end);
    if (perigee::compare_slices(m_search.slice(), m_scan.end.slice()) >= 0) return HA_ERR_END_OF_FILE;
    m_scan.begin.assign(m_search.slice());
  } else {
    m_search.assign(m_scan.begin.slice());
    codec.begin(&m_scan.begin);
    if (perigee::compare_slices(m_search.slice(), m_scan.begin.slice()) <= 0) return HA_ERR_END_OF_FILE;
    m_scan.end.assign(m_search.slice());
  }
  if (int error = open_cursor(direction)) return error;
  pgb_status status = direction == Direction::FORWARD ? pgb_cursor_first(m_scan.cursor, &m_scan.key, &m_scan.value)
                                                      : pgb_cursor_last(m_scan.cursor, &m_scan.key, &m_scan.value);
  int error = fetch(buf, status, direction, false);
  m_scan.at_end = error == HA_ERR_END_OF_FILE;
  return error;
}

// ---- positioning ----

// Encodes the end of the range of read_range_first.
void ha_perigee::encode_end_of_range(Bytes *out) const {
  const KeyCodec &codec = codec_of(m_scan_index);
  out->clear();
  if (!m_scan.range_read || !end_range) {
    codec.end(out);
    return;
  }
  codec.encode_image(end_range->key, end_range->length, out);
  if (end_range->flag != HA_READ_BEFORE_KEY) perigee::successor(out);
}

// Reads the first entry >= m_search. `exact`: only if it starts with m_scan.prefix.
int ha_perigee::seek_forward(uchar *buf, bool exact) {
  bool only_prefix = exact && (!m_scan.range_read || eq_range);
  if (only_prefix) {
    m_bound.assign(m_scan.prefix.slice());
    perigee::successor(&m_bound);
  } else {
    encode_end_of_range(&m_bound);
  }
  pgb_status status;
  m_scan.within_range = m_scan.range_read;
  if (m_lock == LockMode::NONE && ++m_scan.lookups > LOOKUPS_WITH_OWN_CURSOR) {
    if (int error = open_whole_index(Direction::FORWARD)) return error;
    if (m_scan.range_read) m_scan.limit.assign(m_bound.slice());
    status = pgb_cursor_seek(m_scan.cursor, m_search.slice(), &m_scan.key, &m_scan.value);
  } else {
    m_scan.begin.assign(m_search.slice());
    m_scan.end.assign(m_bound.slice());
    if (int error = open_cursor(Direction::FORWARD)) return error;
    status = pgb_cursor_first(m_scan.cursor, &m_scan.key, &m_scan.value);
  }
  return fetch(buf, status, Direction::FORWARD, exact);
}

// Reads the last entry < m_search. `within_prefix`: only if it starts with m_scan.prefix.
int ha_perigee::seek_backward(uchar *buf, bool within_prefix) {
  pgb_status status;
  m_scan.within_range = false;
  if (m_lock == LockMode::NONE && ++m_scan.lookups > LOOKUPS_WITH_OWN_CURSOR) {
    if (int error = open_whole_index(Direction::BACKWARD)) return error;
    status = pgb_cursor_seek_prev(m_scan.cursor, m_search.slice(), &m_scan.key, &m_scan.value);
    if (status == PGB_OK && perigee::compare_slices(m_scan.key, m_search.slice()) >= 0)
      status = pgb_cursor_prev(m_scan.cursor, &m_scan.key, &m_scan.value);
  } else {
    if (within_prefix)
      m_scan.begin.assign(m_scan.prefix.slice());
    else
      codec_of(m_scan_index).begin(&m_scan.begin);
    m_scan.end.assign(m_search.slice());
    if (int error = open_cursor(Direction::BACKWARD)) return error;
    status = pgb_cursor_last(m_scan.cursor, &m_scan.key, &m_scan.value);
  }
  return fetch(buf, status, Direction::BACKWARD, within_prefix);
}

// Reads the row with the whole unique key in m_scan.prefix.
int ha_perigee::read_unique(uchar *buf) {
  m_scan.unique_read = true;
  m_scan.detached = true;
  m_scan.last_key.assign(m_scan.prefix.slice());
  m_scan.last_is_bound = false;
  int error;
  if (is_primary(m_scan_index)) {
    error = read_row(buf, m_scan.last_key.slice());
  } else if (m_lock != LockMode::NONE) {
    error = read_secondary_locked(buf, m_scan.last_key.slice());
  } else {
    pgb_slice value;
    pgb_status status =
        pgb_get(m_trx, m_read_view, m_share->table(), m_scan.last_key.slice(), m_entry_buffer, &value);
    if (status == PGB_NOT_FOUND) return HA_ERR_KEY_NOT_FOUND;
    if (status != PGB_OK) return status_error(status);
    error = read_secondary(buf, m_scan.last_key.slice(), value);
  }
  return error == SKIP_ENTRY ? HA_ERR_KEY_NOT_FOUND : error;
}

// Reads the first or last entry of the index (of the range, if read_range_first runs).
int ha_perigee::scan_whole_index(uchar *buf, Direction direction) {
  m_scan.limit.clear();
  m_scan.unique_read = false;
  m_scan.at_end = false;
  m_scan.chunks = 0;
  m_scan.within_range = m_scan.range_read;
  if (m_scan.range_read && end_range) {
    codec_of(m_scan_index).begin(&m_scan.begin);
    encode_end_of_range(&m_scan.end);
    if (int error = open_cursor(direction)) return error;
  } else if (int error = open_whole_index(direction)) {
    return error;
  }
  pgb_status status = direction == Direction::FORWARD ? pgb_cursor_first(m_scan.cursor, &m_scan.key, &m_scan.value)
                                                      : pgb_cursor_last(m_scan.cursor, &m_scan.key, &m_scan.value);
  return fetch(buf, status, direction, false);
}

// ---- index scans ----

int ha_perigee::index_init(uint index, bool) {
  active_index = index;
  return start_scan(index);
}

int ha_perigee::index_end() {
  end_scan();
  active_index = MAX_KEY;
  return 0;
}

int ha_perigee::index_read_map(uchar *buf, const uchar *key, key_part_map parts, enum ha_rkey_function mode) {
  if (!key) return index_first(buf);
  if (int error = prepare_read()) return error;
  const KeyCodec &codec = codec_of(m_scan_index);
  uint length = calculate_key_len(table, active_index, key, parts);
  m_scan.prefix.clear();
  m_scan.limit.clear();
  m_scan.unique_read = false;
  m_scan.at_end = false;
  m_scan.chunks = 0;
  bool has_null = codec.encode_image(key, length, &m_scan.prefix);
  bool exact = mode == HA_READ_KEY_EXACT || mode == HA_READ_PREFIX;
  if (exact && codec.unique() && !has_null && length == table->key_info[m_scan_index].key_length) return read_unique(buf);
  m_search.assign(m_scan.prefix.slice());
  int error;
  switch (mode) {
    case HA_READ_KEY_EXACT:
    case HA_READ_PREFIX:
    case HA_READ_KEY_OR_NEXT: error = seek_forward(buf, exact); break;
    case HA_READ_AFTER_KEY:
      perigee::successor(&m_search);
      error = seek_forward(buf, false);
      break;
    case HA_READ_BEFORE_KEY: error = seek_backward(buf, false); break;
    case HA_READ_KEY_OR_PREV:
    case HA_READ_PREFIX_LAST_OR_PREV:
    case HA_READ_PREFIX_LAST:
      perigee::successor(&m_search);
      error = seek_backward(buf, mode == HA_READ_PREFIX_LAST);
      break;
    default: error = HA_ERR_WRONG_COMMAND;
  }
  return error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error;
}

int ha_perigee::index_read_last_map(uchar *buf, const uchar *key, key_part_map parts) {
  return index_read_map(buf, key, parts, HA_READ_PREFIX_LAST);
}

int ha_perigee::index_next(uchar *buf) { return step(buf, Direction::FORWARD, false); }

int ha_perigee::index_prev(uchar *buf) { return step(buf, Direction::BACKWARD, false); }

int ha_perigee::index_next_same(uchar *buf, const uchar *, uint) {
  if (m_scan.unique_read) return HA_ERR_END_OF_FILE;
  return step(buf, Direction::FORWARD, true);
}

int ha_perigee::index_first(uchar *buf) {
  if (int error = prepare_read()) return error;
  return scan_whole_index(buf, Direction::FORWARD);
}

int ha_perigee::index_last(uchar *buf) {
  if (int error = prepare_read()) return error;
  return scan_whole_index(buf, Direction::BACKWARD);
}

// Reads the first row of a range. The range bounds the cursor, so that no row has to be compared with its end.
int ha_perigee::read_range_first(const key_range *start, const key_range *end, bool eq_range_arg, bool) {
  eq_range = eq_range_arg;
  set_end_range(end);
  range_key_part = table->key_info[active_index].key_part;
  m_scan.range_read = true;
  int error = start ? ha_index_read_map(table->record[0], start->key, start->keypart_map, start->flag)
                    : ha_index_first(table->record[0]);
  m_scan.range_read = false;
  return error == HA_ERR_KEY_NOT_FOUND ? HA_ERR_END_OF_FILE : error;
}

int ha_perigee::read_range_next() {
  if (eq_range) return ha_index_next_same(table->record[0], end_range->key, end_range->length);
  return ha_index_next(table->record[0]);
}

// Takes a condition on columns of an index, if its entries contain them.
Item *ha_perigee::idx_cond_push(uint index, Item *condition) {
  if (index == table->s->primary_key) return condition;
  for (uint i = 0; i < table->s->fields; i++)
    if (table->field[i]->part_of_key.is_set(index) && !m_indexes[index].has_column[i]) return condition;
  pushed_idx_cond = condition;
  pushed_idx_cond_keyno = index;
  in_range_check_pushed_down = true;
  return nullptr;
}

// ---- table scans and positions ----

int ha_perigee::rnd_init(bool scan) {
  if (scan) return start_scan(MAX_KEY);
  m_chosen_columns = nullptr;
  return 0;
}

int ha_perigee::rnd_end() {
  if (m_scan.active) end_scan();
  return 0;
}

int ha_perigee::rnd_next(uchar *buf) {
  if (!m_scan.fresh) return step(buf, Direction::FORWARD, false);
  m_scan.fresh = false;
  if (int error = prepare_read()) return error;
  return scan_whole_index(buf, Direction::FORWARD);
}

// Returns the primary key of the last row that was read; NULL data if there is none.
pgb_slice ha_perigee::current_primary_key() {
  if (m_position_in_entry) {
    m_position_buffer.clear();
    if (!m_indexes[m_scan_index].codec.primary_key_of_entry(m_scan.key, m_scan.value, &m_position_buffer))
      return pgb_slice{nullptr, 0};
    m_position = m_position_buffer.slice();
    m_position_in_entry = false;
  }
  return m_position;
}

void ha_perigee::store_position(pgb_slice primary_key, uchar *to) const {
  size_t size = primary_key.size - 1;
  uchar *at = to;
  if (!m_primary->fixed_size()) {
    int2store(at, size);
    at += 2;
  }
  memcpy(at, primary_key.data + 1, size);
  at += size;
  if (at < to + ref_length) memset(at, 0, static_cast<size_t>(to + ref_length - at));
}

void ha_perigee::position(const uchar *record) {
  pgb_slice primary_key = current_primary_key();
  if (!primary_key.data) {
    m_position_buffer.clear();
    if (m_primary->hidden()) return;
    m_primary->encode_record(record, &m_position_buffer);
    primary_key = m_position_buffer.slice();
  }
  store_position(primary_key, ref);
}

int ha_perigee::rnd_pos(uchar *buf, uchar *pos) {
  if (int error = prepare_read()) return error;
  size_t size = m_primary->fixed_size();
  if (!size) {
    size = uint2korr(pos);
    pos += 2;
  }
  m_position_buffer.clear();
  m_position_buffer.push(perigee::PRIMARY_INDEX);
  m_position_buffer.append(pos, size);
  int error = read_row(buf, m_position_buffer.slice());
  return error == SKIP_ENTRY ? HA_ERR_KEY_NOT_FOUND : error;
}

int ha_perigee::cmp_ref(const uchar *a, const uchar *b) {
  size_t size = m_primary->fixed_size();
  if (size) return memcmp(a, b, size);
  return perigee::compare_slices(pgb_slice{a + 2, uint2korr(a)}, pgb_slice{b + 2, uint2korr(b)});
}
