/* Private C interface between the MariaDB handler (C++, src/) and the engine (Rust, bridge/).

   Not a public API: both sides are built together. A function returns a pgb_status; the message of the last error of the
   calling thread is in pgb_last_error(). Panics do not cross: they become PGB_INTERNAL, and the engine handle refuses all
   later calls. Unless stated otherwise, an object is used by one thread at a time.

   A pgb_slice that a function returns points into memory of the engine. It is valid until the next call on the cursor or
   buffer that returned it. */
#ifndef PERIGEE_BRIDGE_H
#define PERIGEE_BRIDGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pgb_status {
  PGB_OK = 0,
  PGB_NOT_FOUND = 1,        /* no such key, or the cursor is past the end */
  PGB_LOCK_TIMEOUT = 2,     /* the lock was not granted in time; the transaction goes on */
  PGB_DEADLOCK = 3,         /* the transaction is the victim: it must be rolled back */
  PGB_INTERRUPTED = 4,      /* pgb_trx_cancel_wait was called; the transaction goes on */
  PGB_CONFLICT = 5,         /* the table was cleared or replaced after the snapshot was taken */
  PGB_TABLE_MISSING = 6,
  PGB_TABLE_EXISTS = 7,
  PGB_NO_SPACE = 8,
  PGB_IO = 9,
  PGB_CORRUPTION = 10,
  PGB_READ_ONLY = 11,
  PGB_TOO_LARGE = 12,       /* key or value above the engine's limit */
  PGB_OUTCOME_UNKNOWN = 13, /* a commit may or may not be durable: the server must abort */
  PGB_INVALID = 14,
  PGB_CLOSED = 15,
  PGB_INTERNAL = 16,
  PGB_NO_MEMORY = 17
} pgb_status;

typedef struct pgb_slice { const uint8_t *data; size_t size; } pgb_slice;

typedef struct pgb_engine pgb_engine;     /* the database; used by all threads */
typedef struct pgb_table pgb_table;       /* a column family; used by all threads */
typedef struct pgb_trx pgb_trx;           /* a transaction */
typedef struct pgb_snapshot pgb_snapshot; /* a read view; used by all threads */
typedef struct pgb_cursor pgb_cursor;
typedef struct pgb_buffer pgb_buffer;     /* pins the value that a get returned */
typedef struct pgb_load pgb_load;         /* a bulk load into one table */

/* Message of the last error of this thread; valid until its next failing call. */
const char *pgb_last_error(void);

/* ---- engine ---- */

typedef enum pgb_durability {
  PGB_SYNC = 0,     /* synced before the call returns (group commit) */
  PGB_INTERVAL = 1, /* written to the operating system; synced about once a second */
  PGB_NO_SYNC = 2   /* written to the operating system only */
} pgb_durability;

/* Key management of the server. The functions may be called by any thread, also of the engine. */
typedef struct pgb_keys {
  /* Newest version of a key; UINT32_MAX: there is no such key. Null: there are no keys. */
  uint32_t (*latest_version)(uint32_t key_id);
  /* Writes a key to `key`, which has *size bytes, and its size to *size; not 0: there is no such key. */
  uint32_t (*get)(uint32_t key_id, uint32_t version, uint8_t *key, uint32_t *size);
  uint32_t key_id;             /* of new files */
  uint8_t encrypt;             /* 0: new files are not encrypted; existing ones are still decrypted */
} pgb_keys;

typedef struct pgb_engine_options {
  uint64_t memory_budget;      /* bytes */
  uint64_t max_open_files;     /* 0: default */
  uint32_t background_threads; /* parallel merges of a compaction; 0: half of the cores */
  uint8_t log_to_stderr;       /* 1: warnings and errors of the engine go to the server's error log (stderr) */
  pgb_keys keys;
} pgb_engine_options;

typedef enum pgb_compression { PGB_COMPRESSION_DEFAULT = 0, PGB_COMPRESSION_NONE = 1, PGB_COMPRESSION_LZ4 = 2,
                               PGB_COMPRESSION_ZSTD = 3 } pgb_compression;

