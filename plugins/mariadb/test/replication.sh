#!/bin/sh
# replication.sh [--engine PERIGEE|InnoDB] [--rounds N] [--parallel N] [--mode optimistic|aggressive|conservative] [--hot-rows N]:
# a primary and two replicas with GTID and row format under load;
# a replica is killed with SIGKILL N times, then the primary, and a replica is promoted. Checksums must agree.
exec python3 "$(cd "$(dirname "$0")" && pwd)/replication.py" "$@"
