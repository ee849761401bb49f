#include "ha_perigee.h"

#include "ha_perigee_load.h"
#include "index_builds.h"

#include <algorithm>

using perigee::Bytes;
using perigee::KeyCodec;
using perigee::TableShare;
using perigee::Transaction;

namespace {

constexpr uint64_t ESTIMATED_RANGE = 64;       // ranges of more rows than this, by the estimate, are not counted
constexpr uint64_t COUNTED_IN_RANGE = 16;      // of the others, this many rows are counted
constexpr uint64_t COUNTED_TABLE = 1000;       // ranges of tables up to this size are counted
constexpr uint BLOCK_SIZE = 16384;             // unit of the optimizer's costs

}  // namespace

// ---- capabilities ----

ha_perigee::ha_perigee(handlerton *hton, TABLE_SHARE *table_arg) : handler(hton, table_arg) {}

ha_perigee::~ha_perigee() = default;

handler::Table_flags ha_perigee::table_flags() const {
  Table_flags flags = HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS | HA_CAN_SQL_HANDLER |
                      HA_CAN_VIRTUAL_COLUMNS | HA_REQUIRES_KEY_COLUMNS_FOR_DELETE | HA_PRIMARY_KEY_IN_READ_INDEX |
                      HA_PARTIAL_COLUMN_READ | HA_TABLE_SCAN_ON_INDEX | HA_BINLOG_ROW_CAPABLE | HA_DUPLICATE_POS |
                      HA_CAN_TABLES_WITHOUT_ROLLBACK | HA_CAN_ONLINE_BACKUPS | HA_CONCURRENT_OPTIMIZE |
                      HA_CAN_SKIP_LOCKED | HA_ONLINE_ANALYZE | HA_CAN_GEOMETRY;
  // Without gap locks a replica that repeats statements may get other rows.
  THD *thd = ha_thd();
  if (!thd || thd_tx_isolation(thd) > ISO_READ_COMMITTED) flags |= HA_BINLOG_STMT_CAPABLE;
  return flags;
}

ulong ha_perigee::index_flags(uint index, uint, bool) const {
  ulong flags = HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE | HA_KEYREAD_ONLY;
  if (index == table_share->primary_key) return flags | HA_CLUSTERED_INDEX;
  return flags | HA_DO_INDEX_COND_PUSHDOWN;
}

// The query cache may store results unless the transaction sees something else than others: only in autocommit.
my_bool ha_perigee::register_query_cache_table(THD *thd, const char *, uint, qc_engine_callback *callback,
                                               ulonglong *engine_data) {
  *callback = nullptr;
  *engine_data = 0;
  return !thd->in_multi_stmt_transaction_mode();
}

// ---- open and close ----

int ha_perigee::open_secondary_indexes() {
  for (uint i = 0; i < table->s->keys; i++) {
    Index &index = m_indexes[i];
    KEY *key = table->key_info + i;
    if (i != table->s->primary_key) {
      uint8_t number = m_definition->index_number(key->name.str, key->name.length);
      if (!number) return HA_ERR_TABLE_DEF_CHANGED;
      index.codec.init(table, key, number, m_primary);
      if (!index.codec.contains_primary_columns()) {
        key->ext_key_parts = key->user_defined_key_parts;
        key->ext_key_flags = key->flags;
        key->ext_key_part_map = 0;
      }
      index.built_at = perigee::index_built_at(m_share->name(), number);
    }
    index.has_column.assign(table->s->fields, false);
    for (uint field = 0; field < table->s->fields; field++)
      index.has_column[field] = index.codec.entry_has_column(field);
  }
  return 0;
}

int ha_perigee::open_codecs() {
  uint primary = table->s->primary_key;
  m_indexes = std::vector<Index>(table->s->keys);
  if ((primary == MAX_KEY) != m_definition->hidden_primary_key) return HA_ERR_TABLE_DEF_CHANGED;
  if (primary == MAX_KEY) {
    m_hidden_codec.init_hidden();
    m_primary = &m_hidden_codec;
  } else {
    m_indexes[primary].codec.init(table, table->key_info + primary, perigee::PRIMARY_INDEX, nullptr);
    m_primary = &m_indexes[primary].codec;
  }
  if (int error = open_secondary_indexes()) return error;
  // A position is the primary key without index number; if the size varies, behind its size in two bytes.
  ref_length = static_cast<uint>(m_primary->fixed_size() ? m_primary->fixed_size() : m_primary->max_size() + 2);
  m_ttl_field = nullptr;
  for (Field **field = table->field; *field && !m_definition->ttl_column.empty(); field++)
    if (perigee::names_are_equal((*field)->field_name.str, m_definition->ttl_column.c_str()))
      m_ttl_field = *field;
  return m_rows.init(table, m_definition.get(), m_primary);
}

