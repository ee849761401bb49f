/* The groups, in the order of the reference. */
#include "harness.h"

#define GROUP(name) void test_##name(void);
#define GROUPS                                                                                              \
    GROUP(defaults_database) GROUP(defaults_family) GROUP(init) GROUP(system_allocator) GROUP(open)         \
    GROUP(log) GROUP(families) GROUP(txn) GROUP(isolation) GROUP(savepoints) GROUP(ttl) GROUP(iterators)    \
    GROUP(comparators) GROUP(hooks) GROUP(maintenance) GROUP(backup) GROUP(checkpoint) GROUP(stats)         \
    GROUP(ini) GROUP(runtime) GROUP(objstore) GROUP(threads)
#define BORDER_GROUPS                                                                                         \
    GROUP(border_handles) GROUP(border_garbage) GROUP(border_arguments) GROUP(border_callbacks) GROUP(border_threads)

GROUPS
BORDER_GROUPS
#undef GROUP

const group_t groups[] = {
#define GROUP(name) {#name, test_##name, 0},
    GROUPS
#undef GROUP
#define GROUP(name) {#name, test_##name, 1},
        BORDER_GROUPS
#undef GROUP
    {NULL, NULL, 0},
};
