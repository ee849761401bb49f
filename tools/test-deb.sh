#!/bin/sh
# Tests a Debian package in a minimal Debian system: installs it with its dependencies, runs the tool, compiles and runs the C
# and C++ examples as a user does, removes it, and checks that nothing is left.
#
#     tools/test-deb.sh PACKAGE.deb [CHROOT]
#
# Needs root and debootstrap. CHROOT is kept for the next run if it is given; otherwise the system is created in a temporary
# directory. Environment: MIRROR, SUITE (that of this machine).
set -eu
package=$1
root=$(cd "$(dirname "$0")/.." && pwd)
suite=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
if [ $# -gt 1 ]; then
    chroot=$2
else
    chroot=$(mktemp -d)
    trap 'rm -rf --one-file-system "$chroot"' EXIT
fi
if [ ! -e "$chroot/usr/bin/pkg-config" ]; then
    debootstrap --variant=minbase --include=gcc,g++,libc6-dev,pkg-config,man-db "$suite" "$chroot" ${MIRROR:+"$MIRROR"} \
        >"$chroot.log" 2>&1 || { tail -n 5 "$chroot.log" >&2; exit 1; }
    rm -f "$chroot.log"
fi
inside() { chroot "$chroot" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/tmp "$@"; }
files() { (cd "$chroot" && find usr etc -not -path 'usr/share/man/*' | LC_ALL=C sort); }
cp "$package" "$chroot/tmp/perigee.deb"
cp "$root"/crates/c/examples/c/tour.c "$root"/crates/c/examples/c/tour.cpp "$chroot/tmp/"
inside dpkg --purge perigee >/dev/null 2>&1 || true
files >"$chroot/tmp/before"

inside dpkg --install /tmp/perigee.deb
inside sh -euc '
    cd /tmp && rm -rf one two three tool
    perigee --version
    perigee put tool moon full && [ "$(perigee get tool moon)" = full ]
    cc -Wall -Wextra -Werror tour.c $(pkg-config --cflags --libs perigee) -o tour && ./tour one
    cc -static tour.c $(pkg-config --static --cflags --libs perigee) -o tour-static 2>/dev/null && ./tour-static two
    c++ -std=c++17 tour.cpp $(pkg-config --cflags --libs perigee) -o tour-cpp && ./tour-cpp three
    perigee scan one --family tides --limit 2
    perigee verify one
    for page in "1 perigee" "1 perigee-scan" "3 libperigee"; do man -w $page >/dev/null; done
'
inside dpkg --remove perigee
inside sh -c '! /tmp/tour /tmp/one 2>/dev/null'
inside dpkg --purge perigee
files >"$chroot/tmp/after"
diff "$chroot/tmp/before" "$chroot/tmp/after"
echo "test-deb: all passed"
