// Builds secondary indexes from the rows of a table. See DESIGN.md, "Index builds".
#ifndef PERIGEE_INDEX_BUILDER_H
#define PERIGEE_INDEX_BUILDER_H

#include "compat.h"
#include "bridge.h"
#include "bytes.h"
#include "key_codec.h"
#include "row_codec.h"
#include "table_definition.h"

#include <memory>
#include <vector>

namespace perigee {

class IndexBuilder {
 public:
  // `altered` has the new indexes, and its record buffer is used for the rows; `definition` is its definition, with a row
  // format for the columns of `altered`. `file` reports errors. All must outlive the builder.
  IndexBuilder(handler *file, pgb_table *family, TABLE *altered, const TableDefinition &definition);
  ~IndexBuilder();
  IndexBuilder(const IndexBuilder &) = delete;
  IndexBuilder &operator=(const IndexBuilder &) = delete;

  // Adds an index of `altered` to build.
  void add_index(KEY *key, uint8_t number);

  // Writes the entries of all indexes for the rows that are committed now: one scan, one bulk load. Returns true after an
  // error message, also if a unique index would have duplicates. Entries may then exist already.
  bool build();

  // Brings the entries from the state of build() or the last catch_up() to that of now, by the change log. *changes: number
  // of rows that were written in between. Returns true like build().
  bool catch_up(uint64_t *changes);

 private:
  struct NewIndex {
    KEY *key;
    KeyCodec codec;
    Bytes old_key;    // entry of a changed row in the state before
    Bytes old_value;
    Bytes new_key;    // and after
    Bytes new_value;
    bool checked = false;  // other rows must not have new_key
  };

  // index_builder.cc
  int for_each_row(bool (IndexBuilder::*visit)(pgb_slice primary_key, int *error));
  bool load_entries(pgb_slice primary_key, int *error);
  bool check_duplicates(pgb_slice primary_key, int *error);
  int count_entries(const KeyCodec &codec, uint64_t *count);
  bool verify_unique();
  int report_duplicate(KEY *key);
  bool report(int error);

  // index_catch_up.cc
  int for_each_change(int (IndexBuilder::*visit)(pgb_slice primary_key), uint64_t *changes);
  int read_row(pgb_snapshot *state, pgb_slice primary_key, bool *found);
  int encode_change(pgb_slice primary_key);
  int delete_old_entries(pgb_slice primary_key);
  int put_new_entries(pgb_slice primary_key);
  int check_unique(const NewIndex &index, pgb_slice primary_key);
  int commit_batch(uint64_t least_writes);

  handler *const m_file;
  THD *const m_thd;
  pgb_table *const m_family;
  TABLE *const m_altered;
  const TableDefinition &m_definition;
  KeyCodec m_primary;
  RowCodec m_rows;
  std::vector<std::unique_ptr<NewIndex>> m_indexes;
  pgb_snapshot *m_state = nullptr;  // the indexes have the entries of these rows
  pgb_load *m_load = nullptr;
  pgb_buffer *m_buffer = nullptr;
  uint64_t m_row_count = 0;
  uint64_t m_expiry = PGB_NEVER;  // of the row in the record buffer: its entries expire with it
  Bytes m_key;
  Bytes m_value;
  Bytes m_found_primary;

  // Of catch_up().
  pgb_snapshot *m_next_state = nullptr;
  pgb_trx *m_trx = nullptr;
  Bytes m_changed_row;  // primary key
  uint64_t m_old_expiry = PGB_NEVER;  // in the state before
  bool m_had_row = false;
  bool m_has_row = false;
};

}  // namespace perigee
#endif
