// The handler: one object per open table and connection.
//
// ha_perigee.cc        open, close, flags, locks, statistics, AUTO_INCREMENT
// ha_perigee_read.cc   index and table scans, positions
// ha_perigee_write.cc  insert, update, delete, bulk loads
// ha_perigee_check.cc  CHECK TABLE
// ha_perigee_ddl.cc    CREATE, DROP, RENAME, TRUNCATE, ALTER, ANALYZE, OPTIMIZE
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
  double scan_time() override;
  double read_time(uint index, uint ranges, ha_rows rows) override;
  double keyread_time(uint index, uint ranges, ha_rows rows) override;

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
  void start_bulk_insert(ha_rows rows, uint flags) override;
  int end_bulk_insert() override;
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

  enum : uint { MAX_INDEXES = 64 };

 private:
  // An index of the open table, by the server's key number.
  struct Index {
    perigee::KeyCodec codec;
    bool unique = false;
  };

  enum class LockMode : uint8_t { NONE, SHARED, EXCLUSIVE };
  enum class Direction : uint8_t { FORWARD, BACKWARD };

  // A running scan: a cursor over [begin, end), which are bounds inside the index.
  struct Scan {
    pgb_cursor *cursor = nullptr;
    perigee::Bytes begin;
    perigee::Bytes end;
    perigee::Bytes prefix;      // of index_read: index_next_same stays within it
    perigee::Bytes last_key;    // where a scan stood when its cursor was closed
    bool final = false;         // the server wants nothing outside of the bounds
    bool positioned = false;    // the cursor is at an entry
    uint64_t writes = 0;        // writes of the transaction when the cursor was opened
    uint lookups = 0;           // index_read calls since index_init
    bool whole_index = false;   // the bounds are those of the index
  };

  // ha_perigee.cc
  int open_codecs();
  int init_auto_increment();
  void choose_read_lock(THD *thd, thr_lock_type lock_type);
  void fill_constant_statistics();
  int status_error(pgb_status status);
  const perigee::KeyCodec &codec_of(uint index) const;
  bool encode_range(uint index, const key_range *min_key, const key_range *max_key, perigee::Bytes *begin,
                    perigee::Bytes *end) const;

  // ha_perigee_read.cc
  void choose_columns(uint index);
  bool entry_has_columns(uint index) const;
  int open_cursor(bool gap_lock);
  void close_cursor();
  int lock_gap(pgb_slice begin, pgb_slice end);
  int start_scan(uint index);
  int move(uchar *buf, pgb_status status, pgb_slice key, pgb_slice value, Direction direction, bool same);
  int step(uchar *buf, Direction direction, bool same);
  int continue_outside(uchar *buf, Direction direction);
  int read_entry(uchar *buf, pgb_slice key, pgb_slice value);
  int read_secondary(uchar *buf, pgb_slice key, pgb_slice value);
  int read_primary(uchar *buf, pgb_slice key, pgb_slice value);
  int read_row(uchar *buf, pgb_slice primary_key);
  int read_unique(uchar *buf, pgb_slice key);
  int unpack_row(uchar *buf, pgb_slice primary_key, pgb_slice row);
  int lock_and_get(pgb_slice key, perigee::Bytes *locked_key, pgb_buffer *buffer, pgb_slice *value);
  void set_position(pgb_slice primary_key);
  int seek(uchar *buf, perigee::Bytes *target, enum ha_rkey_function mode);

  // ha_perigee_write.cc
  int check_unique(uint index, pgb_slice key, pgb_slice own_primary_key, bool *exists_as_own);
  int report_duplicate(uint index, pgb_slice primary_key);
  int insert_row(const uchar *record);
  int insert_into_load(const uchar *record);
  int update_index(uint index, const uchar *old_data, const uchar *new_data, pgb_slice old_primary_key,
                   pgb_slice new_primary_key, bool check_only);
  int update_indexes(const uchar *old_data, const uchar *new_data, bool check_only);
  void primary_key_of_record(const uchar *record, perigee::Bytes *out);
  bool index_may_change(uint index) const;
  void note_auto_increment_value(const uchar *record);
  uint64_t expiry_of(const uchar *record) const;
  int put(pgb_slice key, pgb_slice value);
  int remove(pgb_slice key);

  perigee::TableShare *m_share = nullptr;
  std::shared_ptr<const perigee::TableDefinition> m_definition;
  perigee::Transaction *m_transaction = nullptr;  // of the connection that uses the handler in this statement
  pgb_trx *m_trx = nullptr;
  pgb_snapshot *m_read_view = nullptr;

  perigee::KeyCodec m_hidden_codec;
  std::vector<Index> m_indexes;
  const perigee::KeyCodec *m_primary = nullptr;
  perigee::RowCodec m_rows;
  Field *m_ttl_field = nullptr;

  LockMode m_lock = LockMode::NONE;         // of reads in this statement
  LockMode m_stored_lock = LockMode::NONE;  // decided by store_lock
  bool m_writes = false;                    // the statement may write to the table
  bool m_skip_locked = false;
  bool m_locks_gaps = false;
  bool m_locked = false;                    // between external_lock and its F_UNLCK

  Scan m_scan;
  uint m_scan_index = MAX_KEY;              // key number of the scan; MAX_KEY: primary key
  bool m_keyread = false;
  bool m_entry_is_enough = false;           // the scanned index has all columns of the read set
  bool m_columns_chosen = false;
  pgb_buffer *m_row_buffer = nullptr;       // pins the last row that a read returned
  pgb_buffer *m_entry_buffer = nullptr;     // pins the last locked index entry
  pgb_buffer *m_check_buffer = nullptr;     // for duplicate checks
  pgb_slice m_position{nullptr, 0};         // primary key of the last row, in one of the buffers below or in a cursor
  perigee::Bytes m_position_buffer;
  perigee::Bytes m_locked_row;              // keys that unlock_row releases
  perigee::Bytes m_locked_entry;

  perigee::Bytes m_key;                     // work areas of reads
  perigee::Bytes m_key_end;
  perigee::Bytes m_new_key;                 // work areas of writes
  perigee::Bytes m_old_key;
  perigee::Bytes m_new_value;
  perigee::Bytes m_old_value;
  perigee::Bytes m_new_primary;
  perigee::Bytes m_old_primary;
  perigee::Bytes m_row;

  pgb_load *m_load = nullptr;               // ALTER TABLE by copy
  bool m_alter_copy = false;
  bool m_ignore_duplicates = false;
};

#endif
