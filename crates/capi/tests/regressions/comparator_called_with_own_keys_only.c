/* A comparator that asserts keys of 8 bytes: it must only be called with keys that the program has put, as in TidesDB. */
#include "common.h"
static int eight(const uint8_t *a, size_t n, const uint8_t *b, size_t m, void *ctx)
{
    (void)ctx;
    if (n != 8 || m != 8) { fprintf(stderr, "FAULT: called with keys of %zu and %zu bytes that were never put\n", n, m); exit(1); }
    return memcmp(a, b, 8);
}
int main(void)
{
    tidesdb_t *a = db_open(fresh("eight"));
    OK(tidesdb_register_comparator(a, "eight", eight, NULL, NULL));
    return 0;
}
