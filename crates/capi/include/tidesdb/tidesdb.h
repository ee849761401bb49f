/* The interface of db.h and the names of its default settings, for programs in C or C++. */
#ifndef TIDESDB_TIDESDB_H
#define TIDESDB_TIDESDB_H

#include "db.h"
#include "tidesdb_version.h"

#define TDB_DEFAULT_WRITE_BUFFER_SIZE             (64 * 1024 * 1024)
#define TDB_DEFAULT_LEVEL_SIZE_RATIO              10
#define TDB_DEFAULT_MIN_LEVELS                    1
#define TDB_DEFAULT_DIVIDING_LEVEL_OFFSET         1
#define TDB_DEFAULT_COMPACTION_THREAD_POOL_SIZE   2
#define TDB_DEFAULT_FLUSH_THREAD_POOL_SIZE        2
#define TDB_DEFAULT_MAX_CONCURRENT_FLUSHES        TDB_DEFAULT_FLUSH_THREAD_POOL_SIZE
#define TDB_DEFAULT_BLOOM_FPR                     0.01
#define TDB_DEFAULT_KLOG_VALUE_THRESHOLD          512
#define TDB_DEFAULT_INDEX_SAMPLE_RATIO            1
#define TDB_DEFAULT_BLOCK_INDEX_PREFIX_LEN        16
#define TDB_DEFAULT_MIN_DISK_SPACE                (100 * 1024 * 1024)
#define TDB_DEFAULT_MAX_OPEN_SSTABLES             256
#define TDB_DEFAULT_BLOCK_CACHE_SIZE              (64 * 1024 * 1024)
#define TDB_DEFAULT_SYNC_INTERVAL_US              128000
#define TDB_DEFAULT_LOG_FILE_TRUNCATION           24 * (1024 * 1024)
#define TDB_DEFAULT_L1_FILE_COUNT_TRIGGER         4
#define TDB_DEFAULT_L0_QUEUE_STALL_THRESHOLD      10
#define TDB_DEFAULT_TOMBSTONE_DENSITY_TRIGGER     0.0
#define TDB_DEFAULT_TOMBSTONE_DENSITY_MIN_ENTRIES 1024
#define TDB_SKIP_LIST_MAX_LEVEL                   12
#define TDB_SKIP_LIST_PROBABILITY                 0.25f

#ifdef __cplusplus
extern "C"
{
#endif

/* Writes a line of the program to the log, formatted as by printf. */
void tidesdb_log_write(int level, const char *file, int line, const char *fmt, ...);

#ifdef __cplusplus
}
#endif

#define TDB_DEBUG_LOG(level, ...) tidesdb_log_write((level), __FILE__, __LINE__, __VA_ARGS__)

#endif
