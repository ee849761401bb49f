/* Perigee: an embedded, ordered, transactional key-value store. The C interface.
 *
 * C99 and C++. No other header of Perigee is needed. Link with -lperigee (pkg-config: perigee; CMake: Perigee::perigee).
 *
 *     perigee_db *db;
 *     perigee_family *family;
 *     perigee_error *error;
 *     void *value;
 *     size_t size;
 *
 *     if (perigee_db_open("moon.db", NULL, &db, &error) != PERIGEE_OK) {
 *         fprintf(stderr, "%s\n", perigee_error_text(error));
 *         perigee_error_free(error);
 *         return 1;
 *     }
 *     perigee_db_default_family(db, &family, NULL);
 *     perigee_put(family, "moon", 4, "full", 4, NULL);
 *     perigee_get(family, NULL, "moon", 4, &value, &size, NULL);
 *     perigee_free(value);
 *     perigee_family_release(family);
 *     perigee_db_close(db, NULL);
 *
 * Results and errors
 *   Functions that can fail return PERIGEE_OK (0) or another perigee_code. Their last parameter, `error`, receives the details:
 *   NULL after success, a new object after an error, which the caller frees with perigee_error_free. Its previous content is
 *   not read, so it need not be initialized. Pass NULL to ignore the details. Output parameters are set to NULL or 0 before
 *   anything else happens, so they are defined after every return. A missing key is not an error: the value is NULL.
 *   A panic of the library is returned as PERIGEE_INTERNAL; the library never ends the process.
 *
 * Handles
 *   perigee_db, perigee_family and the other objects that are only declared here are handles: numbers that the library checks
 *   in every call. NULL, a handle that was released, and a handle of another kind give PERIGEE_INVALID_ARGUMENT. Each handle is
 *   released by the function that its documentation names; functions that release ignore NULL. Handles may be released in any
 *   order, before or after the database is closed. After perigee_db_close, calls with the other handles of the database give
 *   PERIGEE_CLOSED, but each still has to be released. In a child of fork every handle of the parent gives PERIGEE_CLOSED.
 *
 * Bytes and text
 *   Keys and values are bytes, passed as pointer and size; they may contain NUL. A pointer may be NULL only if its size is 0.
 *   Keys have at most 64 KiB, values at most 4 GiB (above 1 GiB in parts: perigee_stream_writer). The library copies what it
 *   keeps before it returns. Text (names, paths) is NUL-terminated UTF-8 of at most 64 KiB. Memory that the library allocates
 *   for the caller is freed with perigee_free, not with free.
 *
 * Threads
 *   "Threads: any" means that any number of threads may call the function at the same time, with the same handles.
 *   "Threads: one" means that the handle is used by one thread at a time: a second thread waits until the call of the first
 *   has returned. No handle belongs to a particular thread.
 *   A release waits until running calls with the handle have returned.
 *
 * Errors that are not listed for each function
 *   PERIGEE_INVALID_ARGUMENT   an argument breaks a rule of this header, or a function is called from inside a comparator or
 *                              merge operator
 *   PERIGEE_CLOSED             the database was closed
 *   PERIGEE_NO_MEMORY          a result or a large buffer cannot be allocated
 *   PERIGEE_INTERNAL           a bug of the library
 *   "Errors: read" adds PERIGEE_CORRUPTION and PERIGEE_IO (stored bytes are damaged or cannot be read) and PERIGEE_NOT_FOUND
 *   (the column family was dropped).
 *   "Errors: write" adds PERIGEE_OUTCOME_UNKNOWN (the log could not be written: after the next open the write is present as a
 *   whole or absent), PERIGEE_NO_SPACE, PERIGEE_IO, PERIGEE_POISONED (writes are stopped because an earlier one failed),
 *   PERIGEE_BUSY, PERIGEE_READ_ONLY, PERIGEE_NOT_FOUND (the column family was dropped), and PERIGEE_CONFLICT (a prepared
 *   transaction has written the key). After any of them except PERIGEE_OUTCOME_UNKNOWN the write was not applied.
 *
 * Stability
 *   Before version 1.0 this interface may change; then the soname, libperigee.so.0, changes too.
 */
#ifndef PERIGEE_H
#define PERIGEE_H

#include <stddef.h>
#include <stdint.h>

#define PERIGEE_VERSION_MAJOR 0
#define PERIGEE_VERSION_MINOR 1
#define PERIGEE_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* ==== Results and errors ==== */

/* What a call returns. The numbers never change. */
typedef enum perigee_code {
    PERIGEE_OK = 0,
    PERIGEE_INVALID_ARGUMENT = 1, /* a rule of this header is broken; nothing happened: change the call */
    PERIGEE_NOT_FOUND = 2,        /* the database, column family, savepoint, ... does not exist */
    PERIGEE_ALREADY_EXISTS = 3,   /* an object of that name already exists */
    PERIGEE_LOCKED = 4,           /* this or another process has the database open */
    PERIGEE_CORRUPTION = 5,       /* stored bytes are damaged: see perigee_error_file and perigee_error_offset */
    PERIGEE_FORMAT_TOO_NEW = 6,   /* written by a newer version of Perigee; nothing was changed */
    PERIGEE_IO = 7,               /* a system call failed: see perigee_error_os_error */
    PERIGEE_NO_SPACE = 8,         /* the disk is full; free space and try again */
    PERIGEE_OUTCOME_UNKNOWN = 9,  /* after reopening, the commit is either present as a whole or absent */
    PERIGEE_POISONED = 10,        /* writes are refused because an earlier one failed; close and reopen */
    PERIGEE_CLOSED = 11,          /* the database was closed */
    PERIGEE_NO_MEMORY = 12,       /* an allocation failed */
    PERIGEE_READ_ONLY = 13,       /* the database was opened read-only */
    PERIGEE_BUSY = 14,            /* not possible now, without an effect; try again */
    PERIGEE_CONFLICT = 15,        /* another transaction committed first; begin again */
    PERIGEE_ABORTED = 16,         /* the transaction was aborted by its time limit or another thread */
    PERIGEE_INTERRUPTED = 17,     /* another thread ended the wait for a lock; the transaction goes on */
    PERIGEE_INTERNAL = 18         /* a bug of the library: please report it */
} perigee_code;

/* Details of an error. Freed with perigee_error_free. */
typedef struct perigee_error perigee_error;

/* Returns the name of a code, such as "not found". Unknown codes give "unknown code".
 * Ownership: static text. Errors: none. Threads: any. */
const char *perigee_code_name(int code);

/* Returns the code of an error; PERIGEE_OK for NULL.
 * Errors: none. Threads: any. */
perigee_code perigee_error_code(const perigee_error *error);

/* Returns the complete description: kind, message, file, offset, expected and actual value. "" for NULL.
 * Ownership: valid until the error is freed. Errors: none. Threads: any. */
const char *perigee_error_text(const perigee_error *error);

/* Returns the message alone, without the kind and the location. "" for NULL.
 * Ownership: valid until the error is freed. Errors: none. Threads: any. */
const char *perigee_error_message(const perigee_error *error);

/* Returns the file in which the error occurred, relative to the database directory if it is inside. NULL if there is
 * none.
 * Ownership: valid until the error is freed. Errors: none. Threads: any. */
const char *perigee_error_file(const perigee_error *error);

/* Returns the byte offset in that file; -1 if there is none.
 * Errors: none. Threads: any. */
