// Index keys: column values to bytes that memcmp orders like the columns, and back. See DESIGN.md, "Key columns".
#ifndef PERIGEE_KEY_CODEC_H
#define PERIGEE_KEY_CODEC_H

#include "compat.h"
#include "bridge.h"
#include "bytes.h"

#include <vector>

namespace perigee {

enum : uint8_t { PRIMARY_INDEX_NUMBER = 1 };

// One column of an index.
struct KeyPart {
  enum Kind : uint8_t {
    INTEGER,        // little-endian in the record
    INTEGER_SIGNED,
    FLOAT,
    DOUBLE,
    RAW,            // bytes of the record that memcmp orders
    SORT_STRING,    // by Field::sort_string; not reversible
    TEXT            // strings with a collation, in groups of 8 bytes
  };
  enum Source : uint8_t { FIXED_BYTES, VARCHAR_BYTES, BLOB_BYTES };

  Kind kind;
  Source source;
  bool nullable;
  bool descending;
  bool raw_text;        // TEXT: the bytes of the string are their own weights
  bool pad_space;       // TEXT: PAD SPACE collation
  bool prefix;          // the index contains only the beginning of the column
  bool restorable;      // decode() restores the column from the key
  uint8_t null_bit;
  uint8_t length_bytes; // VARCHAR 1 or 2, BLOB 1 to 4
  uint8_t levels;       // TEXT: weight levels that are compared, each encoded for itself
  uint level_flags[6];  // TEXT: flag of strnxfrm for each level
  uint8_t space_size[6];  // TEXT: size of the weight of a space in each level
  uchar space[6][8];    // TEXT: the weight of a space in each level
  uint offset;          // in the record
  uint null_offset;
  uint length;          // bytes of the part in the server's key image (without null byte and length)
  uint record_length;   // bytes of the column in the record (FIXED_BYTES)
  uint image_length;    // bytes of the part in the server's key image with the length, without the null byte
  uint max_size;        // largest encoded size
  uint field_index;
  CHARSET_INFO *charset;
  Field *field;         // of the table that the codec was initialised with
};

// What of a table's index can be read from its entries.
class KeyCodec {
 public:
  // Describes a key of `table`. `primary`: the codec of the primary (or hidden) key, NULL if this is the primary key.
  void init(const TABLE *table, const KEY *key, uint8_t index_number, const KeyCodec *primary);
  // Describes the hidden primary key.
  void init_hidden();

  uint8_t index_number() const { return m_index_number; }
  bool unique() const { return m_unique; }
  bool hidden() const { return m_hidden; }
  const std::vector<KeyPart> &parts() const { return m_parts; }
  // Largest size of an encoded key of this index without index number and primary key.
  size_t max_size() const { return m_max_size; }
  // Size of encoded keys without the index number if it is the same for all keys, else 0.
  size_t fixed_size() const { return m_fixed_size; }
  // True if every column of the key (of a secondary index: also of the primary key) can be read from an entry.
  bool covers_columns() const { return m_covers; }
  // False if the index contains another part of a column than the primary key does: then the server must not look up
  // columns of the primary key behind those of the index.
  bool contains_primary_columns() const;
  // True if a column is part of this index.
  bool uses_column(uint field_index) const;
  // True if decode_entry() writes a column.
  bool entry_has_column(uint field_index) const;

  // Appends index number and columns of a record. Returns true if a column is NULL.
  bool encode_record(const uchar *record, Bytes *out) const;
  // Encodes an entry of a secondary index. Returns true if other rows must not have the same key (unique, no NULL).
  // `primary_key` is a key of the primary index (with its index number).
  bool encode_entry(const uchar *record, pgb_slice primary_key, Bytes *key, Bytes *value) const;
  // Appends index number and the columns in a key image of the server (the first columns of the index, or all of them and
  // the first columns of the primary key that the index does not have). Returns true if a column is NULL.
  bool encode_image(const uchar *image, uint image_size, Bytes *out) const;

  // Writes the restorable columns of a primary key to a record. False if corrupt.
  bool decode_primary(pgb_slice key, uchar *record) const;
  // Writes the columns of a secondary entry that it contains to a record. Blobs point into `value`. False if corrupt.
  bool decode_entry(pgb_slice key, pgb_slice value, uchar *record) const;
  // Appends index number and primary key of the row to which a secondary entry belongs. False if corrupt.
  bool primary_key_of_entry(pgb_slice key, pgb_slice value, Bytes *out) const;

  // Size of the first `columns` columns of a key with the index number; 0 if corrupt.
  size_t prefix_size(pgb_slice key, uint columns) const;
  // True if the bytes of the index's columns are the same in two records.
  bool same_columns(const uchar *a, const uchar *b) const;

  // The keys of the whole index are in [begin, end).
  void begin(Bytes *out) const;
  void end(Bytes *out) const;

 private:
  void encode_value(const KeyPart &part, const uchar *data, size_t size, Bytes *out) const;
  void encode_image_part(const KeyPart &part, const uchar *image, Bytes *out) const;
  void encode_primary_image(const uchar *const *columns, const uchar *image, const uchar *end, Bytes *out) const;
  void encode_text(const KeyPart &part, const uchar *data, size_t size, Bytes *out) const;
  const uchar *decode_parts(const uchar *key, const uchar *end, const uchar **value, const uchar *value_end, uchar *record) const;
  const uchar *skip_parts(const uchar *key, const uchar *end, size_t columns) const;

  std::vector<KeyPart> m_parts;
  const KeyCodec *m_primary = nullptr;
  mutable Bytes m_weights;  // work area
  uint8_t m_index_number = 0;
  bool m_unique = false;
  bool m_hidden = false;
  bool m_covers = false;
  size_t m_max_size = 0;
  size_t m_fixed_size = 0;
};

// Replaces a key prefix by the smallest key greater than all keys that start with it. An empty result means no end.
void successor(Bytes *key);

}  // namespace perigee
#endif
