// ALTER TABLE without a copy of the table, and REPAIR TABLE.
//
// Instant changes write a new definition. Index builds write the entries first, while other transactions write to the table:
// see DESIGN.md, "Index builds". Their index number, and that of the change log, are in the stored definition as dropped
// until then, so that a crash leaves nothing but entries that the next ALTER TABLE deletes. The definitions of all partitions
// are written in one engine transaction.
#include "compat.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ddl.h"
#include "ha_perigee.h"
#include "index_builder.h"
#include "index_builds.h"
#include "system_variables.h"
#include "table_definition.h"
#include "table_share.h"
#include "transaction.h"

using namespace perigee;

namespace {

// Changes of metadata only. ADD COLUMN, NULL and type changes have further conditions.
constexpr alter_table_operations INSTANT_OPERATIONS =
    ALTER_ADD_STORED_BASE_COLUMN | ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN | ALTER_DROP_STORED_COLUMN |
    ALTER_COLUMN_NAME | ALTER_COLUMN_DEFAULT | ALTER_CHANGE_COLUMN_DEFAULT | ALTER_STORED_COLUMN_ORDER |
    ALTER_VIRTUAL_COLUMN_ORDER | ALTER_COLUMN_NULLABLE | ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_COLUMN_INDEX_LENGTH |
    ALTER_COLUMN_OPTION | ALTER_COLUMN_COLUMN_FORMAT | ALTER_COLUMN_STORAGE_TYPE | ALTER_OPTIONS | ALTER_RENAME |
    ALTER_RENAME_INDEX | ALTER_INDEX_ORDER | ALTER_INDEX_IGNORABILITY | ALTER_CHANGE_INDEX_COMMENT |
    ALTER_DROP_CHECK_CONSTRAINT | ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_UNIQUE_INDEX | ALTER_PARTITIONED;
constexpr alter_table_operations BUILD_OPERATIONS = ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX;

// An online build catches up with other writers until a pass found so few changed rows, or so often; the last pass blocks
// the table.
constexpr uint64_t FEW_CHANGES = 200;
constexpr uint MAX_PASSES = 20;

// Savepoint of the engine transaction around locks that are released at once; statements and users have lower numbers.
constexpr uint64_t LOCK_SAVEPOINT = UINT64_MAX;

// State of an ALTER TABLE between prepare and commit, one for each partition.
class AlterContext : public inplace_alter_handler_ctx {
 public:
  AlterContext(TableShare *table_share) : share(table_share), definition(*table_share->definition()) { share->retain(); }
  ~AlterContext() override {
    if (online) share->end_change_log();
    share->release();
  }