int ha_perigee::open(const char *name, int, uint) {
  int error = TableShare::acquire(TableShare::family_name(name), table, &m_share);
  if (error) {
    m_share = nullptr;
    return error;
  }
  m_definition = m_share->definition();
  m_created_at = perigee::index_built_at(m_share->name(), perigee::PRIMARY_INDEX);
  m_no_rollback = table->s->table_type == TABLE_TYPE_SEQUENCE;
  // A statement that changes the key by which it scans gets its rows from a list that the server makes first: later cursors
  // of the scan see its own writes.
  key_used_on_scan = table->s->primary_key;
  m_row_buffer = pgb_buffer_new();
  m_entry_buffer = pgb_buffer_new();
  m_check_buffer = pgb_buffer_new();
  error = open_codecs();
  if (!error) error = init_auto_increment();
  if (!error) error = info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_OPEN);
  if (error) close();
  // The server would discover the table again after HA_ERR_TABLE_DEF_CHANGED, and delete its .frm.
  return error == HA_ERR_TABLE_DEF_CHANGED ? HA_ERR_INCOMPATIBLE_DEFINITION : error;
}

int ha_perigee::close() {
  if (m_load) end_load(false);
  close_cursor();
  if (m_row_buffer) pgb_buffer_free(m_row_buffer);
  if (m_entry_buffer) pgb_buffer_free(m_entry_buffer);
  if (m_check_buffer) pgb_buffer_free(m_check_buffer);
  m_row_buffer = m_entry_buffer = m_check_buffer = nullptr;
  if (m_share) m_share->release();
  m_share = nullptr;
  m_definition.reset();
  m_indexes.clear();
  m_primary = nullptr;
  return 0;
}

// Raises the counter above the largest value in the table, once after the share was opened. The stored counter is enough unless
// the column became AUTO_INCREMENT later.
int ha_perigee::init_auto_increment() {
  if (!table->found_next_number_field || !m_share->begin_auto_increment_check()) return 0;
  const uint index = table->s->next_number_index;
  const KeyCodec &codec = m_indexes[index].codec;
  Bytes begin, end;
  codec.begin(&begin);
  codec.end(&end);
  pgb_cursor *cursor = nullptr;
  pgb_status status = pgb_cursor_open(nullptr, nullptr, m_share->table(), begin.slice(), end.slice(), &cursor);
  pgb_slice key, value;
  bool descending = codec.parts()[0].descending;
  if (status == PGB_OK)
    status = descending ? pgb_cursor_first(cursor, &key, &value) : pgb_cursor_last(cursor, &key, &value);
  bool decoded = status == PGB_OK && (is_primary(index) ? codec.decode_primary(key, table->record[0])
                                                        : codec.decode_entry(key, value, table->record[0]));
  if (decoded) note_auto_increment_value(table->record[0]);
  if (cursor) pgb_cursor_close(cursor);
  return status == PGB_OK || status == PGB_NOT_FOUND ? 0 : perigee::to_handler_error(status);
}

handler *ha_perigee::clone(const char *name, MEM_ROOT *mem_root) {
  ha_perigee *copy = static_cast<ha_perigee *>(handler::clone(name, mem_root));
  if (!copy) return nullptr;
  copy->m_lock_type = m_lock_type;
  copy->m_transaction = m_transaction;
  copy->m_lock = m_lock;
  copy->m_writes = m_writes;
  copy->m_skip_locked = m_skip_locked;
  copy->m_locks_gaps = m_locks_gaps;
  return copy;
}

// ---- statements and locks ----

// The server's table locks are not used: only the kind of access is noted.
THR_LOCK_DATA **ha_perigee::store_lock(THD *, THR_LOCK_DATA **to, enum thr_lock_type lock_type) {
  if (lock_type != TL_IGNORE) m_lock_type = lock_type;
  return to;
}

