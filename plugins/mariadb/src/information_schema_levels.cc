#include "compat.h"

#include <string>

#include <sql_i_s.h>
#include <sql_show.h>
#include <tztime.h>

#include "information_schema_levels.h"
#include "schema_fields.h"
#include "transaction.h"

namespace perigee {

namespace {

// Where the functions that the engine calls store rows.
struct Target {
  THD *thd;
  TABLE *table;
  bool failed = false;

  void begin_row() { restore_record(table, s->default_values); }
  void store_row() { failed = schema_table_store_record(thd, table); }
};

std::string to_string(pgb_slice text) { return std::string(reinterpret_cast<const char *>(text.data), text.size); }

int finish(const Target &target, pgb_status status) {
  if (target.failed) return 1;
  if (status == PGB_OK) return 0;
  my_printf_error(ER_UNKNOWN_ERROR, "PERIGEE: %-.200s", MYF(0), pgb_last_error());
  return 1;
}

// ---- PERIGEE_LEVELS ----

ST_FIELD_INFO levels_fields[] = {Show::Column("TABLE_SCHEMA", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
                                 Show::Column("TABLE_NAME", Show::Varchar(3 * NAME_CHAR_LEN), NOT_NULL),
                                 Show::Column("LEVEL", Show::ULong(), NOT_NULL),
                                 Show::Column("RUNS", Show::ULonglong(), NOT_NULL),
                                 Show::Column("FILES", Show::ULonglong(), NOT_NULL),
                                 Show::Column("BYTES", Show::ULonglong(), NOT_NULL),
                                 Show::Column("ENTRIES", Show::ULonglong(), NOT_NULL),
                                 Show::Column("TOMBSTONES", Show::ULonglong(), NOT_NULL),
                                 Show::Column("RAW_BYTES", Show::ULonglong(), NOT_NULL),
                                 Show::CEnd()};

void store_level(void *arg, const pgb_level_stats *level) {
  Target *target = static_cast<Target *>(arg);
  if (target->failed) return;
  target->begin_row();
  Field **field = target->table->field;
  store_family_name(field[0], field[1], to_string(level->table));
  field[2]->store(level->level, true);
  field[3]->store(level->runs, true);
  field[4]->store(level->files, true);
  field[5]->store(level->bytes, true);
  field[6]->store(level->entries, true);
  field[7]->store(level->tombstones, true);
  field[8]->store(level->raw_bytes, true);
  target->store_row();
}

int fill_levels(THD *thd, TABLE_LIST *tables, COND *) {
  if (!engine || !may_read(thd)) return 0;
  Target target{thd, tables->table};
  const pgb_status status = pgb_engine_levels(engine, store_level, &target);
  return finish(target, status);
}

// ---- PERIGEE_COMPACTIONS ----

ST_FIELD_INFO compactions_fields[] = {Show::Column("KIND", Show::Varchar(16), NOT_NULL),
                                      Show::Column("TABLE_SCHEMA", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
                                      Show::Column("TABLE_NAME", Show::Varchar(3 * NAME_CHAR_LEN), NOT_NULL),
                                      Show::Column("STATE", Show::Varchar(16), NOT_NULL),
                                      Show::Column("REASON", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
                                      Show::Column("INPUT_LEVELS", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
                                      Show::Column("OUTPUT_LEVEL", Show::ULong(), NOT_NULL),
                                      Show::Column("INPUT_FILES", Show::ULonglong(), NOT_NULL),
                                      Show::Column("INPUT_BYTES", Show::ULonglong(), NOT_NULL),
                                      Show::Column("DONE_BYTES", Show::ULonglong(), NOT_NULL),
                                      Show::Column("OUTPUT_BYTES", Show::ULonglong(), NOT_NULL),
                                      Show::Column("DURATION_MS", Show::ULonglong(), NOT_NULL),
                                      Show::Column("ENDED", Show::Datetime(0), NULLABLE),
                                      Show::CEnd()};

void store_job(void *arg, const pgb_job_stats *job) {
  Target *target = static_cast<Target *>(arg);
  if (target->failed) return;
  target->begin_row();
  Field **field = target->table->field;
  store_text(field[0], job->kind);
  store_family_name(field[1], field[2], to_string(job->table));
  store_text(field[3], job->state);
  store_text(field[4], job->reason);
  store_text(field[5], job->input_levels);
  field[6]->store(job->output_level, true);
  field[7]->store(job->input_files, true);
  field[8]->store(job->input_bytes, true);
  field[9]->store(job->done_bytes, true);
  field[10]->store(job->output_bytes, true);
  field[11]->store(job->elapsed_us / 1000, true);
  field[12]->set_null();
  if (to_string(job->state) != "running") {
    MYSQL_TIME time;
    const my_time_t ended = my_time(0) - static_cast<my_time_t>(job->age_us / 1000000);
    target->thd->variables.time_zone->gmt_sec_to_TIME(&time, ended);
    field[12]->set_notnull();
    field[12]->store_time(&time);
  }
  target->store_row();
}

int fill_compactions(THD *thd, TABLE_LIST *tables, COND *) {
  if (!engine || !may_read(thd)) return 0;
  Target target{thd, tables->table};
  const pgb_status status = pgb_engine_jobs(engine, store_job, &target);
  return finish(target, status);
}

// ---- PERIGEE_COLUMN_FAMILIES ----

ST_FIELD_INFO column_families_fields[] = {Show::Column("TABLE_SCHEMA", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
                                          Show::Column("TABLE_NAME", Show::Varchar(3 * NAME_CHAR_LEN), NOT_NULL),
                                          Show::Column("COLUMN_FAMILY", Show::Varchar(4 * NAME_CHAR_LEN), NOT_NULL),
                                          Show::Column("OPTION_NAME", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
                                          Show::Column("VALUE", Show::Varchar(4 * NAME_CHAR_LEN), NOT_NULL),
                                          Show::Column("IS_DEFAULT", Show::Varchar(3), NOT_NULL),
                                          Show::CEnd()};

void store_option(void *arg, const pgb_table_option *option) {
  Target *target = static_cast<Target *>(arg);
  if (target->failed) return;
  target->begin_row();
  Field **field = target->table->field;
  store_family_name(field[0], field[1], to_string(option->table));
  store_text(field[2], option->family);
  store_text(field[3], option->name);
  store_text(field[4], option->value);
  store_text(field[5], option->is_default ? "YES" : "NO", option->is_default ? 3 : 2);
  target->store_row();
}

int fill_column_families(THD *thd, TABLE_LIST *tables, COND *) {
  if (!engine || !may_read(thd)) return 0;
  Target target{thd, tables->table};
  const pgb_status status = pgb_engine_options_list(engine, store_option, &target);
  return finish(target, status);
}

int init_table(void *schema, ST_FIELD_INFO *fields, int (*fill)(THD *, TABLE_LIST *, COND *)) {
  auto *table = static_cast<ST_SCHEMA_TABLE *>(schema);
  table->fields_info = fields;
  table->fill_table = fill;
  return 0;
}

}  // namespace

int init_levels_table(void *schema) { return init_table(schema, levels_fields, fill_levels); }

int init_compactions_table(void *schema) { return init_table(schema, compactions_fields, fill_compactions); }

int init_column_families_table(void *schema) {
  return init_table(schema, column_families_fields, fill_column_families);
}

}  // namespace perigee
