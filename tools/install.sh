#!/bin/sh
# Installs or removes what cargo has built; the targets of the Makefile call it:
#
#     tools/install.sh perigee FROM              the tool, libperigee, headers, manual pages, completions
#     tools/install.sh tidesdb-compat FROM       the library under the names of TidesDB; refuses to overwrite other files
#     tools/install.sh --remove NAME
#
# FROM is cargo's directory, such as target/release. Environment: PREFIX, LIBDIR, DESTDIR, FORCE, DEBUG_SYMBOLS.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=${PREFIX:-/usr/local}
export PREFIX="$prefix" LIBDIR="${LIBDIR:-$prefix/lib}" DESTDIR="${DESTDIR:-}"
[ "$1" = --remove ] && remove=1 name=$2 || { remove=0 name=$1 from=$2; }
manifest=$prefix/share/perigee/$name.installed
if [ "$remove" = 1 ]; then
    exec "$here/install-files.sh" uninstall "$manifest"
fi
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
case $name in
perigee)
    "$here/stage.sh" "$from" "$stage"
    "$here/install-files.sh" install "$stage" "$manifest"
    ;;
tidesdb-compat)
    "$here/../crates/capi/install.sh" "$from" "$prefix" "$stage" >/dev/null
    "$here/install-files.sh" install "$stage" "$manifest" --no-overwrite
    ;;
*) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
case $DESTDIR$prefix in
/usr | /usr/local)
    # The loader reads these directories from its cache.
    [ "$(id -u)" != 0 ] || ! command -v ldconfig >/dev/null || ldconfig
    ;;
*)
    [ -n "$DESTDIR" ] || echo "programs find the library with LD_LIBRARY_PATH=$LIBDIR"
    ;;
esac
