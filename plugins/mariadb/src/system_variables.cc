#include "system_variables.h"
#include "transaction.h"

#include <mysql/service_encryption.h>

#include <algorithm>

namespace perigee {

namespace {

ulonglong memory_budget;
ulonglong max_open_files;
uint background_threads;
uint flush_log;
my_bool timeout_rolls_back;
my_bool encrypt;
uint encryption_key_id;
char *checkpoint_directory;
char *backup_directory;

const char *compression_names[] = {"DEFAULT", "NONE", "LZ4", "ZSTD", NullS};
TYPELIB compression_typelib = PERIGEE_TYPELIB(compression_names);

// SET GLOBAL perigee_create_checkpoint = 'directory': makes the checkpoint, or fails the statement.
int create_checkpoint(THD *thd, st_mysql_sys_var *, void *save, st_mysql_value *value) {
  char buffer[FN_REFLEN];
  int length = sizeof(buffer);
  const char *directory = value->val_str(value, buffer, &length);
  if (!directory || length == 0 || length >= FN_REFLEN) {
    my_error(ER_WRONG_VALUE_FOR_VAR, MYF(0), "perigee_create_checkpoint", directory ? directory : "NULL");
    return 1;
  }
  std::string path(directory, length);
  pgb_status status = pgb_engine_checkpoint(engine, path.c_str());
  if (status != PGB_OK) {
    my_printf_error(ER_UNKNOWN_ERROR, "PERIGEE: cannot create checkpoint '%-.200s': %-.200s", MYF(0), path.c_str(),
                    pgb_last_error());
    return 1;
  }
  *static_cast<const char **>(save) = thd_strmake(thd, path.c_str(), path.size());
  return 0;
}

// Keys of the server's encryption plugin, for the engine.
uint32_t latest_key_version(uint32_t key_id) { return encryption_key_get_latest_version(key_id); }
uint32_t get_key(uint32_t key_id, uint32_t version, uint8_t *key, uint32_t *size) {
  return encryption_key_get(key_id, version, key, size);
}

MYSQL_SYSVAR_ULONGLONG(memory_budget, memory_budget, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                       "Memory in bytes for all caches and write buffers of PERIGEE tables", nullptr, nullptr,
                       128ULL << 20, 16ULL << 20, 1ULL << 50, 1ULL << 20);
MYSQL_SYSVAR_ULONGLONG(max_open_files, max_open_files, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                       "Largest number of table files that PERIGEE keeps open; 0: chosen by the engine", nullptr, nullptr, 0,
                       0, 1ULL << 32, 0);
MYSQL_SYSVAR_UINT(background_threads, background_threads, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                  "Threads of PERIGEE that flush and compact; 0: chosen by the number of processors", nullptr, nullptr, 0, 0,
                  256, 0);
MYSQL_SYSVAR_UINT(flush_log_at_trx_commit, flush_log, PLUGIN_VAR_RQCMDARG,
                  "1: a commit is synced before it returns. 0 or 2: it is written to the operating system and synced about "
                  "once a second, so that a crash of the machine (not of the server) may lose the last second",
                  nullptr, nullptr, 1, 0, 2, 0);
MYSQL_SYSVAR_BOOL(rollback_on_timeout, timeout_rolls_back, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
                  "Roll back the transaction, not only the statement, after a lock wait timeout", nullptr, nullptr, FALSE);
MYSQL_SYSVAR_BOOL(encrypt, encrypt, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
                  "Encrypt new files of PERIGEE tables and logs with a key of the server's encryption plugin. Existing "
                  "files are encrypted, or decrypted, when they are rewritten", nullptr, nullptr, FALSE);
MYSQL_SYSVAR_UINT(encryption_key_id, encryption_key_id, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                  "Id of the key that new files of PERIGEE are encrypted with", nullptr, nullptr, 1, 1, UINT_MAX32 - 1, 0);
MYSQL_SYSVAR_STR(create_checkpoint, checkpoint_directory, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_MEMALLOC | PLUGIN_VAR_NOCMDOPT,
                 "Creates a consistent copy of all PERIGEE tables in this new directory when it is set", create_checkpoint,
                 nullptr, nullptr);
MYSQL_SYSVAR_STR(backup_directory, backup_directory, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_MEMALLOC,
                 "New directory in which the next BACKUP STAGE END after BLOCK_COMMIT (of mariadb-backup too) creates a consistent "
                 "copy of all PERIGEE tables; empty: none", nullptr, nullptr, "");
MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
                   "Seconds that a statement waits for a row or gap lock, if lock_wait_timeout is not less; "
                   "0: it fails at once", nullptr, nullptr, 50, 0,
                   1024 * 1024 * 1024, 0);
// The default is that of innodb_snapshot_isolation.
MYSQL_THDVAR_BOOL(snapshot_isolation, PLUGIN_VAR_OPCMDARG,
                  "From REPEATABLE READ upwards, a locking read, UPDATE or DELETE of a row that was changed since the "
                  "transaction's read view fails with error 1020 and rolls back the transaction",
                  nullptr, nullptr, MYSQL_VERSION_ID >= 110602);
MYSQL_THDVAR_ENUM(default_compression, PLUGIN_VAR_RQCMDARG, "Compression of new tables without a COMPRESSION option",
                  nullptr, nullptr, PGB_COMPRESSION_DEFAULT, &compression_typelib);
MYSQL_THDVAR_ULONGLONG(analyze_sample, PLUGIN_VAR_RQCMDARG,
                       "Different values of each index prefix that ANALYZE TABLE reads; 0: all", nullptr, nullptr, 100000,
                       0, ~0ULL, 0);

}  // namespace

