#!/bin/sh
# Packs the package, installs the tarball in a new project, and runs all tests and examples there.
# Needs the native module (build.sh).
set -eu
cd "$(dirname "$0")"
here=$PWD
ls perigeedb.*.node > /dev/null 2>&1 || { echo "no native module: run build.sh first" >&2; exit 1; }
project=$(mktemp -d)
trap 'rm -rf "$project"' EXIT
tarball=$(npm pack --silent --pack-destination "$project")
cd "$project"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund "./$tarball" tape@5 typescript@5 @types/node@20
cp -r "$here/test" "$here/examples" "$here/README.md" .
size=$(du -sh node_modules/perigeedb | cut -f1)
echo "== node $(node --version), installed in $project: $size"
node --test test/*.test.mjs
echo "== suite of abstract-level $(node -p 'require("abstract-level/package.json").version')"
if ! npx --no-install tape test/level.cjs > level.tap; then
    grep -A 12 '^not ok' level.tap
    tail -4 level.tap
    exit 1
fi
tail -4 level.tap
for example in examples/*.mjs; do
    echo "== $example"
    node "$example"
done
