#!/bin/sh
# spider.sh [--engine PERIGEE|InnoDB] [--kills N]: a Spider head over three shards, compared with a table of one server; shards are
# killed with SIGKILL while transactions move amounts between them. Needs mariadb-plugin-spider.
exec python3 "$(cd "$(dirname "$0")" && pwd)/spider.py" "$@"