  struct Build {
    KEY *key;
    uint8_t number;
  };
  TableShare *const share;
  TableDefinition definition;  // the new one
  std::vector<Build> builds;
  std::unique_ptr<IndexBuilder> builder;
  bool online = false;  // others may write during the build: the change log is on
};

KEY *find_key(TABLE *table, const LEX_CSTRING &name) {
  for (uint i = 0; i < table->s->keys; i++) {
    if (names_are_equal(table->key_info[i].name.str, name.str)) return table->key_info + i;
  }
  return nullptr;
}

bool in_any_key(const TABLE *table, const Field *field) {
  for (uint i = 0; i < table->s->keys; i++) {
    const KEY &key = table->key_info[i];
    for (uint part = 0; part < key.user_defined_key_parts; part++) {
      if (key.key_part[part].fieldnr == field->field_index + 1U) return true;
    }
  }
  return false;
}

// The field of the old table from which a field of the new one is made; NULL if it was added.
Field *old_field(const Alter_inplace_info *info, uint new_index) {
  List_iterator_fast<Create_field> fields(info->alter_info->create_list);
  Create_field *field = fields++;
  for (uint i = 0; field && i < new_index; i++) field = fields++;
  return field ? field->field : nullptr;
}

// True if the value of an added column can be recorded in the definition, because it is the same for all rows.
bool has_constant_default(const Field *field) {
  if (field->unireg_check == Field::NEXT_NUMBER || field->vers_sys_field()) return false;
  return !field->default_value || !(field->default_value->flags & ~VCOL_TIME_FUNC);
}

const char *reason_against_columns(const TABLE *table, const TABLE *altered, const Alter_inplace_info *info) {
  for (Field **at = altered->field; *at; at++) {
    const Field *field = *at, *old = old_field(info, field->field_index);
    if (!old) {
      if (field->stored_in_db() && !has_constant_default(field)) return "the default of an added column is not constant";
      if (!field->stored_in_db() && in_any_key(altered, field)) return "an added virtual column is indexed";
      continue;
    }
    if (old->real_maybe_null() != field->real_maybe_null() && (in_any_key(table, old) || in_any_key(altered, field)))
      return "the NULL attribute of an indexed column changes";
    // Rows contain virtual columns only if they are indexed.
    if (!field->stored_in_db() && in_any_key(altered, field) && !in_any_key(table, old))
      return "an index on a virtual column is added";
  }
  return nullptr;
}

// The primary key, which orders the rows, must stay the same index with the same columns.
bool same_primary_key(const TABLE *table, const TABLE *altered, const Alter_inplace_info *info) {
  if (table->s->primary_key == MAX_KEY || altered->s->primary_key == MAX_KEY)
    return table->s->primary_key == altered->s->primary_key;
  const KEY &before = table->key_info[table->s->primary_key], &after = altered->key_info[altered->s->primary_key];
  if (before.user_defined_key_parts != after.user_defined_key_parts) return false;
  for (uint i = 0; i < before.user_defined_key_parts; i++) {
    const KEY_PART_INFO &old_part = before.key_part[i], &new_part = after.key_part[i];
    const Field *old = old_field(info, new_part.fieldnr - 1);
    if (!old || old->field_index + 1U != old_part.fieldnr) return false;
    if ((old_part.key_part_flag ^ new_part.key_part_flag) & (HA_REVERSE_SORT | HA_PART_KEY_SEG)) return false;
  }
  return true;
}

const char *reason_against_inplace(const TABLE *table, const TABLE *altered, const Alter_inplace_info *info) {
  if (info->handler_flags & ~(INSTANT_OPERATIONS | BUILD_OPERATIONS)) return "the operation needs a copy of the table";
  if (info->create_info->used_fields & HA_CREATE_USED_ENGINE) return "the table is rebuilt";
  if (info->error_if_not_empty) return "an added column has no valid default value";
  if (info->ignore && (info->handler_flags & ALTER_ADD_UNIQUE_INDEX)) return "IGNORE removes duplicate rows";
  if (!same_primary_key(table, altered, info)) return "the primary key changes";
  return reason_against_columns(table, altered, info);
}

// A column value as rows contain it, without its length.
std::string value_in_row(const Field *field) {
  uint32_t length;
  const char *at = reinterpret_cast<const char *>(field->ptr);
  switch (value_kind(field, &length)) {
    case ValueKind::FIXED: return std::string(at, length);
    case ValueKind::PADDED: {
      const char pad = field->charset() == &my_charset_bin ? '\0' : ' ';
      size_t size = field->pack_length();
      while (size > 0 && at[size - 1] == pad) size--;
      return std::string(at, size);
    }
    case ValueKind::VARCHAR: {
      const uint length_bytes = static_cast<const Field_varstring *>(field)->length_bytes;
      const size_t size = length_bytes == 1 ? field->ptr[0] : uint2korr(field->ptr);
      return std::string(at + length_bytes, size);
    }
    case ValueKind::BLOB: {
      const Field_blob *blob = static_cast<const Field_blob *>(field);
      return std::string(reinterpret_cast<const char *>(blob->get_ptr()), blob->get_length());
    }
  }
  return std::string();
}

int set_missing_value(Field *field, ColumnDefinition *column) {
  field->set_notnull();
  if (field->set_default() < 0) return HA_ERR_INTERNAL_ERROR;
  column->missing_is_null = field->real_maybe_null() && field->is_null();
  column->missing_value = column->missing_is_null ? std::string() : value_in_row(field);
  return 0;
}

// Removes dropped columns, renames, adds, and appends a row format.
int change_columns(TABLE *altered, const Alter_inplace_info *info, TableDefinition *definition) {
  std::vector<ColumnDefinition> columns;
  std::vector<Field *> added;
  for (Field **at = altered->field; *at; at++) {
    const Field *old = old_field(info, (*at)->field_index);
    const ColumnDefinition *column =
        old ? definition->find_column(old->field_name.str, old->field_name.length) : nullptr;
    if (old && !column) return HA_ERR_TABLE_DEF_CHANGED;
    if (!column) {
      added.push_back(*at);
      continue;
    }
    columns.push_back(*column);
    columns.back().name.assign((*at)->field_name.str, (*at)->field_name.length);
  }
  definition->columns = std::move(columns);
  for (Field *field : added) {
    ColumnDefinition *column = definition->add_column(field->field_name.str, field->field_name.length);
    int error = field->stored_in_db() ? set_missing_value(field, column) : 0;
    if (error) return error;
  }
  definition->set_row_format(altered);
  const ha_table_option_struct *options = altered->s->option_struct;
  definition->ttl_column = options && options->ttl_column ? options->ttl_column : "";
  return 0;
}

// Two indexes may exchange their names.
void rename_indexes(Alter_inplace_info *info, TableDefinition *definition) {
  std::vector<IndexDefinition *> renamed;
  for (const auto &pair : info->rename_keys) {
    const uint8_t number = definition->index_number(pair.old_key->name.str, pair.old_key->name.length);
    for (IndexDefinition &index : definition->indexes) {
      if (index.number == number) renamed.push_back(&index);
    }
  }
  size_t i = 0;
  for (const auto &pair : info->rename_keys) {
    if (i < renamed.size()) renamed[i++]->name.assign(pair.new_key->name.str, pair.new_key->name.length);
  }
}

int change_indexes(TABLE *altered, Alter_inplace_info *info, AlterContext *context) {
  TableDefinition *definition = &context->definition;
  for (uint i = 0; i < info->index_drop_count; i++) {
    const LEX_CSTRING &name = info->index_drop_buffer[i]->name;
    definition->remove_index(name.str, name.length);
  }
  rename_indexes(info, definition);
  for (uint i = 0; i < info->index_add_count; i++) {
    const LEX_CSTRING &name = info->key_info_buffer[info->index_add_buffer[i]].name;
    KEY *key = find_key(altered, name);
    const uint8_t number = key ? definition->add_index(name.str, name.length) : 0;
    if (!number) return HA_ERR_INTERNAL_ERROR;
    context->builds.push_back({key, number});
  }
  return 0;
}

// Deletes what dropped or interrupted indexes have left, and frees their numbers.
int clean_dropped_indexes(TableShare *share) {
  TableDefinition definition = *share->definition();
  if (definition.dropped_indexes.empty()) return 0;
  for (uint8_t number : definition.dropped_indexes) {
    const int error = delete_index_entries(share->table(), number);
    if (error) return error;
  }
  definition.dropped_indexes.clear();
  return share->write_definition(definition, PGB_SYNC);
}

// Records the numbers of indexes that will be built, and that of the change log, as dropped in the definition that is still
// valid. That of the log stays there in the new definition until the log is deleted.
int reserve_numbers(AlterContext *context) {
  if (context->builds.empty()) return 0;
  TableDefinition definition = *context->share->definition();
  for (const AlterContext::Build &build : context->builds) definition.dropped_indexes.push_back(build.number);
  definition.dropped_indexes.push_back(CHANGE_LOG_INDEX);
  context->definition.dropped_indexes.push_back(CHANGE_LOG_INDEX);
  return context->share->write_definition(definition, PGB_SYNC);
}

// Waits for prepared XA transactions, which have no metadata lock after a disconnect or restart. The caller has an exclusive
// metadata lock: nothing else writes afterwards.
int wait_for_prepared(THD *thd, const TableShare &share) {
  Transaction *transaction = Transaction::get(thd);
  pgb_trx *trx = transaction ? transaction->engine_trx() : nullptr;
  if (!trx) return HA_ERR_OUT_OF_MEM;
  const uchar begin[] = {PRIMARY_INDEX}, end[] = {LAST_SECONDARY_INDEX + 1};
  transaction->set_lock_wait(thd, false);
  pgb_status status = pgb_trx_savepoint(trx, LOCK_SAVEPOINT);
  if (status != PGB_OK) return transaction->handle_status(thd, status);
  const int error =
      transaction->handle_status(thd, pgb_lock_range(trx, share.table(), {begin, 1}, {end, 1}, PGB_LOCK_SHARED));
  status = pgb_trx_rollback_to(trx, LOCK_SAVEPOINT);
  if (status == PGB_OK) status = pgb_trx_release_savepoint(trx, LOCK_SAVEPOINT);
  return error ? error : transaction->handle_status(thd, status);
}

// Deletes what a build has written so far. Transactions that are still open may add to the change log: the numbers stay
// reserved until the next ALTER TABLE.
void abandon_online_build(AlterContext *context) {
  context->share->end_change_log();
  context->online = false;
  context->builder.reset();
  for (const AlterContext::Build &build : context->builds) delete_index_entries(context->share->table(), build.number);
  delete_index_entries(context->share->table(), CHANGE_LOG_INDEX);
}

// Applies what others have written since the last pass, when nothing can be written any more.
int finish_online_builds(THD *thd, const std::vector<AlterContext *> &contexts) {
  for (AlterContext *context : contexts) {
    if (!context->online) continue;
    uint64_t changes;
    if (int error = wait_for_prepared(thd, *context->share)) return error;
    if (context->builder->catch_up(&changes)) return HA_ERR_INTERNAL_ERROR;  // reported
    context->share->end_change_log();
    context->online = false;
  }
  return 0;
}

// Writes the new definitions of all partitions, atomically and durably.
int write_definitions(const std::vector<AlterContext *> &contexts) {
  pgb_trx *trx = nullptr;
  int error = report_status("ALTER TABLE", pgb_trx_begin(engine, 0, &trx));
  for (AlterContext *context : contexts) {
    if (error) break;
    Bytes bytes;
    context->definition.serialize(&bytes);
    error = report_status("ALTER TABLE", pgb_trx_put(trx, context->share->table(), definition_key, bytes.slice(), 0));
  }
  if (!error) error = report_status("ALTER TABLE", pgb_trx_commit(trx, PGB_SYNC));
  if (trx) pgb_trx_free(trx);
  return error;
}

// After the commit. Errors leave entries that the next ALTER TABLE deletes.
void finish_alter(AlterContext *context, const pgb_table_options *options) {
  TableShare *share = context->share;
  context->builder.reset();
  for (const AlterContext::Build &build : context->builds) note_index_built(share->name(), build.number);
  if (options && pgb_table_set_options(share->table(), options) != PGB_OK)
    sql_print_error("PERIGEE: ALTER TABLE: options of '%s': %s", share->name().c_str(), pgb_last_error());
  share->write_auto_increment();
  share->write_definition(context->definition, PGB_NO_SYNC);  // the share's copy
  clean_dropped_indexes(share);
  TableShare::invalidate(share->name());
}

}  // namespace

