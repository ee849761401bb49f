#include "compat.h"

#include <string>
#include <vector>

#include "ddl.h"
#include "ha_perigee.h"
#include "handlerton.h"
#include "index_builds.h"
#include "system_variables.h"
#include "table_definition.h"
#include "table_share.h"
#include "transaction.h"

namespace perigee {

namespace {

// Results of the X/Open XA functions.
enum : int { XA_DONE = 0, XA_RESOURCE_ERROR = -3, XA_UNKNOWN_XID = -4 };

handler *create_handler(handlerton *hton, TABLE_SHARE *table, MEM_ROOT *mem_root) {
  return new (mem_root) ha_perigee(hton, table);
}

int close_connection(PERIGEE_HTON_PARAMETER THD *thd) {
  Transaction::close(thd);
  return 0;
}

void kill_query(handlerton *, THD *thd, enum thd_kill_levels) { Transaction::cancel_wait(thd); }

int commit(PERIGEE_HTON_PARAMETER THD *thd, bool all) {
  Transaction *transaction = Transaction::find(thd);
  return transaction ? transaction->commit(thd, all) : 0;
}

int rollback(PERIGEE_HTON_PARAMETER THD *thd, bool all) {
  Transaction *transaction = Transaction::find(thd);
  return transaction ? transaction->rollback(thd, all) : 0;
}

int prepare(PERIGEE_HTON_PARAMETER THD *thd, bool all) {
  Transaction *transaction = Transaction::find(thd);
  return transaction ? transaction->prepare(thd, all) : 0;
}

// May run in the thread of another connection.
void commit_ordered(PERIGEE_HTON_PARAMETER THD *thd, bool) {
  Transaction *transaction = Transaction::find(thd);
  if (transaction) transaction->commit_ordered();
}

void commit_checkpoint_request(void *cookie) {
  if (pgb_engine_sync(engine) != PGB_OK) {
    // Without the notification the server keeps the binary log for recovery.
    sql_print_error("PERIGEE: sync for a binary log checkpoint: %s", pgb_last_error());
    return;
  }
  commit_checkpoint_notify_ha(cookie);
}

// BACKUP STAGE END: no engine has committed anything since BLOCK_COMMIT, so a checkpoint fits to what mariadb-backup has copied.
void end_backup() {
  THD *thd = current_thd;
  const std::string directory = backup_target();
  if (directory.empty() || !thd) return;
  // A backup that ends earlier is incomplete.
  if (!thd->mdl_context.is_lock_owner(MDL_key::BACKUP, "", "", MDL_BACKUP_WAIT_COMMIT)) return;
  if (pgb_engine_checkpoint(engine, directory.c_str()) == PGB_OK) {
    sql_print_information("PERIGEE: the backup of the PERIGEE tables is in %s", directory.c_str());
    return;
  }
  sql_print_error("PERIGEE: cannot create the backup %s: %s", directory.c_str(), pgb_last_error());
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR, "PERIGEE: cannot create the backup '%-.200s': %-.200s",
                      directory.c_str(), pgb_last_error());
}

int start_consistent_snapshot(PERIGEE_HTON_PARAMETER THD *thd) {
  Transaction *transaction = Transaction::get(thd);
  return transaction ? transaction->start_consistent_snapshot(thd) : HA_ERR_OUT_OF_MEM;
}

// ---- savepoints: the server keeps the number of each ----

int savepoint_set(PERIGEE_HTON_PARAMETER THD *thd, void *area) {
  Transaction *transaction = Transaction::get(thd);
  if (!transaction) return HA_ERR_OUT_OF_MEM;
  uint64_t number = 0;
  int error = transaction->set_savepoint(&number);
  memcpy(area, &number, sizeof(number));
  return error;
}

uint64_t savepoint_number(const void *area) {
  uint64_t number;
  memcpy(&number, area, sizeof(number));
  return number;
}

int savepoint_rollback(PERIGEE_HTON_PARAMETER THD *thd, void *area) {
  Transaction *transaction = Transaction::find(thd);
  return transaction ? transaction->rollback_to_savepoint(savepoint_number(area)) : HA_ERR_NO_SAVEPOINT;
}

int savepoint_release(PERIGEE_HTON_PARAMETER THD *thd, void *area) {
  Transaction *transaction = Transaction::find(thd);
  return transaction ? transaction->release_savepoint(savepoint_number(area)) : 0;
}

// The locks of rows stay until the end of the transaction, and so must the metadata locks of their tables.
bool savepoint_rollback_can_release_mdl(PERIGEE_HTON_PARAMETER THD *thd) {
  Transaction *transaction = Transaction::find(thd);
  return !transaction || !transaction->has_begun();
}

// ---- two-phase commit after a restart or by another connection ----

void collect_gid(void *arg, const uint8_t *gid, size_t size) {
  static_cast<std::vector<std::string> *>(arg)->emplace_back(reinterpret_cast<const char *>(gid), size);
}

// The server calls this at startup until fewer than `len` are returned.
int recover(PERIGEE_HTON_PARAMETER XID *list, uint len) {
  static std::vector<std::string> prepared;
  static size_t next = 0;
  if (!list || !len) return 0;
  if (next == 0) {
    prepared.clear();
    if (pgb_prepared_list(engine, collect_gid, &prepared) != PGB_OK) {
      sql_print_error("PERIGEE: list of prepared transactions: %s", pgb_last_error());
      return 0;
    }
  }
  uint count = 0;
  for (; next < prepared.size() && count < len; next++) {
    const std::string &gid = prepared[next];
    if (gid_to_xid(reinterpret_cast<const uint8_t *>(gid.data()), gid.size(), &list[count])) count++;
  }
  if (count < len) next = 0;
  return static_cast<int>(count);
}

int xa_result(pgb_status status, const char *what) {
  if (status == PGB_OK) return XA_DONE;
  if (status == PGB_NOT_FOUND) return XA_UNKNOWN_XID;
  to_handler_error(status);
  sql_print_error("PERIGEE: %s: %s", what, pgb_last_error());
  return XA_RESOURCE_ERROR;
}

int commit_by_xid(PERIGEE_HTON_PARAMETER XID *xid) {
  const std::string gid = xid_to_gid(*xid);
  const pgb_slice slice{reinterpret_cast<const uint8_t *>(gid.data()), gid.size()};
  return xa_result(pgb_commit_prepared(engine, slice, PGB_SYNC), "XA COMMIT");
}

int rollback_by_xid(PERIGEE_HTON_PARAMETER XID *xid) {
  const std::string gid = xid_to_gid(*xid);
  const pgb_slice slice{reinterpret_cast<const uint8_t *>(gid.data()), gid.size()};
  return xa_result(pgb_rollback_prepared(engine, slice), "XA ROLLBACK");
}

// ---- tables ----

int drop_table(handlerton *, const char *path) { return drop_family(TableShare::family_name(path)); }

// The server has dropped the tables that it knows; this removes what is left, such as tables without a .frm.
void drop_database(handlerton *, char *path) {
  std::string table_path(path);
  if (table_path.empty() || table_path.back() != FN_LIBCHAR) table_path += FN_LIBCHAR;
  const std::string name = TableShare::family_name((table_path + "t").c_str());
  const std::string prefix = name.substr(0, name.size() - 1);
  for (const std::string &family : families_with_prefix(prefix)) {
    sql_print_warning("PERIGEE: DROP DATABASE removes table '%s', which the server did not know", family.c_str());
    drop_family(family);
  }
}

// After a crash in ALTER TABLE: 0 if the table (all its partitions) has the new definition.
int check_version(handlerton *, const char *path, const LEX_CUSTRING *new_version, ulonglong) {
  const std::string name = TableShare::family_name(path);
  std::vector<std::string> families = families_with_prefix(name + "#P#");
  if (families.empty()) families.push_back(name);
  for (const std::string &family : families) {
    TableShare *share = nullptr;
    if (TableShare::acquire(family, nullptr, &share)) return 2;
    const bool is_new = share->definition()->table_version == fold_table_version(*new_version);
    share->release();
    if (!is_new) return 1;
  }
  return 0;
}

bool flush_logs(handlerton *) {
  if (pgb_engine_sync(engine) == PGB_OK) return false;
  sql_print_error("PERIGEE: FLUSH LOGS: %s", pgb_last_error());
  return true;
}

void append_status(void *arg, const char *text, size_t size) { static_cast<std::string *>(arg)->append(text, size); }

bool show_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type type) {
  if (type != HA_ENGINE_STATUS) return false;
  std::string text;
  const std::string deadlock = Transaction::latest_deadlock();
  if (!deadlock.empty()) text = "---------------\nLATEST DEADLOCK\n---------------\n" + deadlock;
  if (pgb_engine_status_text(engine, append_status, &text) != PGB_OK) {
    my_printf_error(ER_UNKNOWN_ERROR, "PERIGEE: %-.200s", MYF(0), pgb_last_error());
    return true;
  }
  return print(thd, STRING_WITH_LEN("PERIGEE"), "", 0, text.data(), text.size());
}

