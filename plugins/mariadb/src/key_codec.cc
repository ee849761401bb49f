#include "key_codec.h"

namespace perigee {

namespace {

constexpr size_t GROUP = 8;

// Marker bytes after a group of a string.
enum : uchar { NO_PAD_CONTINUES = 9, REST_LESS = 1, REST_EQUAL = 2, REST_GREATER = 3 };

// ---- what a part is ----

void describe_number(const Field *field, KeyPart *part) {
  switch (field->real_type()) {
    case MYSQL_TYPE_TINY:
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_INT24:
    case MYSQL_TYPE_LONG:
    case MYSQL_TYPE_LONGLONG:
      part->kind = field->flags & UNSIGNED_FLAG ? KeyPart::INTEGER : KeyPart::INTEGER_SIGNED;
      break;
    case MYSQL_TYPE_YEAR:
    case MYSQL_TYPE_ENUM:
    case MYSQL_TYPE_SET:
    case MYSQL_TYPE_NEWDATE:
    case MYSQL_TYPE_DATE:
      part->kind = KeyPart::INTEGER;
      break;
    case MYSQL_TYPE_TIME:  // the formats before MySQL 5.6
      part->kind = field->decimals() ? KeyPart::SORT_STRING : KeyPart::INTEGER_SIGNED;
      break;
    case MYSQL_TYPE_TIMESTAMP:
    case MYSQL_TYPE_DATETIME:
      part->kind = field->decimals() ? KeyPart::SORT_STRING : KeyPart::INTEGER;
      break;
    case MYSQL_TYPE_FLOAT:
      part->kind = KeyPart::FLOAT;
      break;
    case MYSQL_TYPE_DOUBLE:
      part->kind = KeyPart::DOUBLE;
      break;
    case MYSQL_TYPE_NEWDECIMAL:
    case MYSQL_TYPE_TIMESTAMP2:
    case MYSQL_TYPE_DATETIME2:
    case MYSQL_TYPE_TIME2:
    case MYSQL_TYPE_BIT:
    case MYSQL_TYPE_STRING:  // BINARY, UUID, INET6
      part->kind = KeyPart::RAW;
      break;
    default:
      part->kind = KeyPart::SORT_STRING;
  }
  // The keys of 0 and -0 are equal.
  bool real = part->kind == KeyPart::FLOAT || part->kind == KeyPart::DOUBLE;
  part->restorable = part->kind != KeyPart::SORT_STRING && !real && !part->prefix;
  part->max_size = part->kind == KeyPart::RAW ? part->length : part->record_length;
}

// Finds the weight levels of a collation and the weight of a space in each.
void describe_levels(KeyPart *part) {
  CHARSET_INFO *cs = part->charset;
  part->levels = 0;
  uint bits = cs->levels_for_order;
  if (part->raw_text || (bits & (bits - 1)) == 0) {
    part->level_flags[part->levels++] = 0;
  } else {
    for (uint level = 0; level < 6; level++)
      if (bits & (1U << level)) part->level_flags[part->levels++] = MY_STRXFRM_LEVEL1 << level;
  }
  char blank[8];
  uint blank_size = cs->mbminlen;
  cs->fill(blank, blank_size, ' ');
  for (uint level = 0; level < part->levels; level++) {
    if (part->raw_text) {
      part->space_size[level] = 1;
      part->space[level][0] = ' ';
      continue;
    }
    uchar weight[64];
    size_t size = cs->strnxfrm(weight, sizeof(weight), UINT_MAX32, reinterpret_cast<const uchar *>(blank), blank_size,
                               part->level_flags[level]);
    if (size == 0 || size > sizeof(part->space[level])) {  // ignorable or long: compared as zero bytes
      size = 1;
      weight[0] = 0;
    }
    part->space_size[level] = static_cast<uint8_t>(size);
    memcpy(part->space[level], weight, size);
  }
}

void describe_text(const Field *field, KeyPart *part) {
  CHARSET_INFO *cs = field->charset();
  part->kind = KeyPart::TEXT;
  part->charset = cs;
  part->raw_text = cs == &my_charset_bin || ((cs->state & MY_CS_BINSORT) && cs->mbminlen == 1);
  bool no_pad = cs == &my_charset_bin || (cs->state & MY_CS_NOPAD);
  // The record pads CHAR with spaces in every collation.
  part->pad_space = !no_pad || part->source == KeyPart::FIXED_BYTES;
  bool spaces_are_known = !part->pad_space || part->source == KeyPart::FIXED_BYTES;
  part->restorable = part->raw_text && spaces_are_known && !part->prefix && part->source != KeyPart::BLOB_BYTES;
  describe_levels(part);
  size_t weights = part->raw_text ? part->length : cs->strnxfrmlen(part->length);
  part->max_size = static_cast<uint>(part->levels * (weights / GROUP + 1) * (GROUP + 1));
}

// ---- numbers ----

void encode_integer(const uchar *data, uint size, bool is_signed, uchar *to) {
  for (uint i = 0; i < size; i++) to[i] = data[size - 1 - i];
  if (is_signed) to[0] ^= 0x80;
}

void decode_integer(const uchar *key, uint size, bool is_signed, uchar *to) {
  for (uint i = 0; i < size; i++) to[size - 1 - i] = key[i];
  if (is_signed) to[size - 1] ^= 0x80;
}

// Floating-point numbers: big-endian; positive ones with the sign bit set, negative ones inverted.
void encode_real(const uchar *data, uint size, uchar *to) {
  encode_integer(data, size, false, to);
  bool zero = (to[0] & 0x7f) == 0;
  for (uint i = 1; zero && i < size; i++) zero = to[i] == 0;
  if (zero) to[0] = 0;  // -0 is equal to 0
  if (to[0] & 0x80) {
    for (uint i = 0; i < size; i++) to[i] = static_cast<uchar>(~to[i]);
  } else {
    to[0] |= 0x80;
  }
}

// ---- groups of weights ----

void encode_no_pad(const uchar *weights, size_t size, Bytes *out) {
  for (;;) {
    uchar *to = out->room(GROUP + 1);
    size_t n = size < GROUP ? size : GROUP;
    memset(to, 0, GROUP);
    if (n) memcpy(to, weights, n);
    bool continues = size > GROUP;
    to[GROUP] = static_cast<uchar>(continues ? static_cast<size_t>(NO_PAD_CONTINUES) : n);
    out->advance(GROUP + 1);
    if (!continues) return;
    weights += GROUP;
    size -= GROUP;
  }
}

// Size of weights without those of trailing spaces.
size_t without_spaces(const uchar *weights, size_t size, const uchar *space, size_t space_size) {
  while (size >= space_size && memcmp(weights + size - space_size, space, space_size) == 0) size -= space_size;
  return size;
}

// Compares weights from a position to the end with an infinite sequence of spaces.
uchar compare_with_spaces(const uchar *weights, size_t from, size_t size, const uchar *space, size_t space_size) {
  for (size_t i = from; i < size; i++) {
    uchar expected = space[i % space_size];
    if (weights[i] != expected) return weights[i] < expected ? REST_LESS : REST_GREATER;
  }
  return REST_EQUAL;
}

void encode_pad_space(const uchar *weights, size_t size, const uchar *space, size_t space_size, Bytes *out) {
  size = without_spaces(weights, size, space, space_size);
  for (size_t from = 0;; from += GROUP) {
    uchar *to = out->room(GROUP + 1);
    for (size_t i = from; i < from + GROUP; i++) *to++ = i < size ? weights[i] : space[i % space_size];
    uchar marker = size <= from + GROUP ? static_cast<uchar>(REST_EQUAL)
                                        : compare_with_spaces(weights, from + GROUP, size, space, space_size);
    *to = marker;
    out->advance(GROUP + 1);
    if (marker == REST_EQUAL) return;
  }
}

// Returns the address behind an encoded string, NULL if it does not end before `end`.
const uchar *skip_text(const KeyPart &part, const uchar *key, const uchar *end) {
  uchar flip = part.descending ? 0xff : 0;
  for (uint level = 0; level < part.levels;) {
    if (end - key < static_cast<ptrdiff_t>(GROUP + 1)) return nullptr;
    uchar marker = key[GROUP] ^ flip;
    key += GROUP + 1;
    if (part.pad_space ? marker == REST_EQUAL : marker != NO_PAD_CONTINUES) level++;
  }
  return key;
}

// ---- columns in the record ----

// Finds the bytes of a column that is not NULL.
void column_bytes(const KeyPart &part, const uchar *record, const uchar **data, size_t *size) {
  const uchar *at = record + part.offset;
  switch (part.source) {
    case KeyPart::FIXED_BYTES:
      *data = at;
      *size = part.record_length;
      return;
    case KeyPart::VARCHAR_BYTES:
      *size = part.length_bytes == 1 ? at[0] : uint2korr(at);
      *data = at + part.length_bytes;
      return;
    case KeyPart::BLOB_BYTES:
      *size = part.length_bytes == 1   ? at[0]
              : part.length_bytes == 2 ? uint2korr(at)
              : part.length_bytes == 3 ? uint3korr(at)
                                       : uint4korr(at);
      memcpy(data, at + part.length_bytes, sizeof(*data));
      return;
  }
}

// Writes the bytes of a string to its column. Blobs point to `data`.
void store_column(const KeyPart &part, const uchar *data, size_t size, uchar *record) {
  uchar *at = record + part.offset;
  if (part.source == KeyPart::BLOB_BYTES) {
    switch (part.length_bytes) {
      case 1: at[0] = static_cast<uchar>(size); break;
      case 2: int2store(at, size); break;
      case 3: int3store(at, size); break;
      default: int4store(at, size);
    }
    memcpy(at + part.length_bytes, &data, sizeof(data));
    return;
  }
  if (part.source == KeyPart::VARCHAR_BYTES) {
    if (part.length_bytes == 1)
      at[0] = static_cast<uchar>(size);
    else
      int2store(at, size);
    if (size) memcpy(at + part.length_bytes, data, size);
    return;
  }
  if (size > part.record_length) size = part.record_length;
  if (size) memcpy(at, data, size);
  if (size < part.record_length && part.charset)
    part.charset->fill(reinterpret_cast<char *>(at + size), part.record_length - size, ' ');
}

// Decodes a reversible string into its column. `bytes` is a work area.
const uchar *decode_text(const KeyPart &part, const uchar *key, const uchar *end, Bytes *bytes, uchar *record) {
  uchar flip = part.descending ? 0xff : 0;
  bytes->clear();
  for (;;) {
    if (end - key < static_cast<ptrdiff_t>(GROUP + 1)) return nullptr;
    uchar marker = key[GROUP] ^ flip;
    bool last = part.pad_space ? marker == REST_EQUAL : marker != NO_PAD_CONTINUES;
    size_t n = part.pad_space || !last ? GROUP : marker;
    if (n > GROUP) return nullptr;
    uchar *to = bytes->room(GROUP);
    for (size_t i = 0; i < n; i++) to[i] = key[i] ^ flip;
    bytes->advance(n);
    key += GROUP + 1;
    if (last) break;
  }
  size_t size = bytes->size();
  if (part.pad_space)
    while (size && bytes->data()[size - 1] == ' ') size--;
  uint capacity = part.source == KeyPart::VARCHAR_BYTES ? part.length : part.record_length;
  if (size > capacity) return nullptr;
  store_column(part, bytes->data(), size, record);
  return key;
}

// Decodes a number, or skips it if it is not reversible.
const uchar *decode_number(const KeyPart &part, const uchar *key, const uchar *end, uchar *record) {
  if (end - key < static_cast<ptrdiff_t>(part.max_size)) return nullptr;
  if (part.restorable) {
    uchar flipped[256];
    const uchar *from = key;
    if (part.descending && part.max_size <= sizeof(flipped)) {
      for (uint i = 0; i < part.max_size; i++) flipped[i] = static_cast<uchar>(~key[i]);
      from = flipped;
    }
    uchar *to = record + part.offset;
    switch (part.kind) {
      case KeyPart::INTEGER: decode_integer(from, part.record_length, false, to); break;
      case KeyPart::INTEGER_SIGNED: decode_integer(from, part.record_length, true, to); break;
      default: memcpy(to, from, part.record_length);
    }
  }
  return key + part.max_size;
}

// Writes a column that the key does not contain from the restore information.
bool restore_column(const KeyPart &part, const uchar **value, const uchar *end, uchar *record) {
  uint64_t size;
  if (!get_varint(value, end, &size) || size > static_cast<uint64_t>(end - *value)) return false;
  if (part.source == KeyPart::VARCHAR_BYTES && size > part.record_length) return false;
  if (part.kind != KeyPart::TEXT && size != part.record_length) return false;
  store_column(part, *value, size, record);
  *value += size;
  return true;
}

}  // namespace

// ---- initialisation ----

static void init_part(const TABLE *table, const KEY_PART_INFO *info, KeyPart *part) {
  memset(static_cast<void *>(part), 0, sizeof(*part));
  Field *field = table->field[info->fieldnr - 1];
  part->field = field;
  part->field_index = field->field_index;
  part->offset = static_cast<uint>(field->ptr - table->record[0]);
  part->nullable = info->null_bit != 0;
  part->null_offset = part->nullable ? field->null_offset() : 0;
  part->null_bit = part->nullable ? field->null_bit : 0;
  part->descending = (info->key_part_flag & HA_REVERSE_SORT) != 0;
  part->length = info->length;
  part->record_length = field->pack_length();
  part->image_length = info->length;
  if (field->flags & BLOB_FLAG) {
    part->source = KeyPart::BLOB_BYTES;
    part->length_bytes = static_cast<uint8_t>(static_cast<Field_blob *>(field)->pack_length_no_ptr());
    part->prefix = true;
    part->image_length += HA_KEY_BLOB_LENGTH;
  } else if (field->real_type() == MYSQL_TYPE_VARCHAR) {
    part->source = KeyPart::VARCHAR_BYTES;
    part->length_bytes = static_cast<uint8_t>(static_cast<Field_varstring *>(field)->length_bytes);
    part->record_length -= part->length_bytes;
    part->prefix = info->length < part->record_length;
    part->image_length += HA_KEY_BLOB_LENGTH;
  } else {
    part->source = KeyPart::FIXED_BYTES;
    part->prefix = info->length < part->record_length;
  }
  bool text = part->source != KeyPart::FIXED_BYTES ||
              field->key_type() == HA_KEYTYPE_TEXT;  // not UUID and INET6, whose charset is not binary
  if (text)
    describe_text(field, part);
  else
    describe_number(field, part);
  // Long fixed-length columns in descending order do not fit decode_number's work area.
  if (!text && part->descending && part->max_size > 256) part->restorable = false;
}

void KeyCodec::init(const TABLE *table, const KEY *key, uint8_t index_number, const KeyCodec *primary) {
  m_index_number = index_number;
  m_primary = primary;
  m_unique = (key->flags & HA_NOSAME) != 0;
  m_hidden = false;
  m_parts.clear();
  m_max_size = 0;
  m_fixed_size = 0;
  m_covers = true;
  bool fixed = true;
  for (uint i = 0; i < key->user_defined_key_parts; i++) {
    KeyPart part;
    init_part(table, key->key_part + i, &part);
    m_max_size += part.max_size + (part.nullable ? 1 : 0);
    if (part.nullable || part.kind == KeyPart::TEXT) fixed = false;
    // Restore information contains what the key does not, unless the index has a prefix of the column.
    if (primary ? (part.prefix) : !part.restorable) m_covers = false;
    m_parts.push_back(part);
  }
  if (fixed) m_fixed_size = m_max_size;
  if (primary && !primary->hidden() && !primary->covers_columns()) m_covers = false;
}

void KeyCodec::init_hidden() {
  m_index_number = 1;
  m_primary = nullptr;
  m_unique = true;
  m_hidden = true;
  m_covers = true;
  m_parts.clear();
  m_max_size = m_fixed_size = 8;
}

bool KeyCodec::contains_primary_columns() const {
  if (!m_primary || m_primary->hidden()) return true;
  for (const KeyPart &part : m_parts)
    for (const KeyPart &primary : m_primary->m_parts)
      if (part.field_index == primary.field_index && part.length != primary.length) return false;
  return true;
}

bool KeyCodec::uses_column(uint field_index) const {
  for (const KeyPart &part : m_parts)
    if (part.field_index == field_index) return true;
  return false;
}

bool KeyCodec::entry_has_column(uint field_index) const {
  for (const KeyPart &part : m_parts)
    if (part.field_index == field_index && (m_primary ? !part.prefix : part.restorable)) return true;
  return m_primary && m_primary->entry_has_column(field_index);
}

// ---- encoding ----

void KeyCodec::encode_text(const KeyPart &part, const uchar *data, size_t size, Bytes *out) const {
  CHARSET_INFO *cs = part.charset;
  if (part.prefix || part.source == KeyPart::BLOB_BYTES) {
    if (cs->mbmaxlen > 1) {
      size_t end = cs->charpos(data, data + size, part.length / cs->mbmaxlen);
      if (end < size) size = end;
    }
    if (size > part.length) size = part.length;
  }
  if (part.pad_space) size = cs->lengthsp(reinterpret_cast<const char *>(data), size);
  for (uint level = 0; level < part.levels; level++) {
    const uchar *weights = data;
    size_t weights_size = size;
    if (!part.raw_text) {
      // The argument is the size of a column, whose characters have mbmaxlen bytes; those of a value may have one.
      size_t room = cs->strnxfrmlen(size * cs->mbmaxlen) + 16;
      m_weights.resize(room);
      weights_size = cs->strnxfrm(m_weights.data(), room, UINT_MAX32, data, size, part.level_flags[level]);
      weights = m_weights.data();
    }
    if (part.pad_space)
      encode_pad_space(weights, weights_size, part.space[level], part.space_size[level], out);
    else
      encode_no_pad(weights, weights_size, out);
  }
}

void KeyCodec::encode_value(const KeyPart &part, const uchar *data, size_t size, Bytes *out) const {
  if (part.kind == KeyPart::TEXT) {
    encode_text(part, data, size, out);
    return;
  }
  uchar *to = out->room(part.max_size);
  switch (part.kind) {
    case KeyPart::INTEGER: encode_integer(data, part.record_length, false, to); break;
    case KeyPart::INTEGER_SIGNED: encode_integer(data, part.record_length, true, to); break;
    case KeyPart::FLOAT:
    case KeyPart::DOUBLE: encode_real(data, part.record_length, to); break;
    case KeyPart::RAW: memcpy(to, data, part.max_size); break;
    default: {
      uchar *ptr = part.field->ptr;
      part.field->ptr = const_cast<uchar *>(data);
      part.field->sort_string(to, part.max_size);
      part.field->ptr = ptr;
    }
  }
  out->advance(part.max_size);
}

static void invert(Bytes *out, size_t from) {
  for (size_t i = from; i < out->size(); i++) out->data()[i] = static_cast<uchar>(~out->data()[i]);
}

bool KeyCodec::encode_record(const uchar *record, Bytes *out) const {
  bool has_null = false;
  out->push(m_index_number);
  for (const KeyPart &part : m_parts) {
    size_t start = out->size();
    bool is_null = part.nullable && (record[part.null_offset] & part.null_bit);
    if (part.nullable) out->push(is_null ? 0 : 1);
    if (is_null) {
      has_null = true;
    } else {
      const uchar *data;
      size_t size;
      column_bytes(part, record, &data, &size);
      encode_value(part, data, size, out);
    }
    if (part.descending) invert(out, start);
  }
  return has_null;
}

bool KeyCodec::encode_entry(const uchar *record, pgb_slice primary_key, Bytes *key, Bytes *value) const {
  bool has_null = encode_record(record, key);
  bool checked = m_unique && !has_null;
  pgb_slice suffix{primary_key.data + 1, primary_key.size - 1};
  if (!checked) key->append(suffix);
  if (m_unique) {
    put_varint(value, checked ? suffix.size : 0);
    if (checked) value->append(suffix);
  }
  for (const KeyPart &part : m_parts) {
    if (part.restorable || part.prefix) continue;
    if (part.nullable && (record[part.null_offset] & part.null_bit)) continue;
    const uchar *data;
    size_t size;
    column_bytes(part, record, &data, &size);
    if (part.kind == KeyPart::TEXT && part.source == KeyPart::FIXED_BYTES)
      size = part.charset->lengthsp(reinterpret_cast<const char *>(data), size);
    put_varint(value, size);
    value->append(data, size);
  }
  return checked;
}

// Appends a column of a key image, which starts behind its null byte.
void KeyCodec::encode_image_part(const KeyPart &part, const uchar *image, Bytes *out) const {
  if (part.source == KeyPart::FIXED_BYTES)
    encode_value(part, image, part.length, out);
  else
    encode_value(part, image + HA_KEY_BLOB_LENGTH, uint2korr(image), out);
}

// Appends the beginning of the primary key that follows the columns of a secondary index. The image behind those columns
// (`image`) holds the columns of the primary key that the index does not have, in their order; the others are repeated
// from the columns of the index, whose images are at `columns`.
void KeyCodec::encode_primary_image(const uchar *const *columns, const uchar *image, const uchar *end, Bytes *out) const {
  for (const KeyPart &part : m_primary->m_parts) {
    const uchar *from = nullptr;
    for (size_t i = 0; i < m_parts.size() && !from; i++)
      if (m_parts[i].field_index == part.field_index) from = columns[i];
    if (!from) {
      if (image >= end) return;
      from = image;
      image += part.image_length;
    }
    size_t start = out->size();
    encode_image_part(part, from, out);
    if (part.descending) invert(out, start);
  }
}

bool KeyCodec::encode_image(const uchar *image, uint image_size, Bytes *out) const {
  const uchar *columns[MAX_REF_PARTS];
  bool has_null = false;
  out->push(m_index_number);
  const uchar *end = image + image_size;
  size_t count = 0;
  for (const KeyPart &part : m_parts) {
    if (image >= end) return has_null;
    size_t start = out->size();
    bool is_null = part.nullable && *image != 0;
    if (part.nullable) {
      out->push(is_null ? 0 : 1);
      image++;
    }
    has_null |= is_null;
    columns[count++] = image;
    if (!is_null) encode_image_part(part, image, out);
    if (part.descending) invert(out, start);
    image += part.image_length;
  }
  if (image < end && m_primary && !m_primary->hidden()) encode_primary_image(columns, image, end, out);
  return has_null;
}

// ---- decoding ----

// Decodes the columns of a key; what it does not contain comes from the restore information at *value, unless that is NULL.
const uchar *KeyCodec::decode_parts(const uchar *key, const uchar *end, const uchar **value, const uchar *value_end,
                                    uchar *record) const {
  for (const KeyPart &part : m_parts) {
    if (part.nullable) {
      if (key >= end) return nullptr;
      bool is_null = static_cast<uchar>(*key++ ^ (part.descending ? 0xff : 0)) == 0;
      if (is_null) {
        record[part.null_offset] |= part.null_bit;
        continue;
      }
      record[part.null_offset] &= static_cast<uchar>(~part.null_bit);
    }
    if (part.kind != KeyPart::TEXT)
      key = decode_number(part, key, end, record);
    else if (part.restorable)
      key = decode_text(part, key, end, &m_weights, record);
    else
      key = skip_text(part, key, end);
    if (!key) return nullptr;
    if (value && !part.restorable && !part.prefix && !restore_column(part, value, value_end, record)) return nullptr;
  }
  return key;
}

const uchar *KeyCodec::skip_parts(const uchar *key, const uchar *end, size_t columns) const {
  if (m_fixed_size && columns == m_parts.size())
    return end - key < static_cast<ptrdiff_t>(m_fixed_size) ? nullptr : key + m_fixed_size;
  for (size_t i = 0; i < columns; i++) {
    const KeyPart &part = m_parts[i];
    if (part.nullable) {
      if (key >= end) return nullptr;
      if (static_cast<uchar>(*key++ ^ (part.descending ? 0xff : 0)) == 0) continue;
    }
    if (part.kind == KeyPart::TEXT) {
      key = skip_text(part, key, end);
      if (!key) return nullptr;
    } else {
      if (end - key < static_cast<ptrdiff_t>(part.max_size)) return nullptr;
      key += part.max_size;
    }
  }
  return key;
}

bool KeyCodec::decode_primary(pgb_slice key, uchar *record) const {
  if (m_hidden || key.size < 1) return true;
  return decode_parts(key.data + 1, key.data + key.size, nullptr, nullptr, record) != nullptr;
}

bool KeyCodec::decode_entry(pgb_slice key, pgb_slice value, uchar *record) const {
  const uchar *at = value.data;
  const uchar *value_end = value.data + value.size;
  pgb_slice primary{nullptr, 0};
  if (m_unique) {
    uint64_t size;
    if (!get_varint(&at, value_end, &size) || size > static_cast<uint64_t>(value_end - at)) return false;
    primary = pgb_slice{at, static_cast<size_t>(size)};
    at += size;
  }
  const uchar *end = key.data + key.size;
  const uchar *behind = decode_parts(key.data + 1, end, &at, value_end, record);
  if (!behind) return false;
  if (primary.size == 0) primary = pgb_slice{behind, static_cast<size_t>(end - behind)};
  if (m_primary->hidden()) return true;
  return m_primary->decode_parts(primary.data, primary.data + primary.size, nullptr, nullptr, record) != nullptr;
}

bool KeyCodec::primary_key_of_entry(pgb_slice key, pgb_slice value, Bytes *out) const {
  if (key.size < 1) return false;
  const uchar *end = key.data + key.size;
  out->push(PRIMARY_INDEX_NUMBER);
  if (m_unique) {
    const uchar *at = value.data;
    const uchar *value_end = value.data + value.size;
    uint64_t size;
    if (!get_varint(&at, value_end, &size) || size > static_cast<uint64_t>(value_end - at)) return false;
    if (size) {
      out->append(at, static_cast<size_t>(size));
      return true;
    }
  } else if (m_primary->fixed_size()) {
    if (key.size < m_primary->fixed_size() + 1) return false;
    out->append(end - m_primary->fixed_size(), m_primary->fixed_size());
    return true;
  }
  const uchar *behind = skip_parts(key.data + 1, end, m_parts.size());
  if (!behind) return false;
  out->append(behind, static_cast<size_t>(end - behind));
  return true;
}

size_t KeyCodec::prefix_size(pgb_slice key, uint columns) const {
  if (key.size < 1) return 0;
  if (m_hidden) return key.size;
  const uchar *behind = skip_parts(key.data + 1, key.data + key.size, columns);
  return behind ? static_cast<size_t>(behind - key.data) : 0;
}

bool KeyCodec::same_columns(const uchar *a, const uchar *b) const {
  for (const KeyPart &part : m_parts) {
    if (part.nullable) {
      bool a_null = (a[part.null_offset] & part.null_bit) != 0;
      bool b_null = (b[part.null_offset] & part.null_bit) != 0;
      if (a_null != b_null) return false;
      if (a_null) continue;
    }
    const uchar *a_data, *b_data;
    size_t a_size, b_size;
    column_bytes(part, a, &a_data, &a_size);
    column_bytes(part, b, &b_data, &b_size);
    if (a_size != b_size || (a_size && memcmp(a_data, b_data, a_size) != 0)) return false;
  }
  return true;
}

// ---- bounds ----

void KeyCodec::begin(Bytes *out) const {
  out->clear();
  out->push(m_index_number);
}

void KeyCodec::end(Bytes *out) const {
  out->clear();
  out->push(static_cast<uchar>(m_index_number + 1));
}

void successor(Bytes *key) {
  size_t size = key->size();
  while (size && key->data()[size - 1] == 0xff) size--;
  key->resize(size);
  if (size) key->data()[size - 1]++;
}

}  // namespace perigee