// EXCHANGE PARTITION asks this for tables whose columns and keys are the same.
bool ha_perigee::check_if_incompatible_data(HA_CREATE_INFO *, uint table_changes) {
  return table_changes == IS_EQUAL_YES ? COMPATIBLE_DATA_YES : COMPATIBLE_DATA_NO;
}

// VARCHAR columns can become longer: neither rows nor keys contain the declared length.
bool ha_perigee::can_convert_nocopy(const Field &field, const Column_definition &new_field) const {
  if (field.real_type() != MYSQL_TYPE_VARCHAR || new_field.type_handler()->real_field_type() != MYSQL_TYPE_VARCHAR)
    return false;
  if (field.charset() != new_field.charset || new_field.length < field.field_length) return false;
  return !field.compression_method() && !new_field.compression_method() && field.stored_in_db();
}

ulonglong ha_perigee::table_version() const { return m_share ? m_share->definition()->table_version : 0; }

enum_alter_inplace_result ha_perigee::check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info) {
  const char *reason = reason_against_inplace(table, altered, info);
  if (reason) {
    info->unsupported_reason = reason;
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  return info->handler_flags & BUILD_OPERATIONS ? HA_ALTER_INPLACE_NOCOPY_NO_LOCK : HA_ALTER_INPLACE_INSTANT;
}

bool ha_perigee::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) {
  if (check_ttl_column(altered)) return true;
  int error = wait_for_prepared(ha_thd(), *m_share);
  if (!error) error = clean_dropped_indexes(m_share);
  if (error) {
    print_error(error, MYF(0));
    return true;
  }
  AlterContext *context = new (ha_thd()->mem_root) AlterContext(m_share);
  info->handler_ctx = context;
  context->definition.table_version = fold_table_version(altered->s->tabledef_version);
  error = change_columns(altered, info, &context->definition);
  if (!error) error = change_indexes(altered, info, context);
  if (!error) error = reserve_numbers(context);
  if (error) print_error(error, MYF(0));
  if (error || context->builds.empty()) return error != 0;
  if (!m_share->is_current()) {
    info->mdl_exclusive_after_prepare = true;  // other handlers would not find the change log
    return false;
  }
  m_share->begin_change_log();
  context->online = true;
  return false;
}

