/* Version of the interface, which is TidesDB's. perigee_version() (perigee.h) returns the library's own version. */
#ifndef TIDESDB_VERSION_H
#define TIDESDB_VERSION_H

#define TIDESDB_VERSION_MAJOR 9
#define TIDESDB_VERSION_MINOR 3
#define TIDESDB_VERSION_PATCH 14
#define TIDESDB_VERSION "9.3.14"

/* Available compression algorithms: all. */
#define TIDESDB_HAVE_SNAPPY
#define TIDESDB_HAVE_LZ4
#define TIDESDB_HAVE_ZSTD

#endif
