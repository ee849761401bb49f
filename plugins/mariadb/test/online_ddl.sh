#!/bin/sh
# Index builds under load: online_ddl.sh [--seconds N] [--kills N] [--writers N] [--rows N] [--seed N] [--engine InnoDB]
# online_ddl.sh --measure ROWS [--engine InnoDB]: transactions per second before, during and after one build
set -eu
exec python3 "$(dirname "$0")/online_ddl.py" "$@"
