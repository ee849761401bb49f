#!/bin/sh
# sysbench.sh THREADS SECONDS ROWS [ENGINE...] [--rounds N] [--binlog] [--memory MiB] [--workloads A,B] [--json FILE]
# Default engines: InnoDB PERIGEE. ROCKSDB needs mariadb-plugin-rocksdb.
set -eu
command -v sysbench >/dev/null || { echo "sysbench is not installed (apt-get install sysbench)" >&2; exit 2; }
exec python3 "$(cd "$(dirname "$0")" && pwd)/sysbench.py" "$@"