int64_t perigee_error_offset(const perigee_error *error);

/* Returns the error number of the operating system (errno); 0 if that is not the cause.
 * Errors: none. Threads: any. */
int perigee_error_os_error(const perigee_error *error);

/* Returns the column family of a conflict; NULL if there is none.
 * Ownership: valid until the error is freed. Errors: none. Threads: any. */
const char *perigee_error_family(const perigee_error *error);

/* Returns the key of a conflict and its size; NULL and 0 if there is none. `size` may be NULL.
 * Ownership: valid until the error is freed. Errors: none. Threads: any. */
const void *perigee_error_key(const perigee_error *error, size_t *size);

/* Returns 1 if the operation had no effect and may succeed if it is repeated: busy, conflict, no space, no memory.
 * After a conflict the whole transaction has to be repeated, with its reads. Otherwise 0.
 * Errors: none. Threads: any. */
int perigee_error_is_retryable(const perigee_error *error);

/* Frees an error. NULL is ignored. An error must not be freed twice.
 * Errors: none. Threads: any, each error once. */
void perigee_error_free(perigee_error *error);

/* ==== Library ==== */

/* Returns the version of the library, such as "0.1.0".
 * Ownership: static text. Errors: none. Threads: any. */
const char *perigee_library_version(void);

/* Frees memory that the library has allocated for the caller: values, texts, lists. NULL is ignored.
 * Errors: none. Threads: any, each pointer once. */
void perigee_free(void *memory);

/* ==== Options ==== */

/* Options of a database and its column families. Released with perigee_options_release. */
typedef struct perigee_options perigee_options;

/* Compares two keys: negative, 0 or positive. Must be a total order over all byte strings, the same in every run,
 * callable from any thread, and must not call the library or leave by an exception or longjmp. */
typedef int (*perigee_compare_function)(const void *a, size_t a_size, const void *b, size_t b_size, void *context);

/* Merges the operand `right` into the older value or operand `left` (NULL: there is none) and passes the result to
 * append(out, bytes, size), in one or several parts. Returns 0; any other value means that the two cannot be merged:
 * reads of the key then fail. Must be associative; otherwise as perigee_compare_function. */
typedef int (*perigee_merge_function)(const void *key, size_t key_size, const void *left, size_t left_size,
                                      const void *right, size_t right_size,
                                      void (*append)(void *out, const void *bytes, size_t size), void *out, void *context);

/* Levels of log lines. */
typedef enum perigee_log_level {
    PERIGEE_LOG_DEBUG = 0, /* a job starts */
    PERIGEE_LOG_INFO = 1,  /* open, flush, compaction, close */
    PERIGEE_LOG_WARN = 2,  /* needs attention */
    PERIGEE_LOG_ERROR = 3  /* an operation failed */
} perigee_log_level;

/* Receives a line of the info log, NUL-terminated, valid during the call. Called by a thread of the library. */
typedef void (*perigee_log_function)(int level, const char *line, void *context);

/* Creates options with default values.
 * Ownership: *options is released with perigee_options_release. Errors: none. Threads: any. */
perigee_code perigee_options_new(perigee_options **options, perigee_error **error);

/* Sets an option of the database, by name and value as in the options file: "memory_budget", "256 MiB"; "durability",
 * "interval 100 ms"; "read_only", "true". docs/OPTIONS.md lists all; `perigee options` prints them with comments.
 * Errors: PERIGEE_INVALID_ARGUMENT for an unknown name (the message suggests the nearest) or a value out of range.
 * Threads: one. */
perigee_code perigee_options_set(perigee_options *options, const char *name, const char *value, perigee_error **error);

/* Sets an option of a column family, by name and value: "compression", "zstd 3"; "comparator", "user:NAME";
 * "merge_operator", "counter". Applies when the column family is created, and at open: an open creates column
 * families that do not exist, and replaces all stored options of one that exists by those set here and defaults for
 * the others.
 * Errors: as perigee_options_set. Threads: one. */
perigee_code perigee_options_set_family(perigee_options *options, const char *family, const char *name,
                                        const char *value, perigee_error **error);

/* Reads an options file (TOML). Replaces all options that were set by name or text before.
 * Errors: PERIGEE_INVALID_ARGUMENT, PERIGEE_NOT_FOUND, PERIGEE_IO. Threads: one. */
perigee_code perigee_options_load_file(perigee_options *options, const char *path, perigee_error **error);

/* Reads the text of an options file. Replaces all options that were set by name or text before.
 * Errors: PERIGEE_INVALID_ARGUMENT. Threads: one. */
perigee_code perigee_options_load_text(perigee_options *options, const char *toml, perigee_error **error);

/* Returns all options as the text of an options file, each with a comment.
 * Ownership: *toml is freed with perigee_free. Errors: none. Threads: any. */
perigee_code perigee_options_text(perigee_options *options, char **toml, perigee_error **error);

/* Registers a comparator, which column families select with the option "comparator" = "user:NAME". A database whose
 * column families use it opens only with options that have it. The registration lasts until the process ends: a name
 * stands for one function and context until then. Such column families have no filters.
 * Errors: PERIGEE_INVALID_ARGUMENT for a NULL function, an invalid name, another function under the same name, or a
 * function that is not a total order. Threads: one. */
perigee_code perigee_options_add_comparator(perigee_options *options, const char *name,
                                            perigee_compare_function compare, void *context, perigee_error **error);

/* Registers a merge operator, which column families select with the option "merge_operator" = "user:NAME". Used for
 * as long as a database opened with these options is open. "counter" and "append:SEPARATOR" are built in.
 * Errors: none. Threads: one. */
perigee_code perigee_options_add_merge_operator(perigee_options *options, const char *name,
                                                perigee_merge_function merge, void *context, perigee_error **error);

/* Calls a function with each line of the info log of this level or above, in addition to the file LOG. NULL: none.
 * The function may be called until perigee_db_close has returned.
 * Errors: none. Threads: one. */
perigee_code perigee_options_set_log_listener(perigee_options *options, int level, perigee_log_function listener,
                                              void *context, perigee_error **error);

/* Adds a key of 32 bytes for encryption at rest, with its version. New files are encrypted with the highest version;
 * the others are kept for reading. Without a key a database is not encrypted.
 * Errors: none. Threads: one. */
perigee_code perigee_options_add_encryption_key(perigee_options *options, uint32_t version, const void *key,
                                                size_t key_size, perigee_error **error);

/* Releases options. Databases opened with them are not affected. NULL is ignored.
 * Errors: none. Threads: any. */
void perigee_options_release(perigee_options *options);

/* ==== Databases ==== */

/* An open database. Closed with perigee_db_close. */
typedef struct perigee_db perigee_db;

/* Opens the database in a directory, or creates it (option create_if_missing). Replays the log before it returns.
 * `options` may be NULL for defaults; they are copied.
 * Ownership: *db is closed with perigee_db_close. Errors: PERIGEE_LOCKED, PERIGEE_NOT_FOUND, PERIGEE_ALREADY_EXISTS,
 * PERIGEE_CORRUPTION, PERIGEE_FORMAT_TOO_NEW, PERIGEE_IO, PERIGEE_NO_SPACE; PERIGEE_INVALID_ARGUMENT also for a
 * directory of another program. Threads: any. */
perigee_code perigee_db_open(const char *path, perigee_options *options, perigee_db **db, perigee_error **error);

