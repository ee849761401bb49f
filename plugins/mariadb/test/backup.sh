#!/bin/sh
# backup.sh [--rounds N]: backs up a server under load with ../backup.sh, restores the backup, and compares. Transactions change
# a PERIGEE and an InnoDB table together, so that a backup with the engines at different points is detected.
exec python3 "$(cd "$(dirname "$0")" && pwd)/backup.py" "$@"
