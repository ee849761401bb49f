/* A comparator made for keys of 8 bytes, which says so: TidesDB only ever gives it keys that the program has put. */
#include "common.h"
static int eight(const uint8_t *a, size_t n, const uint8_t *b, size_t m, void *ctx)
{
    (void)ctx;
    if (n != 8 || m != 8) { fprintf(stderr, "FAULT: asked about keys of %zu and %zu bytes that nobody put\n", n, m); exit(1); }
    return memcmp(a, b, 8);
}
int main(void)
{
    tidesdb_t *a = db_open(fresh("eight"));
    OK(tidesdb_register_comparator(a, "eight", eight, NULL, NULL));
    return 0;
}
