#include "table_definition.h"

#include "key_codec.h"
#include "row_codec.h"

#include <algorithm>

namespace perigee {

static const uchar definition_key_bytes[] = {METADATA_INDEX, 'd'};
static const uchar auto_increment_key_bytes[] = {METADATA_INDEX, 'a'};
static const uchar statistics_key_bytes[] = {METADATA_INDEX, 's'};
const pgb_slice definition_key{definition_key_bytes, sizeof(definition_key_bytes)};
const pgb_slice auto_increment_key{auto_increment_key_bytes, sizeof(auto_increment_key_bytes)};
const pgb_slice statistics_key{statistics_key_bytes, sizeof(statistics_key_bytes)};

namespace {

constexpr uint8_t DEFINITION_VERSION = 1;
const uchar MAGIC[4] = {'P', 'G', 'D', 'F'};
constexpr size_t CHECKSUM_SIZE = 8;

// Names of columns and indexes are compared like identifiers of the server.
bool same_name(const std::string &a, const char *name, size_t size) {
  return a.size() == size
             ? my_strnncoll(system_charset_info, reinterpret_cast<const uchar *>(a.data()), a.size(),
                            reinterpret_cast<const uchar *>(name), size) == 0
             : false;
}

// FNV-1a.
uint64_t checksum(const uchar *data, size_t size) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (size_t i = 0; i < size; i++) hash = (hash ^ data[i]) * 0x100000001b3ULL;
  return hash;
}

void put_string(Bytes *out, const std::string &text) {
  put_varint(out, text.size());
  out->append(text.data(), text.size());
}

// Reads the binary form; after an error all values are 0 and `failed` is set.
struct Reader {
  const uchar *at;
  const uchar *end;
  bool failed = false;

  uint64_t number() {
    uint64_t value = 0;
    if (failed || !get_varint(&at, end, &value)) {
      failed = true;
      return 0;
    }
    return value;
  }
  // A count of things that take at least one byte each.
  size_t count() {
    uint64_t value = number();
    if (value > static_cast<uint64_t>(end - at)) failed = true;
    return failed ? 0 : static_cast<size_t>(value);
  }
  std::string string() {
    size_t size = count();
    std::string text(reinterpret_cast<const char *>(at), size);
    at += size;
    return text;
  }
};

bool is_indexed(const TABLE *table, uint field_index) {
  for (uint i = 0; i < table->s->keys; i++) {
    const KEY *key = table->key_info + i;
    for (uint part = 0; part < key->user_defined_key_parts; part++)
      if (key->key_part[part].fieldnr == field_index + 1U) return true;
  }
  return false;
}

void put_row_format(const RowFormat &format, Bytes *out) {
  put_varint(out, format.columns.size());
  for (const StoredColumn &column : format.columns) {
    put_varint(out, column.column_id);
    put_varint(out, static_cast<uint64_t>(column.kind));
    put_varint(out, column.nullable ? 1 : 0);
    put_varint(out, column.length);
  }
}

RowFormat read_row_format(Reader *in) {
  RowFormat format;
  size_t n = in->count();
  for (size_t i = 0; i < n && !in->failed; i++) {
    StoredColumn column;
    column.column_id = static_cast<uint32_t>(in->number());
    uint64_t kind = in->number();
    if (kind < static_cast<uint64_t>(ValueKind::FIXED) || kind > static_cast<uint64_t>(ValueKind::BLOB))
      in->failed = true;
    column.kind = static_cast<ValueKind>(kind);
    column.nullable = in->number() != 0;
    column.length = static_cast<uint32_t>(in->number());
    format.columns.push_back(column);
  }
  return format;
}

bool same_format(const RowFormat &a, const RowFormat &b) {
  if (a.columns.size() != b.columns.size()) return false;
  for (size_t i = 0; i < a.columns.size(); i++) {
    const StoredColumn &x = a.columns[i], &y = b.columns[i];
    if (x.column_id != y.column_id || x.kind != y.kind || x.nullable != y.nullable || x.length != y.length) return false;
  }
  return true;
}

}  // namespace

