// Parts of DDL that do not belong to an open table.
#ifndef PERIGEE_DDL_H
#define PERIGEE_DDL_H

#include "compat.h"
#include "bridge.h"
#include "table_share.h"

#include <string>

namespace perigee {

// Number that TableDefinition::table_version records for the identifier of a .frm (MY_UUID_SIZE bytes).
uint64_t fold_table_version(const LEX_CUSTRING &version);

// Drops a family and what the process remembers of it. Returns HA_ERR_NO_SUCH_TABLE if it does not exist.
int drop_family(const std::string &name);

// Deletes the entries of an index number (also those of interrupted index builds).
int delete_index_entries(pgb_table *table, uint8_t number);

// Checks that the column of the table option TTL_COLUMN exists and has a usable type. True after an error message.
bool check_ttl_column(const TABLE *form);

// Logs an unexpected status of an operation and returns the handler error.
int report_status(const char *operation, pgb_status status);

}  // namespace perigee
#endif
