#!/usr/bin/env bash
# Builds ha_perigee.so for the MariaDB server that is installed. See --help.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: build.sh [--asan] [--profile NAME] [--bridge FILE] [--jobs N] [--out DIR] [--clean]

Builds the storage engine for the installed MariaDB server:
  build/VERSION/ha_perigee.so    the plugin
  build/VERSION/plugin-dir/      links to the plugins of the system and to ours, for `mariadbd --plugin-dir`

Options:
  --asan           with AddressSanitizer, into build/VERSION-asan; the server needs LD_PRELOAD (printed at the end)
  --profile NAME   Cargo profile of the engine: release (default), or perf, which builds much faster
  --bridge FILE    static library of the engine that was built elsewhere (libperigee_mariadb_bridge.a): Rust is not needed
  --jobs N         compilers at the same time (default: number of cores)
  --out DIR        builds into DIR instead of build/VERSION
  --clean          deletes the results of the same version first
  --help           shows this text

Environment:
  MARIADBD         the server (default: mariadbd of the PATH)
  MARIADB_SOURCE   unpacked source of exactly its version; default: the source package of the distribution, which is
                   downloaded with apt-get (120 MB, 800 MB unpacked)
  MARIADB_CACHE    where it is kept (default: build/source)
  MARIADB_HEADERS  headers of the package libmariadbd-dev (default: /usr/include/mariadb)
  CARGO_TARGET_DIR target directory of Cargo (default: target of the repository)
  CXX, CXXFLAGS    C++ compiler (default: g++), more flags

A server accepts only a plugin that was built for its own version, to the patch level: build again after an upgrade.
TEXT
}

fail() {
  echo "build.sh: $*" >&2
  exit 1
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/apt_source.sh"
asan='' profile=release bridge='' jobs=$(nproc) clean='' out=''
while [ $# -gt 0 ]; do
  case $1 in
    --asan) asan=1 ;;
    --profile) profile=${2:?--profile needs a name}; shift ;;
    --bridge) bridge=$(readlink -f "${2:?--bridge needs a file}"); shift ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    --out) out=${2:?--out needs a directory}; shift ;;
    --clean) clean=1 ;;
    --help|-h) usage; exit ;;
    *) fail "unknown option $1 (see --help)" ;;
  esac
  shift
done
CXX=${CXX:-g++}
headers=${MARIADB_HEADERS:-/usr/include/mariadb}

for tool in "$CXX" make perl $([ -n "$bridge" ] || echo cargo); do
  command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install g++ make perl, and Rust from https://rustup.rs"
done

# ---- the server, its headers and its source must have the same version ----

# The package puts the server into a directory that is not in every user's PATH.
mariadbd=${MARIADBD:-$(PATH=$PATH:/usr/sbin:/usr/local/sbin command -v mariadbd || true)}
[ -x "$mariadbd" ] || fail "no server${mariadbd:+ $mariadbd}: apt-get install mariadb-server, or set MARIADBD"
version=$("$mariadbd" --no-defaults --version | sed -n 's/.*Ver \([0-9]*\.[0-9]*\.[0-9]*\).*/\1/p')
[ -n "$version" ] || fail "cannot read the version of $mariadbd"

[ -e "$headers/server/mysql_version.h" ] || fail "no headers in $headers/server: apt-get install libmariadb-dev libmariadbd-dev"
header_version=$(sed -n 's/^#define MYSQL_SERVER_VERSION[^"]*"\([0-9.]*\).*/\1/p' "$headers/server/mysql_version.h")
[ "$header_version" = "$version" ] ||
  fail "the server is $version, the headers in $headers/server are $header_version: install libmariadb-dev and libmariadbd-dev of the server's version"
services=$("$CXX" -print-file-name=libmysqlservices.a)
[ -e "$services" ] || fail "no libmysqlservices.a: apt-get install libmariadbd-dev"

source_version() { # of a directory
  sed -n 's/^MYSQL_VERSION_[A-Z]*=//p' "$1/VERSION" 2>/dev/null | head -3 | paste -sd.
}

download_source() {
  local cache=$1 package
  command -v dpkg-source >/dev/null || fail "dpkg-source is missing: apt-get install dpkg-dev, or set MARIADB_SOURCE"
  package=$(dpkg-query -S "$(readlink -f "$mariadbd")" 2>/dev/null | cut -d: -f1) ||
    fail "$mariadbd is of no package: set MARIADB_SOURCE to the source of MariaDB $version"
  local name number
  name=$(dpkg-query -W -f='${source:Package}' "$package")
  number=$(dpkg-query -W -f='${source:Version}' "$package")
  echo "downloading the source of $name $number into $cache"
  download_source_package "$cache" "$name" "$number" ||
    fail "the mirror has no source of $name $number: install a version that has one (install.sh), or set MARIADB_SOURCE"
  cd "$cache"
  dpkg-source --no-check -x "${name}_${number#*:}.dsc" "unpacking-$$" >/dev/null
  mv "unpacking-$$" "$name-$version"
  rm -rf apt
  cd "$here"
}

source=${MARIADB_SOURCE:-}
if [ -z "$source" ]; then
  cache=${MARIADB_CACHE:-$here/build/source}
  mkdir -p "$cache"
  cache=$(cd "$cache" && pwd)
  source=$cache/mariadb-$version
  [ -e "$source/VERSION" ] || download_source "$cache"
