// information_schema tables and status variables.
#ifndef PERIGEE_INFORMATION_SCHEMA_H
#define PERIGEE_INFORMATION_SCHEMA_H

#include "compat.h"

namespace perigee {

// Initialisation functions of the plugins PERIGEE_TABLES, PERIGEE_TRX, PERIGEE_LOCK_WAITS and PERIGEE_METRICS.
int init_tables_table(void *schema);
int init_trx_table(void *schema);
int init_lock_waits_table(void *schema);
int init_metrics_table(void *schema);

extern st_mysql_show_var status_variables[];

}  // namespace perigee
#endif
