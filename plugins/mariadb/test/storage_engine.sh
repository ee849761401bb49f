#!/bin/sh
# Runs MariaDB's suite storage_engine (with trx and parts) with InnoDB, takes its results as the expected ones, runs it with
# PERIGEE, and prints the tests that differ: storage_engine.sh [TEST...]
# The recorded results of the suite are out of date, also for InnoDB. DIFFERENCES.md lists the reason of every difference.
#
# PERIGEE_PLUGIN_DIR  directory that contains ha_perigee.so (default: the build of build.sh for the installed server)
# WORK                for servers and logs (default: /tmp/perigee_storage_engine)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/suite_paths.sh"
work=${WORK:-/tmp/perigee_storage_engine}
# These wait for table locks that engines with row locks do not have, or fail in the server.
unsuitable="delete_low_prio insert_high_prio insert_low_prio select_high_prio update_low_prio insert_delayed lock_concurrent"

prepare() { # ENGINE OPTIONS
  view=$work/$1/storage_engine
  rm -rf "$view"
  mkdir -p "$work/$1"
  cp -r "$mtr_dir/suite/storage_engine" "$view"
  for test in $unsuitable; do rm -f "$view/$test.test"; done
  printf 'let $ENGINE = %s;\n' "$1" > "$view/define_engine.inc"
  for dir in "$view" "$view/trx" "$view/parts"; do
    echo "--innodb --partition --innodb-lock-wait-timeout=1 --default-storage-engine=$1 $2" > "$dir/suite.opt"
  done
}

run() { # ENGINE, more arguments of mysql-test-run
  view=$work/$1/storage_engine
  log=$work/$1.log
  engine=$1
  shift
  (cd "$mtr_dir" && perl ./mtr --vardir="$work/var_$engine" --suite="$view,$view/trx,$view/parts" --force --max-test-fail=0 --retry=0 \
    --parallel=2 --testcase-timeout=3 "$@") > "$log" 2>&1 || true
  sed -n "s,^$work/$engine/storage_engine/*\\([^ ]*\\) .*\\[ \\(pass\\|fail\\|skipped\\|disabled\\) \\].*,\\1 \\2,p" "$log" |
    sed -e "s/ '[a-z]*'//" -e 's/^\.//' | sort -u > "$work/$engine.results"
  echo "storage_engine with $engine: $(grep -c ' pass$' "$work/$engine.results" || true) pass, $(grep -c ' fail$' "$work/$engine.results" || true) fail, $(grep -c ' \(skipped\|disabled\)$' "$work/$engine.results" || true) skipped or disabled"
}

prepare InnoDB ""
# mysql-test-run records only tests that are named.
names=$*
[ -n "$names" ] || names=$(cd "$work/InnoDB/storage_engine" && ls ./*.test trx/*.test parts/*.test | sed 's|.*/||; s|\.test$||' | sort -u)
run InnoDB --record $names
prepare PERIGEE "--plugin-dir=$plugin --plugin-load-add=ha_perigee.so --perigee-lock-wait-timeout=1"
for dir in . trx parts; do
  cp "$work/InnoDB/storage_engine/$dir"/*.result "$work/PERIGEE/storage_engine/$dir/"
done
run PERIGEE $names
join -j 1 "$work/InnoDB.results" "$work/PERIGEE.results" | awk '$2 != $3 {print "  " $1 ": InnoDB " $2 ", PERIGEE " $3}' > "$work/differences"
cat "$work/differences"
echo "logs: $work"
! grep -q 'InnoDB pass, PERIGEE fail' "$work/differences"
