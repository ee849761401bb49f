// The persistent definition of a table: what the server's .frm does not say and what old rows need.
#ifndef PERIGEE_TABLE_DEFINITION_H
#define PERIGEE_TABLE_DEFINITION_H

#include "compat.h"
#include "bridge.h"
#include "bytes.h"

#include <string>
#include <vector>

namespace perigee {

// Keys of the metadata in a table's family (index number 0).
extern const pgb_slice definition_key;      // 0x00 "d"
extern const pgb_slice auto_increment_key;  // 0x00 "a"
extern const pgb_slice statistics_key;      // 0x00 "s"

enum : uint8_t {
  METADATA_INDEX = 0,
  PRIMARY_INDEX = 1,
  FIRST_SECONDARY_INDEX = 2,
  LAST_SECONDARY_INDEX = 250,
  CHANGE_LOG_INDEX = 251  // primary keys of the rows that were written during an index build; see DESIGN.md
};

// How the value of a column is stored in a row.
enum class ValueKind : uint8_t {
  FIXED = 1,   // `length` bytes, as in the record buffer
  PADDED = 2,  // CHAR and BINARY: varint length, and the bytes without the padding
  VARCHAR = 3, // varint length, bytes
  BLOB = 4     // varint length, bytes
};

// Returns how a field is stored, and its fixed length (FIXED) or its length in the record (PADDED); else *length is 0.
ValueKind value_kind(const Field *field, uint32_t *length);

class KeyCodec;
// True if rows contain a column: stored columns and indexed virtual ones, unless the primary key can restore them.
// `primary` is NULL if the primary key is hidden.
bool column_is_in_rows(const TABLE *table, const Field *field, const KeyCodec *primary);

struct StoredColumn {
  uint32_t column_id;
  ValueKind kind;
  bool nullable;
  uint32_t length;  // FIXED only
};

// The columns of a row in the order in which they are stored.
struct RowFormat {
  std::vector<StoredColumn> columns;
};

struct ColumnDefinition {
  uint32_t id;
  std::string name;
  // The value in rows whose format does not have the column (added by an instant ALTER TABLE): NULL, or a value stored like
  // in a row (without the length prefix). Empty and not NULL for columns that were there from the beginning.
  bool missing_is_null = true;
  std::string missing_value;
};

struct IndexDefinition {
  std::string name;
  uint8_t number;
};

class TableDefinition {
 public:
  std::vector<ColumnDefinition> columns;  // existing columns; the order is not significant
  std::vector<IndexDefinition> indexes;   // existing indexes, PRIMARY included
  std::vector<uint8_t> dropped_indexes;   // numbers whose entries may still exist
  std::vector<RowFormat> formats;         // a row names its position here; the last is used for new rows
  uint32_t next_column_id = 1;
  bool hidden_primary_key = false;
  std::string ttl_column;                 // column that says when a row expires; empty: none
  uint64_t table_version = 0;             // of the .frm of the last ALTER TABLE in place (fold_table_version)

  // Describes a new table.
  static TableDefinition for_new_table(const TABLE *table);

  // Appends a row format for the columns of `table` (all of them must be in `columns`) and makes it the current one, unless
  // the current one is the same. `table` is the altered table in ALTER TABLE.
  void set_row_format(const TABLE *table);

  uint32_t current_format() const { return static_cast<uint32_t>(formats.size() - 1); }
  const ColumnDefinition *find_column(const char *name, size_t size) const;
  ColumnDefinition *find_column(const char *name, size_t size);
  const ColumnDefinition *column_by_id(uint32_t id) const;
  // Adds a column and returns it.
  ColumnDefinition *add_column(const char *name, size_t size);
  void remove_column(const char *name, size_t size);

  // Number of an index by name; 0 if there is none.
  uint8_t index_number(const char *name, size_t size) const;
  // Adds an index with a free number; 0 if none is free.
  uint8_t add_index(const char *name, size_t size);
  // Removes an index; its number is added to dropped_indexes.
  void remove_index(const char *name, size_t size);
  void rename_index(const char *from, size_t from_size, const char *to, size_t to_size);

  // Binary form with a version and a checksum.
  void serialize(Bytes *out) const;
  // Returns 0, HA_ERR_CRASHED (checksum or structure) or HA_ERR_INCOMPATIBLE_DEFINITION (a newer version).
  int parse(pgb_slice bytes);
};

}  // namespace perigee
#endif
