#!/usr/bin/env bash
# Builds the plugin for MariaDB 11.8 in a Debian 13 tree and runs the suites there:
#
#   debian13.sh DIRECTORY [--profile NAME] [--from-pool VERSION] [--build-only] [TEST...]
#
# DIRECTORY gets a minimal Debian 13 (debootstrap, 4 minutes, 2.5 GB with the server's source) if it has none; nothing outside of
# it is installed. The repository is mounted in it at /work/perigee, and the engine's static library is built outside. The
# results of the portable tests are compared with those of InnoDB of the same server (mysql-test/run.sh --against innodb).
#
#   --profile NAME       Cargo profile of the engine (default: perf)
#   --from-pool VERSION  a version for install.sh if the mirror lists none with a source package (11.8.6-0+deb13u1)
#   --build-only         no suites
#   TEST...              only these tests
#
# MIRROR           Debian mirror (default: http://deb.debian.org/debian)
# MTR_BUILD_THREAD for mysql-test-run
#
# Needs root, debootstrap and Rust. `debian13.sh DIRECTORY --unmount` ends the mounts; only then may DIRECTORY be deleted.
set -euo pipefail

fail() {
  echo "debian13.sh: $*" >&2
  exit 1
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
case ${1:-} in ''|-*) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 2 ;; esac
mkdir -p "$1"
tree=$(cd "$1" && pwd)
shift
profile=perf pool='' build_only='' unmount='' tests=()
while [ $# -gt 0 ]; do
  case $1 in
    --profile) profile=${2:?--profile needs a name}; shift ;;
    --from-pool) pool=${2:?--from-pool needs a version}; shift ;;
    --build-only) build_only=1 ;;
    --unmount) unmount=1 ;;
    -*) fail "unknown option $1" ;;
    *) tests+=("$1") ;;
  esac
  shift
done
[ "$tree" != / ] || fail "DIRECTORY must not be the root"

mounted() {
  awk '{ print $2 }' /proc/mounts | grep -qxF "$1"
}

if [ -n "$unmount" ]; then
  for point in work/perigee dev/shm dev/pts dev proc; do
    if mounted "$tree/$point"; then umount "$tree/$point"; fi
  done
  exit 0
fi

# ---- the tree ----

if [ ! -e "$tree/etc/debian_version" ]; then
  command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
  mirror=${MIRROR:-http://deb.debian.org/debian}
  debootstrap --variant=minbase trixie "$tree" "$mirror"
  {
    echo "deb $mirror trixie main"
    echo "deb $mirror trixie-updates main"
    echo "deb ${mirror%/debian}/debian-security trixie-security main"
  } > "$tree/etc/apt/sources.list"
fi
# No daemon is started by the installation of a package.
printf '#!/bin/sh\nexit 101\n' > "$tree/usr/sbin/policy-rc.d"
chmod +x "$tree/usr/sbin/policy-rc.d"
cp /etc/resolv.conf "$tree/etc/resolv.conf"
mkdir -p "$tree/work/perigee" "$tree/work/cache"
mounted "$tree/proc" || mount -t proc proc "$tree/proc"
mounted "$tree/dev" || mount --bind /dev "$tree/dev"
mounted "$tree/dev/shm" || mount -t tmpfs tmpfs "$tree/dev/shm"
mounted "$tree/work/perigee" || mount --bind "$root" "$tree/work/perigee"

run() { # in the tree
  chroot "$tree" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    MARIADB_CACHE=/work/cache MTR_BUILD_THREAD="${MTR_BUILD_THREAD:-auto}" MTR_VARDIR=/tmp/mtr_debian13 "$@"
}

if ! run sh -c 'command -v mariadbd && [ -d /usr/include/mariadb/server ] && [ -d /usr/share/mariadb/mariadb-test ]' > /dev/null; then
  run apt-get -qq update
  run /work/perigee/plugins/mariadb/install.sh ${pool:+--from-pool "$pool"} > "$tree/work/install.log" 2>&1 || {
    tail -5 "$tree/work/install.log" >&2
    fail "the server cannot be installed (log: $tree/work/install.log)"
  }
fi
run mariadbd --version

# ---- the plugin ----

(cd "$root" && cargo build --profile "$profile" -p perigeedb-mariadb-bridge)
profile_dir=$profile
if [ "$profile" = dev ]; then profile_dir=debug; fi
library=${CARGO_TARGET_DIR:-$root/target}/$profile_dir/libperigee_mariadb_bridge.a
cp "$library" "$tree/work/"
run /work/perigee/plugins/mariadb/build.sh --bridge /work/libperigee_mariadb_bridge.a --out /work/plugin
[ -z "$build_only" ] || exit 0

# ---- the suites ----

run /work/perigee/plugins/mariadb/mysql-test/run.sh --plugin /work/plugin/plugin-dir --against innodb ${tests[@]+"${tests[@]}"}
