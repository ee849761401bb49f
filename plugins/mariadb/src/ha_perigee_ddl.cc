// CREATE, DROP, RENAME, TRUNCATE, ANALYZE, OPTIMIZE.
#include "compat.h"

#include <string>

#include "ddl.h"
#include "ha_perigee.h"
#include "index_builds.h"
#include "system_variables.h"
#include "table_definition.h"
#include "table_share.h"
#include "transaction.h"

namespace perigee {

int report_status(const char *operation, pgb_status status) {
  if (status == PGB_OK) return 0;
  const int error = to_handler_error(status);
  if (error == HA_ERR_INTERNAL_ERROR || error == HA_ERR_CRASHED)
    sql_print_error("PERIGEE: %s: %s", operation, pgb_last_error());
  return error;
}

uint64_t fold_table_version(const LEX_CUSTRING &version) {
  return version.length == MY_UUID_SIZE ? uint8korr(version.str) ^ uint8korr(version.str + 8) : 0;
}

int drop_family(const std::string &name) {
  TableShare::invalidate(name);
  move_index_builds(name, "");
  return report_status("DROP TABLE", pgb_table_drop(engine, name.data(), name.size()));
}

int delete_index_entries(pgb_table *table, uint8_t number) {
  const uchar begin[] = {number}, end[] = {static_cast<uchar>(number + 1)};
  return report_status("delete index entries", pgb_delete_range_direct(table, {begin, 1}, {end, 1}, PGB_SYNC));
}

namespace {

// ALTER TABLE ... ENGINE=PERIGEE of a table with foreign keys is refused by the server.
bool has_foreign_keys(Alter_info *alter) {
  if (!alter) return false;
  List_iterator_fast<Key> keys(alter->key_list);
  while (const Key *key = keys++) {
    if (key->type == Key::FOREIGN_KEY) return true;
  }
  return false;
}

// Refuses what would otherwise be ignored. Returns 0 or HA_ERR_UNSUPPORTED after an error message.
int check_create_options(const TABLE *form, const HA_CREATE_INFO *create_info) {
  if (has_foreign_keys(create_info->alter_info)) {
    my_printf_error(ER_CHECK_NOT_IMPLEMENTED, "The storage engine PERIGEE does not support FOREIGN KEY constraints", MYF(0));
    return HA_ERR_UNSUPPORTED;
  }
  if (create_info->data_file_name || create_info->index_file_name) {
    my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "PERIGEE",
             create_info->data_file_name ? "DATA DIRECTORY" : "INDEX DIRECTORY");
    return HA_ERR_UNSUPPORTED;
  }
  return check_ttl_column(form) ? HA_ERR_UNSUPPORTED : 0;
}

int write_new_definition(pgb_table *table, const TABLE *form) {
  TableDefinition definition = TableDefinition::for_new_table(form);
  if (form->s->option_struct && form->s->option_struct->ttl_column)
    definition.ttl_column = form->s->option_struct->ttl_column;
  Bytes bytes;
  definition.serialize(&bytes);
  return report_status("CREATE TABLE", pgb_put_direct(table, definition_key, bytes.slice(), PGB_SYNC));
}

int write_first_auto_increment(pgb_table *table, uint64_t next) {
  uchar bytes[8];
  mi_int8store(bytes, next);
  return report_status("CREATE TABLE", pgb_put_direct(table, auto_increment_key, {bytes, sizeof(bytes)}, PGB_SYNC));
}

}  // namespace

bool check_ttl_column(const TABLE *form) {
  const ha_table_option_struct *options = form->s->option_struct;
  if (!options || !options->ttl_column || !*options->ttl_column) return false;
  for (Field **field = form->field; *field; field++) {
    if (!names_are_equal((*field)->field_name.str, options->ttl_column)) continue;
    switch ((*field)->real_type()) {
      case MYSQL_TYPE_TIMESTAMP:
      case MYSQL_TYPE_TIMESTAMP2:
      case MYSQL_TYPE_DATETIME:
      case MYSQL_TYPE_DATETIME2:
      case MYSQL_TYPE_LONG:
      case MYSQL_TYPE_LONGLONG: return false;
      default: break;
    }
    my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION,
                    "TTL_COLUMN '%-.64s' must be a TIMESTAMP, DATETIME, INT or BIGINT column", MYF(0), options->ttl_column);
    return true;
  }
  my_printf_error(ER_KEY_COLUMN_DOES_NOT_EXITS, "TTL_COLUMN '%-.64s' does not exist in the table", MYF(0),
                  options->ttl_column);
  return true;
}

}  // namespace perigee

