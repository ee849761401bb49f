#!/bin/sh
# Builds the native module into this directory: perigeedb.PLATFORM-ARCH.node, stripped. Needs
# Rust 1.89, a C compiler and Node 20.
# PROFILE=perf builds without link-time optimization, in a quarter of the time.
set -eu
cd "$(dirname "$0")"
profile=${PROFILE:-release}
target=${CARGO_TARGET_DIR:-$PWD/target}
cargo build --locked --profile "$profile"
name=perigeedb.$(node -p 'process.platform + "-" + process.arch').node
if [ "$(node -p 'process.platform')" = linux ] && ldd --version 2>&1 | grep -qi musl; then
    name=${name%.node}-musl.node
fi
case $(uname -s) in
Darwin) library=libperigeedb_node.dylib ;;
*) library=libperigeedb_node.so ;;
esac
# Replaced, not overwritten: a process may have loaded the old one.
cp "$target/$profile/$library" "$name.new"
strip "$name.new"
mv "$name.new" "$name"
echo "built $PWD/$name ($(($(wc -c < "$name") / 1024)) KiB)"
