/* The version of the interface: that of TidesDB. The library's own is perigee_version() (perigee.h). */
#ifndef TIDESDB_VERSION_H
#define TIDESDB_VERSION_H

#define TIDESDB_VERSION_MAJOR 9
#define TIDESDB_VERSION_MINOR 3
#define TIDESDB_VERSION_PATCH 14
#define TIDESDB_VERSION "9.3.14"

/* Compressions that are there: all. */
#define TIDESDB_HAVE_SNAPPY
#define TIDESDB_HAVE_LZ4
#define TIDESDB_HAVE_ZSTD

#endif
