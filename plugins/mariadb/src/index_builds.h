// Index builds and new tables since the start of the server: a consistent read whose read view is older than an index or a
// table must not use it, because the entries were written after the view was taken. A table counts as its primary index.
#ifndef PERIGEE_INDEX_BUILDS_H
#define PERIGEE_INDEX_BUILDS_H

#include <cstdint>
#include <string>

namespace perigee {

// Current value of the counter of index builds. Read it before the snapshot is taken.
uint64_t index_build_epoch();

// Records that index `number` of a family was built. Called after its entries are visible, under an exclusive metadata lock.
void note_index_built(const std::string &family, uint8_t number);

// Epoch of the last build of an index; 0 if it was not built since the server started. A read view whose epoch is less must
// not use the index (HA_ERR_TABLE_DEF_CHANGED). The value does not change while the table is open.
uint64_t index_built_at(const std::string &family, uint8_t number);

// Follows RENAME and DROP of a family. An empty `to` forgets it.
void move_index_builds(const std::string &from, const std::string &to);

}  // namespace perigee
#endif
