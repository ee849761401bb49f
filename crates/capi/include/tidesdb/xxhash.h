/* Hash functions with the names and values of xxHash, for clients of TidesDB that include <tidesdb/xxhash.h>: the one-shot
 * functions. They are in libtidesdb; no other package is needed. Macros such as XXH_INLINE_ALL have no effect. If xxHash's own
 * <xxhash.h> was included before, this header adds nothing; if it is needed as well (for streaming), include it first. */
#ifndef TIDESDB_XXHASH_H
#define TIDESDB_XXHASH_H

#ifndef XXH_VERSION_NUMBER

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C"
{
#endif

typedef uint32_t XXH32_hash_t;
typedef uint64_t XXH64_hash_t;
typedef struct
{
    XXH64_hash_t low64;
    XXH64_hash_t high64;
} XXH128_hash_t;

uint32_t perigee_xxh32(const void *data, size_t size, uint32_t seed);
uint64_t perigee_xxh64(const void *data, size_t size, uint64_t seed);
uint64_t perigee_xxh3_64(const void *data, size_t size, uint64_t seed);
XXH128_hash_t perigee_xxh3_128(const void *data, size_t size, uint64_t seed);

static inline XXH32_hash_t XXH32(const void *data, size_t size, XXH32_hash_t seed)
{
    return perigee_xxh32(data, size, seed);
}
static inline XXH64_hash_t XXH64(const void *data, size_t size, XXH64_hash_t seed)
{
    return perigee_xxh64(data, size, seed);
}
static inline XXH64_hash_t XXH3_64bits(const void *data, size_t size)
{
    return perigee_xxh3_64(data, size, 0);
}
static inline XXH64_hash_t XXH3_64bits_withSeed(const void *data, size_t size, XXH64_hash_t seed)
{
    return perigee_xxh3_64(data, size, seed);
}
static inline XXH128_hash_t XXH3_128bits(const void *data, size_t size)
{
    return perigee_xxh3_128(data, size, 0);
}
static inline XXH128_hash_t XXH3_128bits_withSeed(const void *data, size_t size, XXH64_hash_t seed)
{
    return perigee_xxh3_128(data, size, seed);
}
static inline XXH128_hash_t XXH128(const void *data, size_t size, XXH64_hash_t seed)
{
    return perigee_xxh3_128(data, size, seed);
}

#ifdef __cplusplus
}
#endif

#endif
#endif
