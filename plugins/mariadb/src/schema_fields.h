// Helpers of the information_schema tables.
#ifndef PERIGEE_SCHEMA_FIELDS_H
#define PERIGEE_SCHEMA_FIELDS_H

#include "compat.h"
#include "bridge.h"

#include <string>

namespace perigee {

// True if the user has the PROCESS privilege, without which the tables are empty.
bool may_read(THD *thd);

int store_text(Field *field, const char *text, size_t size);
int store_text(Field *field, pgb_slice text);

// Stores the database and the table of a family name.
void store_family_name(Field *database, Field *table, const std::string &name);

}  // namespace perigee
#endif
