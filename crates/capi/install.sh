#!/bin/sh
# Installs the C library: the shared library with its links, the static library with only the API global, the headers,
# and the files for pkg-config and CMake.
#
#   crates/capi/install.sh FROM PREFIX [DESTDIR]
#
# FROM is the directory with cargo's libtidesdb.so and libtidesdb.a; `make install-tidesdb-compat` builds them first.
# Environment: LIBDIR (PREFIX/lib).
set -eu
from=$1 prefix=$2 destdir=${3:-}
libdir=${LIBDIR:-$prefix/lib}
here=$(cd "$(dirname "$0")" && pwd)
# The TidesDB release whose API is implemented; the soname is its major version.
version=9.3.14
lib=$destdir$libdir include=$destdir$prefix/include/tidesdb
mkdir -p "$lib/pkgconfig" "$lib/cmake/tidesdb" "$include"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

objcopy --strip-unneeded -R .comment "$from/libtidesdb.so" "$lib/libtidesdb.so.$version"
chmod 644 "$lib/libtidesdb.so.$version"
ln -sf "libtidesdb.so.$version" "$lib/libtidesdb.so.9"
ln -sf libtidesdb.so.9 "$lib/libtidesdb.so"
install -m 644 "$here"/include/tidesdb/*.h "$include/"

# A single object of everything the API needs, with all other symbols made local, so that an application can link another
# zstd or another Rust library.
nm -D --defined-only "$from/libtidesdb.so" | awk '{print $3}' | grep -E '^(tidesdb_|perigee_|_tidesdb_)' >"$work/public"
archive=$from/libtidesdb.a
[ -e "$archive" ] || archive=$(ls -t "$from"/libtidesdb-*.a | head -n 1)
# shellcheck disable=SC2046
ld -r --force-group-allocation -o "$work/all.o" $(sed 's/^/-u /' "$work/public") "$archive"
# Some objects also contain compiler bitcode, on which a linker plugin of another version would fail.
objcopy --strip-debug -R .llvmbc -R .llvmcmd --keep-global-symbols="$work/public" "$work/all.o" "$work/tidesdb.o"
rm -f "$lib/libtidesdb.a"
(cd "$work" && ar rcs tidesdb.a tidesdb.o)
install -m 644 "$work/tidesdb.a" "$lib/libtidesdb.a"

cat >"$lib/pkgconfig/tidesdb.pc" <<END
prefix=$prefix
libdir=$libdir
includedir=\${prefix}/include

Name: tidesdb
Description: Embedded LSM key-value store: the C API of TidesDB, by Perigee
Version: $version
Libs: -L\${libdir} -ltidesdb
Libs.private: -lpthread -lm -ldl
Cflags: -I\${includedir}
END

cat >"$lib/cmake/tidesdb/TidesDBConfig.cmake" <<END
# find_package(TidesDB) defines the targets TidesDB::tidesdb (shared) and TidesDB::tidesdb_static, and the variables
# TidesDB_INCLUDE_DIRS and TidesDB_LIBRARIES.
get_filename_component(_tidesdb_lib "\${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
set(TidesDB_INCLUDE_DIRS "$prefix/include")
if(NOT TARGET TidesDB::tidesdb)
  add_library(TidesDB::tidesdb SHARED IMPORTED)
  set_target_properties(TidesDB::tidesdb PROPERTIES
    IMPORTED_LOCATION "\${_tidesdb_lib}/libtidesdb.so.9"
    IMPORTED_SONAME "libtidesdb.so.9"
    INTERFACE_INCLUDE_DIRECTORIES "\${TidesDB_INCLUDE_DIRS}")
  add_library(TidesDB::tidesdb_static STATIC IMPORTED)
  set_target_properties(TidesDB::tidesdb_static PROPERTIES
    IMPORTED_LOCATION "\${_tidesdb_lib}/libtidesdb.a"
    INTERFACE_INCLUDE_DIRECTORIES "\${TidesDB_INCLUDE_DIRS}"
    INTERFACE_LINK_LIBRARIES "pthread;m;dl")
endif()
set(TidesDB_LIBRARIES TidesDB::tidesdb)
set(TidesDB_FOUND TRUE)
END
echo 'include("${CMAKE_CURRENT_LIST_DIR}/TidesDBConfig.cmake")' >"$lib/cmake/tidesdb/tidesdb-config.cmake"
cat >"$lib/cmake/tidesdb/TidesDBConfigVersion.cmake" <<END
set(PACKAGE_VERSION "$version")
if(PACKAGE_FIND_VERSION_MAJOR AND NOT PACKAGE_FIND_VERSION_MAJOR STREQUAL "9")
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
elseif(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
END
cp "$lib/cmake/tidesdb/TidesDBConfigVersion.cmake" "$lib/cmake/tidesdb/tidesdb-config-version.cmake"
echo "installed into $destdir$prefix"