typedef struct pgb_table_options {
  uint8_t compression;         /* pgb_compression */
  uint8_t has_ttl;             /* ttl_seconds is set */
  uint64_t ttl_seconds;        /* entries expire so long after their write, except those whose key begins with byte 0 */
  uint64_t value_threshold;    /* larger values go to the value log; 0: default */
} pgb_table_options;

pgb_status pgb_engine_open(const char *path, const pgb_engine_options *options, pgb_engine **out);
/* Closes the database and joins every background thread. All other objects must have been released. */
pgb_status pgb_engine_close(pgb_engine *engine);
/* Makes every commit so far durable. */
pgb_status pgb_engine_sync(pgb_engine *engine);
pgb_status pgb_engine_checkpoint(pgb_engine *engine, const char *directory);
/* Calls report(arg, text, size) once: statistics as text for SHOW ENGINE STATUS, or as JSON. */
typedef void (*pgb_text_fn)(void *arg, const char *text, size_t size);
pgb_status pgb_engine_status_text(pgb_engine *engine, pgb_text_fn report, void *arg);
pgb_status pgb_engine_status_json(pgb_engine *engine, pgb_text_fn report, void *arg);
/* Calls report(arg, name, value) for each counter of the engine. */
typedef void (*pgb_counter_fn)(void *arg, const char *name, uint64_t value);
pgb_status pgb_engine_counters(pgb_engine *engine, pgb_counter_fn report, void *arg);

/* Levels, jobs and options. Slices are valid during the call of `report`. */
typedef struct pgb_level_stats {
  pgb_slice table;
  uint32_t level;
  uint64_t runs;       /* sorted runs */
  uint64_t files;
  uint64_t bytes;      /* of the files */
  uint64_t entries;    /* tombstones and older versions included */
  uint64_t tombstones;
  uint64_t raw_bytes;  /* keys and values without compression */
} pgb_level_stats;
typedef void (*pgb_level_fn)(void *arg, const pgb_level_stats *level);
/* Each level of each table that has files. */
pgb_status pgb_engine_levels(pgb_engine *engine, pgb_level_fn report, void *arg);

typedef struct pgb_job_stats {
  pgb_slice kind;         /* "flush" or "compaction" */
  pgb_slice table;        /* of several tables: the first, and how many more */
  pgb_slice reason;
  pgb_slice state;        /* "running", "finished" or "failed" */
  pgb_slice input_levels; /* separated by commas; empty for a flush */
  uint32_t output_level;
  uint64_t input_files;
  uint64_t input_bytes;
  uint64_t done_bytes;    /* of the input */
  uint64_t output_bytes;
  uint64_t elapsed_us;
  uint64_t age_us;        /* since its end */
} pgb_job_stats;
typedef void (*pgb_job_fn)(void *arg, const pgb_job_stats *job);
/* Running flushes and compactions, then the last 100 that have ended since the open, the newest first. */
pgb_status pgb_engine_jobs(pgb_engine *engine, pgb_job_fn report, void *arg);

typedef struct pgb_table_option {
  pgb_slice table;
  pgb_slice family;       /* name of its column family in the engine */
  pgb_slice name;
  pgb_slice value;
  uint8_t is_default;
} pgb_table_option;
typedef void (*pgb_option_fn)(void *arg, const pgb_table_option *option);
/* Each option of each table, as in an options file of the engine. */
pgb_status pgb_engine_options_list(pgb_engine *engine, pgb_option_fn report, void *arg);

/* ---- tables (column families). Names are UTF-8 of any length: the bridge maps long ones to short ones. ---- */

pgb_status pgb_table_create(pgb_engine *engine, const char *name, size_t size, const pgb_table_options *options,
                            pgb_table **out);
