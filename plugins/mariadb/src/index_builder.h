// Builds secondary indexes from the rows of a table, while no transaction writes to it.
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

  // Adds an index of `altered` to build.
  void add_index(KEY *key, uint8_t number);
  bool empty() const { return m_indexes.empty(); }

  // Writes the entries of all indexes: one scan of the rows, one bulk load. Returns true after an error message, also if a
  // unique index would have duplicates. Entries may then exist already.
  bool build();

 private:
  struct NewIndex {
    KEY *key;
    KeyCodec codec;
  };

  int for_each_row(bool (IndexBuilder::*visit)(pgb_slice primary_key, int *error));
  bool load_entries(pgb_slice primary_key, int *error);
  bool check_duplicates(pgb_slice primary_key, int *error);
  int count_entries(const KeyCodec &codec, uint64_t *count);
  bool verify_unique();
  bool report(int error);

  handler *const m_file;
  THD *const m_thd;
  pgb_table *const m_family;
  TABLE *const m_altered;
  const TableDefinition &m_definition;
  KeyCodec m_primary;
  RowCodec m_rows;
  std::vector<std::unique_ptr<NewIndex>> m_indexes;
  pgb_load *m_load = nullptr;
  pgb_buffer *m_buffer = nullptr;
  uint64_t m_row_count = 0;
  Bytes m_key;
  Bytes m_value;
  Bytes m_found_primary;
};

}  // namespace perigee
#endif