st_mysql_sys_var *system_variables[] = {MYSQL_SYSVAR(memory_budget),
                                        MYSQL_SYSVAR(max_open_files),
                                        MYSQL_SYSVAR(background_threads),
                                        MYSQL_SYSVAR(flush_log_at_trx_commit),
                                        MYSQL_SYSVAR(lock_wait_timeout),
                                        MYSQL_SYSVAR(rollback_on_timeout),
                                        MYSQL_SYSVAR(snapshot_isolation),
                                        MYSQL_SYSVAR(default_compression),
                                        MYSQL_SYSVAR(analyze_sample),
                                        MYSQL_SYSVAR(create_checkpoint),
                                        MYSQL_SYSVAR(backup_directory),
                                        MYSQL_SYSVAR(encrypt),
                                        MYSQL_SYSVAR(encryption_key_id),
                                        nullptr};

ha_create_table_option table_options[] = {HA_TOPTION_SYSVAR("COMPRESSION", compression, default_compression),
                                          HA_TOPTION_NUMBER("TTL", ttl, 0, 0, UINT_MAX32, 1),
                                          HA_TOPTION_STRING("TTL_COLUMN", ttl_column),
                                          HA_TOPTION_NUMBER("VALUE_THRESHOLD", value_threshold, 0, 0, UINT_MAX32, 1),
                                          HA_TOPTION_END};

pgb_engine_options engine_options() {
  pgb_engine_options options{};
  options.memory_budget = memory_budget;
  options.max_open_files = max_open_files;
  options.background_threads = background_threads;
  options.log_to_stderr = 1;
  options.keys.latest_version = latest_key_version;
  options.keys.get = get_key;
  options.keys.key_id = encryption_key_id;
  options.keys.encrypt = encrypt;
  return options;
}

pgb_table_options engine_table_options(const ha_table_option_struct *options) {
  pgb_table_options result{};
  if (!options) return result;
  result.compression = static_cast<uint8_t>(options->compression);
  result.has_ttl = options->ttl > 0;
  result.ttl_seconds = options->ttl;
  result.value_threshold = options->value_threshold;
  return result;
}

// NOWAIT and WAIT n of a SELECT set the server's lock_wait_timeout for the statement.
uint64_t lock_wait_timeout_us(THD *thd) {
  return std::min<uint64_t>(THDVAR(thd, lock_wait_timeout), thd->variables.lock_wait_timeout) * 1000000ULL;
}
uint flush_log_at_trx_commit() { return flush_log; }
bool rollback_on_timeout() { return timeout_rolls_back; }
std::string backup_target() {
  mysql_mutex_lock(&LOCK_global_system_variables);
  std::string directory = backup_directory ? backup_directory : "";
  mysql_mutex_unlock(&LOCK_global_system_variables);
  return directory;
}
bool snapshot_isolation(THD *thd) { return THDVAR(thd, snapshot_isolation); }
uint64_t analyze_sample(THD *thd) { return THDVAR(thd, analyze_sample); }

}  // namespace perigee
