#!/bin/sh
# Installs the wheel into a fresh virtual environment and runs the tests in it.
#
#   plugins/python/test.sh [WHEEL] [pytest arguments]
#
# WHEEL    the wheel (default: the newest in plugins/python/dist; build.sh writes it)
# PYTHON   the interpreter (default: python3; at least 3.10)
# The tests of types need mypy, which is installed with pytest into the environment.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
case "${1:-}" in
*.whl) wheel=$1 && shift ;;
*) wheel=$(ls -t "$here"/dist/*.whl 2>/dev/null | head -1) ;;
esac
[ -n "$wheel" ] || { echo "test.sh: there is no wheel: run plugins/python/build.sh first" >&2; exit 2; }
wheel=$(cd "$(dirname "$wheel")" && pwd)/$(basename "$wheel")

venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT INT TERM
"$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check "$wheel" pytest mypy
cd "$here" # the configuration of pytest and mypy
"$venv/bin/python" -m pytest tests "$@"
