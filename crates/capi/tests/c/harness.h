/* The harness of the conformance suite: checks that name the function and the documented behaviour, groups that each
 * run in a process of their own (so that a crash is one failure and not the end), small helpers for short tests.
 *
 * A check is a pair (function, behaviour). It may run many times; it passes when every run passed. What TidesDB
 * 9.3.14 itself does otherwise is listed in differences.c; those checks must pass on Perigee, and only there. */
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

/* Which library runs below; what a check expects may differ by it only through differences.c. */
extern library_t library;

/* Tells the parent what one check found. */
void check_record(int ok, const char *function, const char *behaviour, const char *file, int line, const char *format,
                  ...) __attribute__((format(printf, 6, 7)));

#define CHECK(function, behaviour, condition) \
    check_record(!!(condition), function, behaviour, __FILE__, __LINE__, "%s", #condition)

#define RC(function, behaviour, call, expected)                                                                  \
    do                                                                                                           \
    {                                                                                                            \
        int got_ = (call), want_ = (expected);                                                                   \
        check_record(got_ == want_, function, behaviour, __FILE__, __LINE__, "%s gave %d, not %d", #call, got_, \
                     want_);                                                                                     \
    } while (0)

#define EQ(function, behaviour, value, expected)                                                                    \
    do                                                                                                              \
    {                                                                                                               \
        long long got_ = (long long)(value), want_ = (long long)(expected);                                         \
        check_record(got_ == want_, function, behaviour, __FILE__, __LINE__, "%s is %lld, not %lld", #value, got_, \
                     want_);                                                                                        \
    } while (0)

/* What must hold before a test has a meaning: a failure ends this test function, not the group. */
#define REQUIRE(condition)                                                                            \
    do                                                                                                \
    {                                                                                                 \
        if (!(condition))                                                                             \
        {                                                                                             \
            check_record(0, "(set-up)", #condition, __FILE__, __LINE__, "%s does not hold", #condition); \
            return;                                                                                   \
        }                                                                                             \
    } while (0)

/* A literal as the pair (bytes, length) that the API takes. */
#define S(literal) (const uint8_t *)(literal), (sizeof(literal) - 1)

/* A fresh path below the directory of this group; the parent removes all of it afterwards. */
const char *fresh_path(void);
/* This program, for tests that need a second process. */
extern const char *program_path;

/* One open database with one family "cf". */
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

/* One write or read in a transaction of its own; 0 or the first error. */
int put1(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key, const char *value);
int put1_ttl(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key, const char *value, time_t ttl);
int delete1(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key);
int has(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key, const char *value);
int lacks(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key);
int txn_has(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const char *key, const char *value);
int txn_lacks(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const char *key);
int put_text(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const char *key, const char *value);
/* key000000.. with values value000000.., in transactions of a thousand. */
int fill(tidesdb_t *db, tidesdb_column_family_t *cf, int from, int to);
/* Flushes and waits until the memtable is on disk. */
int flush_and_wait(tidesdb_column_family_t *cf);

/* Text of the keys that an iterator sees, "a,b,c"; the returned buffer is reused by the next call. */
const char *keys_forward(tidesdb_txn_t *txn, tidesdb_column_family_t *cf);
const char *keys_backward(tidesdb_txn_t *txn, tidesdb_column_family_t *cf);
const char *family_keys(tidesdb_t *db, tidesdb_column_family_t *cf);
int iter_at(tidesdb_iter_t *it, const char *key);

int directory_entries(const char *path);
int file_exists(const char *path);
const char *joined(const char *directory, const char *name);
int file_contains(const char *path, const char *text);

/* Functions that the library exports and db.h does not declare. */
void *exported(const char *name);

/* The groups, in the order of the reference. */
typedef struct
{
    const char *name;
    void (*run)(void);
    int perigee_only;
} group_t;

extern const group_t groups[];

/* A check that TidesDB 9.3.14 fails, what it does instead, and why ours is what it is. */
typedef struct
{
    const char *function;
    const char *behaviour;
    const char *theirs;
    const char *why;
} difference_t;

extern const difference_t differences[];

#endif
