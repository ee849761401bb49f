/* The header of the compatible library and this one can be included together: no name is in both. */
#include <perigee.h>
#include <perigee.h>
#include <tidesdb/perigee.h>

int main(void)
{
    perigee_snapshot_t *theirs = NULL;
    perigee_snapshot *ours = NULL;
    return theirs == NULL && ours == NULL && PERIGEE_VERSION_MAJOR == 0 ? 0 : 1;
}
