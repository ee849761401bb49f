#include "row_codec.h"

namespace perigee {

bool restored_from_primary_key(const KeyCodec &primary, uint field_index) {
  if (primary.hidden()) return false;
  for (const KeyPart &part : primary.parts())
    if (part.field_index == field_index && part.restorable) return true;
  return false;
}

namespace {

// Reads the length of a VARCHAR or BLOB column in the record.
inline size_t read_length(const uchar *at, uint bytes) {
  switch (bytes) {
    case 1: return at[0];
    case 2: return uint2korr(at);
    case 3: return uint3korr(at);
    default: return uint4korr(at);
  }
}

inline void write_length(uchar *at, uint bytes, size_t length) {
  switch (bytes) {
    case 1: at[0] = static_cast<uchar>(length); break;
    case 2: int2store(at, length); break;
    case 3: int3store(at, length); break;
    default: int4store(at, length);
  }
}

// Length of a padded column without its padding.
inline size_t trimmed_length(const uchar *at, size_t length, uchar pad) {
  if (pad == ' ') return my_charset_latin1.lengthsp(reinterpret_cast<const char *>(at), length);
  while (length && at[length - 1] == pad) length--;
  return length;
}

}  // namespace

int RowCodec::init(const TABLE *table, const TableDefinition *definition, const KeyCodec *primary) {
  m_table = table;
  m_definition = definition;
  m_primary = primary;
  m_plans.clear();
  m_all = true;
  m_key_wanted = true;
  uint n = table->s->fields;
  m_column_ids.assign(n, 0);
  m_stored.assign(n, false);
  m_wanted.assign(n, true);
  const RowFormat &current = definition->formats.back();
  for (uint i = 0; i < n; i++) {
    const Field *field = table->field[i];
    const ColumnDefinition *column = definition->find_column(field->field_name.str, field->field_name.length);
    if (!column) return HA_ERR_TABLE_DEF_CHANGED;
    m_column_ids[i] = column->id;
    m_stored[i] = restored_from_primary_key(*primary, i);
    for (const StoredColumn &stored : current.columns)
      if (stored.column_id == column->id) m_stored[i] = true;
    if (!m_stored[i] && field->stored_in_db()) return HA_ERR_TABLE_DEF_CHANGED;
  }
  plan_of(definition->current_format());
  return 0;
}

RowCodec::Step RowCodec::make_step(const StoredColumn &column) const {
  Step step;
  memset(static_cast<void *>(&step), 0, sizeof(step));
  step.kind = column.kind;
  step.nullable = column.nullable;
  step.length = column.length;
  for (uint i = 0; i < m_column_ids.size(); i++) {
    if (m_column_ids[i] != column.column_id) continue;
    const Field *field = m_table->field[i];
    step.target = true;
    step.field_index = i;
    step.offset = static_cast<uint>(field->ptr - m_table->record[0]);
    step.record_length = field->pack_length();
    if (field->real_maybe_null()) {
      step.null_offset = field->null_offset();
      step.null_bit = field->null_bit;
    }
    if (field->flags & BLOB_FLAG)
      step.length_bytes = static_cast<uint8_t>(static_cast<const Field_blob *>(field)->pack_length_no_ptr());
    else if (field->real_type() == MYSQL_TYPE_VARCHAR) {
      step.length_bytes = static_cast<uint8_t>(static_cast<const Field_varstring *>(field)->length_bytes);
      step.record_length -= step.length_bytes;
    }
    step.pad = field->charset() == &my_charset_bin ? 0 : ' ';
  }
  return step;
}

std::unique_ptr<RowCodec::Plan> RowCodec::make_plan(const RowFormat &format) const {
  std::unique_ptr<Plan> plan(new Plan);
  std::vector<bool> present(m_column_ids.size(), false);
  uint nullable = 0;
  for (const StoredColumn &column : format.columns) {
    Step step = make_step(column);
    if (step.nullable) nullable++;
    if (step.target) present[step.field_index] = true;
    plan->steps.push_back(step);
  }
  plan->bitmap_bytes = (nullable + 7) / 8;
  for (uint i = 0; i < m_column_ids.size(); i++) {
    if (present[i] || !m_stored[i] || restored_from_primary_key(*m_primary, i)) continue;
    const Field *field = m_table->field[i];
    const ColumnDefinition *column = m_definition->column_by_id(m_column_ids[i]);
    StoredColumn stored;
    stored.column_id = m_column_ids[i];
    uint32_t length;
    stored.kind = value_kind(field, &length);
    stored.nullable = false;
    stored.length = length;
    plan->missing.push_back(Missing{make_step(stored), column->missing_is_null, &column->missing_value});
  }
  apply_selection(plan.get());
  return plan;
}

RowCodec::Plan *RowCodec::plan_of(uint32_t format) {
  if (format >= m_definition->formats.size()) return nullptr;
  if (m_plans.size() <= format) m_plans.resize(m_definition->formats.size());
  if (!m_plans[format]) m_plans[format] = make_plan(m_definition->formats[format]);
  return m_plans[format].get();
}

void RowCodec::apply_selection(Plan *plan) const {
  plan->last_wanted = 0;
  for (size_t i = 0; i < plan->steps.size(); i++) {
    Step &step = plan->steps[i];
    step.wanted = step.target && (m_all || m_wanted[step.field_index]);
    if (step.wanted) plan->last_wanted = i + 1;
  }
  for (Missing &missing : plan->missing) missing.step.wanted = m_all || m_wanted[missing.step.field_index];
}

void RowCodec::select_columns(const MY_BITMAP *read_set) {
  if (!read_set && m_all) return;
  m_all = !read_set;
  m_key_wanted = m_all;
  if (read_set) {
    for (uint i = 0; i < m_wanted.size(); i++) m_wanted[i] = bitmap_is_set(read_set, i);
    for (const KeyPart &part : m_primary->parts())
      if (part.restorable && m_wanted[part.field_index]) m_key_wanted = true;
  }
  for (std::unique_ptr<Plan> &plan : m_plans)
    if (plan) apply_selection(plan.get());
}

void RowCodec::pack(const uchar *record, Bytes *out) const {
  const Plan &plan = *m_plans[m_definition->current_format()];
  out->clear();
  put_varint(out, m_definition->current_format());
  size_t bitmap = out->size();
  memset(out->room(plan.bitmap_bytes), 0, plan.bitmap_bytes);
  out->advance(plan.bitmap_bytes);
  uint null_index = 0;
  for (const Step &step : plan.steps) {
    if (step.nullable) {
      bool is_null = (record[step.null_offset] & step.null_bit) != 0;
      if (is_null) out->data()[bitmap + null_index / 8] |= static_cast<uchar>(1 << (null_index % 8));
      null_index++;
      if (is_null) continue;
    }
    const uchar *at = record + step.offset;
    switch (step.kind) {
      case ValueKind::FIXED: out->append(at, step.length); break;
      case ValueKind::PADDED: {
        size_t size = trimmed_length(at, step.record_length, step.pad);
        put_varint(out, size);
        out->append(at, size);
        break;
      }
      case ValueKind::VARCHAR: {
        size_t size = read_length(at, step.length_bytes);
        put_varint(out, size);
        out->append(at + step.length_bytes, size);
        break;
      }
      case ValueKind::BLOB: {
        size_t size = read_length(at, step.length_bytes);
        const uchar *data;
        memcpy(&data, at + step.length_bytes, sizeof(data));
        put_varint(out, size);
        out->append(data, size);
      }
    }
  }
}

bool RowCodec::same_values(const uchar *a, const uchar *b) const {
  for (const Step &step : m_plans[m_definition->current_format()]->steps) {
    if (step.nullable) {
      bool a_null = (a[step.null_offset] & step.null_bit) != 0;
      bool b_null = (b[step.null_offset] & step.null_bit) != 0;
      if (a_null != b_null) return false;
      if (a_null) continue;
    }
    const uchar *x = a + step.offset, *y = b + step.offset;
    size_t size = step.record_length;
    if (step.length_bytes) {
      size = read_length(x, step.length_bytes);
      if (size != read_length(y, step.length_bytes)) return false;
      x += step.length_bytes;
      y += step.length_bytes;
      if (step.kind == ValueKind::BLOB) {
        memcpy(&x, x, sizeof(x));
        memcpy(&y, y, sizeof(y));
      }
    }
    if (size && memcmp(x, y, size) != 0) return false;
  }
  return true;
}

// Writes a value that is not NULL to its column.
static inline void store_value(ValueKind kind, uint length_bytes, uint record_length, uchar pad, const uchar *data,
                               size_t size, uchar *at) {
  switch (kind) {
    case ValueKind::FIXED:
    case ValueKind::PADDED:
      if (size > record_length) size = record_length;
      memcpy(at, data, size);
      if (size < record_length) memset(at + size, pad, record_length - size);
      return;
    case ValueKind::VARCHAR:
      write_length(at, length_bytes, size);
      memcpy(at + length_bytes, data, size);
      return;
    case ValueKind::BLOB:
      write_length(at, length_bytes, size);
      memcpy(at + length_bytes, &data, sizeof(data));
  }
}

// Marks a column NULL; its bytes are cleared, because the server may compare whole records.
static inline void store_null(ValueKind kind, uint null_offset, uchar null_bit, uint record_length, uchar *at,
                              uchar *record) {
  if (null_bit) record[null_offset] |= null_bit;
  if (kind == ValueKind::FIXED) memset(at, 0, record_length);
}

void RowCodec::store_missing(const Plan &plan, uchar *record) {
  for (const Missing &missing : plan.missing) {
    const Step &step = missing.step;
    if (!step.wanted) continue;
    uchar *at = record + step.offset;
    if (missing.is_null) {
      store_null(step.kind, step.null_offset, step.null_bit, step.record_length, at, record);
      continue;
    }
    if (step.null_bit) record[step.null_offset] &= static_cast<uchar>(~step.null_bit);
    const uchar *data = reinterpret_cast<const uchar *>(missing.value->data());
    store_value(step.kind, step.length_bytes, step.record_length, step.pad, data, missing.value->size(), at);
  }
}

int RowCodec::unpack(pgb_slice key, pgb_slice row, uchar *record) {
  const uchar *from = row.data;
  const uchar *end = row.data + row.size;
  uint64_t format;
  if (unlikely(!get_varint(&from, end, &format) || format >= m_definition->formats.size())) return HA_ERR_CRASHED;
  const Plan *plan = plan_of(static_cast<uint32_t>(format));
  const uchar *bitmap = from;
  if (unlikely(static_cast<size_t>(end - from) < plan->bitmap_bytes)) return HA_ERR_CRASHED;
  from += plan->bitmap_bytes;
  uint null_index = 0;
  const Step *step = plan->steps.data();
  for (const Step *last = step + plan->last_wanted; step < last; step++) {
    if (step->nullable) {
      bool is_null = (bitmap[null_index / 8] >> (null_index % 8)) & 1;
      null_index++;
      if (is_null) {
        if (step->wanted)
          store_null(step->kind, step->null_offset, step->null_bit, step->record_length, record + step->offset, record);
        continue;
      }
    }
    uint64_t size = step->length;
    if (step->kind != ValueKind::FIXED && unlikely(!get_varint(&from, end, &size))) return HA_ERR_CRASHED;
    if (unlikely(size > static_cast<uint64_t>(end - from))) return HA_ERR_CRASHED;
    if (step->wanted) {
      if (step->null_bit) record[step->null_offset] &= static_cast<uchar>(~step->null_bit);
      if (unlikely(step->kind == ValueKind::VARCHAR && size > step->record_length)) return HA_ERR_CRASHED;
      store_value(step->kind, step->length_bytes, step->record_length, step->pad, from, static_cast<size_t>(size),
                  record + step->offset);
    }
    from += size;
  }
  if (unlikely(!plan->missing.empty())) store_missing(*plan, record);
  if (m_key_wanted && !m_primary->decode_primary(key, record)) return HA_ERR_CRASHED;
  return 0;
}

}  // namespace perigee