using namespace perigee;

int ha_perigee::create(const char *path, TABLE *form, HA_CREATE_INFO *create_info) {
  int error = check_create_options(form, create_info);
  if (error) return error;
  const std::string name = TableShare::family_name(path);
  const pgb_table_options options = engine_table_options(form->s->option_struct);
  pgb_table *table = nullptr;
  pgb_status status = pgb_table_create(engine, name.data(), name.size(), &options, &table);
  if (status == PGB_TABLE_EXISTS && create_info->tmp_table()) {
    drop_family(name);
    status = pgb_table_create(engine, name.data(), name.size(), &options, &table);
  }
  if (status != PGB_OK) return report_status("CREATE TABLE", status);
  TableShare::invalidate(name);
  error = write_new_definition(table, form);
  if (!error && create_info->auto_increment_value > 1)
    error = write_first_auto_increment(table, create_info->auto_increment_value);
  pgb_table_release(table);
  if (error)
    drop_family(name);
  else if (!create_info->tmp_table())
    note_index_built(name, PRIMARY_INDEX);
  return error;
}

int ha_perigee::delete_table(const char *path) { return drop_family(TableShare::family_name(path)); }

// True for the tables that ALTER TABLE creates.
static bool is_internal_name(const std::string &family) {
  const size_t slash = family.find('/');
  return family.compare(slash == std::string::npos ? 0 : slash + 1, 4, "#sql") == 0;
}

int ha_perigee::rename_table(const char *from_path, const char *to_path) {
  const std::string from = TableShare::family_name(from_path), to = TableShare::family_name(to_path);
  TableShare::invalidate(from);
  TableShare::invalidate(to);
  const int error =
      report_status("RENAME TABLE", pgb_table_rename(engine, from.data(), from.size(), to.data(), to.size()));
  if (error) return error;
  move_index_builds(from, to);
  // ALTER TABLE by copy: read views that were taken during the copy do not see the rows.
  if (is_internal_name(from)) note_index_built(to, PRIMARY_INDEX);
  return 0;
}

int ha_perigee::truncate() {
  const std::string &name = m_share->name();
  TableDefinition definition = *m_share->definition();
  definition.dropped_indexes.clear();
  int error = report_status("TRUNCATE TABLE", pgb_table_clear(engine, name.data(), name.size()));
  if (error) return error;
  // A crash here leaves an empty table without a definition, which is made again from the .frm at the next open. No sync: the
  // log orders it before later rows, and the server writes the statement to the binary log only after this function.
  error = m_share->write_definition(definition, PGB_NO_SYNC);
  if (!error) error = m_share->set_auto_increment(1);
  m_share->add_records(-static_cast<int64_t>(m_share->records()));
  return error;
}

int ha_perigee::reset_auto_increment(ulonglong value) { return m_share->set_auto_increment(value ? value : 1); }

void ha_perigee::update_create_info(HA_CREATE_INFO *create_info) {
  if (create_info->used_fields & HA_CREATE_USED_AUTO) return;
  info(HA_STATUS_AUTO);
  create_info->auto_increment_value = stats.auto_increment_value;
}

int ha_perigee::analyze(THD *thd, HA_CHECK_OPT *) {
  const int error = m_share->analyze(table, analyze_sample(thd));
  if (!error) return HA_ADMIN_OK;
  print_error(error, MYF(0));
  return HA_ADMIN_FAILED;
}

int ha_perigee::optimize(THD *, HA_CHECK_OPT *) {
  const int error = report_status("OPTIMIZE TABLE", pgb_table_compact(m_share->table()));
  if (!error) return HA_ADMIN_OK;
  print_error(error, MYF(0));
  return HA_ADMIN_FAILED;
}
