/* Connectors to object stores are declared in db.h; none are supported yet. */
#ifndef TIDESDB_OBJSTORE_H
#define TIDESDB_OBJSTORE_H
#include "db.h"
#endif
