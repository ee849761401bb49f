#!/bin/sh
# A private server with PERIGEE tables: loads a listing of the machine's files, shows EXPLAIN, space beside InnoDB, and
# kills the server with SIGKILL under load. Nothing outside DIR (default: a temporary directory) is changed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/demo.py" "$@"
