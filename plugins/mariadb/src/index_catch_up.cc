// Catching up with the rows that were written during an index build.
//
// The entries of the new indexes are exactly those of the rows in m_state. Each transaction has recorded the rows that it
// wrote in the change log, in the same commit: the records that are in the log of m_next_state, but not with the same number
// in that of m_state, are the rows that may differ between the two states. Nothing else writes to the new indexes.
#include "index_builder.h"

#include "ddl.h"
#include "transaction.h"

namespace perigee {

namespace {

constexpr uint64_t WRITES_IN_BATCH = 1000;
constexpr uint64_t CHANGES_BETWEEN_KILL_CHECKS = 256;

// A cursor over the change log in one state.
class ChangeCursor {
 public:
  ~ChangeCursor() {
    if (m_cursor) pgb_cursor_close(m_cursor);
  }
  int open(pgb_table *family, pgb_snapshot *state) {
    const uchar begin[] = {CHANGE_LOG_INDEX}, end[] = {CHANGE_LOG_INDEX + 1};
    m_status = pgb_cursor_open(nullptr, state, family, {begin, 1}, {end, 1}, &m_cursor);
    if (m_status == PGB_OK) m_status = pgb_cursor_first(m_cursor, &key, &number);
    return error();
  }
  int next() {
    m_status = pgb_cursor_next(m_cursor, &key, &number);
    return error();
  }
  bool at_end() const { return m_status != PGB_OK; }

  pgb_slice key{nullptr, 0};
  pgb_slice number{nullptr, 0};