pgb_status pgb_table_open(pgb_engine *engine, const char *name, size_t size, pgb_table **out);
void pgb_table_release(pgb_table *table);
pgb_status pgb_table_drop(pgb_engine *engine, const char *name, size_t size);
pgb_status pgb_table_rename(pgb_engine *engine, const char *from, size_t from_size, const char *to, size_t to_size);
/* Deletes all entries at once (TRUNCATE). Snapshots taken before get PGB_CONFLICT. */
pgb_status pgb_table_clear(pgb_engine *engine, const char *name, size_t size);
/* All options are replaced, TTL included; they apply to entries and files written from now on. */
pgb_status pgb_table_set_options(pgb_table *table, const pgb_table_options *options);
pgb_status pgb_table_compact(pgb_table *table);
pgb_status pgb_table_flush(pgb_table *table);
pgb_status pgb_tables_list(pgb_engine *engine, pgb_text_fn report, void *arg);

typedef struct pgb_table_stats {
  uint64_t entries;      /* estimate, of all indexes */
  uint64_t disk_bytes;
  uint64_t memory_bytes;
  uint64_t files;
  uint32_t levels;
} pgb_table_stats;
pgb_status pgb_table_stats_get(pgb_table *table, pgb_table_stats *out);

/* Estimates the entries and bytes in [begin, end) from metadata in memory. */
pgb_status pgb_estimate_range(pgb_table *table, pgb_slice begin, pgb_slice end, uint64_t *entries, uint64_t *bytes);

/* Writes one entry outside of any transaction, without locks and without TTL. PGB_LOCK_TIMEOUT if a prepared transaction
   wrote the key. */
pgb_status pgb_put_direct(pgb_table *table, pgb_slice key, pgb_slice value, pgb_durability durability);
/* Deletes [begin, end) outside of any transaction and without locks. Snapshots taken before still see the entries. */
pgb_status pgb_delete_range_direct(pgb_table *table, pgb_slice begin, pgb_slice end, pgb_durability durability);

/* ---- read views ---- */

pgb_status pgb_snapshot_take(pgb_engine *engine, pgb_snapshot **out);
void pgb_snapshot_release(pgb_snapshot *snapshot);

/* ---- transactions: writes are locked until the end (two-phase locking), reads choose what they see ---- */

pgb_status pgb_trx_begin(pgb_engine *engine, uint64_t lock_timeout_us, pgb_trx **out);
/* Rolls back if needed and releases the object. A prepared transaction stays prepared. */
void pgb_trx_free(pgb_trx *trx);
/* Lock timeout of the following calls; 0: fail at once (NOWAIT, SKIP LOCKED). Ends the effect of pgb_trx_cancel_wait. */
void pgb_trx_set_lock_timeout(pgb_trx *trx, uint64_t lock_timeout_us);
/* Ends the lock wait of another thread in this transaction with PGB_INTERRUPTED, and every later one until the next
   pgb_trx_set_lock_timeout (so that a KILL just before a wait is not lost); thread-safe. */
void pgb_trx_cancel_wait(pgb_trx *trx);
/* Number by which lock waits and deadlocks are reported: of the transaction that begins with the next call, until its commit,
   its rollback, or the decision about it after pgb_trx_prepare. */
uint64_t pgb_trx_lock_owner(pgb_trx *trx);
/* Number of uncommitted writes. */
uint64_t pgb_trx_writes(pgb_trx *trx);

/* Savepoints are numbered by the caller. Setting one that exists moves it. */
pgb_status pgb_trx_savepoint(pgb_trx *trx, uint64_t number);
/* Keeps the savepoint and drops later ones. Locks taken since are released. */
pgb_status pgb_trx_rollback_to(pgb_trx *trx, uint64_t number);
pgb_status pgb_trx_release_savepoint(pgb_trx *trx, uint64_t number); /* later ones stay */

/* Both end the transaction, release its locks, and leave the object ready for a new one. */
pgb_status pgb_trx_commit(pgb_trx *trx, pgb_durability durability);
void pgb_trx_rollback(pgb_trx *trx);