// Chooses the row lock of reads in a statement that does not write to the table.
ha_perigee::LockMode ha_perigee::read_lock(THD *thd) const {
  if (m_lock_type == TL_READ_WITH_SHARED_LOCKS || m_lock_type == TL_READ_SKIP_LOCKED) return LockMode::SHARED;
  bool repeatable = m_transaction->isolation() >= ISO_REPEATABLE_READ;
  switch (thd_sql_command(thd)) {
    case SQLCOM_SELECT:
      if (m_lock_type == TL_READ_NO_INSERT && repeatable && !thd->in_lock_tables && !thd->locked_tables_mode)
        return LockMode::SHARED;
      break;
    case SQLCOM_INSERT_SELECT:
    case SQLCOM_REPLACE_SELECT:
    case SQLCOM_INSERT:
    case SQLCOM_REPLACE:
    case SQLCOM_UPDATE:
    case SQLCOM_UPDATE_MULTI:
    case SQLCOM_DELETE:
    case SQLCOM_DELETE_MULTI:
    case SQLCOM_CREATE_TABLE:
    case SQLCOM_LOAD:
      if (repeatable) return LockMode::SHARED;
      break;
    default:
      break;  // ALTER, CHECK, CHECKSUM, HANDLER, LOCK TABLES ...: metadata locks are enough, or a read view
  }
  bool serializable = m_transaction->isolation() == ISO_SERIALIZABLE && thd->in_multi_stmt_transaction_mode();
  return serializable ? LockMode::SHARED : LockMode::NONE;
}

// Sets what reads lock in the statement that begins. lock_type: F_RDLCK or F_WRLCK.
void ha_perigee::begin_statement_locks(THD *thd, int lock_type) {
  m_trx = nullptr;
  m_read_view = nullptr;
  m_chosen_columns = nullptr;
  m_reserved_rows = 0;
  m_in_handler_statement = false;
  m_skip_locked = m_lock_type == TL_READ_SKIP_LOCKED || m_lock_type == TL_WRITE_SKIP_LOCKED;
  m_writes = lock_type == F_WRLCK;
  if (m_no_rollback)
    m_lock = LockMode::NONE;
  else
    m_lock = m_writes ? LockMode::EXCLUSIVE : read_lock(thd);
  m_locks_gaps = m_transaction->locks_gaps() && !m_skip_locked;
}

int ha_perigee::external_lock(THD *thd, int lock_type) {
  if (lock_type == F_UNLCK) {
    if (inited != NONE) suspend_scan();  // HANDLER
    if (m_load) end_load(false);
    if (m_transaction) m_transaction->end_statement(thd);
    m_trx = nullptr;
    m_read_view = nullptr;
    m_transaction = nullptr;
    return 0;
  }
  m_transaction = Transaction::get(thd);
  if (!m_transaction) return HA_ERR_OUT_OF_MEM;
  int error = m_transaction->begin_statement(thd, lock_type == F_WRLCK && !m_no_rollback);
  if (error) return error;
  begin_statement_locks(thd, lock_type);
  return 0;
}

// Begins a statement on a table that LOCK TABLES, or the statement around a stored function, has locked.
int ha_perigee::start_stmt(THD *thd, thr_lock_type lock_type) {
  m_transaction = Transaction::get(thd);
  if (!m_transaction) return HA_ERR_OUT_OF_MEM;
  m_lock_type = lock_type;
  bool writes = lock_type >= TL_FIRST_WRITE;
  int error = m_transaction->begin_statement(thd, writes && !m_no_rollback);
  if (error) return error;
  begin_statement_locks(thd, writes ? F_WRLCK : F_RDLCK);
  return 0;
}

void ha_perigee::init_table_handle_for_HANDLER() {
  m_in_handler_statement = true;
  m_lock = LockMode::NONE;
  m_writes = false;
}

int ha_perigee::extra(enum ha_extra_function operation) {
  switch (operation) {
    case HA_EXTRA_KEYREAD:
    case HA_EXTRA_NO_KEYREAD:
      m_chosen_columns = nullptr;
      return 0;
    PERIGEE_BEGIN_COPY_CASES:
      return begin_load();
    case PERIGEE_END_COPY:
      return m_load ? end_load(true) : 0;
    case PERIGEE_ABORT_COPY:
      return m_load ? end_load(false) : 0;
    default:
      return 0;
  }
}

