#!/usr/bin/env bash
# Backs up a server with PERIGEE, InnoDB and Aria tables at one point in time, or restores such a backup. See --help.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: backup.sh backup TARGET [OPTION...]     copies a running server into the new directory TARGET
       backup.sh restore TARGET DATADIR        puts a backup into the empty directory DATADIR (the server must not run)

The tables of InnoDB, Aria and MyISAM, the definitions of all tables and the position of the binary log are copied by
mariadb-backup. The PERIGEE tables are copied (on the same file system: hard-linked) by a checkpoint that the server
makes while mariadb-backup blocks commits, so that all engines are at the same point. TARGET is on the server's machine
and must be writable by the server.

OPTIONs are passed to mariadb-backup and to the client: --socket=FILE, --host=NAME, --user=NAME, --password=WORD,
--defaults-file=FILE (first).

Examples:
  backup.sh backup /backup/monday --user=root
  backup.sh restore /backup/monday /var/lib/mysql && chown -R mysql: /var/lib/mysql
TEXT
}

fail() {
  echo "backup.sh: $*" >&2
  exit 1
}

backup() {
  local target=$1
  shift
  [ ! -e "$target" ] || fail "$target exists: choose a new directory"
  mkdir -p "$target"
  target=$(cd "$target" && pwd)
  local client=(mariadb "$@" --batch --skip-column-names)
  # A quote in the name would end the string.
  case $target in *[\'\\]*) fail "the name of the target must not contain quotes or backslashes" ;; esac
  "${client[@]}" --execute "SET GLOBAL perigee_backup_directory = '$target/perigee'" || fail "the server does not answer, or has no PERIGEE"
  local status=0
  mariadb-backup "$@" --backup --target-dir="$target/server" > "$target/backup.log" 2>&1 || status=$?
  "${client[@]}" --execute "SET GLOBAL perigee_backup_directory = ''"
  [ $status -eq 0 ] || fail "mariadb-backup failed: see $target/backup.log"
  [ -d "$target/perigee" ] || fail "the server made no checkpoint: see its error log"
  mariadb-backup --prepare --target-dir="$target/server" >> "$target/backup.log" 2>&1 || fail "mariadb-backup --prepare failed: see $target/backup.log"
  echo "backup.sh: $target is complete"
}

restore() {
  local target=$1 data=$2
  [ -d "$target/server" ] && [ -d "$target/perigee" ] || fail "$target is no complete backup"
  mkdir -p "$data"
  [ -z "$(ls -A "$data")" ] || fail "$data is not empty"
  mariadb-backup --no-defaults --copy-back --target-dir="$target/server" --datadir="$data" > "$data.restore.log" 2>&1 ||
    fail "mariadb-backup --copy-back failed: see $data.restore.log"
  cp -a "$target/perigee" "$data/#perigee"
  rm -f "$data.restore.log"
  echo "backup.sh: $data is restored"
}

case ${1:-} in
  backup) [ $# -ge 2 ] || fail "no target (see --help)"; shift; backup "$@" ;;
  restore) [ $# -eq 3 ] || fail "restore needs a backup and a data directory (see --help)"; restore "$2" "$3" ;;
  --help|-h) usage ;;
  *) usage >&2; exit 2 ;;
esac