/* Two-phase commit. pgb_trx_prepare syncs; the transaction keeps its locks and is then decided by its identifier (1 to 255
   bytes), also after a restart. After PGB_OK the object has let go of it and is ready for a new transaction, also before
   the decision (pgb_trx_rollback then has no effect); after an error it must be rolled back. A transaction without writes
   cannot be prepared (PGB_INVALID). Decisions about an unknown identifier return PGB_NOT_FOUND. */
pgb_status pgb_trx_prepare(pgb_trx *trx, pgb_slice gid);
pgb_status pgb_commit_prepared(pgb_engine *engine, pgb_slice gid, pgb_durability durability);
pgb_status pgb_rollback_prepared(pgb_engine *engine, pgb_slice gid);
typedef void (*pgb_prepared_fn)(void *arg, const uint8_t *gid, size_t size);
pgb_status pgb_prepared_list(pgb_engine *engine, pgb_prepared_fn report, void *arg);

/* Locks. Two transactions may hold PGB_LOCK_GAP on the same keys; it keeps others from inserting there. */
typedef enum pgb_lock_mode {
  PGB_LOCK_SHARED = 0,
  PGB_LOCK_EXCLUSIVE = 1,
  PGB_LOCK_GAP = 2,
  PGB_LOCK_INSERT = 3 /* exclusive, and waits for gap locks of others */
} pgb_lock_mode;
pgb_status pgb_lock_key(pgb_trx *trx, pgb_table *table, pgb_slice key, pgb_lock_mode mode);
/* Locks [begin, end). */
pgb_status pgb_lock_range(pgb_trx *trx, pgb_table *table, pgb_slice begin, pgb_slice end, pgb_lock_mode mode);
/* Releases the newest lock on a key that the transaction has not written; no effect if there is none. */
pgb_status pgb_unlock_key(pgb_trx *trx, pgb_table *table, pgb_slice key);

/* A transaction that waits for a lock, and the owners that hold conflicting locks or requested them before. */
typedef struct pgb_lock_wait {
  uint64_t waiting;
  const uint64_t *blocking;
  size_t blocking_count;
  const char *table;
  size_t table_size;
  pgb_slice key;       /* the key, or the begin of the range */
  pgb_slice range_end; /* data NULL: a single key */
  uint32_t mode;       /* pgb_lock_mode */
  uint64_t waited_us;
} pgb_lock_wait;
/* Calls report(arg, wait) for each transaction that waits. */
typedef void (*pgb_lock_wait_fn)(void *arg, const pgb_lock_wait *wait);
pgb_status pgb_lock_waits(pgb_engine *engine, pgb_lock_wait_fn report, void *arg);
/* Calls report(arg, owner, count) for each owner of locks. */
typedef void (*pgb_lock_count_fn)(void *arg, uint64_t owner, uint64_t count);
pgb_status pgb_lock_counts(pgb_engine *engine, pgb_lock_count_fn report, void *arg);
/* Sets the functions that are called before a transaction waits (and when a transaction that waits already has to wait for one
   more), and after a deadlock was resolved: each of the waits is blocked by the next one, the last one by the first. They run in
   threads of transactions, which hold no lock of the engine then. */
typedef void (*pgb_wait_began_fn)(uint64_t waiting, const uint64_t *blocking, size_t count);
typedef void (*pgb_deadlock_fn)(const pgb_lock_wait *waits, size_t count, uint64_t victim);
pgb_status pgb_set_lock_listener(pgb_engine *engine, pgb_wait_began_fn wait_began, pgb_deadlock_fn deadlock);

/* An expiry time in milliseconds since 1970. Writes take 0 for the table's TTL. */
#define PGB_NEVER UINT64_MAX