/* Closes a database and releases its handle: ends background work, makes all acknowledged writes durable and releases
 * the lock of the directory. Calls that other threads are in return PERIGEE_CLOSED. The database is closed even if
 * this returns an error. NULL is ignored.
 * Errors: PERIGEE_OUTCOME_UNKNOWN, PERIGEE_IO, PERIGEE_NO_SPACE, PERIGEE_POISONED: the last writes may not be
 * durable. Threads: any; the handle is released once. */
perigee_code perigee_db_close(perigee_db *db, perigee_error **error);

/* Makes every write acknowledged so far durable, whatever its durability was.
 * Errors: write. Threads: any. */
perigee_code perigee_db_sync(perigee_db *db, perigee_error **error);

/* ==== Column families ==== */

/* A column family: an ordered set of keys with values. Released with perigee_family_release; it stays in the
 * database. */
typedef struct perigee_family perigee_family;

/* Returns the column family "default", which always exists.
 * Ownership: *family is released with perigee_family_release. Errors: none. Threads: any. */
perigee_code perigee_db_default_family(perigee_db *db, perigee_family **family, perigee_error **error);

/* Returns an existing column family.
 * Ownership: *family is released with perigee_family_release. Errors: PERIGEE_NOT_FOUND. Threads: any. */
perigee_code perigee_db_family(perigee_db *db, const char *name, perigee_family **family, perigee_error **error);

/* Creates a column family, durably. Of `options` (NULL: defaults) those set with perigee_options_set_family for this
 * name apply.
 * Ownership: *family is released with perigee_family_release. Errors: PERIGEE_ALREADY_EXISTS; write. Threads: any. */
perigee_code perigee_db_create_family(perigee_db *db, const char *name, perigee_options *options,
                                      perigee_family **family, perigee_error **error);

/* Returns a column family, and creates it if it does not exist. The options of an existing one are not changed.
 * Ownership: *family is released with perigee_family_release. Errors: write. Threads: any. */
perigee_code perigee_db_family_or_create(perigee_db *db, const char *name, perigee_options *options,
                                         perigee_family **family, perigee_error **error);

/* Drops a column family and its contents, durably. Open iterators still return its entries.
 * Errors: PERIGEE_NOT_FOUND; PERIGEE_INVALID_ARGUMENT for "default"; PERIGEE_BUSY if a prepared transaction uses it;
 * write. Threads: any. */
perigee_code perigee_db_drop_family(perigee_db *db, const char *name, perigee_error **error);

/* Renames a column family, durably. Handles stay valid.
 * Errors: PERIGEE_NOT_FOUND, PERIGEE_ALREADY_EXISTS; write. Threads: any. */
perigee_code perigee_db_rename_family(perigee_db *db, const char *name, const char *new_name, perigee_error **error);

/* Removes all entries of a column family at once, durably.
 * Errors: PERIGEE_NOT_FOUND, PERIGEE_BUSY; write. Threads: any. */
perigee_code perigee_db_clear_family(perigee_db *db, const char *name, perigee_error **error);

/* Returns the names of all column families, sorted, as an array of `count` texts.
 * Ownership: *names is one allocation, freed with one perigee_free. Errors: none. Threads: any. */
perigee_code perigee_db_family_names(perigee_db *db, char ***names, size_t *count, perigee_error **error);

/* Returns the current name of a column family.
 * Ownership: *name is freed with perigee_free. Errors: none. Threads: any. */
perigee_code perigee_family_name(perigee_family *family, char **name, perigee_error **error);

/* Returns the value of an option of a column family, as text.
 * Ownership: *value is freed with perigee_free. Errors: PERIGEE_INVALID_ARGUMENT for an unknown name. Threads: any. */
perigee_code perigee_family_option(perigee_family *family, const char *name, char **value, perigee_error **error);

/* Changes an option of a column family, durably. The comparator, and a merge operator once set, cannot be changed.
 * Errors: PERIGEE_INVALID_ARGUMENT; write. Threads: any. */
perigee_code perigee_family_set_option(perigee_family *family, const char *name, const char *value,
                                       perigee_error **error);

/* Releases a handle of a column family. NULL is ignored.
 * Errors: none. Threads: any. */
void perigee_family_release(perigee_family *family);

/* ==== Ranges ==== */

/* Bits of perigee_range.flags. */
enum {
    PERIGEE_LOWER_EXCLUSIVE = 1, /* the lower bound is not in the range (default: it is) */
    PERIGEE_UPPER_INCLUSIVE = 2, /* the upper bound is in the range (default: it is not) */
    PERIGEE_PREFIX = 4           /* `lower` is a prefix: the range has the keys that begin with it; `upper` is ignored.
                                    Not for the comparators u64, i64 and user-defined ones */
};

/* A range of keys: from `lower` to `upper`, in the order of the column family's comparator. A NULL pointer means no
 * bound. A pointer to a range may be NULL in calls: all keys. */
typedef struct perigee_range {
    const void *lower;
    size_t lower_size;
    const void *upper;
    size_t upper_size;
    unsigned flags;
} perigee_range;

/* ==== Reads ==== */

/* A consistent view of all column families. Released with perigee_snapshot_release. */
typedef struct perigee_snapshot perigee_snapshot;

/* A value that is not copied: it pins the block or memtable that contains it. `data` is NULL if the key does not
 * exist. Filled by the library, and released with perigee_pinned_release; a copy of the structure must not be
 * released as well. Do not keep many for long: each pins a block in memory. Stays valid when the database is closed. */
typedef struct perigee_pinned {
    const void *data;
    size_t size;
    void *reserved[6];
} perigee_pinned;

/* Bytes that are only borrowed. */
typedef struct perigee_bytes {
    const void *data;
    size_t size;
} perigee_bytes;

/* Reads a value, and copies it. `snapshot` is NULL to read the newest state. *value is NULL if the key does not
 * exist; an empty value is not NULL. `size` may be NULL.
 * Ownership: *value is freed with perigee_free. Errors: read. Threads: any. */
perigee_code perigee_get(perigee_family *family, perigee_snapshot *snapshot, const void *key, size_t key_size,
                         void **value, size_t *size, perigee_error **error);

/* Reads a value without copying it. pinned->data is NULL if the key does not exist.
 * Ownership: *pinned is released with perigee_pinned_release. Errors: read. Threads: any. */
perigee_code perigee_get_pinned(perigee_family *family, perigee_snapshot *snapshot, const void *key, size_t key_size,
                                perigee_pinned *pinned, perigee_error **error);

/* Copies a value, or its beginning, into a buffer. *size receives the length of the whole value, *found 1 if the key
 * exists; if *size is greater than `capacity`, only the first `capacity` bytes were copied. `buffer` may be NULL if
 * `capacity` is 0.
 * Ownership: nothing is allocated. Errors: read. Threads: any. */
perigee_code perigee_get_into(perigee_family *family, perigee_snapshot *snapshot, const void *key, size_t key_size,
                              void *buffer, size_t capacity, size_t *size, int *found, perigee_error **error);

/* Reads the values of `count` keys at once, faster than one by one. values[i] belongs to keys[i]; its data is NULL if
 * the key does not exist. All are from the same state. After an error every values[i].data is NULL.
 * Ownership: each values[i] is released with perigee_pinned_release. Errors: read. Threads: any. */
