/* Shared by the test programs. Each is called with a directory that it may fill, and exits with 0 if all checks hold. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <perigee.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int checks;

#define CHECK(what)                                                                    \
    do {                                                                               \
        __sync_fetch_and_add(&checks, 1);                                              \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #what);       \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

/* Calls a function whose last argument is `&e`; it must succeed. */
#define OK(call)                                                                       \
    do {                                                                               \
        perigee_error *e = (perigee_error *)1;                                         \
        perigee_code c_ = (call);                                                      \
        __sync_fetch_and_add(&checks, 1);                                              \
        if (c_ != PERIGEE_OK || e != NULL) {                                           \
            fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #call, (int)c_, \
                    c_ == PERIGEE_OK ? "e was not set" : perigee_error_text(e));       \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

/* Calls a function whose last argument is `&e`; it must fail with this code, and its description contain the text. */
#define FAILS(code, text, call)                                                              \
    do {                                                                                     \
        perigee_error *e = NULL;                                                             \
        perigee_code c_ = (call);                                                            \
        __sync_fetch_and_add(&checks, 1);                                                    \
        if (c_ != (code) || perigee_error_code(e) != (code) ||                               \
            strstr(perigee_error_text(e), (text)) == NULL) {                                 \
            fprintf(stderr, "%s:%d: %s: %d instead of %d: %s\n", __FILE__, __LINE__, #call, \
                    (int)c_, (int)(code), perigee_error_text(e));                            \
            exit(1);                                                                         \
        }                                                                                    \
        perigee_error_free(e);                                                               \
    } while (0)

static const char *base_directory;

/* Returns a path in the directory of the program. */
static inline const char *path_of(const char *name)
{
    static char paths[16][512];
    static int next;
    char *path = paths[next++ & 15];
    snprintf(path, sizeof paths[0], "%s/%s", base_directory, name);
    return path;
}

static inline perigee_db *open_db(const char *name, perigee_options *options)
{
    perigee_db *db;
    OK(perigee_db_open(path_of(name), options, &db, &e));
    return db;
}

static inline perigee_family *default_family(perigee_db *db)
{
    perigee_family *family;
    OK(perigee_db_default_family(db, &family, &e));
    return family;
}

static inline void put(perigee_family *family, const char *key, const char *value)
{
    OK(perigee_put(family, key, strlen(key), value, strlen(value), &e));
}

/* Returns true if the value of a key is this text; NULL: the key does not exist. */
static inline int value_is(perigee_family *family, perigee_snapshot *snapshot, const char *key, const char *value)
{
    void *data;
    size_t size;
    int is;
    OK(perigee_get(family, snapshot, key, strlen(key), &data, &size, &e));
    if (value == NULL) is = data == NULL && size == 0;
    else is = data != NULL && size == strlen(value) && memcmp(data, value, size) == 0;
    perigee_free(data);
    return is;
}

static inline int entry_is(const perigee_entry *entry, const char *key, const char *value)
{
    return entry->key != NULL && entry->key_size == strlen(key) && memcmp(entry->key, key, entry->key_size) == 0 &&
           entry->value_size == strlen(value) && memcmp(entry->value, value, entry->value_size) == 0;
}

/* Writes all keys of an iterator, in order, separated by spaces. */
static inline const char *keys_of(perigee_iterator *iterator, int backward)
{
    static char text[4096];
    perigee_entry entry;
    size_t at = 0;
    text[0] = 0;
    if (backward) OK(perigee_iterator_last(iterator, &entry, &e));
    else OK(perigee_iterator_first(iterator, &entry, &e));
    while (entry.key != NULL) {
        CHECK(at + entry.key_size + 2 < sizeof text);
        at += (size_t)sprintf(text + at, "%s%.*s", at ? " " : "", (int)entry.key_size, (const char *)entry.key);
        if (backward) OK(perigee_iterator_prev(iterator, &entry, &e));
        else OK(perigee_iterator_next(iterator, &entry, &e));
    }
    return text;
}

static inline void begin(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        exit(2);
    }
    base_directory = argv[1];
    (void)open_db; (void)default_family; (void)put; (void)value_is; (void)entry_is; (void)keys_of;
}

static inline int end(void)
{
    printf("%d checks\n", checks);
    return 0;
}

#endif
