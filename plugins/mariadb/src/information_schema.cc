#include "compat.h"

#include <string>
#include <unordered_map>
#include <vector>

#include <sql_acl.h>
#include <sql_i_s.h>
#include <sql_parse.h>
#include <sql_show.h>
#include <sql_table.h>
#include <tztime.h>

#include "handlerton.h"
#include "information_schema.h"
#include "lock_reports.h"
#include "schema_fields.h"
#include "transaction.h"

namespace perigee {

namespace {

// ---- PERIGEE_TABLES ----

ST_FIELD_INFO tables_fields[] = {Show::Column("TABLE_SCHEMA", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
                                 Show::Column("TABLE_NAME", Show::Varchar(3 * NAME_CHAR_LEN), NOT_NULL),
                                 Show::Column("ENTRIES", Show::ULonglong(), NOT_NULL),
                                 Show::Column("DISK_BYTES", Show::ULonglong(), NOT_NULL),
                                 Show::Column("MEMORY_BYTES", Show::ULonglong(), NOT_NULL),
                                 Show::Column("FILES", Show::ULonglong(), NOT_NULL),
                                 Show::Column("LEVELS", Show::ULonglong(), NOT_NULL),
                                 Show::CEnd()};

int store_table_row(THD *thd, TABLE *table, const std::string &name) {
  pgb_table *family = nullptr;
  if (pgb_table_open(engine, name.data(), name.size(), &family) != PGB_OK) return 0;  // dropped in the meantime
  pgb_table_stats stats{};
  const pgb_status status = pgb_table_stats_get(family, &stats);
  pgb_table_release(family);
  if (status != PGB_OK) return 0;
  restore_record(table, s->default_values);
  store_family_name(table->field[0], table->field[1], name);
  table->field[2]->store(stats.entries, true);
  table->field[3]->store(stats.disk_bytes, true);
  table->field[4]->store(stats.memory_bytes, true);
  table->field[5]->store(stats.files, true);
  table->field[6]->store(static_cast<longlong>(stats.levels), true);
  return schema_table_store_record(thd, table);
}

int fill_tables(THD *thd, TABLE_LIST *tables, COND *) {
  if (!may_read(thd)) return 0;
  for (const std::string &name : families_with_prefix("")) {
    if (store_table_row(thd, tables->table, name)) return 1;
  }
  return 0;
}

// ---- PERIGEE_TRX ----

ST_FIELD_INFO trx_fields[] = {Show::Column("THREAD_ID", Show::ULonglong(), NOT_NULL),
                              Show::Column("STATE", Show::Varchar(16), NOT_NULL),
                              Show::Column("ISOLATION_LEVEL", Show::Varchar(16), NOT_NULL),
                              Show::Column("WRITES", Show::ULonglong(), NOT_NULL),
                              Show::Column("READ_VIEW", Show::Varchar(3), NOT_NULL),
                              Show::Column("STARTED", Show::Datetime(0), NOT_NULL),
                              Show::Column("SECONDS", Show::ULonglong(), NOT_NULL),
                              Show::Column("LOCKS", Show::ULonglong(), NOT_NULL),
                              Show::CEnd()};

using LockCounts = std::unordered_map<uint64_t, uint64_t>;

void collect_lock_count(void *arg, uint64_t owner, uint64_t count) { (*static_cast<LockCounts *>(arg))[owner] = count; }

int fill_trx(THD *thd, TABLE_LIST *tables, COND *) {
  if (!may_read(thd)) return 0;
  std::vector<TransactionInfo> rows;
  Transaction::for_each([&rows](const TransactionInfo &info) { rows.push_back(info); });
  LockCounts locks;
  if (engine) pgb_lock_counts(engine, collect_lock_count, &locks);
  TABLE *table = tables->table;
  const time_t now = my_time(0);
  for (const TransactionInfo &info : rows) {
    restore_record(table, s->default_values);
    table->field[0]->store(info.thread_id, true);
    store_text(table->field[1], info.state, strlen(info.state));
    store_text(table->field[2], info.isolation, strlen(info.isolation));
    table->field[3]->store(info.writes, true);
    store_text(table->field[4], info.read_view ? "YES" : "NO", info.read_view ? 3 : 2);
    MYSQL_TIME time;
    thd->variables.time_zone->gmt_sec_to_TIME(&time, info.started);
    table->field[5]->store_time(&time);
    table->field[6]->store(now > info.started ? now - info.started : 0, true);
    const auto count = locks.find(info.lock_owner);
    table->field[7]->store(count == locks.end() ? 0 : count->second, true);
    if (schema_table_store_record(thd, table)) return 1;
  }
  return 0;
}

// ---- PERIGEE_LOCK_WAITS: a row for each transaction that waits and each that blocks it ----

ST_FIELD_INFO lock_waits_fields[] = {Show::Column("WAITING_THREAD_ID", Show::ULonglong(), NOT_NULL),
                                     Show::Column("WAITING_QUERY_ID", Show::ULonglong(), NOT_NULL),
                                     Show::Column("BLOCKING_THREAD_ID", Show::ULonglong(), NOT_NULL),
                                     Show::Column("TABLE_SCHEMA", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
                                     Show::Column("TABLE_NAME", Show::Varchar(3 * NAME_CHAR_LEN), NOT_NULL),
                                     Show::Column("INDEX_NUMBER", Show::ULonglong(), NOT_NULL),
                                     Show::Column("LOCK_KEY", Show::Varchar(300), NOT_NULL),
                                     Show::Column("LOCK_MODE", Show::Varchar(16), NOT_NULL),
                                     Show::Column("WAIT_SECONDS", Show::ULonglong(), NOT_NULL),
                                     Show::CEnd()};

struct LockWaitRow {
  uint64_t waiting, blocking;
  std::string table, key;
  uint index;
  uint32_t mode;
  uint64_t waited_us;
};

void collect_lock_wait(void *arg, const pgb_lock_wait *wait) {
  auto *rows = static_cast<std::vector<LockWaitRow> *>(arg);
  for (size_t i = 0; i < wait->blocking_count; i++)
    rows->push_back({wait->waiting, wait->blocking[i], std::string(wait->table, wait->table_size), lock_key_text(*wait),
                     wait->key.size ? wait->key.data[0] : 0u, wait->mode, wait->waited_us});
}

int fill_lock_waits(THD *thd, TABLE_LIST *tables, COND *) {
  if (!may_read(thd) || !engine) return 0;
  std::vector<LockWaitRow> rows;
  pgb_lock_waits(engine, collect_lock_wait, &rows);
  std::unordered_map<uint64_t, TransactionInfo> owners;
  Transaction::for_each([&owners](const TransactionInfo &info) {
    if (info.lock_owner) owners.emplace(info.lock_owner, info);
  });
  TABLE *table = tables->table;
  for (const LockWaitRow &row : rows) {
    const auto waiting = owners.find(row.waiting), blocking = owners.find(row.blocking);
    if (waiting == owners.end()) continue;  // has ended in the meantime
    restore_record(table, s->default_values);
    table->field[0]->store(waiting->second.thread_id, true);
    table->field[1]->store(waiting->second.query_id, true);
    // 0: a prepared transaction without a connection.
    table->field[2]->store(blocking == owners.end() ? 0 : blocking->second.thread_id, true);
    store_family_name(table->field[3], table->field[4], row.table);
    table->field[5]->store(row.index, true);
    store_text(table->field[6], row.key.data(), row.key.size());
    store_text(table->field[7], lock_mode_name(row.mode), strlen(lock_mode_name(row.mode)));
    table->field[8]->store(row.waited_us / 1000000, true);
    if (schema_table_store_record(thd, table)) return 1;
  }
  return 0;
}

// ---- PERIGEE_METRICS and SHOW STATUS ----

ST_FIELD_INFO metrics_fields[] = {Show::Column("NAME", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
                                  Show::Column("VALUE", Show::ULonglong(), NOT_NULL), Show::CEnd()};

using Counters = std::vector<std::pair<std::string, uint64_t>>;

void collect_counter(void *arg, const char *name, uint64_t value) {
  static_cast<Counters *>(arg)->emplace_back(name, value);
}

Counters read_counters() {
  Counters counters;
  if (engine) pgb_engine_counters(engine, collect_counter, &counters);
  return counters;
}

int fill_metrics(THD *thd, TABLE_LIST *tables, COND *) {
  if (!may_read(thd)) return 0;
  TABLE *table = tables->table;
  for (const auto &counter : read_counters()) {
    restore_record(table, s->default_values);
    store_text(table->field[0], counter.first.data(), counter.first.size());
    table->field[1]->store(counter.second, true);
    if (schema_table_store_record(thd, table)) return 1;
  }
  return 0;
}

// Returns all counters as an array in memory of the statement.
int show_counters(THD *thd, st_mysql_show_var *variable, void *, system_status_var *, enum_var_type) {
  const Counters counters = read_counters();
  variable->type = SHOW_ARRAY;
  const size_t array_size = (counters.size() + 1) * sizeof(st_mysql_show_var);
  auto *array = static_cast<st_mysql_show_var *>(thd_calloc(thd, array_size));
  auto *values = static_cast<ulonglong *>(thd_calloc(thd, (counters.size() + 1) * sizeof(ulonglong)));
  if (!array || !values) return 1;
  for (size_t i = 0; i < counters.size(); i++) {
    values[i] = counters[i].second;
    array[i].name = thd_strmake(thd, counters[i].first.data(), counters[i].first.size());
    array[i].value = &values[i];
    array[i].type = SHOW_ULONGLONG;
  }
  variable->value = reinterpret_cast<char *>(array);
  return 0;
}

}  // namespace

st_mysql_show_var status_variables[] = {{"Perigee", reinterpret_cast<char *>(show_counters), SHOW_FUNC},
                                        {nullptr, nullptr, SHOW_UNDEF}};

int init_tables_table(void *schema) {
  auto *table = static_cast<ST_SCHEMA_TABLE *>(schema);
  table->fields_info = tables_fields;
  table->fill_table = fill_tables;
  return 0;
}

int init_trx_table(void *schema) {
  auto *table = static_cast<ST_SCHEMA_TABLE *>(schema);
  table->fields_info = trx_fields;
  table->fill_table = fill_trx;
  return 0;
}

int init_lock_waits_table(void *schema) {
  auto *table = static_cast<ST_SCHEMA_TABLE *>(schema);
  table->fields_info = lock_waits_fields;
  table->fill_table = fill_lock_waits;
  return 0;
}

int init_metrics_table(void *schema) {
  auto *table = static_cast<ST_SCHEMA_TABLE *>(schema);
  table->fields_info = metrics_fields;
  table->fill_table = fill_metrics;
  return 0;
}

}  // namespace perigee
