/* Where TidesDB 9.3.14 does not do what these checks expect: what it does, and why ours is as it is. Run
 * `conformance --differences` for the table that docs/c-api.md shows. */
#include "harness.h"

#define OUTSIDE "The name becomes a path: files are written outside of the database's directory"
#define NAMES "A name is not a path"
#define SAVEPOINT_THEIRS "Gives TDB_ERR_INVALID_ARGS when the transaction has no savepoint at all (TDB_ERR_NOT_FOUND otherwise)"
#define SAVEPOINT_WHY "The reference promises TDB_ERR_NOT_FOUND"
#define ORDER_THEIRS "The family is lost at the reopen: a comparator can only be registered after the open that needs it"
#define ORDER_WHY "The family waits for its comparator; until then its data is refused, not shown in a wrong order"
#define PURGE_THEIRS "One sorted file is not rewritten, nor is a small number of files: tombstones stay"
#define PURGE_WHY "The reference promises a full compaction that drops deletes"

const difference_t differences[] = {
    {"tidesdb_init", "after close all of it is freed",
     "Gives the caller's free function two blocks that the caller's functions never gave",
     "With an allocator that is not the system's this is a crash"},
    {"tidesdb_open", "NULL path is an invalid argument", "Gives TDB_ERR_MEMORY", "The reference: NULL pointers are invalid arguments"},
    {"tidesdb_open", "an object store is refused by an error, not ignored", "Has object stores",
     "Perigee has none yet; a configuration that names one is refused, not run without it"},
    {"tidesdb_log_write", "leaves out what is below the level", "Writes every line, whatever its level",
     "The reference promises that the level is honoured"},
    {"tidesdb_open", "TDB_LOG_NONE writes nothing", "Lines from tidesdb_log_write are written all the same",
     "The reference: TDB_LOG_NONE disables all logging"},
    {"tidesdb_create_column_family", "a name with ../ is an invalid argument", OUTSIDE, NAMES},
    {"tidesdb_create_column_family", "a name with ../ makes nothing outside", OUTSIDE, NAMES},
    {"tidesdb_create_column_family", "a name with / is an invalid argument", "Gives TDB_ERR_IO", NAMES},
    {"tidesdb_create_column_family", "the name . is an invalid argument", "The family's files lie among the database's own", NAMES},
    {"tidesdb_create_column_family", "the name .. is an invalid argument", OUTSIDE, NAMES},
    {"tidesdb_rename_column_family", "a new name with ../ is an invalid argument", "The family's directory leaves the database's", NAMES},
    {"tidesdb_clone_column_family", "a destination with ../ is an invalid argument", OUTSIDE, NAMES},
    {"tidesdb_txn_get", "an empty value is found with length 0",
     "A put of an empty value succeeds and is lost: alone its commit gives TDB_ERR_MEMORY, among others it vanishes silently",
     "What was put is there; silent loss is a fault"},
    {"tidesdb_txn_get", "after the commit is an invalid argument", "Gives TDB_ERR_MEMORY",
     "Every other call after the commit gives TDB_ERR_INVALID_ARGS"},
    {"tidesdb_txn_commit", "SERIALIZABLE: a transaction that only read commits", "Gives TDB_ERR_CONFLICT when a key it read was changed",
     "Its reads are those of its beginning, which is its place in the order: there is nothing to refuse"},
    {"tidesdb_txn_rollback_to_savepoint", "an absent name is not found", SAVEPOINT_THEIRS, SAVEPOINT_WHY},
    {"tidesdb_txn_release_savepoint", "an absent name is not found", SAVEPOINT_THEIRS, SAVEPOINT_WHY},
    {"tidesdb_txn_rollback_to_savepoint", "an inner one is gone with the outer", SAVEPOINT_THEIRS, SAVEPOINT_WHY},
    {"tidesdb_txn_rollback_to_savepoint", "savepoints end with the transaction", SAVEPOINT_THEIRS, SAVEPOINT_WHY},
    {"tidesdb_txn_release_savepoint", "a released name is not found", SAVEPOINT_THEIRS, SAVEPOINT_WHY},
    {"tidesdb_txn_rollback_to_savepoint", "a released name is not found", SAVEPOINT_THEIRS, SAVEPOINT_WHY},
    {"tidesdb_iter_seek_to_last", "after a whole walk, a second one the other way sees every key",
     "Silently leaves out what is in memory: 6000 of 7000 keys", "A walk that loses keys without an error is a fault"},
    {"tidesdb_register_comparator", "a family that was there before is readable after registering", ORDER_THEIRS, ORDER_WHY},
    {"tidesdb_register_comparator", "its order after a reopen and registering is the registered one", ORDER_THEIRS, ORDER_WHY},
    {"tidesdb_register_comparator", "new writes after a reopen come in the registered order", ORDER_THEIRS, ORDER_WHY},
    {"tidesdb_register_comparator", "the second order is back after registering", ORDER_THEIRS, ORDER_WHY},
    {"tidesdb_purge_cf", "drops tombstones that cover nothing any more", PURGE_THEIRS, PURGE_WHY},
    {"tidesdb_get_stats", "avg_key_size is the keys' length", "A fixed share of the bytes by entry, after compression: 3.1 for keys of 9 bytes",
     "What is known exactly is told exactly"},
    {"tidesdb_get_stats", "avg_value_size is the values' length", "A fixed share of the bytes by entry, after compression",
     "What is known exactly is told exactly"},
    {"tidesdb_get_stats", "total_keys after deletes and a purge is what is left", PURGE_THEIRS, PURGE_WHY},
    {"tidesdb_get_stats", "total_tombstones after a purge is 0", PURGE_THEIRS, PURGE_WHY},
    {"tidesdb_get_stats", "compaction_bytes_read after a compaction", PURGE_THEIRS, PURGE_WHY},
    {"tidesdb_get_stats", "compaction_bytes_written after a compaction", PURGE_THEIRS, PURGE_WHY},
    {"tidesdb_get_stats", "compaction_count after a compaction", PURGE_THEIRS, PURGE_WHY},
    {"tidesdb_get_stats", "total_keys after a reopen", PURGE_THEIRS, PURGE_WHY},
    {"tidesdb_cf_estimate_cardinality", "counts a key once although several files hold it", "Sums the files' counts",
     "A sketch of distinct keys is what the name says"},
    {NULL, NULL, NULL, NULL},
};
