#include "schema_fields.h"

#include <sql_acl.h>
#include <sql_parse.h>
#include <sql_table.h>

namespace perigee {

bool may_read(THD *thd) { return !check_global_access(thd, PROCESS_ACL, true); }

int store_text(Field *field, const char *text, size_t size) { return field->store(text, size, system_charset_info); }

int store_text(Field *field, pgb_slice text) {
  return store_text(field, reinterpret_cast<const char *>(text.data), text.size);
}

// Stores a part of a family name, which is encoded like the server's file names. A '#' begins the suffix of a partition
// (#P#p0), which is kept.
static void store_file_name(Field *field, const std::string &name) {
  const size_t suffix = name.find('#');
  if (suffix == 0 || name.empty()) {
    store_text(field, name.data(), name.size());
    return;
  }
  const std::string encoded = name.substr(0, suffix);
  char decoded[4 * NAME_LEN + 1];
  std::string text(decoded, filename_to_tablename(encoded.c_str(), decoded, sizeof(decoded), true));
  if (suffix != std::string::npos) text += name.substr(suffix);
  store_text(field, text.data(), text.size());
}

void store_family_name(Field *database, Field *table, const std::string &name) {
  const size_t slash = name.find('/');
  store_file_name(database, slash == std::string::npos ? std::string() : name.substr(0, slash));
  store_file_name(table, slash == std::string::npos ? name : name.substr(slash + 1));
}

}  // namespace perigee