perigee_code perigee_get_many(perigee_family *family, perigee_snapshot *snapshot, const perigee_bytes *keys,
                              size_t count, perigee_pinned *values, perigee_error **error);

/* Sets *found to 1 if the key exists, without reading its value.
 * Errors: read. Threads: any. */
perigee_code perigee_contains(perigee_family *family, perigee_snapshot *snapshot, const void *key, size_t key_size,
                              int *found, perigee_error **error);

/* Returns when a key expires, in milliseconds since 1970: 0 if it does not expire or does not exist. *found is 1 if
 * it exists.
 * Errors: read. Threads: any. */
perigee_code perigee_get_expiry(perigee_family *family, perigee_snapshot *snapshot, const void *key, size_t key_size,
                                uint64_t *expires_ms, int *found, perigee_error **error);

/* Estimates the number of keys in a range and the bytes that it takes on disk, without reading it.
 * Errors: read. Threads: any. */
perigee_code perigee_estimate(perigee_family *family, const perigee_range *range, uint64_t *keys, uint64_t *disk_bytes,
                              perigee_error **error);

/* Releases a pinned value: unpins its memory and sets `data` to NULL. NULL, and a value that is released or was not
 * found, are ignored.
 * Errors: none. Threads: any, each value once. */
void perigee_pinned_release(perigee_pinned *pinned);

/* ==== Writes ==== */

/* Durability of a write. */
typedef enum perigee_durability {
    PERIGEE_DURABILITY_DEFAULT = 0, /* the option "durability" of the database: full, unless set otherwise */
    PERIGEE_DURABILITY_FULL = 1,    /* on stable storage when the call returns */
    PERIGEE_DURABILITY_NONE = 2     /* survives a crash of the process, not necessarily a power failure */
} perigee_durability;

/* Sets the value of a key.
 * Errors: write. Threads: any. */
perigee_code perigee_put(perigee_family *family, const void *key, size_t key_size, const void *value, size_t value_size,
                         perigee_error **error);

/* Sets the value of a key for `ttl_ms` milliseconds. Then the key does not exist any more.
 * Errors: write. Threads: any. */
perigee_code perigee_put_with_ttl(perigee_family *family, const void *key, size_t key_size, const void *value,
                                  size_t value_size, uint64_t ttl_ms, perigee_error **error);

/* Deletes a key. It need not exist.
 * Errors: write. Threads: any. */
perigee_code perigee_delete(perigee_family *family, const void *key, size_t key_size, perigee_error **error);

/* Deletes a key that was put at most once since it was last deleted. Cheaper than perigee_delete: the two entries
 * disappear in the next compaction. For a key that was put more often, the result is undefined: older values may
 * return.
 * Errors: write. Threads: any. */
perigee_code perigee_single_delete(perigee_family *family, const void *key, size_t key_size, perigee_error **error);

/* Deletes all keys of a range in one operation, whose cost does not depend on their number. `range` may be NULL: all
 * keys.
 * Errors: write. Threads: any. */
perigee_code perigee_delete_range(perigee_family *family, const perigee_range *range, perigee_error **error);

/* Merges an operand into the value of a key, by the merge operator of the column family (option "merge_operator").
 * Errors: PERIGEE_INVALID_ARGUMENT if it has none, or refuses the operand; write. Threads: any. */
perigee_code perigee_merge(perigee_family *family, const void *key, size_t key_size, const void *operand,
                           size_t operand_size, perigee_error **error);

/* Replaces the value of a key if it is `expected`: NULL means that the key must not exist. `value` NULL deletes the
 * key. Sets *swapped to 1 if it was replaced, to 0 if the key has another value.
 * Errors: PERIGEE_CONFLICT if other commits kept changing the key; read; write. Threads: any. */
perigee_code perigee_compare_and_swap(perigee_family *family, const void *key, size_t key_size, const void *expected,
                                      size_t expected_size, const void *value, size_t value_size, int *swapped,
                                      perigee_error **error);

/* ==== Batches ==== */

/* Writes to any number of column families that are committed atomically. Released with perigee_batch_release. */
typedef struct perigee_batch perigee_batch;

/* Creates an empty batch.
 * Ownership: *batch is released with perigee_batch_release. Errors: none. Threads: any. */
perigee_code perigee_batch_new(perigee_batch **batch, perigee_error **error);

/* Adds a put.
 * Errors: PERIGEE_INVALID_ARGUMENT also above 2 GiB, or for a column family of another database than the first.
 * Threads: one. */
perigee_code perigee_batch_put(perigee_batch *batch, perigee_family *family, const void *key, size_t key_size,
                               const void *value, size_t value_size, perigee_error **error);

/* Adds a put that expires at `expires_ms`, in milliseconds since 1970.
 * Errors: as perigee_batch_put. Threads: one. */
perigee_code perigee_batch_put_until(perigee_batch *batch, perigee_family *family, const void *key, size_t key_size,
                                     const void *value, size_t value_size, uint64_t expires_ms, perigee_error **error);

/* Adds a delete.
 * Errors: as perigee_batch_put. Threads: one. */
perigee_code perigee_batch_delete(perigee_batch *batch, perigee_family *family, const void *key, size_t key_size,
                                  perigee_error **error);

/* Adds a single delete: see perigee_single_delete.
 * Errors: as perigee_batch_put. Threads: one. */
perigee_code perigee_batch_single_delete(perigee_batch *batch, perigee_family *family, const void *key, size_t key_size,
                                         perigee_error **error);

/* Adds a range delete: it covers earlier operations of the batch, too. `range` may be NULL: all keys.
 * Errors: as perigee_batch_put. Threads: one. */
perigee_code perigee_batch_delete_range(perigee_batch *batch, perigee_family *family, const perigee_range *range,
                                        perigee_error **error);

/* Adds a merge.
 * Errors: as perigee_merge and perigee_batch_put. Threads: one. */
perigee_code perigee_batch_merge(perigee_batch *batch, perigee_family *family, const void *key, size_t key_size,
                                 const void *operand, size_t operand_size, perigee_error **error);

/* Returns the number of operations of a batch; 0 for an invalid handle.
 * Errors: none. Threads: one. */
size_t perigee_batch_count(perigee_batch *batch);

/* Copies a batch, for example to commit it again if the first commit fails.
 * Ownership: *copy is released with perigee_batch_release. Errors: none. Threads: one. */
perigee_code perigee_batch_copy(perigee_batch *batch, perigee_batch **copy, perigee_error **error);

/* Removes all operations.
 * Errors: none. Threads: one. */
perigee_code perigee_batch_clear(perigee_batch *batch, perigee_error **error);

/* Commits a batch atomically, and empties it. *sequence, which may be NULL, receives the sequence number of its last
 * operation. After an error nothing was applied, unless it is PERIGEE_OUTCOME_UNKNOWN. The batch is then empty as well
 * (unless an argument was invalid), so that a commit whose outcome is unknown is not repeated by accident; keep a
 * perigee_batch_copy to try again.
 * Errors: write; PERIGEE_INVALID_ARGUMENT for a batch of another database. Threads: one for the batch, any for
 * the database. */
perigee_code perigee_db_write(perigee_db *db, perigee_batch *batch, int durability, uint64_t *sequence,
                              perigee_error **error);

/* Releases a batch without committing it. NULL is ignored.
 * Errors: none. Threads: any. */
void perigee_batch_release(perigee_batch *batch);