ValueKind value_kind(const Field *field, uint32_t *length) {
  *length = 0;
  if (field->flags & BLOB_FLAG) return ValueKind::BLOB;
  if (field->real_type() == MYSQL_TYPE_VARCHAR) return ValueKind::VARCHAR;
  *length = field->pack_length();
  if (field->real_type() != MYSQL_TYPE_STRING && field->real_type() != MYSQL_TYPE_VAR_STRING) return ValueKind::FIXED;
  CHARSET_INFO *cs = field->charset();
  if (field->key_type() != HA_KEYTYPE_TEXT)  // BINARY, UUID, INET6
    return cs == &my_charset_bin && *length > 16 ? ValueKind::PADDED : ValueKind::FIXED;
  if (cs->mbminlen > 1 || *length <= 4) return ValueKind::FIXED;
  return ValueKind::PADDED;
}

bool column_is_in_rows(const TABLE *table, const Field *field, const KeyCodec *primary) {
  if (!field->stored_in_db() && !is_indexed(table, field->field_index)) return false;
  return !(primary && restored_from_primary_key(*primary, field->field_index));
}

TableDefinition TableDefinition::for_new_table(const TABLE *table) {
  TableDefinition definition;
  for (Field **field = table->field; *field; field++)
    definition.add_column((*field)->field_name.str, (*field)->field_name.length);
  definition.hidden_primary_key = table->s->primary_key == MAX_KEY;
  for (uint i = 0; i < table->s->keys; i++) {
    const KEY *key = table->key_info + i;
    if (i == table->s->primary_key)
      definition.indexes.push_back(IndexDefinition{std::string(key->name.str, key->name.length), PRIMARY_INDEX});
    else
      definition.add_index(key->name.str, key->name.length);
  }
  definition.set_row_format(table);
  return definition;
}

void TableDefinition::set_row_format(const TABLE *table) {
  KeyCodec primary;
  bool has_primary = table->s->primary_key != MAX_KEY;
  if (has_primary) primary.init(table, table->key_info + table->s->primary_key, PRIMARY_INDEX, nullptr);
  RowFormat format;
  for (Field **at = table->field; *at; at++) {
    const Field *field = *at;
    if (!column_is_in_rows(table, field, has_primary ? &primary : nullptr)) continue;
    const ColumnDefinition *column = find_column(field->field_name.str, field->field_name.length);
    if (!column) continue;
    StoredColumn stored;
    stored.column_id = column->id;
    uint32_t length;
    stored.kind = value_kind(field, &length);
    stored.nullable = field->real_maybe_null();
    stored.length = stored.kind == ValueKind::FIXED ? length : 0;
    format.columns.push_back(stored);
  }
  if (formats.empty() || !same_format(formats.back(), format)) formats.push_back(std::move(format));
}

const ColumnDefinition *TableDefinition::find_column(const char *name, size_t size) const {
  for (const ColumnDefinition &column : columns)
    if (same_name(column.name, name, size)) return &column;
  return nullptr;
}

ColumnDefinition *TableDefinition::find_column(const char *name, size_t size) {
  return const_cast<ColumnDefinition *>(static_cast<const TableDefinition *>(this)->find_column(name, size));
}

const ColumnDefinition *TableDefinition::column_by_id(uint32_t id) const {
  for (const ColumnDefinition &column : columns)
    if (column.id == id) return &column;
  return nullptr;
}

ColumnDefinition *TableDefinition::add_column(const char *name, size_t size) {
  ColumnDefinition column;
  column.id = next_column_id++;
  column.name.assign(name, size);
  columns.push_back(std::move(column));
  return &columns.back();
}

void TableDefinition::remove_column(const char *name, size_t size) {
  columns.erase(std::remove_if(columns.begin(), columns.end(),
                               [&](const ColumnDefinition &column) { return same_name(column.name, name, size); }),
                columns.end());
}

uint8_t TableDefinition::index_number(const char *name, size_t size) const {
  for (const IndexDefinition &index : indexes)
    if (same_name(index.name, name, size)) return index.number;
  return 0;
}

