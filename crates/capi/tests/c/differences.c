/* Checks that TidesDB 9.3.14 fails: what TidesDB does, and the reason for Perigee's behaviour. Run
 * `conformance --differences` for the table in docs/c-api.md. */
#include "harness.h"

#define OUTSIDE "The name is used as a path: files are written outside the database's directory"
#define NAMES "A name is not a path"
#define SAVEPOINT_THEIRS "Returns TDB_ERR_INVALID_ARGS when the transaction has no savepoint at all (TDB_ERR_NOT_FOUND otherwise)"
#define SAVEPOINT_WHY "The reference promises TDB_ERR_NOT_FOUND"
#define ORDER_THEIRS "The family is lost at the reopen, because a comparator can only be registered after the open that needs it"
#define ORDER_WHY "The family waits for its comparator; until then reads are refused instead of returning a wrong order"
#define PURGE_THEIRS "A single sorted file or a small number of files is not rewritten: tombstones stay"
#define PURGE_WHY "The reference promises a full compaction that drops deletes"

const difference_t differences[] = {
    {"tidesdb_init", "everything is freed after close",
     "Passes two blocks to the caller's free function that the caller's functions did not allocate",
     "With an allocator other than the system's this crashes"},
    {"tidesdb_open", "NULL path is an invalid argument", "Returns TDB_ERR_MEMORY", "The reference: NULL pointers are invalid arguments"},
    {"tidesdb_open", "an object store is refused by an error, not ignored", "Has object stores",
     "Perigee has none yet; a configuration that names one is refused instead of being ignored"},
    {"tidesdb_log_write", "skips lines below the level", "Writes every line, whatever its level",
     "The reference promises that the level is respected"},
    {"tidesdb_open", "TDB_LOG_NONE writes nothing", "Lines from tidesdb_log_write are written nevertheless",
     "The reference: TDB_LOG_NONE disables all logging"},
    {"tidesdb_create_column_family", "a name with ../ is an invalid argument", OUTSIDE, NAMES},
    {"tidesdb_create_column_family", "a name with ../ creates nothing outside", OUTSIDE, NAMES},
    {"tidesdb_create_column_family", "a name with / is an invalid argument", "Returns TDB_ERR_IO", NAMES},
    {"tidesdb_create_column_family", "the name . is an invalid argument", "The family's files are created among the database's own", NAMES},
    {"tidesdb_create_column_family", "the name .. is an invalid argument", OUTSIDE, NAMES},
    {"tidesdb_rename_column_family", "a new name with ../ is an invalid argument", "The family's directory leaves the database's", NAMES},
    {"tidesdb_clone_column_family", "a destination with ../ is an invalid argument", OUTSIDE, NAMES},
    {"tidesdb_txn_get", "an empty value is found with length 0",
     "A put of an empty value succeeds, but is lost: in a transaction of its own the commit gives TDB_ERR_MEMORY, together with other writes it vanishes silently",
     "A put must not be lost silently"},
    {"tidesdb_txn_get", "after the commit is an invalid argument", "Returns TDB_ERR_MEMORY",
     "Every other call after the commit gives TDB_ERR_INVALID_ARGS"},
    {"tidesdb_txn_commit", "SERIALIZABLE: a transaction without writes commits", "Returns TDB_ERR_CONFLICT when a key it read was changed",
     "All its reads see the state as of its start, which is its position in the serial order: there is no reason to refuse it"},
    {"tidesdb_txn_rollback_to_savepoint", "an absent name is not found", SAVEPOINT_THEIRS, SAVEPOINT_WHY},
    {"tidesdb_txn_release_savepoint", "an absent name is not found", SAVEPOINT_THEIRS, SAVEPOINT_WHY},
    {"tidesdb_txn_rollback_to_savepoint", "an inner savepoint is removed with the outer one", SAVEPOINT_THEIRS, SAVEPOINT_WHY},
    {"tidesdb_txn_rollback_to_savepoint", "savepoints end with the transaction", SAVEPOINT_THEIRS, SAVEPOINT_WHY},
    {"tidesdb_txn_release_savepoint", "a released name is not found", SAVEPOINT_THEIRS, SAVEPOINT_WHY},
    {"tidesdb_txn_rollback_to_savepoint", "a released name is not found", SAVEPOINT_THEIRS, SAVEPOINT_WHY},
    {"tidesdb_iter_seek_to_last", "after a full scan, a second one in the other direction sees every key",
     "Silently skips unflushed entries: returns 6000 of 7000 keys", "A scan must not skip keys without an error"},
    {"tidesdb_register_comparator", "an existing family is readable after registering", ORDER_THEIRS, ORDER_WHY},
    {"tidesdb_register_comparator", "an existing family is ordered by the registered comparator", ORDER_THEIRS, ORDER_WHY},
    {"tidesdb_register_comparator", "new writes after a reopen follow the registered comparator", ORDER_THEIRS, ORDER_WHY},
    {"tidesdb_register_comparator", "the second comparator works after registering", ORDER_THEIRS, ORDER_WHY},
    {"tidesdb_purge_cf", "drops tombstones that no longer cover entries", PURGE_THEIRS, PURGE_WHY},
    {"tidesdb_get_stats", "avg_key_size is the keys' length", "A fixed fraction of the bytes per entry, after compression: 3.1 for keys of 9 bytes",
     "The exact value is known"},
    {"tidesdb_get_stats", "avg_value_size is the values' length", "A fixed fraction of the bytes per entry, after compression",
     "The exact value is known"},
    {"tidesdb_get_stats", "total_keys after deletes and a purge is the number of remaining keys", PURGE_THEIRS, PURGE_WHY},
    {"tidesdb_get_stats", "total_tombstones after a purge is 0", PURGE_THEIRS, PURGE_WHY},
    {"tidesdb_get_stats", "compaction_bytes_read after a compaction", PURGE_THEIRS, PURGE_WHY},
    {"tidesdb_get_stats", "compaction_bytes_written after a compaction", PURGE_THEIRS, PURGE_WHY},
    {"tidesdb_get_stats", "compaction_count after a compaction", PURGE_THEIRS, PURGE_WHY},
    {"tidesdb_get_stats", "total_keys after a reopen", PURGE_THEIRS, PURGE_WHY},
    {"tidesdb_cf_estimate_cardinality", "counts a key in several files once", "Sums the files' counts",
     "Perigee merges sketches of distinct keys, as the name of the function promises"},
    {NULL, NULL, NULL, NULL},
};
