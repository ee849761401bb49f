#!/usr/bin/env bash
# Installs Perigee as its users do, each in an empty place, and measures how long that takes:
#
#   tools/reach.sh [--in TREE] [--artifacts DIRECTORY] [STEP...]
#
# Steps: rust (a new project with the packaged crates), python (the wheel in a fresh virtual environment), node (the packed npm
# package in a fresh project), c (a C program against the installed library), deb (installs the Debian package, compiles a C program,
# removes the package). Without STEP all of them. A step for which a tool is missing is reported as skipped.
#
#   --in TREE             run the steps in this Debian tree (debootstrap), as root, instead of on this machine
#   --artifacts DIRECTORY what `make reach` has built (default: target/reach): crates/, *.whl, *.tgz, *.deb, c/
#
# Exit code: 0 if no step failed.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
artifacts=$root/target/reach tree='' steps=()
while [ $# -gt 0 ]; do
  case $1 in
    --in) tree=${2:?--in needs a directory}; shift ;;
    --artifacts) artifacts=${2:?--artifacts needs a directory}; shift ;;
    -h|--help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    -*) echo "reach.sh: unknown option $1" >&2; exit 2 ;;
    *) steps+=("$1") ;;
  esac
  shift
done
[ ${#steps[@]} -gt 0 ] || steps=(rust python node c deb)
artifacts=$(cd "$artifacts" && pwd)

if [ -n "$tree" ]; then
  # The tree sees the artifacts, this script, the Rust toolchain (Debian's is too old) and npm, read-only.
  tree=$(cd "$tree" && pwd)
  points=()
  trap 'for point in "${points[@]}"; do umount "$point"; done' EXIT
  see() {
    mkdir -p "$tree/$2"
    mount --bind -o ro "$1" "$tree/$2"
    points=("$tree/$2" "${points[@]}")
  }
  see "$artifacts" artifacts
  see "$root/tools" tools
  see "${RUSTUP_HOME:-$HOME/.rustup}" rust/rustup
  see "${CARGO_HOME:-$HOME/.cargo}/bin" rust/bin
  if [ -d /usr/lib/node_modules/npm ] && [ ! -e "$tree/usr/bin/npm" ]; then see /usr/lib/node_modules/npm npm; fi
  mount -t proc proc "$tree/proc"
  points=("$tree/proc" "${points[@]}")
  cp /etc/resolv.conf "$tree/etc/resolv.conf"
  if [ -e "${CARGO_HOME:-$HOME/.cargo}/config.toml" ]; then
    mkdir -p "$tree/root/.cargo"
    cp "${CARGO_HOME:-$HOME/.cargo}/config.toml" "$tree/root/.cargo/"
  fi
  for file in /etc/pip.conf /etc/npmrc; do
    if [ -e "$file" ]; then cp "$file" "$tree/etc/"; fi
  done
  # A mirror of this machine may have a certificate of its own.
  if [ -d /usr/local/share/ca-certificates ]; then
    mkdir -p "$tree/usr/local/share/ca-certificates"
    cp -r /usr/local/share/ca-certificates/. "$tree/usr/local/share/ca-certificates/"
    chroot "$tree" update-ca-certificates > /dev/null 2>&1 || true
  fi
  chroot "$tree" /usr/bin/env PATH=/rust/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
    RUSTUP_HOME=/rust/rustup HOME=/root /tools/reach.sh --artifacts /artifacts "${steps[@]}"
  exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm() {
  if [ -e /npm/bin/npm-cli.js ]; then node /npm/bin/npm-cli.js "$@"; else command npm "$@"; fi
}

rust() {
  command -v cargo > /dev/null && command -v cc > /dev/null || return 77
  cd "$work"
  cargo new --quiet moon
  cd moon
  # As `cargo add perigeedb` from a registry: the packaged crates stand in for it.
  { echo '[patch.crates-io]'
    for crate in "$artifacts"/crates/perigeedb*/; do
      name=$(basename "$crate" | sed 's/-[0-9.]*$//')
      echo "$name = { path = \"$crate\" }"
    done; } >> Cargo.toml
  sed -i 's/^\[dependencies\]/&\nperigeedb = "0.1"/' Cargo.toml
  sed -n '/^```rust,no_run$/,/^```$/{/^```/d;p}' "$artifacts"/crates/perigeedb-[0-9]*/README.md > src/main.rs
  # No C compiler: only the linker is needed.
  CC=/bin/false CXX=/bin/false cargo run --quiet
  [ -d moon.db ]
}

python() {
  local wheel
  wheel=$(ls "$artifacts"/*.whl) || return 77
  python3 -m venv "$work/venv" || return 77
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check "$wheel"
  cd "$work"
  "$work/venv/bin/python" - <<'END'
import perigeedb
with perigeedb.open("moon.db") as db:
    db["moon"] = b"full"
    assert db["moon"] == b"full" and "sun" not in db
    with db.transaction() as txn:
        txn["06:12"] = b"high"
    assert [key for key, value in db["06":"07"]] == [b"06:12"]
END
}

node_() {
  command -v node > /dev/null || return 77
  local package
  package=$(ls "$artifacts"/*.tgz) || return 77
  mkdir "$work/node"
  cd "$work/node"
  echo '{ "name": "moon", "private": true }' > package.json
  npm install --silent --no-audit --no-fund "$package"
  cat > moon.mjs <<'END'
import { Database } from 'perigeedb'
const db = await Database.open('moon.db')
await db.put('moon', 'full')
if (String(await db.get('moon')) !== 'full') throw new Error('moon is not full')
for await (const [key] of db.range({ gte: 'a' })) if (String(key) !== 'moon') throw new Error('another key')
await db.close()
END
  node moon.mjs
}

c_program() {
  cat > "$work/moon.c" <<'END'
#include <perigee.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  perigee_error *error;
  perigee_db *db;
  perigee_family *family;
  void *value;
  size_t size;

  if (perigee_db_open(argv[argc - 1], NULL, &db, &error) ||
      perigee_db_default_family(db, &family, &error) ||
      perigee_put(family, "moon", 4, "full", 4, &error) ||
      perigee_get(family, NULL, "moon", 4, &value, &size, &error)) {
    fprintf(stderr, "%s\n", perigee_error_text(error));
    return 1;
  }
  printf("perigee %s: moon is %.*s\n", perigee_library_version(), (int)size, (const char *)value);
  return size != 4 || memcmp(value, "full", 4) != 0;
}
END
  # shellcheck disable=SC2046
  cc -Wall -Werror -o "$work/c_moon" "$work/moon.c" $(pkg-config --cflags --libs perigee)
  "$work/c_moon" "$work/c.db"
}

c() {
  [ -d "$artifacts/c" ] && command -v cc > /dev/null && command -v pkg-config > /dev/null || return 77
  PKG_CONFIG_PATH=$artifacts/c/lib/pkgconfig \
    LD_LIBRARY_PATH=$artifacts/c/lib CPATH=$artifacts/c/include LIBRARY_PATH=$artifacts/c/lib c_program
}

deb() {
  local package
  package=$(ls "$artifacts"/*.deb) || return 77
  [ "$(id -u)" = 0 ] && [ -d /artifacts ] || return 77 # only in a tree of its own
  dpkg -i "$package" > "$work/dpkg.log" || { cat "$work/dpkg.log"; return 1; }
  c_program
  perigee put "$work/moon.db" moon full
  [ "$(perigee get "$work/moon.db" moon)" = full ]
  dpkg -r perigee > /dev/null
  [ ! -e /usr/bin/perigee ]
}

failed=0
for step in "${steps[@]}"; do
  name=$step
  if [ "$step" = node ]; then name=node_; fi
  if ! declare -F "$name" > /dev/null; then echo "reach.sh: no step $step" >&2; exit 2; fi
  start=$(date +%s.%N)
  # Not in a condition, which would turn `set -e` off.
  set +e
  (set -e; "$name") > "$work/$step.log" 2>&1
  code=$?
  set -e
  took=$(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "%5.1f s", b - a }')
  case $code in
    0) echo "ok       $step  $took" ;;
    77) echo "skipped  $step" ;;
    *) echo "FAILED   $step  $took"; sed 's/^/    /' "$work/$step.log"; failed=1 ;;
  esac
done
exit $failed
