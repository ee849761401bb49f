/* The harness of the conformance suite: checks that name the function and the documented behaviour, groups that each
 * run in a separate process (so that a crash is a single failure), and small helpers for short tests.
 *
 * A check is a pair (function, behaviour). It may run many times; it passes when every run passed. Checks
 * that TidesDB 9.3.14 itself fails are listed in differences.c; they must pass on Perigee only. */
#ifndef CONFORMANCE_HARNESS_H
#define CONFORMANCE_HARNESS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <tidesdb/db.h>

typedef enum
{
    LIBRARY_PERIGEE,
    LIBRARY_TIDESDB
} library_t;

/* The library under test. The expectations of checks depend on it only through differences.c. */
extern library_t library;

/* Reports the result of one check to the parent process. */
void check_record(int ok, const char *function, const char *behaviour, const char *file, int line, const char *format,
                  ...) __attribute__((format(printf, 6, 7)));

#define CHECK(function, behaviour, condition) \
    check_record(!!(condition), function, behaviour, __FILE__, __LINE__, "%s", #condition)

#define RC(function, behaviour, call, expected)                                                                  \
    do                                                                                                           \
    {                                                                                                            \
        int got_ = (call), want_ = (expected);                                                                   \
        check_record(got_ == want_, function, behaviour, __FILE__, __LINE__, "%s returned %d, not %d", #call, got_, \
                     want_);                                                                                     \
    } while (0)

#define EQ(function, behaviour, value, expected)                                                                    \
    do                                                                                                              \
    {                                                                                                               \
        long long got_ = (long long)(value), want_ = (long long)(expected);                                         \
        check_record(got_ == want_, function, behaviour, __FILE__, __LINE__, "%s is %lld, not %lld", #value, got_, \
                     want_);                                                                                        \
    } while (0)

/* Precondition of a test: a failure ends this test function, not the group. */
#define REQUIRE(condition)                                                                            \
    do                                                                                                \
    {                                                                                                 \
        if (!(condition))                                                                             \
        {                                                                                             \
            check_record(0, "(set-up)", #condition, __FILE__, __LINE__, "%s does not hold", #condition); \
            return;                                                                                   \
        }                                                                                             \
    } while (0)

/* Expands a literal to the two arguments (bytes, length) of the API. */
#define S(literal) (const uint8_t *)(literal), (sizeof(literal) - 1)

/* Returns an unused path below the directory of this group, which the parent process removes afterwards. */
const char *fresh_path(void);
/* Path of this program, for tests that need a second process. */
extern const char *program_path;

/* An open database with one column family "cf". */
typedef struct
{
    const char *path;
    tidesdb_t *db;
    tidesdb_column_family_t *cf;
} fixture_t;

tidesdb_config_t quiet_config(const char *path);
fixture_t fixture_open(void);
/* Opens the same path again (the handles change). */
void fixture_reopen(fixture_t *f);
void fixture_close(fixture_t *f);

tidesdb_column_family_t *make_family(tidesdb_t *db, const char *name);

/* One write or read in a separate transaction. Returns 0 or the first error. */
int put1(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key, const char *value);
int put1_ttl(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key, const char *value, time_t ttl);
int delete1(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key);
int has(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key, const char *value);
int lacks(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key);
int txn_has(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const char *key, const char *value);
int txn_lacks(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const char *key);
int put_text(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const char *key, const char *value);
/* Writes key000000.. with values value000000.., in transactions of a thousand operations. */
int fill(tidesdb_t *db, tidesdb_column_family_t *cf, int from, int to);
/* Flushes and waits until the memtable is on disk. */
int flush_and_wait(tidesdb_column_family_t *cf);

/* Returns the keys that an iterator returns as text, "a,b,c"; the returned buffer is reused by the next call. */
const char *keys_forward(tidesdb_txn_t *txn, tidesdb_column_family_t *cf);
const char *keys_backward(tidesdb_txn_t *txn, tidesdb_column_family_t *cf);
const char *family_keys(tidesdb_t *db, tidesdb_column_family_t *cf);
int iter_at(tidesdb_iter_t *it, const char *key);

int directory_entries(const char *path);
int file_exists(const char *path);
const char *joined(const char *directory, const char *name);
int file_contains(const char *path, const char *text);

/* Functions that the library exports but db.h does not declare. */
void *exported(const char *name);

/* The groups, in the order of the reference. */
typedef struct
{
    const char *name;
    void (*run)(void);
    int perigee_only;
} group_t;

extern const group_t groups[];

/* A check that TidesDB 9.3.14 fails, what TidesDB does instead, and the reason for Perigee's behaviour. */
typedef struct
{
    const char *function;
    const char *behaviour;
    const char *theirs;
    const char *why;
} difference_t;

extern const difference_t differences[];

#endif
