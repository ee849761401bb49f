#!/bin/sh
# tpcc.sh [ENGINE...] [--warehouses N] [--threads N] [--seconds N] [--rounds N] [--binlog] [--keep DIR] [--json FILE] [--html FILE]
# A workload like TPC-C with checks of consistency; ends with status 1 if one fails. --self-test tests the checks; --help shows all options.
set -eu
command -v sysbench >/dev/null || { echo "sysbench is not installed (apt-get install sysbench)" >&2; exit 2; }
exec python3 "$(cd "$(dirname "$0")" && pwd)/tpcc.py" "$@"
