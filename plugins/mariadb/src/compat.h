// Differences between the supported server versions, 10.11 and 11.8. Every file of the handler includes this first.
#ifndef PERIGEE_COMPAT_H
#define PERIGEE_COMPAT_H

#define MYSQL_SERVER 1
#include <my_global.h>
#include <sql_class.h>
#include <handler.h>
#include <key.h>
#include <field.h>
#include <table.h>
#include <mysql/plugin.h>

namespace perigee {

// Compares names of columns and indexes.
inline bool names_are_equal(const char *a, const char *b) {
#if MYSQL_VERSION_ID < 110500
  return !my_strcasecmp(system_charset_info, a, b);
#else
  return Lex_ident_column(LEX_CSTRING{a, strlen(a)}).streq(LEX_CSTRING{b, strlen(b)});
#endif
}

}  // namespace perigee

#if MYSQL_VERSION_ID < 110000

// Calls of handler::extra around a bulk load. Only this version has one for ALTER IGNORE TABLE.
#define PERIGEE_BEGIN_COPY_CASES  \
  case HA_EXTRA_BEGIN_COPY:       \
  case HA_EXTRA_BEGIN_ALTER_IGNORE_COPY
#define PERIGEE_END_COPY HA_EXTRA_END_COPY
#define PERIGEE_ABORT_COPY HA_EXTRA_ABORT_COPY

// First parameter of the handlerton's functions for transactions.
#define PERIGEE_HTON_PARAMETER handlerton *,

#define PERIGEE_TYPELIB(names) {array_elements(names) - 1, "", names, nullptr}

#else

#define PERIGEE_BEGIN_COPY_CASES case HA_EXTRA_BEGIN_ALTER_COPY
#define PERIGEE_END_COPY HA_EXTRA_END_ALTER_COPY
#define PERIGEE_ABORT_COPY HA_EXTRA_ABORT_ALTER_COPY
#define PERIGEE_HTON_PARAMETER
#define PERIGEE_TYPELIB(names) CREATE_TYPELIB_FOR(names)

#endif

#endif
