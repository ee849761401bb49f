#!/bin/sh
# Runs a command that compiles, links and loads against the C library under PREFIX (see docs/c-api.md):
#
#     tools/with-capi.sh PREFIX COMMAND [ARGUMENT...]
#
# PREFIX is the directory given to `make install-tidesdb-compat PREFIX=...`. Nothing is written; only the environment of COMMAND changes:
# the loader (LD_LIBRARY_PATH), C compilers (CPATH, LIBRARY_PATH), cgo (CGO_CFLAGS, CGO_LDFLAGS), pkg-config
# (PKG_CONFIG_PATH) and CMake (CMAKE_PREFIX_PATH) search PREFIX first.
set -eu
[ $# -ge 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
prefix=$(cd "$1" && pwd) || exit 2
shift
lib=$prefix/lib
[ -e "$lib/libtidesdb.so" ] && [ -e "$prefix/include/tidesdb/db.h" ] || {
    echo "$0: no $lib/libtidesdb.so with $prefix/include/tidesdb/db.h; run make install-tidesdb-compat PREFIX=$prefix first" >&2
    exit 2
}
# put NAME VALUE SEPARATOR: prepends VALUE to the variable, with the separator if it is not empty.
put() {
    eval "old=\${$1:-}"
    export "$1=$2${old:+$3$old}"
}
put LD_LIBRARY_PATH "$lib" :
put CPATH "$prefix/include" :
put LIBRARY_PATH "$lib" :
put PKG_CONFIG_PATH "$lib/pkgconfig" :
put CMAKE_PREFIX_PATH "$prefix" :
put CGO_CFLAGS "-I$prefix/include" ' '
put CGO_LDFLAGS "-L$lib" ' '
exec "$@"
