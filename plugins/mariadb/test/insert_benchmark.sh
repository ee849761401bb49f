#!/bin/sh
# insert_benchmark.sh [ENGINE...] [--seconds N] [--rows N] [--rate N] [--delete range|limit] [--binlog] [--json FILE] [--html FILE]
# Inserts at the head, deletes at the tail, queries at the deleted end; ends with status 1 if the table is not consistent.
# --help shows all options.
set -eu
exec python3 "$(cd "$(dirname "$0")" && pwd)/insert_benchmark.py" "$@"
