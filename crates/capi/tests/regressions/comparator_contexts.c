/* Two open databases, one function and one name, two contexts: each must be called with its own. */
#include "common.h"
static int from(const uint8_t *a, size_t n, const uint8_t *b, size_t m, void *ctx)
{
    size_t at = *(size_t *)ctx; (void)n; (void)m;
    return n < at + 4 || m < at + 4 ? (n > m) - (n < m) : memcmp(a + at, b + at, 4);
}
int main(void)
{
    size_t one = 8, two = 12;
    const char *p = fresh("ctx-a"), *q = fresh("ctx-b");
    tidesdb_t *a = db_open(p), *b = db_open(q);
    tidesdb_column_family_config_t f = tidesdb_default_column_family_config();
    strcpy(f.comparator_name, "from");
    OK(tidesdb_register_comparator(a, "from", from, NULL, &one));
    OK(tidesdb_create_column_family(a, "f", &f));
    tidesdb_column_family_t *cf = tidesdb_get_column_family(a, "f");
    /* register the other one only now */
    OK(tidesdb_register_comparator(b, "from", from, NULL, &two));
    put(a, cf, "00000000AAAA0000", 16, "1", 1);
    put(a, cf, "00000000BBBB0000", 16, "2", 1);
    tidesdb_txn_t *t; uint8_t *v; size_t n;
    OK(tidesdb_txn_begin(a, &t));
    OK(tidesdb_txn_get(t, cf, (uint8_t *)"00000000AAAA0000", 16, &v, &n));
    WANT(*v == '1', "the first key was overwritten by the second: the other database's context was used");
    return 0;
}