/* ==== Iterators ==== */

/* A position in a column family or a range of it. It sees the state at the time it was opened. Released with
 * perigee_iterator_release. */
typedef struct perigee_iterator perigee_iterator;

/* The entry that an iterator is on. `key` is NULL if it is on none: after the last entry, before the first, or after
 * an error. The pointers are valid until the next call with the iterator. */
typedef struct perigee_entry {
    const void *key;
    size_t key_size;
    const void *value;
    size_t value_size;
} perigee_entry;

/* Opens an iterator over a range (NULL: all keys), as of a snapshot (NULL: the newest state). It is on no entry yet.
 * Ownership: *iterator is released with perigee_iterator_release. Errors: read. Threads: any. */
perigee_code perigee_iterator_open(perigee_family *family, perigee_snapshot *snapshot, const perigee_range *range,
                                   perigee_iterator **iterator, perigee_error **error);

/* Moves to the first entry of the range.
 * Ownership: entry points into the iterator. Errors: read; the iterator is then on no entry. Threads: one. */
perigee_code perigee_iterator_first(perigee_iterator *iterator, perigee_entry *entry, perigee_error **error);

/* Moves to the last entry of the range.
 * Ownership: entry points into the iterator. Errors: read. Threads: one. */
perigee_code perigee_iterator_last(perigee_iterator *iterator, perigee_entry *entry, perigee_error **error);

/* Moves to the first entry of the range at or after `key`.
 * Ownership: entry points into the iterator. Errors: read. Threads: one. */
perigee_code perigee_iterator_seek(perigee_iterator *iterator, const void *key, size_t key_size, perigee_entry *entry,
                                   perigee_error **error);

/* Moves to the last entry of the range at or before `key`.
 * Ownership: entry points into the iterator. Errors: read. Threads: one. */
perigee_code perigee_iterator_seek_for_prev(perigee_iterator *iterator, const void *key, size_t key_size,
                                            perigee_entry *entry, perigee_error **error);

/* Moves to the next entry. From no entry it stays on no entry.
 * Ownership: entry points into the iterator. Errors: read. Threads: one. */
perigee_code perigee_iterator_next(perigee_iterator *iterator, perigee_entry *entry, perigee_error **error);

/* Moves to the previous entry. From no entry it stays on no entry.
 * Ownership: entry points into the iterator. Errors: read. Threads: one. */
perigee_code perigee_iterator_prev(perigee_iterator *iterator, perigee_entry *entry, perigee_error **error);

/* With `keys_only` 1, later moves do not read values: entry->value is NULL. 0 reads them again.
 * Errors: none. Threads: one. */
perigee_code perigee_iterator_set_keys_only(perigee_iterator *iterator, int keys_only, perigee_error **error);

/* Releases an iterator. NULL is ignored.
 * Errors: none. Threads: any. */
void perigee_iterator_release(perigee_iterator *iterator);

/* ==== Snapshots and history ==== */

/* Takes a snapshot of the newest state of all column families. Costs little; older versions stay stored until its
 * release.
 * Ownership: *snapshot is released with perigee_snapshot_release. Errors: none. Threads: any. */
perigee_code perigee_db_snapshot(perigee_db *db, perigee_snapshot **snapshot, perigee_error **error);

/* Opens the state right after a sequence number (option "history" keeps past states).
 * Ownership: *snapshot is released with perigee_snapshot_release. Errors: PERIGEE_NOT_FOUND if that state is not
 * readable any more. Threads: any. */
perigee_code perigee_db_snapshot_at(perigee_db *db, uint64_t sequence, perigee_snapshot **snapshot,
                                    perigee_error **error);

/* Creates a snapshot with a name, which is kept across restarts until it is dropped. `sequence` may be NULL.
 * Errors: PERIGEE_ALREADY_EXISTS; write. Threads: any. */
perigee_code perigee_db_create_named_snapshot(perigee_db *db, const char *name, uint64_t *sequence,
                                              perigee_error **error);

/* Opens a named snapshot.
 * Ownership: *snapshot is released with perigee_snapshot_release. Errors: PERIGEE_NOT_FOUND. Threads: any. */
perigee_code perigee_db_open_named_snapshot(perigee_db *db, const char *name, perigee_snapshot **snapshot,
                                            perigee_error **error);

/* Drops a named snapshot. Open handles stay readable.
 * Errors: PERIGEE_NOT_FOUND; write. Threads: any. */
perigee_code perigee_db_drop_named_snapshot(perigee_db *db, const char *name, perigee_error **error);

/* Returns the sequence number of the newest visible operation.
 * Errors: none. Threads: any. */
perigee_code perigee_db_sequence(perigee_db *db, uint64_t *sequence, perigee_error **error);

/* Returns the sequence number of a snapshot; 0 for an invalid handle.
 * Errors: none. Threads: any. */
uint64_t perigee_snapshot_sequence(perigee_snapshot *snapshot);

/* Releases a snapshot. Iterators opened from it stay usable. NULL is ignored.
 * Errors: none. Threads: any. */
void perigee_snapshot_release(perigee_snapshot *snapshot);

/* ==== Transactions ==== */

/* A transaction over any number of column families. Released with perigee_transaction_release, which rolls it back if
 * it has not ended. */
typedef struct perigee_transaction perigee_transaction;

/* Isolation levels. */
typedef enum perigee_isolation {
    PERIGEE_ISOLATION_DEFAULT = 0,          /* of the options; snapshot unless set otherwise */
    PERIGEE_ISOLATION_READ_UNCOMMITTED = 1, /* as read committed */
    PERIGEE_ISOLATION_READ_COMMITTED = 2,   /* each read sees the newest committed state */
    PERIGEE_ISOLATION_REPEATABLE_READ = 3,  /* reads see the state at the begin; a commit fails if what was got has changed */
    PERIGEE_ISOLATION_SNAPSHOT = 4,         /* reads see the state at the begin; of two writers of a key the first commits */
    PERIGEE_ISOLATION_SERIALIZABLE = 5      /* as if transactions ran one after another */
} perigee_isolation;

/* Options of a transaction. Initialize with perigee_transaction_options_init. */
typedef struct perigee_transaction_options {
    size_t struct_size;       /* set by perigee_transaction_options_init */
    int isolation;            /* perigee_isolation */
    int read_only;            /* 1: refuses writes, never conflicts */
    int pessimistic;          /* 1: every write locks its key first, and waits for other holders */
    int reserved;             /* 0 */
    uint64_t lock_timeout_us; /* longest wait for a lock; default 1 s */
    uint64_t timeout_us;      /* the transaction is aborted after this time; 0: never */
    uint64_t max_bytes;       /* limit of its writes; 0: no limit */
    uint64_t spill_bytes;     /* beyond this its writes are spilled to files; 0: a part of the memory budget */
} perigee_transaction_options;

/* What a lock protects. */
typedef enum perigee_lock_mode {
    PERIGEE_LOCK_MODE_SHARED = 1,    /* others may have shared locks */
    PERIGEE_LOCK_MODE_EXCLUSIVE = 2, /* no other owner has a lock, except gap locks */
    PERIGEE_LOCK_MODE_GAP = 3,       /* prevents inserts into the range */
    PERIGEE_LOCK_MODE_INSERT = 4     /* exclusive, and conflicts with gap locks of others */
} perigee_lock_mode;