#if MYSQL_VERSION_ID >= 110000
// In milliseconds. A lookup searches several levels, and a row is decoded.
void update_optimizer_costs(OPTIMIZER_COSTS *costs) {
  costs->key_lookup_cost = 0.0009;
  costs->row_lookup_cost = 0.0009;
  costs->key_next_find_cost = 0.0001;
  costs->row_next_find_cost = 0.0001;
  costs->row_copy_cost = 0.00006;
}
#endif

void collect_prefixed(void *arg, const char *name, size_t size) {
  auto *search = static_cast<std::pair<std::string, std::vector<std::string>> *>(arg);
  if (size >= search->first.size() && memcmp(name, search->first.data(), search->first.size()) == 0)
    search->second.emplace_back(name, size);
}

}  // namespace

std::vector<std::string> families_with_prefix(const std::string &prefix) {
  std::pair<std::string, std::vector<std::string>> search(prefix, {});
  if (pgb_tables_list(engine, collect_prefixed, &search) != PGB_OK)
    sql_print_error("PERIGEE: list of tables: %s", pgb_last_error());
  return std::move(search.second);
}

void fill_handlerton(handlerton *hton) {
  // System versioning by timestamps is done by the server; by transaction id (HTON_NATIVE_SYS_VERSIONING) is not supported.
  hton->flags = HTON_SUPPORTS_EXTENDED_KEYS;
  hton->table_options = table_options;
  hton->savepoint_offset = sizeof(uint64_t);
  hton->create = create_handler;
  hton->close_connection = close_connection;
  hton->kill_query = kill_query;
  hton->commit = commit;
  hton->rollback = rollback;
  hton->prepare = prepare;
  hton->commit_ordered = commit_ordered;
  hton->commit_checkpoint_request = commit_checkpoint_request;
  hton->recover = recover;
  hton->commit_by_xid = commit_by_xid;
  hton->rollback_by_xid = rollback_by_xid;
  hton->start_consistent_snapshot = start_consistent_snapshot;
  hton->savepoint_set = savepoint_set;
  hton->savepoint_rollback = savepoint_rollback;
  hton->savepoint_release = savepoint_release;
  hton->savepoint_rollback_can_release_mdl = savepoint_rollback_can_release_mdl;
  hton->drop_table = drop_table;
  hton->drop_database = drop_database;
  hton->check_version = check_version;
  hton->flush_logs = flush_logs;
  hton->end_backup = end_backup;
  hton->show_status = show_status;
#if MYSQL_VERSION_ID >= 110000
  hton->update_optimizer_costs = update_optimizer_costs;
#endif
}

}  // namespace perigee
