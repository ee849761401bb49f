// Lock waits in words: for information_schema and SHOW ENGINE STATUS.
#ifndef PERIGEE_LOCK_REPORTS_H
#define PERIGEE_LOCK_REPORTS_H

#include "bridge.h"

#include <string>

namespace perigee {

// Name of a pgb_lock_mode.
const char *lock_mode_name(uint32_t mode);
// "index 1 key 0x01..." or "index 1 keys 0x01... to 0x02...".
std::string lock_key_text(const pgb_lock_wait &wait);
// Appends table, key and mode of a requested lock.
void describe_lock(const pgb_lock_wait &wait, std::string *text);

}  // namespace perigee
#endif
