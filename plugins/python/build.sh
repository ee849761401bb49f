#!/bin/sh
# Builds the wheel.
#
#   plugins/python/build.sh [DIR]        writes the wheel to DIR (default: plugins/python/dist)
#
# PYTHON             the interpreter (default: python3; at least 3.10)
# PROFILE            the cargo profile (default: release; `perf` builds faster and is not stripped)
# CARGO_TARGET_DIR   the build directory (default: plugins/python/target)
#
# The wheel is for every CPython from 3.10 on. For a free-threaded interpreter (PYTHON=python3.14t, or later) it is for that
# version.
# maturin is installed into the private virtual environment .venv-build if it is not on the PATH.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
profile=${PROFILE:-release}
mkdir -p "${1:-$here/dist}"
out=$(cd "${1:-$here/dist}" && pwd)
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$here/target}"

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "build.sh: $python is older than 3.10: set PYTHON to a newer interpreter" >&2
    exit 2
}
interpreter=$("$python" -c 'import sys; print(sys.executable)')
free_threaded=$("$python" -c 'import sysconfig; print(int(bool(sysconfig.get_config_var("Py_GIL_DISABLED"))))')
if [ "$free_threaded" = 1 ] && ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 14))'; then
    echo "build.sh: PyO3 supports free-threaded interpreters from 3.14 on, $python is older" >&2
    exit 2
fi

maturin=$(command -v maturin || true)
if [ -z "$maturin" ]; then
    venv="$here/.venv-build"
    if [ ! -x "$venv/bin/maturin" ]; then
        "$python" -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.9.4,<2'
    fi
    maturin="$venv/bin/maturin"
fi

features=
if [ "$free_threaded" = 1 ]; then
    features=--no-default-features # no stable interface for these interpreters before 3.15
fi
cd "$here"
"$maturin" build --profile "$profile" --interpreter "$interpreter" --out "$out" $features
ls -l "$out"/*.whl