bool ha_perigee::inplace_alter_table(TABLE *altered, Alter_inplace_info *info) {
  AlterContext *context = static_cast<AlterContext *>(info->handler_ctx);
  if (context->builds.empty()) return false;
  context->builder.reset(new IndexBuilder(this, m_share->table(), altered, context->definition));
  for (const AlterContext::Build &build : context->builds) context->builder->add_index(build.key, build.number);
  if (context->builder->build()) return true;
  uint64_t changes = FEW_CHANGES + 1;
  for (uint pass = 0; context->online && changes > FEW_CHANGES && pass < MAX_PASSES; pass++) {
    if (context->builder->catch_up(&changes)) return true;
  }
  return false;
}

// Largest value of the AUTO_INCREMENT column.
int ha_perigee::largest_auto_increment(ulonglong *largest) {
  *largest = 0;
  Field *field = table->found_next_number_field;
  if (!field || table->s->next_number_keypart) return 0;
  MY_BITMAP *saved = tmp_use_all_columns(table, &table->read_set);
  int error = ha_index_init(table->s->next_number_index, true);
  if (!error) {
    error = ha_index_last(table->record[1]);
    const longlong value = error ? 0 : field->val_int_offset(table->s->rec_buff_length);
    if (value > 0 || field->is_unsigned()) *largest = static_cast<ulonglong>(value);
    ha_index_end();
  }
  tmp_restore_column_map(&table->read_set, saved);
  return error == HA_ERR_END_OF_FILE || error == HA_ERR_KEY_NOT_FOUND ? 0 : error;
}