 private:
  int error() const { return m_status == PGB_NOT_FOUND ? 0 : report_status("ALTER TABLE", m_status); }
  pgb_cursor *m_cursor = nullptr;
  pgb_status m_status = PGB_OK;
};

// Moves `before` to the key of `now`, and returns whether both have the same record.
int is_same_record(const ChangeCursor &now, ChangeCursor *before, bool *same) {
  int order = -1;
  while (!before->at_end() && (order = compare_slices(before->key, now.key)) < 0) {
    if (int error = before->next()) return error;
  }
  *same = !before->at_end() && order == 0 && compare_slices(before->number, now.number) == 0;
  return 0;
}

}  // namespace

// Calls visit for each row that was written between the two states.
int IndexBuilder::for_each_change(int (IndexBuilder::*visit)(pgb_slice), uint64_t *changes) {
  ChangeCursor now, before;
  int error = now.open(m_family, m_next_state);
  if (!error) error = before.open(m_family, m_state);
  *changes = 0;
  while (!error && !now.at_end()) {
    bool same = false;
    error = is_same_record(now, &before, &same);
    if (!error && !same) {
      m_changed_row.clear();
      m_changed_row.push(PRIMARY_INDEX);
      m_changed_row.append(now.key.data + 1, now.key.size - 1);
      error = (this->*visit)(m_changed_row.slice());
      if (!error) error = commit_batch(WRITES_IN_BATCH);
      if (++*changes % CHANGES_BETWEEN_KILL_CHECKS == 0 && !error && thd_killed(m_thd)) error = HA_ERR_ABORTED_BY_USER;
    }
    if (!error) error = now.next();
  }
  return error ? error : commit_batch(1);
}

// Commits the writes so far, if there are enough. They become durable with the new definition, which follows in the log.
int IndexBuilder::commit_batch(uint64_t least_writes) {
  if (pgb_trx_writes(m_trx) < least_writes) return 0;
  return report_status("ALTER TABLE", pgb_trx_commit(m_trx, PGB_NO_SYNC));
}

// Unpacks a row of a state into the record buffer. A row that has expired is not found; its entries have expired, too.
int IndexBuilder::read_row(pgb_snapshot *state, pgb_slice primary_key, bool *found) {
  pgb_slice row;
  const pgb_status status =
      pgb_get_with_expiry(state, m_family, primary_key, m_buffer, &row, &m_expiry);
  *found = status == PGB_OK;
  if (status == PGB_NOT_FOUND) return 0;
  if (status != PGB_OK) return report_status("ALTER TABLE", status);
  return m_rows.unpack(primary_key, row, m_altered->record[0]);
}

// Encodes the entries of a row in both states; the record buffer then has the new row, if there is one.
int IndexBuilder::encode_change(pgb_slice primary_key) {
  const uchar *record = m_altered->record[0];
  if (int error = read_row(m_state, primary_key, &m_had_row)) return error;
  for (const auto &index : m_indexes) {
    index->old_key.clear();
    index->old_value.clear();
    if (m_had_row) index->codec.encode_entry(record, primary_key, &index->old_key, &index->old_value);
  }
  m_old_expiry = m_expiry;
  if (int error = read_row(m_next_state, primary_key, &m_has_row)) return error;
  for (const auto &index : m_indexes) {
    index->new_key.clear();
    index->new_value.clear();
    index->checked = m_has_row && index->codec.encode_entry(record, primary_key, &index->new_key, &index->new_value);
  }
  return 0;
}

int IndexBuilder::delete_old_entries(pgb_slice primary_key) {
  if (int error = encode_change(primary_key)) return error;
  if (!m_had_row) return 0;
  for (const auto &index : m_indexes) {
    if (m_has_row && compare_slices(index->old_key.slice(), index->new_key.slice()) == 0) continue;
    const pgb_status status = pgb_trx_delete_locked(m_trx, m_family, index->old_key.slice());
    if (status != PGB_OK) return report_status("ALTER TABLE", status);
  }
  return 0;
}

// The old entries of all changed rows are deleted: an entry that is left belongs to a row that still has the key.
int IndexBuilder::check_unique(const NewIndex &index, pgb_slice primary_key) {
  pgb_slice entry;
  const pgb_status status = pgb_get(m_trx, nullptr, m_family, index.new_key.slice(), m_buffer, &entry);
  if (status == PGB_NOT_FOUND) return 0;
  if (status != PGB_OK) return report_status("ALTER TABLE", status);
  m_found_primary.clear();
  if (!index.codec.primary_key_of_entry(index.new_key.slice(), entry, &m_found_primary)) return HA_ERR_CRASHED;
  if (compare_slices(m_found_primary.slice(), primary_key) == 0) return 0;
  bool found;  // the buffer pinned the BLOBs of the row
  const int error = read_row(m_next_state, primary_key, &found);
  return error ? error : report_duplicate(index.key);
}

int IndexBuilder::put_new_entries(pgb_slice primary_key) {
  if (int error = encode_change(primary_key)) return error;
  if (!m_has_row) return 0;
  const bool same_expiry = m_old_expiry == m_expiry;
  for (const auto &index : m_indexes) {
    const pgb_slice key = index->new_key.slice(), value = index->new_value.slice();
    if (m_had_row && same_expiry && compare_slices(key, index->old_key.slice()) == 0 &&
        compare_slices(value, index->old_value.slice()) == 0)
      continue;
    if (index->checked)
      if (int error = check_unique(*index, primary_key)) return error;
    const pgb_status status = pgb_trx_put_locked(m_trx, m_family, key, value, m_expiry);
    if (status != PGB_OK) return report_status("ALTER TABLE", status);
  }
  return 0;
}

bool IndexBuilder::catch_up(uint64_t *changes) {
  int error = report_status("ALTER TABLE", pgb_snapshot_take(engine, &m_next_state));
  if (error) return report(error);
  error = report_status("ALTER TABLE", pgb_trx_begin(engine, 0, &m_trx));
  if (!error) error = for_each_change(&IndexBuilder::delete_old_entries, changes);
  if (!error) error = for_each_change(&IndexBuilder::put_new_entries, changes);
  if (m_trx) pgb_trx_free(m_trx);
  m_trx = nullptr;
  pgb_snapshot_release(error ? m_next_state : m_state);
  if (!error) m_state = m_next_state;
  m_next_state = nullptr;
  return error ? report(error) : false;
}

}  // namespace perigee
