#ifndef PERIGEE_HA_PERIGEE_LOAD_H
#define PERIGEE_HA_PERIGEE_LOAD_H

#include "ha_perigee.h"

#include <string>
#include <unordered_set>

// Checks for duplicates during a bulk load, for one unique index.
struct ha_perigee::LoadCheck {
  uint index;                             // key number
  bool ascending;                         // every key so far was greater than the one before
  perigee::Bytes last;                    // the last key, if ascending
  std::unordered_set<std::string> seen;   // else the keys since the last finished part
  size_t seen_bytes;
};

#endif
