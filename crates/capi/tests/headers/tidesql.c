/* The includes of TideSQL's ha_tidesdb.h and ha_tidesdb.cc, in the same order and under the same conditions. */
#ifdef __cplusplus
extern "C"
{
#endif
#include <tidesdb/db.h>
#ifdef __cplusplus
}
#endif
#include <tidesdb/tidesdb_version.h>
#ifdef __cplusplus
extern "C"
{
#endif
#define XXH_INLINE_ALL
#include <tidesdb/xxhash.h>
#ifdef __cplusplus
}
#endif

/* Headers that other clients include. */
#include <tidesdb/objstore.h>
#include <tidesdb/perigee.h>
#include <tidesdb/tidesdb.h>
#ifdef INNER_PATH
/* With the inner directory on the path, as in some build files. */
#include <db.h>
#include <xxhash.h>
#endif

#include <stdio.h>
#include <string.h>

#define SAME(what, got, expected)                                                      \
    do                                                                                 \
    {                                                                                  \
        if ((got) != (expected))                                                       \
        {                                                                              \
            fprintf(stderr, "%s: %llx\n", what, (unsigned long long)(got));            \
            return 1;                                                                  \
        }                                                                              \
    } while (0)

int main(void)
{
    XXH128_hash_t wide = XXH3_128bits("", 0);
    SAME("XXH3_64bits of nothing", XXH3_64bits(NULL, 0), 0x2d06800538d394c2ULL);
    SAME("XXH3_64bits of a", XXH3_64bits("a", 1), 0xe6c632b61e964e1fULL);
    SAME("XXH3_64bits_withSeed", XXH3_64bits_withSeed("a", 1, 0), XXH3_64bits("a", 1));
    SAME("XXH64 of nothing", XXH64("", 0, 0), 0xef46db3751d8e999ULL);
    SAME("XXH64 of a", XXH64("a", 1, 0), 0xd24ec4f1a98c6e5bULL);
    SAME("XXH32 of nothing", XXH32("", 0, 0), 0x02cc5d05U);
    SAME("XXH32 of a", XXH32("a", 1, 0), 0x550d7456U);
    SAME("low half of XXH3_128bits", wide.low64, 0x6001c324468d497fULL);
    SAME("high half of XXH3_128bits", wide.high64, 0x99aa06d3014798d8ULL);
    SAME("XXH128", XXH128("", 0, 0).low64, wide.low64);
    SAME("XXH3_128bits_withSeed", XXH3_128bits_withSeed("", 0, 0).high64, wide.high64);
    if (strcmp(TIDESDB_VERSION, "9.3.14") != 0 || tidesdb_default_config().db_path == NULL) return 1;
    return 0;
}
