/* Helpers of the tests: databases, single writes and reads, scans as text, files. */
#include "harness.h"

tidesdb_config_t quiet_config(const char *path)
{
    tidesdb_config_t config = tidesdb_default_config();
    config.db_path = (char *)path;
    config.log_level = TDB_LOG_NONE;
    config.block_cache_size = 8 << 20;
    config.num_flush_threads = 1;
    config.num_compaction_threads = 1;
    return config;
}

tidesdb_column_family_t *make_family(tidesdb_t *db, const char *name)
{
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    config.sync_mode = TDB_SYNC_NONE;
    if (tidesdb_create_column_family(db, name, &config)) return NULL;
    return tidesdb_get_column_family(db, name);
}

fixture_t fixture_open(void)
{
    fixture_t f = {fresh_path(), NULL, NULL};
    tidesdb_config_t config = quiet_config(f.path);
    if (tidesdb_open(&config, &f.db) == 0) f.cf = make_family(f.db, "cf");
    return f;
}

void fixture_reopen(fixture_t *f)
{
    tidesdb_config_t config = quiet_config(f->path);
    tidesdb_close(f->db);
    f->db = NULL;
    f->cf = NULL;
    if (tidesdb_open(&config, &f->db) == 0) f->cf = tidesdb_get_column_family(f->db, "cf");
}

void fixture_close(fixture_t *f)
{
    if (f->db) tidesdb_close(f->db);
    f->db = NULL;
}

int put_text(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const char *key, const char *value)
{
    return tidesdb_txn_put(txn, cf, (const uint8_t *)key, strlen(key), (const uint8_t *)value, strlen(value), -1);
}

static int finish(tidesdb_txn_t *txn, int rc)
{
    if (rc == 0) rc = tidesdb_txn_commit(txn);
    tidesdb_txn_free(txn);
    return rc;
}

int put1_ttl(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key, const char *value, time_t ttl)
{
    tidesdb_txn_t *txn = NULL;
    int rc = tidesdb_txn_begin(db, &txn);
    if (rc) return rc;
    return finish(txn, tidesdb_txn_put(txn, cf, (const uint8_t *)key, strlen(key), (const uint8_t *)value,
                                       strlen(value), ttl));
}

int put1(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key, const char *value)
{
    return put1_ttl(db, cf, key, value, -1);
}

int delete1(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key)
{
    tidesdb_txn_t *txn = NULL;
    int rc = tidesdb_txn_begin(db, &txn);
    if (rc) return rc;
    return finish(txn, tidesdb_txn_delete(txn, cf, (const uint8_t *)key, strlen(key)));
}

int txn_has(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const char *key, const char *value)
{
    uint8_t *got = NULL;
    size_t size = 0;
    if (tidesdb_txn_get(txn, cf, (const uint8_t *)key, strlen(key), &got, &size)) return 0;
    int same = size == strlen(value) && (size == 0 || !memcmp(got, value, size));
    tidesdb_free(got);
    return same;
}

int txn_lacks(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, const char *key)
{
    uint8_t *got = NULL;
    size_t size = 0;
    int rc = tidesdb_txn_get(txn, cf, (const uint8_t *)key, strlen(key), &got, &size);
    if (rc == 0) tidesdb_free(got);
    return rc == TDB_ERR_NOT_FOUND;
}

int has(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key, const char *value)
{
    tidesdb_txn_t *txn = NULL;
    if (tidesdb_txn_begin(db, &txn)) return 0;
    int yes = txn_has(txn, cf, key, value);
    tidesdb_txn_free(txn);
    return yes;
}

int lacks(tidesdb_t *db, tidesdb_column_family_t *cf, const char *key)
{
    tidesdb_txn_t *txn = NULL;
    if (tidesdb_txn_begin(db, &txn)) return 0;
    int yes = txn_lacks(txn, cf, key);
    tidesdb_txn_free(txn);
    return yes;
}

int fill(tidesdb_t *db, tidesdb_column_family_t *cf, int from, int to)
{
    for (int i = from; i < to;)
    {
        tidesdb_txn_t *txn = NULL;
        int rc = tidesdb_txn_begin(db, &txn);
        for (int end = i + 1000 < to ? i + 1000 : to; rc == 0 && i < end; i++)
        {
            char key[32], value[32];
            snprintf(key, sizeof key, "key%06d", i);
            snprintf(value, sizeof value, "value%06d", i);
            rc = put_text(txn, cf, key, value);
        }
        rc = finish(txn, rc);
        if (rc) return rc;
    }
    return 0;
}

int flush_and_wait(tidesdb_column_family_t *cf)
{
    int rc = tidesdb_flush_memtable(cf);
    for (int i = 0; rc == 0 && i < 300000 && tidesdb_is_flushing(cf); i++) usleep(1000);
    /* is_flushing may return 0 before the file is listed. */
    usleep(20000);
    return rc;
}

static char scan_text[4096];

static const char *walk(tidesdb_txn_t *txn, tidesdb_column_family_t *cf, int backward)
{
    tidesdb_iter_t *it = NULL;
    size_t at = 0;
    scan_text[0] = 0;
    if (tidesdb_iter_new(txn, cf, &it)) return "(no iterator)";
    if (backward) tidesdb_iter_seek_to_last(it);
    else tidesdb_iter_seek_to_first(it);
    while (tidesdb_iter_valid(it) && at < sizeof scan_text - 100)
    {
        uint8_t *key = NULL;
        size_t size = 0;
        if (tidesdb_iter_key(it, &key, &size)) break;
        at += (size_t)snprintf(scan_text + at, sizeof scan_text - at, "%s%.*s", at ? "," : "", (int)size, key);
        if (backward) tidesdb_iter_prev(it);
        else tidesdb_iter_next(it);
    }
    tidesdb_iter_free(it);
    return scan_text;
}

const char *keys_forward(tidesdb_txn_t *txn, tidesdb_column_family_t *cf) { return walk(txn, cf, 0); }
const char *keys_backward(tidesdb_txn_t *txn, tidesdb_column_family_t *cf) { return walk(txn, cf, 1); }

const char *family_keys(tidesdb_t *db, tidesdb_column_family_t *cf)
{
    tidesdb_txn_t *txn = NULL;
    if (tidesdb_txn_begin(db, &txn)) return "(no transaction)";
    const char *text = keys_forward(txn, cf);
    tidesdb_txn_free(txn);
    return text;
}

int iter_at(tidesdb_iter_t *it, const char *key)
{
    uint8_t *at = NULL;
    size_t size = 0;
    if (!tidesdb_iter_valid(it) || tidesdb_iter_key(it, &at, &size)) return 0;
    return size == strlen(key) && !memcmp(at, key, size);
}

int directory_entries(const char *path)
{
    DIR *directory = opendir(path);
    if (!directory) return -1;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    closedir(directory);
    return count;
}

int file_exists(const char *path) { return access(path, F_OK) == 0; }

const char *joined(const char *directory, const char *name)
{
    static char paths[8][1024];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

int file_contains(const char *path, const char *text)
{
    FILE *file = fopen(path, "r");
    char line[4096];
    int yes = 0;
    while (file && !yes && fgets(line, sizeof line, file)) yes = strstr(line, text) != NULL;
    if (file) fclose(file);
    return yes;
}
