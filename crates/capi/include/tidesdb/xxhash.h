/* TidesDB installs the hash library xxHash beside its headers, and some clients include it from there. Here it is the system's. */
#include <xxhash.h>