/* Sets all fields to their defaults. NULL is ignored.
 * Errors: none. Threads: any. */
void perigee_transaction_options_init(perigee_transaction_options *options);

/* Begins a transaction. `options` may be NULL: defaults.
 * Ownership: *transaction is released with perigee_transaction_release. Errors: PERIGEE_INVALID_ARGUMENT for options
 * that were not initialized. Threads: any. */
perigee_code perigee_transaction_begin(perigee_db *db, const perigee_transaction_options *options,
                                       perigee_transaction **transaction, perigee_error **error);

/* Commits. The transaction has then ended, also after an error: release or reset it. *sequence, which may be NULL,
 * receives the sequence number of its last operation.
 * Errors: PERIGEE_CONFLICT (nothing was committed: begin again; see perigee_error_family and perigee_error_key),
 * PERIGEE_ABORTED; write. Threads: one. */
perigee_code perigee_transaction_commit(perigee_transaction *transaction, int durability, uint64_t *sequence,
                                        perigee_error **error);

/* Rolls back: nothing is committed. The transaction has then ended.
 * Errors: none. Threads: one. */
perigee_code perigee_transaction_rollback(perigee_transaction *transaction, perigee_error **error);

/* Begins a new transaction in the same handle, with the same options. One that has not ended is rolled back first. A
 * retried transaction keeps its age, so that it cannot lose every deadlock.
 * Errors: none. Threads: one. */
perigee_code perigee_transaction_reset(perigee_transaction *transaction, perigee_error **error);

/* Aborts a transaction from another thread, also one that waits for a lock: all its calls then return
 * PERIGEE_ABORTED, and nothing is committed. Sets *aborted, which may be NULL, to 0 if it has already ended or is
 * being committed.
 * Errors: none. Threads: any; does not wait for a running call. */
perigee_code perigee_transaction_abort(perigee_transaction *transaction, int *aborted, perigee_error **error);

/* Reads and copies a value: own writes first, then the state that the isolation level defines. As perigee_get.
 * Ownership: *value is freed with perigee_free. Errors: read; PERIGEE_ABORTED. Threads: one. */
perigee_code perigee_transaction_get(perigee_transaction *transaction, perigee_family *family, const void *key,
                                     size_t key_size, void **value, size_t *size, perigee_error **error);

/* Reads a value without copying it. As perigee_get_pinned.
 * Ownership: *pinned is released with perigee_pinned_release. Errors: read; PERIGEE_ABORTED. Threads: one. */
perigee_code perigee_transaction_get_pinned(perigee_transaction *transaction, perigee_family *family, const void *key,
                                            size_t key_size, perigee_pinned *pinned, perigee_error **error);

/* Reads the values of many keys. As perigee_get_many.
 * Ownership: each values[i] is released with perigee_pinned_release. Errors: read; PERIGEE_ABORTED. Threads: one. */
perigee_code perigee_transaction_get_many(perigee_transaction *transaction, perigee_family *family,
                                          const perigee_bytes *keys, size_t count, perigee_pinned *values,
                                          perigee_error **error);

/* Locks a key, then reads and copies its value.
 * Ownership: *value is freed with perigee_free. Errors: PERIGEE_BUSY if the lock was not granted in time,
 * PERIGEE_CONFLICT for the victim of a deadlock or a key that was changed since the begin; read; PERIGEE_ABORTED.
 * Threads: one. */
perigee_code perigee_transaction_get_for_update(perigee_transaction *transaction, perigee_family *family,
                                                const void *key, size_t key_size, int lock_mode, void **value,
                                                size_t *size, perigee_error **error);

/* Sets *found to 1 if the key exists.
 * Errors: read; PERIGEE_ABORTED. Threads: one. */
perigee_code perigee_transaction_contains(perigee_transaction *transaction, perigee_family *family, const void *key,
                                          size_t key_size, int *found, perigee_error **error);

/* Opens an iterator that sees the transaction's writes made before. Reads through it count for conflicts.
 * Ownership: *iterator is released with perigee_iterator_release. Errors: read; PERIGEE_ABORTED. Threads: one. */
perigee_code perigee_transaction_iterator(perigee_transaction *transaction, perigee_family *family,
                                          const perigee_range *range, perigee_iterator **iterator,
                                          perigee_error **error);

/* Sets the value of a key.
 * Errors: PERIGEE_INVALID_ARGUMENT also if the transaction is read-only, has ended, or has reached max_bytes;
 * PERIGEE_BUSY and PERIGEE_CONFLICT if it is pessimistic, as perigee_transaction_get_for_update; PERIGEE_NO_SPACE,
 * PERIGEE_IO if it cannot be spilled; PERIGEE_ABORTED. Threads: one. */
perigee_code perigee_transaction_put(perigee_transaction *transaction, perigee_family *family, const void *key,
                                     size_t key_size, const void *value, size_t value_size, perigee_error **error);

/* Sets the value of a key until `expires_ms`, in milliseconds since 1970.
 * Errors: as perigee_transaction_put. Threads: one. */
perigee_code perigee_transaction_put_until(perigee_transaction *transaction, perigee_family *family, const void *key,
                                           size_t key_size, const void *value, size_t value_size, uint64_t expires_ms,
                                           perigee_error **error);

/* Deletes a key.
 * Errors: as perigee_transaction_put. Threads: one. */
perigee_code perigee_transaction_delete(perigee_transaction *transaction, perigee_family *family, const void *key,
                                        size_t key_size, perigee_error **error);

/* Deletes a key that was put at most once: see perigee_single_delete.
 * Errors: as perigee_transaction_put. Threads: one. */
perigee_code perigee_transaction_single_delete(perigee_transaction *transaction, perigee_family *family,
                                               const void *key, size_t key_size, perigee_error **error);

/* Deletes all keys of a range in one operation. `range` may be NULL: all keys.
 * Errors: as perigee_transaction_put. Threads: one. */
perigee_code perigee_transaction_delete_range(perigee_transaction *transaction, perigee_family *family,
                                              const perigee_range *range, perigee_error **error);

/* Merges an operand into the value of a key.
 * Errors: as perigee_merge and perigee_transaction_put. Threads: one. */
perigee_code perigee_transaction_merge(perigee_transaction *transaction, perigee_family *family, const void *key,
                                       size_t key_size, const void *operand, size_t operand_size,
                                       perigee_error **error);

/* Locks a key.
 * Errors: as perigee_transaction_get_for_update. Threads: one. */
perigee_code perigee_transaction_lock(perigee_transaction *transaction, perigee_family *family, const void *key,
                                      size_t key_size, int lock_mode, perigee_error **error);

/* Locks all keys of a range, also those that do not exist yet. `range` may be NULL: all keys.
 * Errors: as perigee_transaction_get_for_update. Threads: one. */
perigee_code perigee_transaction_lock_range(perigee_transaction *transaction, perigee_family *family,
                                            const perigee_range *range, int lock_mode, perigee_error **error);

/* Undoes the newest lock of a key. Sets *unlocked, which may be NULL, to 1 if the key is not locked any more, to 0 if
 * it was locked more often, was written, or is in a locked range.
 * Errors: PERIGEE_ABORTED. Threads: one. */
perigee_code perigee_transaction_unlock(perigee_transaction *transaction, perigee_family *family, const void *key,
                                        size_t key_size, int *unlocked, perigee_error **error);

