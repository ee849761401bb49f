// The handler: one object per open table and connection.
//
// ha_perigee.cc        open, close, flags, locks, statistics, AUTO_INCREMENT
// ha_perigee_read.cc   index and table scans, positions
// ha_perigee_write.cc  insert, update, delete
// ha_perigee_load.cc   bulk loads
// ha_perigee_check.cc  CHECK TABLE
// ha_perigee_ddl.cc    CREATE, DROP, RENAME, TRUNCATE, ANALYZE, OPTIMIZE
// ha_perigee_alter.cc  ALTER TABLE without a copy, REPAIR
#ifndef PERIGEE_HA_PERIGEE_H
#define PERIGEE_HA_PERIGEE_H

#include "compat.h"
#include "bridge.h"
#include "bytes.h"
#include "key_codec.h"
#include "row_codec.h"
#include "table_definition.h"
#include "table_share.h"
#include "transaction.h"

#include <memory>
#include <vector>

class ha_perigee final : public handler {
 public:
  ha_perigee(handlerton *hton, TABLE_SHARE *table_arg);
  ~ha_perigee() override;

  // ---- capabilities ----
  const char *index_type(uint) override { return "LSM"; }
  Table_flags table_flags() const override;
  ulong index_flags(uint index, uint part, bool all_parts) const override;
  uint max_supported_keys() const override { return MAX_INDEXES; }
  uint max_supported_key_length() const override { return 3072; }
  uint max_supported_key_part_length() const override { return 3072; }
  const key_map *keys_to_use_for_scanning() override { return &key_map_full; }
  uint8 table_cache_type() override { return HA_CACHE_TBL_TRANSACT; }
  my_bool register_query_cache_table(THD *thd, const char *key, uint key_length, qc_engine_callback *callback,
                                     ulonglong *engine_data) override;
  uint lock_count() const override { return 0; }

  // ---- open and locks ----
  int open(const char *name, int mode, uint test_if_locked) override;
  int close() override;
  handler *clone(const char *name, MEM_ROOT *mem_root) override;
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type lock_type) override;
  int external_lock(THD *thd, int lock_type) override;
  int start_stmt(THD *thd, thr_lock_type lock_type) override;
  void unlock_row() override;
  int extra(enum ha_extra_function operation) override;
  int reset() override;
  void init_table_handle_for_HANDLER() override;

  // ---- statistics and costs ----
  int info(uint flag) override;
  ha_rows records_in_range(uint index, const key_range *min_key, const key_range *max_key, page_range *pages) override;
  ha_rows estimate_rows_upper_bound() override;
#if MYSQL_VERSION_ID < 110000
  double scan_time() override;
  double read_time(uint index, uint ranges, ha_rows rows) override;
