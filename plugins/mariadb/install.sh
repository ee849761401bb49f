#!/usr/bin/env bash
# Installs the MariaDB server, its headers and its test suite for build.sh. See --help.
set -euo pipefail
export LC_ALL=C

usage() {
  cat <<'TEXT'
Usage: install.sh [--check] [--simulate] [--from-pool VERSION] [PACKAGE...]

Installs what build.sh and the tests need, in the newest version whose source package can be downloaded: a mirror may have
a newer server in its security archive than it has sources for. All packages of the server's source get that version. If
a server is installed it is kept, and missing packages are added in its version.

Default packages: mariadb-server libmariadb-dev libmariadbd-dev mariadb-test mariadb-test-data g++ make perl python3 dpkg-dev

Options:
  --check       prints the version and changes nothing (the source is downloaded)
  --simulate    prints what apt-get would install and changes nothing (the source is downloaded)
  --from-pool VERSION
                takes source and packages of a version that the mirror still has, but does not list any more, for example
                11.8.6-0+deb13u1. Nothing authenticates them: for test machines
  --help        shows this text

Environment:
  MARIADB_CACHE where the source package is kept, and unpacked by build.sh (default: build/source)

The package lists must be up to date (apt-get update). Needs root, except with --check and --simulate.
TEXT
}

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/apt_source.sh"
check='' simulate='' pool_version='' packages=()
while [ $# -gt 0 ]; do
  case $1 in
    --check) check=1 ;;
    --simulate) simulate=--simulate ;;
    --from-pool) pool_version=${2:?--from-pool needs a version}; shift ;;
    --help|-h) usage; exit ;;
    -*) fail "unknown option $1 (see --help)" ;;
    *) packages+=("$1") ;;
  esac
  shift
done
if [ ${#packages[@]} -eq 0 ]; then
  packages=(mariadb-server libmariadb-dev libmariadbd-dev mariadb-test mariadb-test-data)
  # Tools that are there are not upgraded.
  for tool in g++ make perl python3 dpkg-dev; do
    dpkg-query -W -f='${Status}' "$tool" 2>/dev/null | grep -q ' installed$' || packages+=("$tool")
  done
fi
cache=${MARIADB_CACHE:-$here/build/source}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
trap 'rm -rf "$cache/apt" "$cache/preferences"' EXIT

# Downloads a file from the directory of the server's package on the mirror, if it is there and not here yet.
download_from_pool() {
  local file=$1
  [ -e "$cache/$file" ] || /usr/lib/apt/apt-helper -qq download-file "$pool/${file//+/%2b}" "$cache/$file" 2>/dev/null
}

install_from_pool() {
  local number=$1 package file files=()
  pool=$(apt-get --print-uris download mariadb-server 2>/dev/null | sed -n "s/^'\(http.*\)\/[^/]*' .*/\1/p" | head -1)
  [ -n "$pool" ] || fail "no package mariadb-server is known: run apt-get update"
  download_from_pool "mariadb_$number.dsc" || fail "$pool has no source of $number"
  for file in $(sed -n '/^Checksums-Sha256:/,/^[^ C]/s/^ .* //p' "$cache/mariadb_$number.dsc"); do
    download_from_pool "$file" || fail "$pool has no $file"
  done
  has_source_package "$cache/mariadb_$number.dsc" || fail "the source of $number is damaged"
  # The packages of the source that the wanted ones depend on; some are not in every distribution.
  for package in "${packages[@]}" mariadb-server-core mariadb-client mariadb-client-core mariadb-common libmariadb3 libmariadbd19 libmariadbd19t64; do
    for file in "${package}_${number}_$(dpkg --print-architecture).deb" "${package}_${number}_all.deb"; do
      if download_from_pool "$file"; then files+=("$cache/$file"); fi
    done
  done
  [ ${#files[@]} -gt 0 ] || fail "$pool has no packages of $number"
  # What was not found there, such as compilers, has the version of the distribution.
  for package in "${packages[@]}"; do
    case " ${files[*]}" in *"/${package}_"*) ;; *) files+=("$package") ;; esac
  done
  DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends --allow-downgrades $simulate "${files[@]}"
}

if [ -n "$pool_version" ]; then
  install_from_pool "${pool_version#*:}"
  exit
fi

source_name() { # of the package mariadb-server in a version
  local name
  name=$(apt-cache show "mariadb-server=$1" | sed -n 's/^Source: \([^ ]*\).*/\1/p' | head -1)
  echo "${name:-mariadb-server}"
}

has_source() { # of a version, unpacked or as a package
  local number=${1#*:}
  [ -e "$cache/mariadb-${number%%-*}/VERSION" ] || download_source_package "$cache" "$(source_name "$1")" "$1"
}

installed=$(apt-cache policy mariadb-server | sed -n 's/^  Installed: //p')
[ "$installed" != "(none)" ] || installed=''
if [ -n "$installed" ]; then
  versions=$installed
else
  versions=$(apt-cache madison mariadb-server | awk '{ print $3 }' | sort -u -r -V)
fi
[ -n "$versions" ] || fail "no package mariadb-server is known: run apt-get update"
version=''
for candidate in $versions; do
  if has_source "$candidate"; then
    version=$candidate
    break
  fi
  echo "install.sh: no mirror has the source of $candidate" >&2
done
if [ -z "$version" ]; then
  [ -z "$installed" ] || fail "mariadb-server $installed is installed, and its source is not available: set MARIADB_SOURCE for build.sh, or remove the server"
  fail "no version of mariadb-server has a source package that can be downloaded"
fi
echo "$version"
[ -z "$check" ] || exit 0

# The priority above 1000 also selects the version for libraries that are installed in a newer one.
cp /etc/apt/preferences "$cache/preferences" 2>/dev/null || : > "$cache/preferences"
printf '\nPackage: src:%s\nPin: version %s\nPin-Priority: 1001\n' "$(source_name "$version")" "$version" >> "$cache/preferences"
options=(-o "Dir::Etc::preferences=$cache/preferences")
[ -n "$installed" ] || options+=(--allow-downgrades)
# Configuration of the server must not ask questions.
DEBIAN_FRONTEND=noninteractive apt-get "${options[@]}" -qq install --yes --no-install-recommends $simulate "${packages[@]}"
