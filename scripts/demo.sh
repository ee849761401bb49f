#!/bin/sh
# The demo: import a real tree, kill the import halfway, recover, finish, compare every byte, verify.
#
#   scripts/demo.sh                      the Rust toolchain and crates found on this machine
#   DEMO_DIR=~/photos scripts/demo.sh    another tree
#   DEMO_DB=/mnt/disk/demo scripts/demo.sh    where the database goes (default: the temporary directory)
#
# Builds the tool if it has to. All the work is `perigee demo`; see its --help.
set -eu
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-target}"
cargo build --release --locked -p perigee-cli
if [ -n "${DEMO_DB:-}" ]; then
    exec "$target/release/perigee" demo --db "$DEMO_DB"
fi
exec "$target/release/perigee" demo