fi
[ -e "$source/sql/handler.h" ] || fail "$source is no source of MariaDB (no sql/handler.h)"
source=$(cd "$source" && pwd)
[ "$(source_version "$source")" = "$version" ] ||
  fail "the server is $version, the source in $source is $(source_version "$source")"

# ---- build ----

out=${out:-$here/build/$version${asan:+-asan}}
if [ -n "$clean" ]; then rm -rf "$out"; fi
mkdir -p "$out/generated" "$out/objects"
out=$(cd "$out" && pwd)
# One build at a time in this directory.
exec 9> "$out/lock"
flock 9

# sql_class.h needs a header that the build of the server generates from this file; without DTrace it has empty macros.
if [ ! -e "$out/generated/probes_mysql_nodtrace.h" ]; then
  cp "$source/include/probes_mysql.d.base" "$out/generated/probes_mysql.d"
  perl "$source/scripts/dheadgen.pl" -f "$out/generated/probes_mysql.d" > "$out/generated/probes_mysql_nodtrace.h.new"
  mv "$out/generated/probes_mysql_nodtrace.h.new" "$out/generated/probes_mysql_nodtrace.h"
fi

if [ -z "$bridge" ]; then
  target=${CARGO_TARGET_DIR:-$root/target}
  echo "building the engine (profile $profile)"
  (cd "$root" && CARGO_TARGET_DIR=$target cargo build --profile "$profile" -p perigeedb-mariadb-bridge) ||
    fail "the engine does not build"
  profile_dir=$profile
  if [ "$profile" = dev ]; then profile_dir=debug; fi
  bridge=$target/$profile_dir/libperigee_mariadb_bridge.a
fi
[ -e "$bridge" ] || fail "no library $bridge"

flags="-std=gnu++17 -g -fPIC -ffunction-sections -fdata-sections -Wall -Wextra -Wno-invalid-offsetof"
if [ -n "$asan" ]; then
  flags="$flags -O1 -fno-omit-frame-pointer -fsanitize=address"
else
  flags="$flags -O2"
fi
flags="$flags -DHAVE_CONFIG_H -DDBUG_OFF -DMYSQL_DYNAMIC_PLUGIN"
# The headers of the package first: their configuration and version are those of the server.
for dir in "$headers/server" "$source/include" "$source/sql" "$source/wsrep-lib/include" \
           "$source/wsrep-lib/wsrep-API/v26" "$out/generated"; do
  flags="$flags -isystem $dir"
done
flags="$flags ${CXXFLAGS:-}"

# The server fills in the pointers *_service of libmysqlservices, which it finds by name.
printf '{ global: _maria_*; _mysql_*; *_service; provider_service_*; print_check_msg_context; local: *; };\n' > "$out/exports.map"
# Written only if changed: everything is compiled again then.
command="$CXX $flags"
[ "$(cat "$out/command" 2>/dev/null || true)" = "$command" ] || printf '%s\n' "$command" > "$out/command"

cat > "$out/Makefile" <<MAKE
SOURCES := \$(wildcard $here/src/*.cc)
OBJECTS := \$(SOURCES:$here/src/%.cc=objects/%.o)
ha_perigee.so: \$(OBJECTS) $bridge exports.map command
	$CXX -shared ${asan:+-fsanitize=address} -o \$@.new \$(OBJECTS) $bridge -Wl,--version-script=exports.map -Wl,--exclude-libs,libperigee_mariadb_bridge.a -Wl,-Bsymbolic -Wl,--gc-sections -Wl,-soname,ha_perigee.so -lmysqlservices -lgcc_s -lpthread -lm -ldl
	mv \$@.new \$@
objects/%.o: $here/src/%.cc command
	@echo "compiling \$(notdir \$<)"
	@$command -MMD -MP -c -o \$@ \$<
-include \$(OBJECTS:.o=.d)
MAKE
make -C "$out" --no-print-directory --keep-going -j "$jobs" ha_perigee.so || fail "the plugin does not build"

# ---- the directory for --plugin-dir ----

system=$("$mariadbd" --no-defaults --verbose --help 2>/dev/null | awk '$1 == "plugin-dir" { print $2 }')
mkdir -p "$out/plugin-dir"
find "$out/plugin-dir" -type l -delete
for plugin in "$system"/*; do
  if [ -e "$plugin" ] && [ "${plugin##*/}" != ha_perigee.so ]; then ln -s "$plugin" "$out/plugin-dir/"; fi
done
ln -s ../ha_perigee.so "$out/plugin-dir/ha_perigee.so"

# A symbol that neither the server nor a library defines would only be found when the server loads the plugin.
loaded=$(ldd "$out/ha_perigee.so" | awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i }')
missing=$(comm -23 \
  <(nm -D --undefined-only "$out/ha_perigee.so" | awk '$1 == "U" { sub(/@.*/, "", $2); print $2 }' | sort -u) \
  <(for file in "$mariadbd" $loaded; do nm -D --defined-only "$file"; done | awk '{ sub(/@.*/, "", $NF); print $NF }' | sort -u))
[ -z "$missing" ] || fail "the server does not define: $(echo $missing)"

echo "$out/ha_perigee.so is built for MariaDB $version"
echo "start a server with --plugin-dir=$out/plugin-dir --plugin-load-add=ha_perigee"
if [ -n "$asan" ]; then
  echo "and LD_PRELOAD=$("$CXX" -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0:allow_user_poisoning=0 (or use mysql-test/run.sh --asan)"
fi