/* Sets the longest wait of later calls for a lock, in microseconds, in place of lock_timeout_us. 0: they do not wait.
 * Errors: none. Threads: one. */
perigee_code perigee_transaction_set_lock_timeout(perigee_transaction *transaction, uint64_t timeout_us,
                                                  perigee_error **error);

/* Ends a wait for a lock, from another thread: the waiting call returns PERIGEE_INTERRUPTED without an effect, and the
 * transaction goes on. Sets *cancelled, which may be NULL, to 0 if the transaction does not wait: this has no effect on
 * a later wait.
 * Errors: none. Threads: any; does not wait for a running call. */
perigee_code perigee_transaction_cancel_wait(perigee_transaction *transaction, int *cancelled, perigee_error **error);

/* Sets a savepoint. Savepoints nest; a name that is used again stands for the newest.
 * Errors: PERIGEE_ABORTED. Threads: one. */
perigee_code perigee_transaction_savepoint(perigee_transaction *transaction, const char *name, perigee_error **error);

/* Undoes all writes and releases all locks since a savepoint, which stays set.
 * Errors: PERIGEE_NOT_FOUND, PERIGEE_ABORTED. Threads: one. */
perigee_code perigee_transaction_rollback_to(perigee_transaction *transaction, const char *name, perigee_error **error);

/* Removes a savepoint and all later ones. The writes stay.
 * Errors: PERIGEE_NOT_FOUND, PERIGEE_ABORTED. Threads: one. */
perigee_code perigee_transaction_release_savepoint(perigee_transaction *transaction, const char *name,
                                                   perigee_error **error);

/* Releases a transaction, and rolls it back if it has not ended. A prepared one stays prepared. NULL is ignored.
 * Errors: none. Threads: any; waits for a running call. */
void perigee_transaction_release(perigee_transaction *transaction);

/* ==== Two-phase commit ==== */

/* A transaction that was prepared and is neither committed nor rolled back. */
typedef struct perigee_prepared {
    const void *gid;
    size_t gid_size;
    uint64_t operations;
    uint64_t bytes;
    uint64_t prepared_ms; /* since 1970 */
} perigee_prepared;

/* Prepares a transaction under an identifier of 1 to 255 bytes: it is durable, and survives restarts until it is
 * committed or rolled back by this identifier. The handle accepts only reset and release then.
 * Errors: PERIGEE_ALREADY_EXISTS, PERIGEE_CONFLICT, PERIGEE_ABORTED; write. Threads: one. */
perigee_code perigee_transaction_prepare(perigee_transaction *transaction, const void *gid, size_t gid_size,
                                         perigee_error **error);

/* Commits a prepared transaction. `sequence` may be NULL.
 * Errors: PERIGEE_NOT_FOUND; write. Threads: any. */
perigee_code perigee_db_commit_prepared(perigee_db *db, const void *gid, size_t gid_size, uint64_t *sequence,
                                        perigee_error **error);

/* Rolls a prepared transaction back.
 * Errors: PERIGEE_NOT_FOUND; write. Threads: any. */
perigee_code perigee_db_rollback_prepared(perigee_db *db, const void *gid, size_t gid_size, perigee_error **error);

/* Returns all prepared transactions, as an array of `count` elements; NULL if there is none.
 * Ownership: *list is one allocation, freed with one perigee_free. Errors: read. Threads: any. */
perigee_code perigee_db_list_prepared(perigee_db *db, perigee_prepared **list, size_t *count, perigee_error **error);

/* ==== Large values, in parts ==== */

/* A value that is being read. Released with perigee_stream_reader_release. */
typedef struct perigee_stream_reader perigee_stream_reader;

/* A value that is being written. Released with perigee_stream_writer_release. */
typedef struct perigee_stream_writer perigee_stream_writer;

/* Opens a value for reading in parts. It stays as it is, whatever happens to the key. *reader is NULL if the key does
 * not exist. *size, which may be NULL, receives the length of the value.
 * Ownership: *reader is released with perigee_stream_reader_release. Errors: read. Threads: any. */
perigee_code perigee_stream_reader_open(perigee_family *family, perigee_snapshot *snapshot, const void *key,
                                        size_t key_size, perigee_stream_reader **reader, uint64_t *size,
                                        perigee_error **error);

/* Copies the bytes from `offset` on, at most `capacity`. *got is less only at the end of the value.
 * Errors: read. Threads: one. */
perigee_code perigee_stream_reader_read(perigee_stream_reader *reader, uint64_t offset, void *buffer, size_t capacity,
                                        size_t *got, perigee_error **error);

/* Releases a reader. NULL is ignored.
 * Errors: none. Threads: any. */
void perigee_stream_reader_release(perigee_stream_reader *reader);

/* Begins a value of up to 4 GiB that is written in parts, to a file. Nothing changes before it is finished. `ttl_ms`
 * 0: it does not expire.
 * Ownership: *writer is released with perigee_stream_writer_release. Errors: write. Threads: any. */
perigee_code perigee_stream_writer_open(perigee_family *family, const void *key, size_t key_size, uint64_t ttl_ms,
                                        perigee_stream_writer **writer, perigee_error **error);

/* Appends a part. After an error the value is lost: release the writer.
 * Errors: write. Threads: one. */
perigee_code perigee_stream_writer_append(perigee_stream_writer *writer, const void *part, size_t part_size,
                                          perigee_error **error);

/* Sets the key to the value: in a transaction, or, if `transaction` is NULL, by a commit of its own. The writer is then
 * used up, also after an error, unless a handle was invalid: release it.
 * Errors: write; as perigee_transaction_put with a transaction. Threads: one. */
perigee_code perigee_stream_writer_finish(perigee_stream_writer *writer, perigee_transaction *transaction,
                                          perigee_error **error);

/* Releases a writer. A value that was not finished is dropped. NULL is ignored.
 * Errors: none. Threads: any. */
void perigee_stream_writer_release(perigee_stream_writer *writer);

/* ==== Bulk loads ==== */

/* Entries that are written to table files directly, and become visible at once. Released with perigee_load_release. */
typedef struct perigee_load perigee_load;

/* Begins a bulk load into a column family. Faster than writes for many entries; keys may come in any order.
 * Ownership: *load is released with perigee_load_release. Errors: write. Threads: any. */
perigee_code perigee_load_begin(perigee_family *family, perigee_load **load, perigee_error **error);

/* Adds an entry.
 * Errors: write. Threads: one. */
perigee_code perigee_load_put(perigee_load *load, const void *key, size_t key_size, const void *value,
                              size_t value_size, perigee_error **error);

/* Makes the entries visible, atomically and durably. *entries, which may be NULL, receives their number. The load is
 * used up.
 * Errors: write. Threads: one. */
perigee_code perigee_load_finish(perigee_load *load, uint64_t *entries, perigee_error **error);

/* Releases a load. One that was not finished is dropped. NULL is ignored.
 * Errors: none. Threads: any. */
void perigee_load_release(perigee_load *load);

/* ==== Change feed ==== */

/* All durable changes from a position on, in commit order. Released with perigee_feed_release. */
typedef struct perigee_feed perigee_feed;

