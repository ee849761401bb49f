/* Perigee's features beyond TidesDB's interface (db.h), on the same handles: error messages, range deletes, locks, merges,
 * two-phase commit, snapshots with and without names, reads at past sequence numbers, reading and writing values in parts, the
 * change feed, statistics. Functions return TDB_SUCCESS or a code of db.h unless documented otherwise. The caller frees returned
 * memory with tidesdb_free. */
#ifndef TIDESDB_PERIGEE_H
#define TIDESDB_PERIGEE_H

#include "db.h"

#ifdef __cplusplus
extern "C"
{
#endif

/* ---- the library ---- */

const char *perigee_version(void);
/* Message of the last error on this thread; valid until the next call of this function on this thread. */
const char *perigee_last_error(void);

/* ---- opening ---- */

/* Merges the operand `right` into the older value or operand `left` (null: none) and passes the result to append(out, bytes, size).
 * Returns 0; any other value means that the two cannot be merged: reads of the key then fail. Must be associative, and must not
 * call the library. */
typedef int (*perigee_merge_fn)(const uint8_t *key, size_t key_size, const uint8_t *left, size_t left_size,
                                const uint8_t *right, size_t right_size,
                                void (*append)(void *out, const uint8_t *bytes, size_t size), void *out, void *ctx);

typedef struct perigee_merge_operator_t
{
    const char *name;
    perigee_merge_fn merge;
    void *ctx;
} perigee_merge_operator_t;

/* Initialize with perigee_default_options(). */
typedef struct perigee_options_t
{
    size_t size;
    int read_only;               /* the state at the time of the open, even while another process writes */
    int salvage_readonly;        /* read-only; reads all intact data of a damaged database */
    int error_if_exists;
    int must_exist;
    uint64_t history_operations; /* past states stay readable for this many operations ... */
    uint64_t history_us;         /* ... or this many microseconds */
    uint64_t log_retention;      /* bytes of the log retained for perigee_changes_new */
    uint64_t background_rate;    /* bytes per second of flushes and compactions; 0: no limit */
    uint32_t space_amplification;/* percent; 0: the default, 150 */
    uint32_t num_merge_operators;
    const perigee_merge_operator_t *merge_operators;
} perigee_options_t;

perigee_options_t perigee_default_options(void);
int perigee_open(const tidesdb_config_t *config, const perigee_options_t *options, tidesdb_t **db);
/* "counter" (8 bytes, little-endian), "append:" and a separator, or "user:" and the name of an operator passed to perigee_open.
 * Cannot be changed later. */
int perigee_cf_set_merge_operator(tidesdb_column_family_t *cf, const char *rule);

/* ---- transactions ---- */

/* Initialize with perigee_txn_default_options(): snapshot isolation, no locks, no limits. */
typedef struct perigee_txn_options_t
{
    size_t size;
    int isolation;            /* tidesdb_isolation_level_t */
    int read_only;
    int pessimistic;          /* writes lock their keys */
    int reserved;
    uint64_t lock_timeout_us; /* 0: the default, one second */
    uint64_t timeout_us;      /* the transaction is aborted after this time; 0: never */
    uint64_t max_bytes;       /* limit of its writes; 0: no limit */
    uint64_t spill_bytes;     /* its writes are spilled to files beyond this size; 0: a fraction of the memory budget */
} perigee_txn_options_t;

typedef enum
{
    PERIGEE_LOCK_SHARED = 1,
    PERIGEE_LOCK_EXCLUSIVE = 2,
    PERIGEE_LOCK_GAP = 3,   /* prevents inserts into the range */
    PERIGEE_LOCK_INSERT = 4 /* exclusive, and conflicts with gap locks of others */
} perigee_lock_t;

perigee_txn_options_t perigee_txn_default_options(void);
int perigee_txn_begin(tidesdb_t *db, const perigee_txn_options_t *options, tidesdb_txn_t **txn);
int perigee_txn_commit(tidesdb_txn_t *txn, uint64_t *seq); /* sequence number of its last operation */

/* TDB_ERR_BUSY: the lock was not granted in time, the transaction stays active; TDB_ERR_CONFLICT: it is the victim of a deadlock. */
int perigee_txn_lock(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size, int lock);
int perigee_txn_lock_range(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *start, size_t start_size,
                           const uint8_t *end, size_t end_size, int lock);
int perigee_txn_get_for_update(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size,
                               int lock, uint8_t **value, size_t *value_size);

/* From `start` (inclusive) to `end` (exclusive), in one operation; null: unbounded. Commit hooks receive an operation with
 * is_delete 2 and the bounds as key and value; its kind in the change feed is 2 as well. */
int perigee_txn_delete_range(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *start, size_t start_size,
                             const uint8_t *end, size_t end_size);
int perigee_txn_delete_prefix(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *prefix,
                              size_t prefix_size);
/* Commit hooks receive an operation with is_delete 3 and the operand as value. */
int perigee_txn_merge(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size,
                      const uint8_t *operand, size_t operand_size);

/* Two-phase commit: a transaction prepared under an identifier of 1 to 255 bytes survives restarts and crashes until it is committed
 * or rolled back by this identifier. Its handle then accepts only tidesdb_txn_reset and tidesdb_txn_free. */
typedef struct perigee_prepared_t
{
    const uint8_t *gid;
    size_t gid_size;
    uint64_t operations;
    uint64_t bytes;
    uint64_t prepared_ms; /* since 1970 */
} perigee_prepared_t;

int perigee_txn_prepare(tidesdb_txn_t *txn, const uint8_t *gid, size_t gid_size);
int perigee_commit_prepared(tidesdb_t *db, const uint8_t *gid, size_t gid_size, uint64_t *seq); /* seq may be null */
int perigee_rollback_prepared(tidesdb_t *db, const uint8_t *gid, size_t gid_size);
int perigee_list_prepared(tidesdb_t *db, perigee_prepared_t **list, size_t *count); /* one allocation: free it with one tidesdb_free */

/* ---- snapshots ---- */

typedef struct perigee_snapshot_t perigee_snapshot_t;

int perigee_latest_seq(tidesdb_t *db, uint64_t *seq);
int perigee_oldest_readable_seq(tidesdb_t *db, uint64_t *seq);
int perigee_snapshot_new(tidesdb_t *db, perigee_snapshot_t **snapshot);
int perigee_snapshot_at(tidesdb_t *db, uint64_t seq, perigee_snapshot_t **snapshot);
int perigee_snapshot_create(tidesdb_t *db, const char *name, uint64_t *seq); /* survives restarts; seq may be null */
int perigee_snapshot_open(tidesdb_t *db, const char *name, perigee_snapshot_t **snapshot);
int perigee_snapshot_drop(tidesdb_t *db, const char *name);
uint64_t perigee_snapshot_seq(perigee_snapshot_t *snapshot);
int perigee_snapshot_get(perigee_snapshot_t *snapshot, tidesdb_column_family_t *cf, const uint8_t *key,
                         size_t key_size, uint8_t **value, size_t *value_size);
int perigee_snapshot_iter(perigee_snapshot_t *snapshot, tidesdb_column_family_t *cf, tidesdb_iter_t **iter);
void perigee_snapshot_free(perigee_snapshot_t *snapshot);

/* ---- reading and writing values in parts ---- */

typedef struct perigee_value_t perigee_value_t;
typedef struct perigee_writer_t perigee_writer_t;

/* The value stays as it was until it is freed, whatever happens to the key or the transaction. A value of more than 1 MiB is
 * read from its file, 1 MiB at a time, as long as the database is open. */
int perigee_value_open(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size,
                       perigee_value_t **value, uint64_t *size);
int perigee_value_read(perigee_value_t *value, uint64_t offset, uint8_t *buffer, size_t size, size_t *got);
int perigee_value_data(perigee_value_t *value, const uint8_t **data, size_t *size); /* reads the whole value into memory; valid until it is freed */
void perigee_value_free(perigee_value_t *value);

/* Up to 4 GiB. More than 1 MiB goes to a file at once, and is not held in memory (up to 1 GiB, in memory, while a column family has a
 * commit hook). finish puts the value into the transaction, and frees the writer if it succeeds; after an error free the writer. */
int perigee_writer_new(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const uint8_t *key, size_t key_size, time_t ttl,
                       uint64_t size_hint, perigee_writer_t **writer);
int perigee_writer_append(perigee_writer_t *writer, const uint8_t *piece, size_t piece_size);
int perigee_writer_finish(perigee_writer_t *writer);
void perigee_writer_free(perigee_writer_t *writer);

/* ---- change feed ---- */

typedef struct perigee_feed_t perigee_feed_t;

typedef struct perigee_change_op_t
{
    uint64_t seq;
    uint32_t family;
    int kind; /* 0 put, 1 delete, 2 range delete (key inclusive, value exclusive), 3 merge, 4 single delete, 99 other */
    const char *family_name; /* name at the time of the commit; not NUL-terminated */
    size_t family_name_size;
    const uint8_t *key;
    size_t key_size;
    const uint8_t *value;
    size_t value_size;
    uint64_t expires_ms; /* since 1970; 0: never */
} perigee_change_op_t;

typedef struct perigee_change_t
{
    uint64_t first_seq;
    uint64_t seq;
    uint64_t position; /* perigee_changes_new with this position continues after this change */
    int kind;          /* 0 commit; a column family was 1 created, 2 dropped, 3 renamed, 4 cleared, 5 cloned, 6 bulk-loaded; 99 other */
    uint32_t family;
    const perigee_change_op_t *ops;
    size_t num_ops;
    const char *name; /* of the column family; not NUL-terminated */
    size_t name_size;
    const char *from; /* previous name, if it was renamed */
    size_t from_size;
    uint32_t source;  /* id of the column family it was cloned from */
    uint32_t reserved;
} perigee_change_t;

/* All durable changes after the sequence number `since`. TDB_ERR_NOT_FOUND: the log no longer holds them. */
int perigee_changes_new(tidesdb_t *db, uint64_t since, perigee_feed_t **feed);
/* The next change; waits at most timeout_us (TDB_ERR_NOT_FOUND: no change in this time). Valid until the next call with this feed. */
int perigee_changes_next(perigee_feed_t *feed, uint64_t timeout_us, const perigee_change_t **change);
void perigee_changes_free(perigee_feed_t *feed);

/* ---- statistics and verification ---- */

int perigee_stats_json(tidesdb_t *db, char **json);
int perigee_metrics(tidesdb_t *db, char **text); /* Prometheus */
/* Reads and checks every stored byte. Returns TDB_ERR_CORRUPTION and the number of damaged files, or TDB_SUCCESS and 0. */
int perigee_verify(tidesdb_t *db, uint64_t *errors);

#ifdef __cplusplus
}
#endif

#endif