/* Writes. Put locks the key with PGB_LOCK_INSERT, delete with PGB_LOCK_EXCLUSIVE. */
pgb_status pgb_trx_put(pgb_trx *trx, pgb_table *table, pgb_slice key, pgb_slice value, uint64_t expires_at_ms);
pgb_status pgb_trx_delete(pgb_trx *trx, pgb_table *table, pgb_slice key);
/* The same without taking a lock, which costs less: for a key that the transaction has locked with PGB_LOCK_EXCLUSIVE or
   PGB_LOCK_INSERT, or that no other transaction can write because it contains the key of a row that is locked. An existing
   row or entry is updated with it, because PGB_LOCK_INSERT would wait for gap locks of others. */
pgb_status pgb_trx_put_locked(pgb_trx *trx, pgb_table *table, pgb_slice key, pgb_slice value, uint64_t expires_at_ms);
pgb_status pgb_trx_delete_locked(pgb_trx *trx, pgb_table *table, pgb_slice key);

/* ---- reads. snapshot NULL: the newest committed state. Both include the transaction's own writes; trx NULL: none ---- */

pgb_buffer *pgb_buffer_new(void);
void pgb_buffer_free(pgb_buffer *buffer);
/* Releases what the buffer pins. */
void pgb_buffer_clear(pgb_buffer *buffer);

pgb_status pgb_get(pgb_trx *trx, pgb_snapshot *snapshot, pgb_table *table, pgb_slice key, pgb_buffer *buffer,
                   pgb_slice *value);
/* Locks the key, then reads the newest committed value (or the transaction's own). PGB_NOT_FOUND keeps the lock. */
pgb_status pgb_get_locked(pgb_trx *trx, pgb_table *table, pgb_slice key, pgb_lock_mode mode, pgb_buffer *buffer,
                          pgb_slice *value);

/* As pgb_get without a transaction, and also returns when the entry expires. */
pgb_status pgb_get_with_expiry(pgb_snapshot *snapshot, pgb_table *table, pgb_slice key, pgb_buffer *buffer,
                               pgb_slice *value, uint64_t *expires_at_ms);
/* *unchanged: the newest committed entry of a key is that of the snapshot, or neither has one. */
pgb_status pgb_is_unchanged(pgb_snapshot *snapshot, pgb_table *table, pgb_slice key, uint8_t *unchanged);

/* A cursor over [begin, end); end.data NULL: to the end of the table. It sees the state of its creation. */
pgb_status pgb_cursor_open(pgb_trx *trx, pgb_snapshot *snapshot, pgb_table *table, pgb_slice begin, pgb_slice end,
                           pgb_cursor **out);
void pgb_cursor_close(pgb_cursor *cursor);
/* Each moves the cursor and returns the entry there, or PGB_NOT_FOUND. */
pgb_status pgb_cursor_first(pgb_cursor *cursor, pgb_slice *key, pgb_slice *value);
pgb_status pgb_cursor_last(pgb_cursor *cursor, pgb_slice *key, pgb_slice *value);
pgb_status pgb_cursor_seek(pgb_cursor *cursor, pgb_slice target, pgb_slice *key, pgb_slice *value);       /* first >= */
pgb_status pgb_cursor_seek_prev(pgb_cursor *cursor, pgb_slice target, pgb_slice *key, pgb_slice *value);  /* last <= */
pgb_status pgb_cursor_next(pgb_cursor *cursor, pgb_slice *key, pgb_slice *value);
pgb_status pgb_cursor_prev(pgb_cursor *cursor, pgb_slice *key, pgb_slice *value);
/* When the entry that the last call returned expires. */
uint64_t pgb_cursor_expiry(const pgb_cursor *cursor);

/* ---- bulk loads: unsorted input, atomic, durable when finished. The keys must not exist yet, or are replaced. ---- */

pgb_status pgb_load_begin(pgb_table *table, pgb_load **out);
/* expires_at_ms 0: the table's TTL from the begin of the load. */
pgb_status pgb_load_put(pgb_load *load, pgb_slice key, pgb_slice value, uint64_t expires_at_ms);
pgb_status pgb_load_finish(pgb_load *load); /* releases the object, also after an error */
void pgb_load_abort(pgb_load *load);

#ifdef __cplusplus
}
#endif
#endif