// ALTER TABLE ... AUTO_INCREMENT = n: the counter is never set below the existing values.
int ha_perigee::change_auto_increment(const HA_CREATE_INFO *create_info) {
  if (!(create_info->used_fields & HA_CREATE_USED_AUTO) || !table->found_next_number_field) return 0;
  ulonglong next = create_info->auto_increment_value;
  if (next < m_share->next_auto_increment()) {
    ulonglong largest;
    const int error = largest_auto_increment(&largest);
    if (error) return error;
    next = std::max(next, largest + 1);
  }
  return m_share->set_auto_increment(std::max<ulonglong>(next, 1));
}

bool ha_perigee::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) {
  AlterContext *context = static_cast<AlterContext *>(info->handler_ctx);
  if (!context) return false;
  if (!commit) {
    if (context->online)
      abandon_online_build(context);
    else
      clean_dropped_indexes(context->share);
    return false;
  }
  std::vector<AlterContext *> contexts;
  if (info->group_commit_ctx) {
    for (inplace_alter_handler_ctx **at = info->group_commit_ctx; *at; at++)
      contexts.push_back(static_cast<AlterContext *>(*at));
  } else {
    contexts.push_back(context);
  }
  int error = finish_online_builds(ha_thd(), contexts);
  if (!error) error = change_auto_increment(info->create_info);
  if (!error) error = write_definitions(contexts);
  if (error) {
    if (!ha_thd()->is_error()) print_error(error, MYF(0));
    return true;
  }
  const bool has_options = info->handler_flags & ALTER_OPTIONS;
  const pgb_table_options options = engine_table_options(altered->s->option_struct);
  for (AlterContext *each : contexts) finish_alter(each, has_options ? &options : nullptr);
  info->group_commit_ctx = nullptr;
  return false;
}

// Builds all secondary indexes again under new numbers. The server has closed all other handlers of the table.
int ha_perigee::repair(THD *thd, HA_CHECK_OPT *) {
  int error = wait_for_prepared(thd, *m_share);
  if (!error) error = clean_dropped_indexes(m_share);
  if (error) {
    print_error(error, MYF(0));
    return HA_ADMIN_FAILED;
  }
  AlterContext context(m_share);
  IndexBuilder builder(this, m_share->table(), table, context.definition);
  for (uint i = 0; i < table->s->keys; i++) {
    if (i == table->s->primary_key) continue;
    const LEX_CSTRING &name = table->key_info[i].name;
    context.definition.remove_index(name.str, name.length);
    context.builds.push_back({table->key_info + i, context.definition.add_index(name.str, name.length)});
  }
  error = reserve_numbers(&context);
  for (const AlterContext::Build &build : context.builds) builder.add_index(build.key, build.number);
  if (error || builder.build()) {
    clean_dropped_indexes(m_share);
    return HA_ADMIN_FAILED;
  }
  error = write_definitions({&context});
  if (error) return HA_ADMIN_FAILED;
  finish_alter(&context, nullptr);
  m_definition = m_share->definition();
  return open_codecs() ? HA_ADMIN_FAILED : HA_ADMIN_OK;
}