#endif

  // ---- reads ----
  int rnd_init(bool scan) override;
  int rnd_end() override;
  int rnd_next(uchar *buf) override;
  int rnd_pos(uchar *buf, uchar *pos) override;
  void position(const uchar *record) override;
  int cmp_ref(const uchar *a, const uchar *b) override;
  int index_init(uint index, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *buf, const uchar *key, key_part_map parts, enum ha_rkey_function mode) override;
  int index_read_last_map(uchar *buf, const uchar *key, key_part_map parts) override;
  int index_next(uchar *buf) override;
  int index_prev(uchar *buf) override;
  int index_first(uchar *buf) override;
  int index_last(uchar *buf) override;
  int index_next_same(uchar *buf, const uchar *key, uint key_length) override;
  int read_range_first(const key_range *start, const key_range *end, bool eq_range, bool sorted) override;
  int read_range_next() override;
  Item *idx_cond_push(uint index, Item *condition) override;
  void column_bitmaps_signal() override;

  // ---- writes ----
  int write_row(const uchar *buf) override;
  int update_row(const uchar *old_data, const uchar *new_data) override;
  int delete_row(const uchar *buf) override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong count, ulonglong *first,
                          ulonglong *reserved) override;
  bool get_error_message(int error, String *buf) override;

  // ---- ha_perigee_check.cc ----
  int check(THD *thd, HA_CHECK_OPT *options) override;

  // ---- ha_perigee_ddl.cc ----
  int create(const char *name, TABLE *form, HA_CREATE_INFO *create_info) override;
  int delete_table(const char *name) override;
  int rename_table(const char *from, const char *to) override;
  int truncate() override;
  int reset_auto_increment(ulonglong value) override;
  int analyze(THD *thd, HA_CHECK_OPT *options) override;
  int optimize(THD *thd, HA_CHECK_OPT *options) override;
  int repair(THD *thd, HA_CHECK_OPT *options) override;
  void update_create_info(HA_CREATE_INFO *create_info) override;
  bool check_if_incompatible_data(HA_CREATE_INFO *create_info, uint table_changes) override;
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info) override;
  bool prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) override;
  bool can_convert_nocopy(const Field &field, const Column_definition &new_field) const override;
  ulonglong table_version() const override;

 private:
  // An index of the open table, by the server's key number.
  struct Index {
    perigee::KeyCodec codec;
    std::vector<bool> has_column;  // by field index: entries contain the column
    uint64_t built_at = 0;         // index_built_at() of index_builds.h
    perigee::Bytes key;            // entry of the row that is written
    perigee::Bytes value;
    perigee::Bytes old_key;        // entry that it replaces
    bool checked = false;          // other rows must not have this key
    bool changed = false;
  };

  enum class LockMode : uint8_t { NONE, SHARED, EXCLUSIVE };
  enum class Direction : uint8_t { FORWARD, BACKWARD };
  enum : int { SKIP_ENTRY = -1 };  // result of reading an entry that the statement must not see

  // A running scan: a cursor over [begin, end), which lies in the index.
  struct Scan {
    pgb_cursor *cursor = nullptr;
    pgb_snapshot *view = nullptr;  // of the cursor
    bool active = false;        // between index_init or rnd_init and their ends
    bool fresh = false;         // a table scan has not read its first row
    bool detached = false;      // the last entry was not read by the cursor: last_key says where the scan is
    bool range_read = false;    // read_range_first runs: nothing outside of the range is wanted
    bool within_range = false;  // the bounds are those of a range of read_range_first
    bool whole_index = false;   // the bounds are those of the index
    bool unique_read = false;   // the last index_read was by a whole unique key
    bool at_end = false;        // the last step left the index in this direction:
    Direction direction = Direction::FORWARD;
    bool past_end = false;      // the cursor has no entry any more: it is behind its last one, else before its first
    bool last_is_bound = false; // last_key is a bound of the cursor before, not an entry
    bool chunked = false;       // a locking scan: the bounds are those of a chunk, more follow in chunk_direction
    Direction chunk_direction = Direction::FORWARD;
    uint chunks = 0;            // of this scan so far
    uint lookups = 0;           // calls of index_read in this statement
    perigee::Bytes begin;       // bounds of the cursor
    perigee::Bytes end;
    perigee::Bytes rest;        // where the range ends (going backward: begins) of which this is a chunk
    perigee::Bytes limit;       // entries from here on are outside of the range; empty: no limit
    perigee::Bytes prefix;      // of index_read: index_next_same stays within it
    perigee::Bytes last_key;    // the last entry, if the cursor was closed or is elsewhere
    pgb_slice key{nullptr, 0};  // the last entry, in the cursor; NULL if it has none
    pgb_slice value{nullptr, 0};
  };

  // Checks for duplicates during a bulk load, for one unique index.
  struct LoadCheck;

  // ha_perigee.cc
  int open_codecs();
  int open_secondary_indexes();
  int init_auto_increment();
  void begin_statement_locks(THD *thd, int lock_type);
  LockMode read_lock(THD *thd) const;
  void fill_variable_statistics(uint flag);
  void fill_constant_statistics();
  int status_error(pgb_status status);
  const perigee::KeyCodec &codec_of(uint index) const {
    return index == MAX_KEY ? *m_primary : m_indexes[index].codec;
  }
  bool is_primary(uint index) const { return index == MAX_KEY || index == table->s->primary_key; }
  bool encode_range(uint index, const key_range *min_key, const key_range *max_key, perigee::Bytes *begin,
                    perigee::Bytes *end) const;
  int begin_read();
  int begin_write();

  // ha_perigee_read.cc
  int prepare_read();
  void choose_columns();
  bool entry_is_enough() const;
  int start_scan(uint index);
  void end_scan();
  void close_cursor();
  void suspend_scan();
  int open_cursor(Direction direction);
  bool may_end_early(Direction direction) const;
  ha_rows statement_limit() const;
  int limit_to_chunk(Direction direction);
  int open_next_chunk(pgb_status *status);
  int open_whole_index(Direction direction);
  bool can_reuse_cursor() const;
  int lock_gap(pgb_slice begin, pgb_slice end);
  int fetch(uchar *buf, pgb_status status, Direction direction, bool same);
  int step(uchar *buf, Direction direction, bool same);
  int resume(uchar *buf, Direction direction, bool same);
  int continue_outside(uchar *buf, Direction direction);
  int read_entry(uchar *buf, pgb_slice key, pgb_slice value);
  int read_secondary(uchar *buf, pgb_slice key, pgb_slice value);
  int read_secondary_locked(uchar *buf, pgb_slice key);
  int read_row(uchar *buf, pgb_slice primary_key);
  int read_unique(uchar *buf);
  int check_condition(uchar *buf, pgb_slice key, pgb_slice value);
  int lock_and_get(pgb_slice key, perigee::Bytes *locked_key, pgb_buffer *buffer, pgb_slice *value);
  int check_row_unchanged(pgb_slice primary_key);
  void unlock_entry();
  int seek_forward(uchar *buf, bool exact);
  int seek_backward(uchar *buf, bool within_prefix);
  int scan_whole_index(uchar *buf, Direction direction);
  void encode_end_of_range(perigee::Bytes *out) const;
  void store_position(pgb_slice primary_key, uchar *to) const;
  pgb_slice current_primary_key();

  // ha_perigee_write.cc
  void primary_key_of_record(const uchar *record, perigee::Bytes *out);
  int report_duplicate(uint index, pgb_slice primary_key);
  int check_primary(pgb_slice key);
  int check_unique(uint index);
  int insert_row(const uchar *record);
  int put_entry(const Index &index);
  int prepare_update(const uchar *old_data, const uchar *new_data, bool moved);
  int apply_update(const uchar *new_data, bool moved);
  int write_without_rollback(const uchar *record, pgb_slice primary_key);
  int log_change(pgb_slice primary_key);
  void note_auto_increment_value(const uchar *record);
  uint64_t expiry_of(const uchar *record) const;

  // ha_perigee_load.cc
  int begin_load();
  int end_load(bool commit);
  int continue_load();
  int load_row(const uchar *record);
  int check_load(LoadCheck *check, pgb_slice key, bool *duplicate);
  int check_load_row(const uchar *record);

  // ha_perigee_check.cc
  int check_rows(THD *thd, bool extended, uint64_t *rows);
  int check_row(pgb_slice key, pgb_slice row, bool extended);
  int check_index(THD *thd, uint index, bool extended, uint64_t rows);
  int check_entry(uint index, pgb_slice key, pgb_slice value);
  int report_damage(THD *thd, const char *format, ...);

  // ha_perigee_alter.cc
  int largest_auto_increment(ulonglong *largest);
  int change_auto_increment(const HA_CREATE_INFO *create_info);

  perigee::TableShare *m_share = nullptr;
  std::shared_ptr<const perigee::TableDefinition> m_definition;
  perigee::Transaction *m_transaction = nullptr;  // of the connection that uses the handler in this statement
  pgb_trx *m_trx = nullptr;
  pgb_snapshot *m_read_view = nullptr;

  perigee::KeyCodec m_hidden_codec;
  std::vector<Index> m_indexes;
  const perigee::KeyCodec *m_primary = nullptr;
  uint64_t m_created_at = 0;                // index_built_at of the table: older read views do not see it
  perigee::RowCodec m_rows;
  Field *m_ttl_field = nullptr;
  uint64_t m_expiry = 0;                    // of the row that is written; see pgb_trx_put
  bool m_no_rollback = false;               // a SEQUENCE: written without transaction and locks

  thr_lock_type m_lock_type = TL_UNLOCK;    // given to store_lock or start_stmt
  LockMode m_lock = LockMode::NONE;         // of reads in this statement
  bool m_writes = false;                    // the statement may change the table
  bool m_skip_locked = false;
  uint m_error_key = MAX_KEY;               // key number of the last duplicate
  bool m_locks_gaps = false;
  bool m_in_handler_statement = false;      // HANDLER reads consistently

  uint64_t m_reserved_rows = 0;             // rows of the statement for which values were asked, not yet written

  Scan m_scan;
  uint m_scan_index = MAX_KEY;              // key number of the scan; MAX_KEY: primary key
  const MY_BITMAP *m_chosen_columns = nullptr;  // read set for which the columns were chosen; NULL: must be chosen
  bool m_entry_is_enough = false;           // the entries of the scanned index have all columns of the read set
  pgb_buffer *m_row_buffer = nullptr;       // pins the last row that a read returned
  pgb_buffer *m_entry_buffer = nullptr;     // pins the last index entry that was locked or found by unique key
  pgb_buffer *m_check_buffer = nullptr;     // for duplicate checks
  pgb_slice m_position{nullptr, 0};         // primary key of the last row: in a cursor or a buffer below; NULL data: unknown
  bool m_position_in_entry = false;         // it must be taken from the entry of the scan
  perigee::Bytes m_position_buffer;
  perigee::Bytes m_locked_row;              // keys that unlock_row releases
  perigee::Bytes m_locked_entry;

  perigee::Bytes m_search;                  // work areas of reads
  perigee::Bytes m_bound;
  perigee::Bytes m_new_primary;             // work areas of writes
  perigee::Bytes m_old_primary;
  perigee::Bytes m_old_key;
  perigee::Bytes m_old_value;
  perigee::Bytes m_row;
  perigee::Bytes m_change_key;

  pgb_load *m_load = nullptr;               // ALTER TABLE by copy, CREATE TABLE ... SELECT
  std::vector<std::unique_ptr<LoadCheck>> m_load_checks;
  uint64_t m_loaded_rows = 0;
};

#endif