uint8_t TableDefinition::add_index(const char *name, size_t size) {
  for (unsigned number = FIRST_SECONDARY_INDEX; number <= LAST_SECONDARY_INDEX; number++) {
    bool used = std::find(dropped_indexes.begin(), dropped_indexes.end(), number) != dropped_indexes.end();
    for (const IndexDefinition &index : indexes) used |= index.number == number;
    if (used) continue;
    indexes.push_back(IndexDefinition{std::string(name, size), static_cast<uint8_t>(number)});
    return static_cast<uint8_t>(number);
  }
  return 0;
}

void TableDefinition::remove_index(const char *name, size_t size) {
  for (size_t i = 0; i < indexes.size(); i++) {
    if (!same_name(indexes[i].name, name, size)) continue;
    dropped_indexes.push_back(indexes[i].number);
    indexes.erase(indexes.begin() + static_cast<ptrdiff_t>(i));
    return;
  }
}

void TableDefinition::rename_index(const char *from, size_t from_size, const char *to, size_t to_size) {
  for (IndexDefinition &index : indexes)
    if (same_name(index.name, from, from_size)) {
      index.name.assign(to, to_size);
      return;
    }
}

// Layout: magic, version, flags, numbers, columns, indexes, dropped indexes, row formats, checksum of all before.
void TableDefinition::serialize(Bytes *out) const {
  out->clear();
  out->append(MAGIC, sizeof(MAGIC));
  out->push(DEFINITION_VERSION);
  out->push(hidden_primary_key ? 1 : 0);
  put_varint(out, table_version);
  put_varint(out, next_column_id);
  put_string(out, ttl_column);
  put_varint(out, columns.size());
  for (const ColumnDefinition &column : columns) {
    put_varint(out, column.id);
    put_string(out, column.name);
    put_varint(out, column.missing_is_null ? 1 : 0);
    put_string(out, column.missing_value);
  }
  put_varint(out, indexes.size());
  for (const IndexDefinition &index : indexes) {
    put_varint(out, index.number);
    put_string(out, index.name);
  }
  put_varint(out, dropped_indexes.size());
  for (uint8_t number : dropped_indexes) put_varint(out, number);
  put_varint(out, formats.size());
  for (const RowFormat &format : formats) put_row_format(format, out);
  uint64_t sum = checksum(out->data(), out->size());
  int8store(out->room(CHECKSUM_SIZE), sum);
  out->advance(CHECKSUM_SIZE);
}

int TableDefinition::parse(pgb_slice bytes) {
  size_t header = sizeof(MAGIC) + 2;
  if (bytes.size < header + CHECKSUM_SIZE || memcmp(bytes.data, MAGIC, sizeof(MAGIC)) != 0) return HA_ERR_CRASHED;
  size_t size = bytes.size - CHECKSUM_SIZE;
  if (checksum(bytes.data, size) != uint8korr(bytes.data + size)) return HA_ERR_CRASHED;
  if (bytes.data[sizeof(MAGIC)] > DEFINITION_VERSION) return HA_ERR_INCOMPATIBLE_DEFINITION;
  *this = TableDefinition();
  hidden_primary_key = (bytes.data[sizeof(MAGIC) + 1] & 1) != 0;
  Reader in{bytes.data + header, bytes.data + size};
  table_version = in.number();
  next_column_id = static_cast<uint32_t>(in.number());
  ttl_column = in.string();
  for (size_t n = in.count(); n > 0 && !in.failed; n--) {
    ColumnDefinition column;
    column.id = static_cast<uint32_t>(in.number());
    column.name = in.string();
    column.missing_is_null = in.number() != 0;
    column.missing_value = in.string();
    columns.push_back(std::move(column));
  }
  for (size_t n = in.count(); n > 0 && !in.failed; n--) {
    IndexDefinition index;
    index.number = static_cast<uint8_t>(in.number());
    index.name = in.string();
    indexes.push_back(std::move(index));
  }
  for (size_t n = in.count(); n > 0 && !in.failed; n--) dropped_indexes.push_back(static_cast<uint8_t>(in.number()));
  for (size_t n = in.count(); n > 0 && !in.failed; n--) formats.push_back(read_row_format(&in));
  return in.failed || in.at != in.end || formats.empty() ? HA_ERR_CRASHED : 0;
}

}  // namespace perigee
