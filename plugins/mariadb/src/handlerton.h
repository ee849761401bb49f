// The handlerton: what the server calls for the engine as a whole.
#ifndef PERIGEE_HANDLERTON_H
#define PERIGEE_HANDLERTON_H

#include "compat.h"

namespace perigee {

void fill_handlerton(handlerton *hton);

// Families whose name starts with a prefix.
std::vector<std::string> families_with_prefix(const std::string &prefix);

}  // namespace perigee
#endif
