#!/bin/sh
# sysbench.sh THREADS[,THREADS...] SECONDS ROWS [ENGINE...] [--rounds N] [--binlog on|off|both] [--memory MiB] [--limit MiB]
#   [--workloads A,B] [--keep DIR] [--json FILE] [--html FILE]; --help shows all options.
# Default engines: InnoDB PERIGEE. ROCKSDB needs mariadb-plugin-rocksdb, TIDESDB the directory TIDESDB_PLUGIN_DIR.
set -eu
command -v sysbench >/dev/null || { echo "sysbench is not installed (apt-get install sysbench)" >&2; exit 2; }
exec python3 "$(cd "$(dirname "$0")" && pwd)/sysbench.py" "$@"
