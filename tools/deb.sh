#!/bin/sh
# Builds a Debian package with everything that `make install` installs:
#
#     tools/deb.sh FROM OUT
#
# FROM is cargo's directory, such as target/release; the package is written to OUT. Needs dpkg-deb; uses dpkg-shlibdeps
# (package dpkg-dev) for the dependencies if it is installed. Environment: MAINTAINER ("NAME <ADDRESS>"); SOURCE_DATE_EPOCH,
# the time of the files, by default that of the last commit.
set -eu
from=$1 out=$2
root=$(cd "$(dirname "$0")/.." && pwd)
maintainer=${MAINTAINER:-Perigee developers <perigee@localhost>}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")-1
arch=$(dpkg --print-architecture)
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || ${CC:-cc} -print-multiarch)
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
umask 022
mkdir -p "$tree/DEBIAN"
PREFIX=/usr LIBDIR=/usr/lib/$multiarch "$root/tools/stage.sh" "$from" "$tree"

# ---- what Debian has in other places ----

doc=$tree/usr/share/doc/perigee
rm "$doc"/LICENSE-*
{
    cat <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Perigee

Files: *
Copyright: the authors of Perigee
License: MIT or Apache-2.0

License: MIT
END
    sed 's/^$/./; s/^/ /' "$root/LICENSE-MIT"
    cat <<'END'

License: Apache-2.0
 On Debian systems, the full text of the Apache License 2.0 is in the file
 /usr/share/common-licenses/Apache-2.0.
END
} >"$doc/copyright"
gzip -9n >"$doc/changelog.Debian.gz" <<END
perigee ($version) unstable; urgency=medium

  * Built from the source tree; see CHANGELOG.md there.

 -- $maintainer  $(date -R -u -d "@$SOURCE_DATE_EPOCH")
END
mkdir -p "$tree/usr/share/zsh/vendor-completions"
mv "$tree/usr/share/zsh/site-functions/_perigee" "$tree/usr/share/zsh/vendor-completions/"
rmdir "$tree/usr/share/zsh/site-functions"
find "$tree/usr/share/man" -type f -exec gzip -9n {} +

# ---- control files ----

depends="libc6, libgcc-s1"
if command -v dpkg-shlibdeps >/dev/null; then
    mkdir -p "$work/debian"
    printf 'Source: perigee\n\nPackage: perigee\nArchitecture: any\n' >"$work/debian/control"
    depends=$(cd "$work" && dpkg-shlibdeps -O -e "$tree/usr/bin/perigee" \
        -e "$(find "$tree/usr/lib" -name 'libperigee.so.*.*' -type f)" | sed 's/^shlibs:Depends=//')
fi
size=$(du -k -s --apparent-size "$tree/usr" | cut -f 1)
cat >"$tree/DEBIAN/control" <<END
Package: perigee
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $size
Depends: $depends
Section: database
Priority: optional
Description: embedded, ordered, transactional key-value store
 Perigee is a log-structured merge tree with column families, atomic batches,
 transactions, snapshots and iterators in both directions. It runs inside a
 program and stores its data in one directory; there is no server.
 .
 This package contains the command-line tool, the C library (shared and
 static), its headers for C and C++, manual pages and shell completions.
END
echo "libperigee 0 perigee (>= ${version%-*})" >"$tree/DEBIAN/shlibs"
echo "activate-noawait ldconfig" >"$tree/DEBIAN/triggers"
(cd "$tree" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"

mkdir -p "$out"
package=$out/perigee_${version}_$arch.deb
dpkg-deb --root-owner-group -Zxz --build "$tree" "$package" >/dev/null
echo "$package"
