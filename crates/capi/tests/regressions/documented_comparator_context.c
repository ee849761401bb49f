#include "documented.h"
/* Two databases of a process register a comparator under the same name with different contexts: each must be called with its own. */
struct ctx { size_t skip; volatile int slow, freed; };
static volatile int inside, after_close;
static int suffix(const uint8_t *a, size_t n, const uint8_t *b, size_t m, void *ctx)
{
    struct ctx *x = ctx;
    if (x->slow) { inside = 1; usleep(300000); if (x->freed) after_close = 1; }
    size_t i = n < x->skip ? n : x->skip, j = m < x->skip ? m : x->skip;
    int r = memcmp(a + i, b + j, n - i < m - j ? n - i : m - j);
    return r ? r : (n - i > m - j) - (n - i < m - j);
}
static tidesdb_t *d1; static tidesdb_column_family_t *f1;
static void *writer(void *_) { put(d1, f1, "zzzzzzzzzzzzzzzz", 16, "v"); return _; }
int main(int argc, char **argv)
{
    char *a = at(argv[1], "a"), *b = at(argv[1], "b"); gone(a); gone(b);
    struct ctx c1 = {8}, c2 = {10};
    d1 = open_(a);
    CHECK(tidesdb_register_comparator(d1, "suffix", suffix, "8", &c1) == 0);
    f1 = cf_(d1, "f", "suffix");
    CHECK(put(d1, f1, "12345678aa", 10, "one") == 0 && put(d1, f1, "12345678bb", 10, "two") == 0);
    tidesdb_t *d2 = open_(b);
    int second = tidesdb_register_comparator(d2, "suffix", suffix, "10", &c2); /* refusing it is also correct */
    CHECK(has(d1, f1, "12345678aa", 10, "one"));
    CHECK(has(d1, f1, "12345678bb", 10, "two"));
    CHECK(put(d1, f1, "12345678cc", 10, "three") == 0);
    CHECK(has(d1, f1, "12345678aa", 10, "one"));
    if (second == 0)
    {
        c2.slow = 1; c1.slow = 0;
        pthread_t p; pthread_create(&p, 0, writer, 0);
        for (int i = 0; i < 300 && !inside; i++) usleep(1000);
        tidesdb_close(d2); c2.freed = 1; /* the program frees the context now */
        pthread_join(p, 0);
        CHECK(!after_close);
    }
    CHECK(has(d1, f1, "12345678aa", 10, "one"));
    CHECK(has(d1, f1, "12345678bb", 10, "two"));
    tidesdb_close(d1);
    return failed;
}
