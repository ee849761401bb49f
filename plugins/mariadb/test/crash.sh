#!/bin/sh
# SIGKILL under load: crash.sh ROUNDS [binlog|nobinlog|xa] [--engine InnoDB] [--ddl] [--seed N] [--break row|balance|binlog]
# crash.sh --self-test: the verifier must accept InnoDB and report each seeded fault.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" = --self-test ]; then
  python3 "$here/crash.py" 3 binlog --engine InnoDB
  python3 "$here/crash.py" 3 xa --engine InnoDB
  # Without a binary log to compare with, the acknowledgements and the invariants must report.
  for fault in row balance; do
    python3 "$here/crash.py" 1 nobinlog --engine InnoDB --break "$fault" --seconds 1
  done
  for fault in binlog; do
    python3 "$here/crash.py" 1 binlog --engine InnoDB --break "$fault" --seconds 1
  done
  exit 0
fi
exec python3 "$here/crash.py" "$@"