// Called after each statement. What the last read returned is not used any more.
int ha_perigee::reset() {
  close_cursor();
  m_scan.lookups = 0;
  m_scan.last_key.clear();
  pgb_buffer_clear(m_row_buffer);
  pgb_buffer_clear(m_entry_buffer);
  pgb_buffer_clear(m_check_buffer);
  m_position = pgb_slice{nullptr, 0};
  m_chosen_columns = nullptr;
  m_read_view = nullptr;
  m_trx = nullptr;
  return 0;
}

// Makes m_trx and, for consistent reads, m_read_view ready.
int ha_perigee::begin_read() {
  if (m_no_rollback) return 0;
  if (unlikely(!m_transaction)) {
    // Reads outside of a statement: ANALYZE and the like read the newest state.
    return 0;
  }
  if (m_lock != LockMode::NONE) return begin_write();
  m_trx = m_transaction->engine_trx_if_begun();
  if (m_read_view) return 0;
  int error = 0;
  m_read_view = m_transaction->read_view(&error);
  if (!error && m_transaction->read_view_epoch() < m_created_at) {
    m_read_view = nullptr;
    error = HA_ERR_TABLE_DEF_CHANGED;
  }
  return error;
}

// Makes m_trx ready for locks and writes.
int ha_perigee::begin_write() {
  if (m_trx) return 0;
  if (!m_transaction) m_transaction = Transaction::get(ha_thd());
  m_trx = m_transaction ? m_transaction->engine_trx() : nullptr;
  if (!m_trx) return HA_ERR_INTERNAL_ERROR;
  if (m_skip_locked) m_transaction->set_lock_wait(ha_thd(), true);
  return 0;
}

int ha_perigee::status_error(pgb_status status) {
  if (status == PGB_OK) return 0;
  return m_transaction ? m_transaction->handle_status(ha_thd(), status) : perigee::to_handler_error(status);
}

bool ha_perigee::get_error_message(int error, String *buf) {
  if (error == HA_ERR_LOCK_DEADLOCK) return false;  // the server would append the text to its own message
  if (!m_transaction || m_transaction->message().empty()) return false;
  buf->copy(m_transaction->message().data(), m_transaction->message().size(), system_charset_info);
  return false;
}

// ---- statistics and costs ----

void ha_perigee::fill_variable_statistics(uint flag) {
  uint64_t records = m_share->records();
  std::shared_ptr<const perigee::TableStatistics> statistics = m_share->statistics(table);
  uint64_t row_size = statistics->average_row_size ? statistics->average_row_size : table->s->reclength;
  stats.records = records;
  // The optimizer treats tables without rows as constant: they may get rows at any time.
  if (records == 0 && !(flag & (HA_STATUS_TIME | HA_STATUS_OPEN))) stats.records = 1;
  stats.deleted = 0;
  stats.mean_rec_length = static_cast<ulong>(row_size);
  stats.data_file_length = records * row_size;
  uint64_t entry_size = 0;
  for (uint i = 0; i < table->s->keys; i++)
    if (i != table->s->primary_key) entry_size += table->key_info[i].key_length + ref_length;
  stats.index_file_length = records * entry_size;
  stats.delete_length = 0;
  stats.check_time = 0;
}

void ha_perigee::fill_constant_statistics() {
  std::shared_ptr<const perigee::TableStatistics> statistics = m_share->statistics(table);
  stats.block_size = BLOCK_SIZE;
  stats.mrr_length_per_rec = ref_length + 8;
  for (uint i = 0; i < table->s->keys; i++) {
    KEY *key = table->key_info + i;
    const perigee::IndexStatistics *index = nullptr;
    for (const perigee::IndexStatistics &candidate : statistics->indexes)
      if (candidate.name.size() == key->name.length &&
          perigee::names_are_equal(candidate.name.c_str(), key->name.str))
        index = &candidate;
    for (uint part = 0; part < key->ext_key_parts; part++) {
      double value = 1.0;
      if (index && part < index->records_per_key.size()) value = index->records_per_key[part];
      if (!index && part < key->user_defined_key_parts && !(key->flags & HA_NOSAME)) value = 10.0;
      key->rec_per_key[part] = value < 1.0 ? 1 : static_cast<ulong>(value + 0.5);
    }
  }
}

