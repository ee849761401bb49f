#!/bin/sh
# online_alter.sh [--engine PERIGEE|InnoDB]: ALTER TABLE by copy with LOCK=NONE (MariaDB 11.2 and later) under concurrent writes.
exec python3 "$(cd "$(dirname "$0")" && pwd)/online_alter.py" "$@"
