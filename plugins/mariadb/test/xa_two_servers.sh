#!/bin/sh
# xa_two_servers.sh ROUNDS [--engines PERIGEE,InnoDB] [--binlog] [--workers N] [--seed N] [--break decision|forgotten|balance]
# Transfers between two servers by XA; one or both are killed with SIGKILL, and the coordinator's log decides what is left.
# xa_two_servers.sh --self-test: the verifier must accept InnoDB and report each seeded fault.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" = --self-test ]; then
  python3 "$here/xa_two_servers.py" 5 --engines InnoDB,InnoDB
  for fault in decision forgotten balance; do
    python3 "$here/xa_two_servers.py" 1 --engines InnoDB,InnoDB --break "$fault"
  done
  exit 0
fi
exec python3 "$here/xa_two_servers.py" "$@"