int ha_perigee::info(uint flag) {
  if (flag & HA_STATUS_VARIABLE) fill_variable_statistics(flag);
  if (flag & HA_STATUS_CONST) fill_constant_statistics();
  if ((flag & HA_STATUS_AUTO) && table->found_next_number_field)
    stats.auto_increment_value = m_share->next_auto_increment();
  if (flag & HA_STATUS_ERRKEY) errkey = m_error_key;
  return 0;
}

ha_rows ha_perigee::estimate_rows_upper_bound() { return m_share->records() * 2 + 10; }

#if MYSQL_VERSION_ID < 110000
double ha_perigee::scan_time() {
  return static_cast<double>(stats.data_file_length) / BLOCK_SIZE + 2;
}

double ha_perigee::read_time(uint index, uint ranges, ha_rows rows) {
  if (index != table->s->primary_key) return handler::read_time(index, ranges, rows);
  if (rows <= 2) return static_cast<double>(rows);
  double total = static_cast<double>(stats.records ? stats.records : 1);
  double scan = scan_time();
  if (total < static_cast<double>(rows)) return scan;
  return ranges + static_cast<double>(rows) / total * scan;
}
#endif

// Encodes the bounds of a range. Returns true if it is one value of a whole unique key without NULL.
bool ha_perigee::encode_range(uint index, const key_range *min_key, const key_range *max_key, Bytes *begin,
                              Bytes *end) const {
  const KeyCodec &codec = codec_of(index);
  bool point = false;
  if (min_key) {
    begin->clear();
    bool has_null = codec.encode_image(min_key->key, min_key->length, begin);
    point = max_key && codec.unique() && !has_null && min_key->flag == HA_READ_KEY_EXACT &&
            min_key->length == table->key_info[index].key_length && max_key->length == min_key->length &&
            memcmp(min_key->key, max_key->key, min_key->length) == 0;
    if (min_key->flag == HA_READ_AFTER_KEY) perigee::successor(begin);
  } else {
    codec.begin(begin);
  }
  if (max_key) {
    end->clear();
    codec.encode_image(max_key->key, max_key->length, end);
    if (max_key->flag != HA_READ_BEFORE_KEY) perigee::successor(end);
  } else {
    codec.end(end);
  }
  return point;
}

// Counts the entries of a range up to a limit.
static uint64_t count_range(pgb_table *table, pgb_slice begin, pgb_slice end, uint64_t limit) {
  pgb_cursor *cursor = nullptr;
  if (pgb_cursor_open(nullptr, nullptr, table, begin, end, &cursor) != PGB_OK) return limit;
  pgb_slice key, value;
  uint64_t count = 0;
  pgb_status status = pgb_cursor_first(cursor, &key, &value);
  for (; status == PGB_OK && count < limit; count++) status = pgb_cursor_next(cursor, &key, &value);
  pgb_cursor_close(cursor);
  return count;
}

// Estimates from metadata; small ranges are counted, because the estimate is as coarse as a block.
ha_rows ha_perigee::records_in_range(uint index, const key_range *min_key, const key_range *max_key, page_range *) {
  Bytes &begin = m_search, &end = m_bound;
  if (encode_range(index, min_key, max_key, &begin, &end)) return 1;
  if (perigee::compare_slices(begin.slice(), end.slice()) >= 0) return 1;
  const uint64_t records = m_share->records();
  uint64_t limit = COUNTED_TABLE + 1, estimate = 0, bytes = 0;
  if (records > COUNTED_TABLE) {
    if (pgb_estimate_range(m_share->table(), begin.slice(), end.slice(), &estimate, &bytes) != PGB_OK) estimate = 0;
    if (estimate > ESTIMATED_RANGE) return std::min(estimate, records);
    limit = COUNTED_IN_RANGE;
  }
  const uint64_t rows = count_range(m_share->table(), begin.slice(), end.slice(), limit);
  if (rows >= limit) return std::max(rows, std::min(estimate, records));
  return rows ? rows : 1;  // 0 would mean that the range is certainly empty
}

// ---- AUTO_INCREMENT ----

// Reserves as many values as the statement still has rows, if the server knows; so that values behind an explicit one do not
// waste more.
void ha_perigee::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong count, ulonglong *first,
                                    ulonglong *reserved) {
  if (!m_reserved_rows) m_reserved_rows = count ? count : 1;
  *first = m_share->reserve_auto_increment(offset, increment, m_reserved_rows);
  *reserved = m_reserved_rows;
  if (!m_load && m_transaction && !m_no_rollback) m_transaction->note_auto_increment(m_share);
}
