#include "compat.h"

#include <string>

#include "ddl.h"
#include "handlerton.h"
#include "information_schema.h"
#include "information_schema_levels.h"
#include "system_variables.h"
#include "transaction.h"

// Keeps a directory of the datadir out of SHOW DATABASES; defined by the server.
void ignore_db_dirs_append(const char *directory);

namespace perigee {

namespace {

// All files of the engine are in this directory of the datadir.
const char *const DIRECTORY = "#perigee";

// Drops the temporary tables of a server that crashed.
void drop_temporary_families() {
  for (const std::string &family : families_with_prefix(TableShare::temporary_prefix())) drop_family(family);
}

int init_engine(void *plugin) {
  ignore_db_dirs_append(DIRECTORY);
  const std::string path = std::string(mysql_real_data_home) + "/" + DIRECTORY;
  const pgb_engine_options options = engine_options();
  if (pgb_engine_open(path.c_str(), &options, &engine) != PGB_OK) {
    sql_print_error("PERIGEE: cannot open '%s': %s", path.c_str(), pgb_last_error());
    engine = nullptr;
    return 1;
  }
  pgb_set_lock_listener(engine, Transaction::wait_began, Transaction::deadlock_resolved);  // fails only if called twice
  perigee_hton = static_cast<handlerton *>(plugin);
  fill_handlerton(perigee_hton);
  drop_temporary_families();
  return 0;
}

int close_engine(void *) {
  if (!engine) return 0;
  const pgb_status status = pgb_engine_close(engine);
  if (status != PGB_OK) sql_print_error("PERIGEE: close: %s", pgb_last_error());
  engine = nullptr;
  return status == PGB_OK ? 0 : 1;
}

st_mysql_storage_engine engine_descriptor = {MYSQL_HANDLERTON_INTERFACE_VERSION};
st_mysql_information_schema schema_descriptor = {MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

constexpr uint PLUGIN_VERSION = 0x0100;
const char *const PLUGIN_VERSION_TEXT = "1.0";
const char *const AUTHOR = "The Perigee authors";

}  // namespace
}  // namespace perigee

// A table of information_schema.
#define PERIGEE_SCHEMA_TABLE(name, description, init)                                                                     \
  {MYSQL_INFORMATION_SCHEMA_PLUGIN, &perigee::schema_descriptor, name, perigee::AUTHOR, description, PLUGIN_LICENSE_GPL, \
   perigee::init, nullptr, perigee::PLUGIN_VERSION, nullptr, nullptr, perigee::PLUGIN_VERSION_TEXT,                      \
   MariaDB_PLUGIN_MATURITY_STABLE}

maria_declare_plugin(perigee){MYSQL_STORAGE_ENGINE_PLUGIN,
                              &perigee::engine_descriptor,
                              "PERIGEE",
                              perigee::AUTHOR,
                              "Transactional tables in an LSM tree: write-optimised, compressed, one memory budget",
                              PLUGIN_LICENSE_GPL,
                              perigee::init_engine,
                              perigee::close_engine,
                              perigee::PLUGIN_VERSION,
                              perigee::status_variables,
                              perigee::system_variables,
                              perigee::PLUGIN_VERSION_TEXT,
                              MariaDB_PLUGIN_MATURITY_STABLE},
    PERIGEE_SCHEMA_TABLE("PERIGEE_TABLES", "Sizes and levels of PERIGEE tables", init_tables_table),
    PERIGEE_SCHEMA_TABLE("PERIGEE_LEVELS", "Files of each level of PERIGEE tables", init_levels_table),
    PERIGEE_SCHEMA_TABLE("PERIGEE_COMPACTIONS", "Running and recent flushes and compactions of PERIGEE", init_compactions_table),
    PERIGEE_SCHEMA_TABLE("PERIGEE_COLUMN_FAMILIES", "Options of the column families of PERIGEE tables", init_column_families_table),
    PERIGEE_SCHEMA_TABLE("PERIGEE_TRX", "Open transactions of PERIGEE", init_trx_table),
    PERIGEE_SCHEMA_TABLE("PERIGEE_LOCK_WAITS", "Transactions of PERIGEE that wait for locks", init_lock_waits_table),
    PERIGEE_SCHEMA_TABLE("PERIGEE_METRICS", "Counters of PERIGEE", init_metrics_table) maria_declare_plugin_end;
