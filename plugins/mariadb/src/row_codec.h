// Rows: the server's record buffer to bytes, and back without allocation. See DESIGN.md, "Rows".
#ifndef PERIGEE_ROW_CODEC_H
#define PERIGEE_ROW_CODEC_H

#include "compat.h"
#include "bridge.h"
#include "bytes.h"
#include "key_codec.h"
#include "table_definition.h"

#include <memory>
#include <vector>

namespace perigee {

class RowCodec {
 public:
  // Binds a definition to an open table. Both must outlive the codec, or init() is called again. Returns 0 or
  // HA_ERR_TABLE_DEF_CHANGED if the definition lacks a column of the table.
  int init(const TABLE *table, const TableDefinition *definition, const KeyCodec *primary);

  // Packs a record into a row of the current format.
  void pack(const uchar *record, Bytes *out) const;

  // True if two records have the same values in the columns of the current format.
  bool same_values(const uchar *a, const uchar *b) const;

  // Selects the columns that unpack() must write; NULL: all. Others may be left unchanged.
  void select_columns(const MY_BITMAP *read_set);

  // Writes the selected columns of a row to a record. `key` is the row's primary key. Blobs point into `row`.
  // Returns 0 or HA_ERR_CRASHED.
  int unpack(pgb_slice key, pgb_slice row, uchar *record);

  // True if the value of a column is in rows or restorable from the primary key (not a virtual column).
  bool has_column(uint field_index) const { return m_stored[field_index]; }

 private:
  // Where a stored column goes.
  struct Step {
    ValueKind kind;
    bool nullable;       // has a bit in the row's null bitmap
    bool target;         // the table still has the column
    bool wanted;         // selected
    uint8_t length_bytes;
    uint8_t null_bit;    // in the record; 0: NOT NULL
    uchar pad;
    uint32_t length;     // FIXED: in the row
    uint record_length;  // bytes of the column in the record, without length bytes
    uint null_offset;
    uint offset;
    uint field_index;
  };
  // A column of the table that rows of a format lack.
  struct Missing {
    Step step;
    bool is_null;
    const std::string *value;
  };
  struct Plan {
    std::vector<Step> steps;
    std::vector<Missing> missing;
    uint bitmap_bytes;
    size_t last_wanted;  // number of steps up to the last selected one
  };

  Plan *plan_of(uint32_t format);
  std::unique_ptr<Plan> make_plan(const RowFormat &format) const;
  Step make_step(const StoredColumn &column) const;
  void apply_selection(Plan *plan) const;
  static void store_missing(const Plan &plan, uchar *record);

  const TABLE *m_table = nullptr;
  const TableDefinition *m_definition = nullptr;
  const KeyCodec *m_primary = nullptr;
  std::vector<std::unique_ptr<Plan>> m_plans;
  std::vector<uint32_t> m_column_ids;  // by field index
  std::vector<bool> m_stored;
  std::vector<bool> m_wanted;
  bool m_all = true;
  bool m_key_wanted = true;
};

// True if the columns of a primary key that `part` describes are left out of rows.
bool restored_from_primary_key(const KeyCodec &primary, uint field_index);

}  // namespace perigee
#endif
