#!/bin/sh
# Index builds under load: online_ddl.sh [--seconds N] [--kills N] [--writers N] [--rows N] [--seed N] [--engine InnoDB]
set -eu
exec python3 "$(dirname "$0")/online_ddl.py" "$@"
