// System variables (perigee_...) and table options.
#ifndef PERIGEE_SYSTEM_VARIABLES_H
#define PERIGEE_SYSTEM_VARIABLES_H

#include "compat.h"
#include "bridge.h"

#include <string>

// Options of CREATE TABLE and ALTER TABLE. The server fills this structure (TABLE_SHARE::option_struct).
struct ha_table_option_struct {
  uint compression;           // COMPRESSION = DEFAULT | NONE | LZ4 | ZSTD: pgb_compression
  ulonglong ttl;              // TTL = seconds; 0: rows do not expire
  char *ttl_column;           // TTL_COLUMN = 'name': the column that says when a row expires
  ulonglong value_threshold;  // VALUE_THRESHOLD = bytes; 0: default of the engine
};

namespace perigee {

extern st_mysql_sys_var *system_variables[];
extern ha_create_table_option table_options[];

// Options for pgb_engine_open.
pgb_engine_options engine_options();
// Options of a table in the form of the engine.
pgb_table_options engine_table_options(const ha_table_option_struct *options);

// perigee_lock_wait_timeout of a session, in microseconds.
uint64_t lock_wait_timeout_us(THD *thd);
// perigee_flush_log_at_trx_commit.
uint flush_log_at_trx_commit();
// perigee_rollback_on_timeout.
bool rollback_on_timeout();
// perigee_snapshot_isolation of a session.
bool snapshot_isolation(THD *thd);
// perigee_backup_directory; empty: none.
std::string backup_target();
// perigee_analyze_sample: different values of each index prefix that ANALYZE TABLE reads; 0: all.
uint64_t analyze_sample(THD *thd);

}  // namespace perigee
#endif
