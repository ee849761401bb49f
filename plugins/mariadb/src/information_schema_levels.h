// information_schema.PERIGEE_LEVELS, PERIGEE_COMPACTIONS and PERIGEE_COLUMN_FAMILIES.
#ifndef PERIGEE_INFORMATION_SCHEMA_LEVELS_H
#define PERIGEE_INFORMATION_SCHEMA_LEVELS_H

namespace perigee {

// Initialisation functions of the plugins.
int init_levels_table(void *schema);
int init_compactions_table(void *schema);
int init_column_families_table(void *schema);

}  // namespace perigee
#endif
