/* The parts of TidesDB 9.3's C interface that the importer uses: names, types and layouts. Used by
 * the fake library and by the program that creates databases with the fake or the real library. */
#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *path;
    int flush_threads, compaction_threads, log_level;
    size_t block_cache, max_open_tables;
    int log_to_file;
    size_t log_truncation, max_memory;
    int unified_memtable;
    size_t unified_buffer;
    int unified_levels;
    float unified_probability;
    int unified_sync;
    uint64_t unified_interval_us;
    void *object_store, *object_store_config;
    int max_concurrent_flushes, finish_compactions_on_close;
} config_t;

typedef struct {
    char name[128];
    size_t write_buffer, level_ratio;
    int min_levels, dividing_level_offset;
    size_t value_threshold;
    int compression, bloom;
    double bloom_rate;
    int block_indexes, index_sample, index_prefix, sync;
    uint64_t sync_interval_us;
    char comparator[64], comparator_context[256];
    void *comparator_cached, *comparator_context_cached;
    int skip_list_levels;
    float skip_list_probability;
    int isolation;
    uint64_t min_disk;
    int l1_trigger, l0_stall;
    double tombstone_density;
    uint64_t tombstone_entries;
    int btree;
    void *hook, *hook_context;
    size_t object_bytes;
    int object_lazy, object_prefetch;
} family_config_t;

typedef struct {
    int levels;
    size_t memtable;
    size_t *level_sizes;
    int *level_tables;
    family_config_t *config;
    uint64_t total_keys;
    char rest[256];
} stats_t;