/* Kinds of operations. */
typedef enum perigee_operation_kind {
    PERIGEE_OPERATION_PUT = 0,
    PERIGEE_OPERATION_DELETE = 1,
    PERIGEE_OPERATION_DELETE_RANGE = 2, /* from `key` to `value` */
    PERIGEE_OPERATION_MERGE = 3,        /* `value` is the operand */
    PERIGEE_OPERATION_SINGLE_DELETE = 4,
    PERIGEE_OPERATION_OTHER = 99
} perigee_operation_kind;

/* An operation of a commit. */
typedef struct perigee_operation {
    uint64_t sequence;
    uint64_t expires_ms; /* since 1970; 0: never */
    const char *family;  /* name at the time of the commit */
    const void *key;     /* of a range: its lower bound, NULL if there is none */
    size_t key_size;
    const void *value; /* of a range: its upper bound, NULL if there is none */
    size_t value_size;
    int kind;       /* perigee_operation_kind */
    unsigned flags; /* of a range: as perigee_range.flags */
} perigee_operation;

/* Kinds of changes. */
typedef enum perigee_change_kind {
    PERIGEE_CHANGE_COMMIT = 0,
    PERIGEE_CHANGE_FAMILY_CREATED = 1,
    PERIGEE_CHANGE_FAMILY_DROPPED = 2,
    PERIGEE_CHANGE_FAMILY_RENAMED = 3,
    PERIGEE_CHANGE_FAMILY_CLEARED = 4,
    PERIGEE_CHANGE_FAMILY_CLONED = 5,
    PERIGEE_CHANGE_FAMILY_LOADED = 6, /* by a bulk load: its entries are not in the feed */
    PERIGEE_CHANGE_OTHER = 99
} perigee_change_kind;

/* A commit, or a change of a column family. */
typedef struct perigee_change {
    uint64_t first_sequence;
    uint64_t sequence;
    uint64_t position;                   /* perigee_feed_open with this position continues after the change */
    const perigee_operation *operations; /* of a commit */
    size_t operation_count;
    const char *family; /* of a change of a column family: its name afterwards, "" if it is not known */
    const char *from;   /* the previous name, if it was renamed; otherwise "" */
    int kind;           /* perigee_change_kind */
    uint32_t family_id;
} perigee_change;

/* Opens a feed of all changes after a sequence number (option "log_retention" keeps the log).
 * Ownership: *feed is released with perigee_feed_release. Errors: PERIGEE_NOT_FOUND if the log does not hold them any
 * more; read. Threads: any. */
perigee_code perigee_feed_open(perigee_db *db, uint64_t since, perigee_feed **feed, perigee_error **error);

/* Returns the next change, and waits for it at most `timeout_ms` milliseconds. *change is NULL if there was none in
 * this time.
 * Ownership: *change is valid until the next call with the feed. Errors: read. Threads: one. */
perigee_code perigee_feed_next(perigee_feed *feed, uint64_t timeout_ms, const perigee_change **change,
                               perigee_error **error);

/* Releases a feed. NULL is ignored.
 * Errors: none. Threads: any; waits for a running call. */
void perigee_feed_release(perigee_feed *feed);

/* ==== Maintenance ==== */

/* Writes all memtables to table files. `family` NULL: of all column families.
 * Errors: write. Threads: any. */
perigee_code perigee_db_flush(perigee_db *db, perigee_family *family, perigee_error **error);

/* Flushes and merges the tables into the deepest level. `family` NULL: all column families; otherwise only the tables
 * that intersect `range` (NULL: all). May rewrite the whole database.
 * Errors: write. Threads: any. */
perigee_code perigee_db_compact(perigee_db *db, perigee_family *family, const perigee_range *range,
                                perigee_error **error);

/* Reclaims all space that deleted and overwritten entries use. `family` NULL: in all column families. May rewrite the
 * whole database.
 * Errors: write. Threads: any. */
perigee_code perigee_db_purge(perigee_db *db, perigee_family *family, perigee_error **error);

/* Sets the bytes per second that flushes and compactions may write, for this open; 0: no limit.
 * Errors: none. Threads: any. */
perigee_code perigee_db_set_background_rate(perigee_db *db, uint64_t bytes_per_second, perigee_error **error);

/* Waits until no flush or compaction is running or due.
 * Errors: write. Threads: any. */
perigee_code perigee_db_wait_idle(perigee_db *db, perigee_error **error);

/* Creates a copy of the database in a new directory, as of now, while it is in use. Files are shared by hard links if
 * the file system allows. *sequence may be NULL.
 * Errors: PERIGEE_ALREADY_EXISTS, PERIGEE_IO, PERIGEE_NO_SPACE. Threads: any. */
perigee_code perigee_db_checkpoint(perigee_db *db, const char *directory, uint64_t *sequence, perigee_error **error);

/* Adds a generation to a backup directory, which is created if it does not exist. Only files that are not in it yet
 * are copied. *generation may be NULL.
 * Errors: PERIGEE_IO, PERIGEE_NO_SPACE, PERIGEE_CORRUPTION. Threads: any. */
perigee_code perigee_db_backup(perigee_db *db, const char *directory, uint64_t *generation, perigee_error **error);

/* Restores a generation of a backup directory (0: the newest) into a new directory. Every byte is checked.
 * Errors: PERIGEE_NOT_FOUND, PERIGEE_ALREADY_EXISTS, PERIGEE_CORRUPTION, PERIGEE_IO, PERIGEE_NO_SPACE. Threads: any. */
perigee_code perigee_backup_restore(const char *directory, uint64_t generation, const char *target,
                                    perigee_error **error);

/* Reads and checks every byte of a generation (0: all). *damaged, which may be NULL, receives the number of damaged
 * files; the error describes the first.
 * Errors: PERIGEE_CORRUPTION, PERIGEE_NOT_FOUND, PERIGEE_IO. Threads: any. */
perigee_code perigee_backup_verify(const char *directory, uint64_t generation, uint64_t *damaged,
                                   perigee_error **error);

/* Removes all but the newest `keep` generations of a backup directory.
 * Errors: PERIGEE_INVALID_ARGUMENT for 0, PERIGEE_CORRUPTION, PERIGEE_IO. Threads: any. */
perigee_code perigee_backup_prune(const char *directory, uint64_t keep, perigee_error **error);

/* Reads and checks every byte of an open database. *damaged, which may be NULL, receives the number of damaged files;
 * the error describes the first.
 * Errors: PERIGEE_CORRUPTION, PERIGEE_IO. Threads: any. */
perigee_code perigee_db_verify(perigee_db *db, uint64_t *damaged, perigee_error **error);

/* Rebuilds a damaged database that is not open: copies all intact data into a new directory. The source is not
 * changed. *report is a text that says what was found and what was lost.
 * Ownership: *report is freed with perigee_free. Errors: PERIGEE_ALREADY_EXISTS, PERIGEE_NOT_FOUND, PERIGEE_IO,
 * PERIGEE_NO_SPACE. Threads: any. */
perigee_code perigee_repair(const char *source, const char *target, char **report, perigee_error **error);

/* Returns all statistics as JSON (docs/STATISTICS.md).
 * Ownership: *json is freed with perigee_free. Errors: none. Threads: any. */
perigee_code perigee_db_stats_json(perigee_db *db, char **json, perigee_error **error);

/* Returns all statistics in the text format of OpenMetrics and Prometheus.
 * Ownership: *text is freed with perigee_free. Errors: none. Threads: any. */
perigee_code perigee_db_metrics(perigee_db *db, char **text, perigee_error **error);

#ifdef __cplusplus
}
#endif

#endif
