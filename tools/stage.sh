#!/bin/sh
# Lays out the files that `make install` installs, in an empty directory:
#
#     tools/stage.sh FROM STAGE
#
# FROM is cargo's directory with perigee, libperigee_c.a and libperigee_c.so. Environment: PREFIX (/usr/local), LIBDIR
# (PREFIX/lib), DEBUG_SYMBOLS=1 (also installs the debug symbols, in LIBDIR/debug), CC, NM, OBJCOPY, STRIP, LD.
# The files are put below STAGE with their final paths, for example STAGE/usr/local/bin/perigee.
set -eu
from=$1 stage=$2
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
cc=${CC:-cc} nm=${NM:-nm} objcopy=${OBJCOPY:-objcopy} ld=${LD:-ld}
case $prefix$libdir in
*[!A-Za-z0-9_./+-]*)
    echo "stage.sh: PREFIX and LIBDIR may contain letters, digits and _ . / + - only: $prefix $libdir" >&2
    exit 2
    ;;
esac
case $prefix in /*) ;; *) echo "stage.sh: PREFIX is not an absolute path: $prefix" >&2; exit 2 ;; esac
case $libdir in /*) ;; *) echo "stage.sh: LIBDIR is not an absolute path: $libdir" >&2; exit 2 ;; esac
root=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
# The soname: the API may change before version 1.0; every change that breaks programs increments this number.
abi=0
lib=$stage$libdir include=$stage$prefix/include share=$stage$prefix/share bin=$stage$prefix/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$lib/pkgconfig" "$lib/cmake/Perigee" "$include" "$share/man/man3" "$share/doc/perigee" "$bin"

# strip_to FILE PATH: copies a file without debug symbols, which go into a file of their own if wanted.
strip_to() {
    "$objcopy" --strip-unneeded -R .comment "$1" "$stage$2"
    chmod 755 "$stage$2"
    if [ "${DEBUG_SYMBOLS:-0}" = 1 ]; then
        symbols=$libdir/debug$2.debug
        mkdir -p "$(dirname "$stage$symbols")"
        "$objcopy" --only-keep-debug "$1" "$stage$symbols"
        chmod 644 "$stage$symbols"
        "$objcopy" --add-gnu-debuglink="$stage$symbols" "$stage$2"
    fi
}

# ---- the tool, its manual pages and completions ----

strip_to "$from/perigee" "$prefix/bin/perigee"
"$from/perigee" manuals "$share" >/dev/null
sed "s/@VERSION@/$version/" "$root/crates/c/man/libperigee.3" >"$share/man/man3/libperigee.3"
install -m 644 "$root/LICENSE-MIT" "$root/LICENSE-APACHE" "$share/doc/perigee/"

# ---- the library ----

archive=$from/libperigee_c.a
# In `deps` the file name has a suffix.
[ -e "$archive" ] || archive=$(ls -t "$from"/libperigee_c-*.a | head -n 1)
sed -n 's/^.*[ *]\(perigee_[a-z_0-9]*\)(.*$/\1/p' "$root/crates/c/include/perigee.h" | grep -v '_function$' |
    sort -u >"$work/declared"
"$nm" -D --defined-only "$from/libperigee_c.so" | awk '{print $3}' | sort -u >"$work/public"
if [ -n "$(comm -13 "$work/declared" "$work/public")" ]; then
    echo "stage.sh: the library exports names that perigee.h does not declare:" >&2
    comm -13 "$work/declared" "$work/public" >&2
    exit 1
fi
# Everything that the functions need, as one object in which all other names are local, so that an application can link
# another zstd or another Rust library. Some objects also contain compiler bitcode, on which a linker plugin of another
# version would fail.
# shellcheck disable=SC2046
"$ld" -r --gc-sections --force-group-allocation -o "$work/all.o" $(sed 's/^/-u /' "$work/public") "$archive"
"$objcopy" -R .llvmbc -R .llvmcmd --keep-global-symbols="$work/public" "$work/all.o" "$work/perigee-debug.o"
"$objcopy" --strip-debug "$work/perigee-debug.o" "$work/perigee.o"
(cd "$work" && ar rcsD libperigee.a perigee.o)
install -m 644 "$work/libperigee.a" "$lib/libperigee.a"

# The shared library, from the same object, with the version PERIGEE_0 for every symbol.
{
    echo "PERIGEE_$abi { global:"
    sed 's/$/;/' "$work/public"
    echo "local: *; };"
} >"$work/perigee.map"
"$cc" -shared -o "$work/libperigee.so" "$work/perigee-debug.o" -Wl,-soname,"libperigee.so.$abi" \
    -Wl,--version-script="$work/perigee.map" -Wl,--gc-sections -Wl,-z,relro,-z,now -Wl,-z,defs -Wl,--build-id \
    -Wl,--as-needed -lgcc_s -lpthread -ldl -lm -lc
strip_to "$work/libperigee.so" "$libdir/libperigee.so.$version"
chmod 644 "$lib/libperigee.so.$version"
ln -sf "libperigee.so.$version" "$lib/libperigee.so.$abi"
ln -sf "libperigee.so.$abi" "$lib/libperigee.so"
install -m 644 "$root/crates/c/include/perigee.h" "$root/crates/c/include/perigee.hpp" "$include/"

# ---- pkg-config and CMake ----

# pc FILE LIBS: `perigee-static` is for programs that link only this library statically; `--static perigee` lists the system
# libraries for `cc -static`.
pc() {
    cat >"$lib/pkgconfig/$1.pc" <<END
prefix=$prefix
libdir=$libdir
includedir=\${prefix}/include

Name: perigee
Description: Embedded, ordered, transactional key-value store
Version: $version
Libs: -L\${libdir} $2
Libs.private: -lpthread -ldl -lm
Cflags: -I\${includedir}
END
}
pc perigee -lperigee
pc perigee-static "-l:libperigee.a -lpthread -ldl -lm"

cat >"$lib/cmake/Perigee/PerigeeConfig.cmake" <<END
# find_package(Perigee) defines the targets Perigee::perigee (shared) and Perigee::perigee_static.
if(NOT TARGET Perigee::perigee)
  add_library(Perigee::perigee SHARED IMPORTED)
  set_target_properties(Perigee::perigee PROPERTIES
    IMPORTED_LOCATION "$libdir/libperigee.so.$abi"
    IMPORTED_SONAME "libperigee.so.$abi"
    INTERFACE_INCLUDE_DIRECTORIES "$prefix/include")
  add_library(Perigee::perigee_static STATIC IMPORTED)
  set_target_properties(Perigee::perigee_static PROPERTIES
    IMPORTED_LOCATION "$libdir/libperigee.a"
    INTERFACE_INCLUDE_DIRECTORIES "$prefix/include"
    INTERFACE_LINK_LIBRARIES "pthread;dl;m")
endif()
set(Perigee_FOUND TRUE)
END
cat >"$lib/cmake/Perigee/PerigeeConfigVersion.cmake" <<END
# Before 1.0 a minor version may break programs.
set(PACKAGE_VERSION "$version")
set(_perigee_wanted "\${PACKAGE_FIND_VERSION_MAJOR}.\${PACKAGE_FIND_VERSION_MINOR}")
string(REGEX REPLACE "\\\\.[0-9]+\$" "" _perigee_has "$version")
if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION OR
   (PACKAGE_FIND_VERSION AND NOT _perigee_wanted STREQUAL _perigee_has))
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
END
